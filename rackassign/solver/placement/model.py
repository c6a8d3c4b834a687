"""Copies to place on nodes, their constraints, and the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from rackassign.solver.types import Bools, Ints

DEFAULT_WORK = 3_000_000
"""Solver iterations: minutes at most."""

EVEN: Literal["even"] = "even"

Shortage = Literal["error", "placeholder", "relax"]
"""Handling of a copy for which the constraints leave no node: an error, an entry below 0, or relaxed constraints."""

SHORTAGES: tuple[Shortage, ...] = get_args(Shortage)

LeaderGoal = Literal["broker", "rack", "mixed"]
"""Objective for leaders: balance nodes first, racks first, or both at once."""

LEADER_GOALS: tuple[LeaderGoal, ...] = get_args(LeaderGoal)

PrimaryObjective = Literal["balance", "moves", "group", "coverage"]
"""First objective: even nodes, few moves, each group even over nodes, or coverage of racks and then few moves."""

PRIMARY_OBJECTIVES: tuple[PrimaryObjective, ...] = get_args(PrimaryObjective)


class ShortageError(Exception):
    """The constraints leave no node for some copies, and `on_shortage` is `error`."""


@dataclass(frozen=True, slots=True)
class BrokerArrays:
    """Nodes on which copies can be placed.

    Args:
        rack: Rack of each node, 0 or more.
        weight: Capacity of each node relative to the others, 1 or more.
        load: Number of copies on each node that are not to be placed.
        leader_load: Number of those that lead.
        assignable: Whether each accepts new copies; a node that does not keeps its copies.
        leader_eligible: Whether each may lead.
        last_resort: Whether each is used only if no other node can be.
    """

    rack: Ints
    weight: Ints
    load: Ints
    leader_load: Ints
    assignable: Bools
    leader_eligible: Bools
    last_resort: Bools

    @classmethod
    def plain(cls, rack: Ints) -> BrokerArrays:
        """Return equal nodes without load."""
        count = len(rack)
        yes, none = np.ones(count, bool), np.zeros(count, np.int64)
        return cls(rack, none + 1, none, none, yes, yes, ~yes)

    def may_lead(self, own: Iterable[int], racks: frozenset[int] | None) -> tuple[int, ...]:
        """Return an item's nodes that may lead it, by number: those in these racks, or any if none of them is."""
        may = tuple(sorted(node for node in own if self.leader_eligible[node]))
        return tuple(node for node in may if racks is None or int(self.rack[node]) in racks) or may


@dataclass(frozen=True, slots=True)
class PartitionArrays:
    """Items to place.

    Args:
        copies: Number of copies of each item, 1 or more.
        group: Group of each, from 0; each group is balanced over nodes by itself.
        current: Nodes that have each, its leader first; no node twice.
        keep: Whether each keeps its leader, if that node still has it and may lead; empty for none.
    """

    copies: Ints
    group: Ints
    current: tuple[tuple[int, ...], ...]
    keep: tuple[bool, ...] = ()

    def leaders_kept(self) -> tuple[int, ...]:
        """Return for each item the leader it is to keep; -1 for none."""
        keep = self.keep or (False,) * len(self.current)
        return tuple(own[0] if own and kept else -1 for own, kept in zip(self.current, keep, strict=True))

    @classmethod
    def fresh(cls, copies: Ints, group: Ints) -> PartitionArrays:
        """Return items without current nodes."""
        return cls(copies, group, ((),) * len(copies))


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints that every item has to satisfy.

    Args:
        max_per_rack: Limit of an item's copies in one rack; `even`: as few as an even spread needs.
        min_racks: Minimum number of racks of an item; None: as many as possible.
        max_racks: Maximum number of racks of an item.
        counted_racks: Number of racks on which `even` is based, including those that have no node now. None: the racks
            that exist, where a rack too small for its share leaves the rest of it to the others.
        leader_racks: Racks in which leaders must be; None: any.
        on_shortage: Handling of copies that cannot be placed.
    """

    max_per_rack: int | Literal["even"] = EVEN
    min_racks: int | None = None
    max_racks: int | None = None
    counted_racks: int | None = None
    leader_racks: frozenset[int] | None = None
    on_shortage: Shortage = "error"


@dataclass(frozen=True, slots=True)
class Objectives:
    """Objectives of a placement within the constraints.

    Args:
        first: The first objective; the others follow in the order balance, moves, group. Coverage is a part of balance
            and comes before even nodes, unless it comes first by itself.
        leaders: Objective for leaders.
        coverage: Target numbers of copies of racks, relative to each other, optimized before even nodes; None: whatever
            follows from even nodes.
    """

    first: PrimaryObjective = "balance"
    leaders: LeaderGoal = "broker"
    coverage: Ints | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A placement problem.

    Args:
        items: Items to place.
        nodes: Nodes on which copies can be placed.
        limits: Constraints that every item has to satisfy.
        goals: Objectives.
    """

    items: PartitionArrays
    nodes: BrokerArrays
    limits: Constraints
    goals: Objectives


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """A placement of copies.

    Args:
        nodes: Nodes of each item, its leader first; then -1, -2, .. for copies that have none.
        moved: Number of copies on nodes that did not have the item.
        lower_bound: A lower bound of the moves with these constraints and these loads.
        proven: Whether each objective is proven optimal given those before it; leaders and successors for these nodes.
        notes: Notes on what is not proven or could not be satisfied, as text for users.
        leads_proven: Whether leaders are as even as with any other nodes too.
    """

    nodes: tuple[tuple[int, ...], ...]
    moved: int
    lower_bound: int
    proven: bool
    notes: tuple[str, ...] = field(default=())
    leads_proven: bool = False
