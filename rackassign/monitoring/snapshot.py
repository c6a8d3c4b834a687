"""A live group, of any client, as the group that strategies take: a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rackassign.model import Group, Member, Partitions, Topology
from rackassign.monitoring.groups import GroupDescription, MemberDescription
from rackassign.monitoring.rack_map import RackMap


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group as it is.

    Args:
        live: What its coordinator told of it.
        group: The same as a scenario: the racks are those that members send, or those of the map.
        rack_map_members: Members whose rack is from the map alone, by their ids: their group does not know it.
        unknown: Members of whom nobody knows where they are.
        leaders_only: Those of the map that read from leaders, near or not, by their ids.
    """

    live: GroupDescription
    group: Group
    rack_map_members: frozenset[str]
    unknown: tuple[MemberDescription, ...]
    leaders_only: frozenset[str] = frozenset()

    def as_leader_sees(self) -> Group:
        """Return the group as its leader sees it: with no rack that a member does not send."""
        members = tuple(replace(m, rack=None) if m.id in self.rack_map_members else m for m in self.group.members)
        return replace(self.group, members=members)


def topics_of(live: GroupDescription) -> frozenset[str]:
    """Return all topics that members subscribe to or have something of."""
    return frozenset().union(*(_topics(member, live) for member in live.members))


def snapshot(live: GroupDescription, topology: Topology, racks: RackMap) -> Snapshot:
    """Make a scenario of a live group.

    Args:
        live: What its coordinator told of it.
        topology: Of the cluster; what the group does not subscribe to is left out.
        racks: Of members that send none.
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
    # What a pattern matches only the broker knows: at least all that members with the same one have.
    alike = (m for m in live.members if m is member or (member.pattern and m.pattern == member.pattern))
    return subscribed.union(*(m.assigned for m in alike))


def _clean(assigned: Mapping[str, tuple[int, ...]]) -> Partitions:
    """Return what a member was given; a leader may send a partition twice, or what is none."""
    return {topic: tuple(sorted({p for p in ids if p >= 0})) for topic, ids in sorted(assigned.items())}
