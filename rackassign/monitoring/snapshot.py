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
        unknown: Members of unknown rack.
        leaders_only: IDs of members in the rack map that always read from leaders.
    """

    live: GroupDescription
    group: Group
    rack_map_members: frozenset[str]
    unknown: tuple[MemberDescription, ...]
    leaders_only: frozenset[str] = frozenset()

    def as_leader_sees(self) -> Group:
        """Return the group as its leader sees it: only with the racks that members report."""
        members = tuple(replace(m, rack=None) if m.id in self.rack_map_members else m for m in self.group.members)
        return replace(self.group, members=members)


def topics_of(live: GroupDescription) -> frozenset[str]:
    """Return all topics that members subscribe to or have partitions of."""
    return frozenset().union(*(_topics(member, live) for member in live.members))


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
    members, mapped = [], set()
    for member in live.members:
        rack = member.rack
        if rack is None:
            rack = racks.rack_of(member.client_id, member.host)
            if rack is not None:
                mapped.add(member.id)
        members.append(
            Member(
                member.id,
                _topics(member, live),
                rack=rack,
                instance_id=member.instance_id,
                owned=_clean(member.assigned),
            )
        )
    wanted = topics_of(live)
    known = {topic: row for topic, row in topology.topics.items() if topic in wanted}
    group = Group(replace(topology, topics=known), tuple(members), name=live.name)
    racks_of = {member.id: member.rack for member in members}
    unknown = tuple(m for m in live.members if racks_of[m.id] is None)
    leaders_only = frozenset(m.id for m in live.members if m.id in mapped and not racks.reads_near(m.client_id))
    return Snapshot(live, group, frozenset(mapped), unknown, leaders_only)


def _topics(member: MemberDescription, live: GroupDescription) -> frozenset[str]:
    subscribed = frozenset(() if member.subscription is None else member.subscription.topics)
    # Only the broker can evaluate a pattern; it matches at least what all members with the same pattern have.
    alike = (m for m in live.members if m is member or (member.pattern and m.pattern == member.pattern))
    return subscribed.union(*(m.assigned for m in alike))


def _clean(assigned: Mapping[str, tuple[int, ...]]) -> Partitions:
    """Return the partitions of a member; a leader may send a partition twice, or an invalid one."""
    return {topic: tuple(sorted({p for p in ids if p >= 0})) for topic, ids in sorted(assigned.items())}
