"""A static member that has returned, and what its coordinator knows of its group.

A member that returns with its `group.instance.id` gets the assignment of before, and no leader plans (KIP-345). What
has happened meanwhile no member notices:

* A partition may have no owner. A cooperative leader withholds what another member has to revoke first, and that member
  requests the next rebalance. If it was restarted in between, it has nothing to revoke. Partitions may also have been
  added.
* The member may be in another rack.
* If it leads the group, it does not know what it has assigned, and so sees no change of racks.

DescribeGroups shows the subscriptions and assignments of all members. A member cannot know whether it has returned or
is new, so each static member requests it once, with its first assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rackassign.assignor.adapter import DescribedMember
from rackassign.assignor.history import LeaderAssignment
from rackassign.assignor.subscriptions import Claims, JoinMember, build_group
from rackassign.model import Group, Partitions, Topology
from rackassign.wire import decode_assignment, decode_subscription


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group with its present assignment."""

    group: Group
    assignment: dict[str, Partitions]

    @classmethod
    def of(
        cls, members: Sequence[DescribedMember], topology: Callable[[list[str]], Topology], claims: Claims
    ) -> DescribedGroup:
        """Decode what a coordinator sends; raises `WireError`."""
        joined = [JoinMember(each.id, each.instance_id, decode_subscription(each.metadata)) for each in members]
        assignment = {
            each.id: decode_assignment(each.assignment).partitions if each.assignment else {} for each in members
        }
        return cls(build_group(topology, joined, claims), assignment)

    def knows_topics_of(self, member: str) -> bool:
        """Return whether there are metadata for the topics of a member, as new as the assignment.

        False if it was removed from the group.
        """
        topics, known = next((m.topics for m in self.group.members if m.id == member), None), self.group.topology.topics
        return (
            topics is not None
            and topics <= known.keys()
            and all(
                max(partitions, default=-1) < len(known[topic])
                for assigned in self.in_known_topics().values()
                for topic, partitions in assigned.items()
            )
        )

    def in_known_topics(self) -> dict[str, Partitions]:
        """Return the assignment without topics to which this member does not subscribe, and has no metadata of."""
        known = self.group.topology.topics
        return {
            member: {topic: partitions for topic, partitions in assigned.items() if topic in known}
            for member, assigned in self.assignment.items()
        }

    def unowned(self) -> int:
        """Count partitions without an owner that no member is about to revoke: that one will request a rebalance."""
        subscribed = frozenset[str]().union(*(member.topics for member in self.group.members))
        found = {
            topic: set(range(len(partitions)))
            for topic, partitions in self.group.topology.topics.items()
            if topic in subscribed
        }
        for owned in (*self.assignment.values(), *(member.owned for member in self.group.members)):
            for topic, partitions in owned.items():
                found.get(topic, set()).difference_update(partitions)
        return sum(map(len, found.values()))

    def as_planned(self) -> LeaderAssignment:
        """Return it as if its leader had planned it, with racks that are not known."""
        unknown = replace(self.group, topology=replace(self.group.topology, topics={}))
        return LeaderAssignment(self.assignment, group=unknown)
