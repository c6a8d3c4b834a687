"""A join, as kafka-python hands it to the leader's assignor, made into a `Group`.

What other members sent may be odd without being unreadable: a null where a list is expected, the same topic or
partition twice, a negative id. Such parts are left out here, because one member's mistake must not cost the group
its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from rackassign.clients.kafka_python import host
from rackassign.errors import InputError
from rackassign.model import Group, Member, Partitions
from rackassign.wire import Subscription, decode_generation


class HostMember(Protocol):
    """What kafka-python's JoinGroup response holds for each member."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


@dataclass(frozen=True, slots=True)
class Joined:
    """A member of a join.

    Args:
        id: Member id.
        instance_id: `group.instance.id` of a static member.
        subscription: What it sent.
    """

    id: str
    instance_id: str | None
    subscription: Subscription


Claims = Callable[[Subscription], tuple[Partitions, int | None]]
"""What a subscription says the member owned, and in which generation."""


def joined(members: Iterable[HostMember], read: Mapping[str, Subscription]) -> list[Joined]:
    """Return the members of a join.

    Args:
        members: As the host has them.
        read: Subscriptions that were read already, by member; the host's own reading is used for the others.
    """
    return [
        Joined(m.member_id, m.group_instance_id, read.get(m.member_id) or _subscription(m.metadata)) for m in members
    ]


def barely_joined(members: Iterable[HostMember], read: Mapping[str, Subscription]) -> list[Joined]:
    """Return the members of a join with as little of their subscriptions as an assignment needs."""
    found: list[Joined] = []
    for member in members:
        subscription = Subscription(_topics(member.metadata))
        with suppress(Exception):
            subscription = read.get(member.member_id) or _subscription(member.metadata)
        found.append(Joined(member.member_id, member.group_instance_id, subscription))
    return found


def group_of(cluster: host.Cluster, members: Iterable[Joined], claims: Claims | None = None) -> Group:
    """Return the members of a join and the part of the live topology that they subscribe to.

    Args:
        cluster: kafka-python's live view.
        members: The join.
        claims: Where they say what they owned; the fields of the subscription if left out.
    """
    # Members with equal subscriptions share one set, which then has to be hashed once.
    topics: dict[tuple[str, ...], frozenset[str]] = {}
    made = tuple(_member(member, claims or claims_in_fields, topics) for member in members)
    return Group(host.topology(cluster, sorted(frozenset().union(*topics.values()))), made)


def member_of(joined: Joined) -> Member:
    """Return one member as the model has it, with the claims in its fields."""
    return _member(joined, claims_in_fields, {})


def claims_in_fields(subscription: Subscription) -> tuple[Partitions, int | None]:
    """Read the claims of cooperative members: the owned partitions and their generation (KIP-429, KIP-792)."""
    if subscription.generation >= 0:
        return subscription.owned, subscription.generation
    # Members of before KIP-792 have it in their user data.
    return subscription.owned, decode_generation(subscription.user_data)


def _member(joined: Joined, claims: Claims, topics: dict[tuple[str, ...], frozenset[str]]) -> Member:
    subscription = joined.subscription
    if subscription.topics not in topics:
        topics[subscription.topics] = frozenset(subscription.topics)
    owned, generation = claims(subscription)
    member = partial(
        Member,
        id=joined.id,
        topics=topics[subscription.topics],
        rack=subscription.rack,
        instance_id=joined.instance_id,
        generation=generation,
    )
    try:
        return member(owned=owned)
    except InputError:
        # A partition twice, or a negative one: the member checks itself, so nobody else need look first.
        return member(owned={topic: tuple(sorted({p for p in ids if p >= 0})) for topic, ids in owned.items()})


def _topics(metadata: Any) -> tuple[str, ...]:  # noqa: ANN401 - the host is untyped
    return tuple(topic for topic in metadata.topics or () if isinstance(topic, str))


def _subscription(metadata: Any) -> Subscription:  # noqa: ANN401 - the host is untyped
    """Return what the host has read of a subscription."""
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
