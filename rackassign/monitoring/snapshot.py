"""A live group of any client as a scenario, the input of strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rackassign.model import Group, Member, Partitions, TopicPartition, Topology
from rackassign.monitoring.groups import GroupDescription, MemberDescription
from rackassign.monitoring.rack_map import RackMap


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group as it is.

    Args:
        live: The description by its coordinator.
        group: The group as a scenario, with the racks that members report, or those of the rack map.
        rack_map_members: IDs of members whose rack is only in the rack map: their group leader does not receive it.
        leaders_only: IDs of members in the rack map that always read from leaders.
    """

    live: GroupDescription
    group: Group
    rack_map_members: frozenset[str]
    leaders_only: frozenset[str] = frozenset()

    @property
    def foreign_racks(self) -> dict[str, str]:
        """Return the rack of each member, by its ID, whose rack is that of no broker, while brokers have racks.

        Such a name is more often misspelled, or of another naming scheme, than that of a place without brokers. So it
        is unknown where these members are.
        """
        racks = set(self.group.topology.broker_racks().values())
        return {m.id: m.rack for m in self.group.members if racks and m.rack is not None and m.rack not in racks}

    @property
    def unknown(self) -> tuple[MemberDescription, ...]:
        """Return the members of unknown rack: without one, or with one that no broker has."""
        known = {m.id for m in self.group.members if m.rack is not None} - self.foreign_racks.keys()
        return tuple(member for member in self.live.members if member.id not in known)

    def without_foreign_racks(self) -> Snapshot:
        """Return the snapshot in which the members with a rack that no broker has are in none."""
        foreign = self.foreign_racks
        members = tuple(replace(m, rack=None) if m.id in foreign else m for m in self.group.members)
        mapped = self.rack_map_members - foreign.keys()
        return replace(self, group=replace(self.group, members=members), rack_map_members=mapped)

    def as_leader_sees(self) -> Group:
        """Return the group as its leader sees it: only with the racks that members report."""
        members = tuple(replace(m, rack=None) if m.id in self.rack_map_members else m for m in self.group.members)
        return replace(self.group, members=members)


def topics_of(live: GroupDescription) -> frozenset[str]:
    """Return all topics that members subscribe to or have partitions of."""
    return frozenset().union(*_topics(live))


def assigned_partitions(shot: Snapshot) -> tuple[TopicPartition, ...]:
    """Return all partitions that members have, each once."""
    owned = {(topic, i) for member in shot.group.members for topic, ids in member.owned.items() for i in ids}
    return tuple(TopicPartition(*tp) for tp in sorted(owned))


def snapshot(live: GroupDescription, topology: Topology, racks: RackMap) -> Snapshot:
    """Return a live group as a scenario.

    Args:
        live: The description by its coordinator.
        topology: Topology of the cluster; topics that the group does not subscribe to are left out.
        racks: Racks of members that report none.
    """
    members, mapped, topics = [], set(), _topics(live)
    for member, subscribed in zip(live.members, topics, strict=True):
        rack = member.rack
        if rack is None:
            rack = racks.rack_of(member.client_id, member.host)
            if rack is not None:
                mapped.add(member.id)
        members.append(
            Member(
                member.id,
                subscribed,
                rack=rack,
                instance_id=member.instance_id,
                owned=_clean(member.assigned),
            )
        )
    wanted = frozenset[str]().union(*topics)
    known = {topic: row for topic, row in topology.topics.items() if topic in wanted}
    group = Group(replace(topology, topics=known), tuple(members), name=live.name)
    leaders_only = frozenset(m.id for m in live.members if m.id in mapped and not racks.reads_near(m.client_id))
    return Snapshot(live, group, frozenset(mapped), leaders_only)


def _topics(live: GroupDescription) -> list[frozenset[str]]:
    """Return the topics that each member subscribes to or has partitions of."""
    # Only the broker can evaluate a pattern; it matches at least what all members with the same pattern have.
    matched: dict[str, set[str]] = {}
    for member in live.members:
        if member.pattern:
            matched.setdefault(member.pattern, set()).update(member.assigned)
    return [
        frozenset(() if member.subscription is None else member.subscription.topics).union(
            member.assigned, matched.get(member.pattern, ())
        )
        for member in live.members
    ]


def _clean(assigned: Mapping[str, tuple[int, ...]]) -> Partitions:
    """Return the partitions of a member; a leader may send a partition twice, or an invalid one."""
    return {topic: tuple(sorted({p for p in ids if p >= 0})) for topic, ids in sorted(assigned.items())}
