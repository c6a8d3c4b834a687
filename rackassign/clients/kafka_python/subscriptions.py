"""A join, as kafka-python passes it to the leader's assignor, with the subscription of each member.

Metadata of other members may be valid but inconsistent: a null where a list is expected. Such parts are omitted here,
because one member's error must not cost the group its assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from rackassign.assignor.subscriptions import JoinContext, JoinMember
from rackassign.wire import Subscription


class KafkaPythonMember(Protocol):
    """A member in kafka-python's JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


def join_members(members: Sequence[KafkaPythonMember]) -> list[JoinMember]:
    """Return the members of a join.

    Args:
        members: Members as decoded by kafka-python. Of a `JoinContext` its own subscriptions are used.
    """
    if isinstance(members, JoinContext):
        return _decoded(members)
    return [JoinMember(m.member_id, m.group_instance_id, _subscription(m.metadata)) for m in members]


def join_members_minimal(members: Sequence[KafkaPythonMember]) -> list[JoinMember]:
    """Return the members of a join with only those parts of their subscriptions that an assignment needs."""
    if isinstance(members, JoinContext):
        return _decoded(members)
    found: list[JoinMember] = []
    for member in members:
        subscription = Subscription(_topics(member.metadata))
        with suppress(Exception):
            subscription = _subscription(member.metadata)
        found.append(JoinMember(member.member_id, member.group_instance_id, subscription))
    return found


def _decoded(join: JoinContext[KafkaPythonMember]) -> list[JoinMember]:
    read = join.subscriptions
    return [JoinMember(m.member_id, m.group_instance_id, read[m.member_id]) for m in join.joined]


def _topics(metadata: Any) -> tuple[str, ...]:  # noqa: ANN401 - kafka-python is untyped
    return tuple(topic for topic in metadata.topics or () if isinstance(topic, str))


def _subscription(metadata: Any) -> Subscription:  # noqa: ANN401 - kafka-python is untyped
    """Return the subscription that kafka-python has decoded."""
    owned: dict[str, list[int]] = {}
    for topic, partitions in metadata.owned_partitions or ():
        owned.setdefault(topic, []).extend(p for p in partitions or () if isinstance(p, int))
    rack, generation, user_data = metadata.rack_id, metadata.generation_id, metadata.user_data
    return Subscription(
        topics=_topics(metadata),
        user_data=user_data if isinstance(user_data, bytes) else None,
        owned={topic: tuple(ids) for topic, ids in owned.items()},
        generation=generation if isinstance(generation, int) else -1,
        rack=(rack or None) if isinstance(rack, str) else None,
    )
