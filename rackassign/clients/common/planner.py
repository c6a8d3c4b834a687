"""Planners: what a leader does with the members of a join.

A planner prepares the group, runs a strategy with a time limit, and has a fallback that cannot fail.
It uses nothing of the client library, so that a client may run the plan on another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from rackassign.clients.common.adapter import AnyCluster
from rackassign.clients.common.assignment_history import LeaderAssignment
from rackassign.clients.common.fallback import fallback_range
from rackassign.clients.common.member_context import MemberContext
from rackassign.clients.common.subscriptions import JoinMember
from rackassign.model import Group, Partitions
from rackassign.strategies import Options, Strategy, strategy
from rackassign.strategies.loading import load, load_on_thread

Planning: TypeAlias = Callable[[float], LeaderAssignment]
"""Computes the assignment of a group within so many seconds; may run on any thread."""


class Planner(Protocol):
    """Computes the assignment of a group."""

    strategy: Strategy
    """Strategy with which the rack monitor compares the current assignment."""
    options: Options
    """Options of the strategy."""

    def load(self) -> None:
        """Import what a plan needs; for a thread beside that of the client."""

    def load_on_thread(self) -> None:
        """Begin to import what a plan needs, on a thread; raises nothing."""

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
    """The range assignment of KIP-881.

    Args:
        member: The member that leads.
    """

    def __init__(self, member: MemberContext) -> None:
        self.strategy = strategy("range")
        self.options = Options(locality=member.locality)

    def load(self) -> None:
        """Import the strategy."""
        load("range")

    def load_on_thread(self) -> None:
        """Begin to import the strategy, on a thread."""
        load_on_thread("range")

    def prepare(self, group: Group, members: Sequence[JoinMember]) -> Planning:
        """Return the function that plans; nothing is needed but the group."""
        del members
        return lambda limit_s: plan_with(self.strategy, group, self.options, limit_s)

    def fallback(self, cluster: AnyCluster, members: list[JoinMember]) -> dict[str, Partitions]:
        """Return contiguous ranges of each topic."""
        return fallback_range(cluster, members)

    def on_assigned(self, *, leads: bool) -> None:
        """Do nothing: a range assignment measures nothing."""


def plan_with(decide: Strategy, group: Group, options: Options, limit_s: float) -> LeaderAssignment:
    """Return the assignment of a strategy, computed within so many seconds."""
    plan = decide(group, replace(options, time_limit_s=limit_s))
    return LeaderAssignment(plan.assignment, not plan.withheld, group, plan)
