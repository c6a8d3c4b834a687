"""A join, as kafka-python hands it to the leader's assignor, made into a `Group`.

What other members sent may be odd without being unreadable: a null where a list is expected, the same topic or
partition twice, a negative id. Such parts are left out here, because one member's mistake must not cost the group
its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rackassign.clients.kafka_python import host
from rackassign.model import Group, Member, Partitions
from rackassign.wire import decode_generation


class JoinedMember(Protocol):
    """What kafka-python's JoinGroup response holds for each member."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


Claims = Callable[[Any], tuple[Partitions, int | None]]
"""What a decoded subscription says the member owned, and in which generation."""


def group_of(cluster: host.Cluster, joined: Iterable[JoinedMember], claims: Claims | None = None) -> Group:
    """Return the members of a join and the part of the live topology that they subscribe to.

    Args:
        cluster: kafka-python's live view.
        joined: The members.
        claims: Where they say what they owned; the fields of the subscription if left out.
    """
    members = tuple(_member(member, claims or claims_in_fields) for member in joined)
    topics = sorted(set[str]().union(*(member.topics for member in members)))
    return Group(host.topology(cluster, topics), members)


def subscribed_topics(joined: JoinedMember) -> frozenset[str]:
    """Return the topics of a member, whatever it sent."""
    return frozenset(topic for topic in joined.metadata.topics or () if isinstance(topic, str))


def claims_in_fields(subscription: Any) -> tuple[Partitions, int | None]:  # noqa: ANN401 - the host is untyped
    """Read the claims of cooperative members: the owned partitions and their generation (KIP-429, KIP-792)."""
    owned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in subscription.owned_partitions or ():
        claims = {p for p in partitions or () if isinstance(p, int) and p >= 0}
        owned[topic] = tuple(sorted(claims.union(owned.get(topic, ()))))
    generation = subscription.generation_id
    if not isinstance(generation, int) or generation < 0:
        # Java's members of before KIP-792 have it in their user data.
        generation = decode_generation(subscription.user_data)
    return owned, generation


def _member(joined: JoinedMember, claims: Claims) -> Member:
    rack = joined.metadata.rack_id
    owned, generation = claims(joined.metadata)
    return Member(
        id=joined.member_id,
        topics=subscribed_topics(joined),
        rack=rack if isinstance(rack, str) else None,
        instance_id=joined.group_instance_id,
        owned=owned,
        generation=generation,
    )
