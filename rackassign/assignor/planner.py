"""Planners: what a leader does with the members of a join.

A planner prepares the group and runs a strategy with a time limit. It uses nothing of the client library, so that a
client may run the plan on another thread. If planning fails, the group gets a fallback, which can fail only if the
client library does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from rackassign.assignor.adapter import AnyCluster, PartitionList
from rackassign.assignor.history import LeaderAssignment
from rackassign.assignor.member import MemberContext
from rackassign.assignor.subscriptions import JoinMember
from rackassign.model import Group, Partitions
from rackassign.strategies import Options, Planned, Strategy, strategy

Planning: TypeAlias = Callable[[float], LeaderAssignment]
"""Computes the assignment of a group within so many seconds; may run on any thread."""


class Planner(Protocol):
    """Computes the assignment of a group."""

    strategy: Strategy
    """Strategy with which the rack monitor compares the current assignment."""
    options: Options
    """Options of the strategy."""

    planned: Planned
    """What is imported for a plan."""

    def configured(self, group: Group) -> Group:
        """Return a group with what the options state about it; calls no function of the user."""

    def prepare(self, group: Group, members: Sequence[JoinMember]) -> Planning:
        """Read what a plan for this group needs, and return the function that plans.

        Args:
            group: The group as it joins.
            members: The same members, as they were decoded.
        """

    def fallback(self, cluster: AnyCluster, members: list[JoinMember]) -> dict[str, Partitions]:
        """Return an assignment that cannot fail."""

    def on_assigned(self, *, leads: bool) -> None:
        """Record that a rebalance is complete, and whether this member leads its group; raises nothing."""


class RangePlanner:
    """The range assignment of KIP-881."""

    planned: Planned = "range"

    def __init__(self, member: MemberContext) -> None:
        self.strategy = strategy("range")
        self.options = Options(locality=member.locality)

    def configured(self, group: Group) -> Group:
        """Return the group as it is: there is nothing to state."""
        return group

    def prepare(self, group: Group, members: Sequence[JoinMember]) -> Planning:
        del members
        return lambda limit_s: plan_with(self.strategy, group, self.options, limit_s)

    def fallback(self, cluster: AnyCluster, members: list[JoinMember]) -> dict[str, Partitions]:
        return fallback_range(cluster, members)

    def on_assigned(self, *, leads: bool) -> None:
        """Do nothing: a range assignment measures nothing."""


def plan_with(decide: Strategy, group: Group, options: Options, limit_s: float) -> LeaderAssignment:
    plan = decide(group, replace(options, time_limit_s=limit_s))
    return LeaderAssignment(plan.assignment, not plan.withheld, group, plan)


def fallback_range(cluster: PartitionList, members: list[JoinMember]) -> dict[str, Partitions]:
    """Assign each topic in contiguous ranges, where the first members get one partition more."""
    return _assign_ranges(cluster, members, level=False)


def fallback_balanced(cluster: PartitionList, members: list[JoinMember]) -> dict[str, Partitions]:
    """Assign each topic in contiguous ranges, where the members with the lowest load get one partition more."""
    return _assign_ranges(cluster, members, level=True)


def exclude_claimed(target: Mapping[str, Partitions], members: list[JoinMember]) -> dict[str, Partitions]:
    """Return the target without partitions that other members claim, in any generation."""
    claimants: dict[tuple[str, int], set[str]] = {}
    for member in members:
        for topic, partitions in member.subscription.owned.items():
            for partition in partitions:
                claimants.setdefault((topic, partition), set()).add(member.id)
    return {
        member: {
            topic: tuple(p for p in partitions if claimants.get((topic, p), set()) <= {member})
            for topic, partitions in owned.items()
        }
        for member, owned in target.items()
    }


def _assign_ranges(cluster: PartitionList, members: list[JoinMember], *, level: bool) -> dict[str, Partitions]:
    target: dict[str, dict[str, tuple[int, ...]]] = {member.id: {} for member in members}
    load = dict.fromkeys(target, 0)
    subscribers: dict[str, list[JoinMember]] = {}
    for member in sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.id)):
        for topic in dict.fromkeys(member.subscription.topics):
            subscribers.setdefault(topic, []).append(member)
    for topic in sorted(subscribers):
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        quota, extra = divmod(len(partitions), len(subscribers[topic]))
        start = 0
        of_topic = subscribers[topic]
        for index, member in enumerate(sorted(of_topic, key=lambda m: load[m.id]) if level else of_topic):
            end = start + quota + (index < extra)
            if end > start:
                target[member.id][topic] = tuple(partitions[start:end])
                load[member.id] += end - start
            start = end
    return {**target}
