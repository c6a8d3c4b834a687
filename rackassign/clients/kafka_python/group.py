"""A join, as kafka-python hands it to the leader's assignor, made into a `Group`.

What other members sent may be odd without being unreadable: a null where a list is expected, the same topic or
partition twice, a negative id. Such parts are left out here, because one member's mistake must not cost the group
its assignment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from rackassign.clients.kafka_python import host
from rackassign.model import Group, Member


class JoinedMember(Protocol):
    """What kafka-python's JoinGroup response holds for each member."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


def group_of(cluster: host.Cluster, joined: Iterable[JoinedMember]) -> Group:
    """Return the members of a join and the part of the live topology that they subscribe to."""
    members = tuple(_member(member) for member in joined)
    topics = sorted(set[str]().union(*(member.topics for member in members)))
    return Group(host.topology(cluster, topics), members)


def subscribed_topics(joined: JoinedMember) -> frozenset[str]:
    """Return the topics of a member, whatever it sent."""
    return frozenset(topic for topic in joined.metadata.topics or () if isinstance(topic, str))


def _member(joined: JoinedMember) -> Member:
    subscription = joined.metadata
    rack, generation = subscription.rack_id, subscription.generation_id
    owned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in subscription.owned_partitions or ():
        claims = {p for p in partitions or () if isinstance(p, int) and p >= 0}
        owned[topic] = tuple(sorted(claims.union(owned.get(topic, ()))))
    return Member(
        id=joined.member_id,
        topics=subscribed_topics(joined),
        rack=rack if isinstance(rack, str) else None,
        instance_id=joined.group_instance_id,
        owned=owned,
        generation=generation if isinstance(generation, int) and generation >= 0 else None,
    )
