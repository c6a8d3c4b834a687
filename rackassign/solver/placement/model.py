"""Copies that want nodes, what limits them, and what the answer is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from rackassign.solver.types import Bools, Ints

DEFAULT_WORK = 3_000_000
"""Iterations of the solver: minutes at worst."""

EVEN: Literal["even"] = "even"

Shortage = Literal["error", "placeholder", "relax"]
"""What becomes of a copy for which the limits leave no node: an error, an entry below 0, or limits give way."""

SHORTAGES: tuple[Shortage, ...] = get_args(Shortage)

LeaderGoal = Literal["broker", "rack", "mixed"]
"""Whose leads are evened: nodes' first, racks' first, or both at once."""

LEADER_GOALS: tuple[LeaderGoal, ...] = get_args(LeaderGoal)

PrimaryObjective = Literal["balance", "moves", "group", "coverage"]
"""What comes first: even nodes, few moves, each group even over nodes, or coverage of racks and then few moves."""

PRIMARY_OBJECTIVES: tuple[PrimaryObjective, ...] = get_args(PrimaryObjective)


class ShortageError(Exception):
    """Limits leave no node for some copies, and that was to be an error."""


@dataclass(frozen=True, slots=True)
class BrokerArrays:
    """Where copies can be.

    Args:
        rack: Rack of each node, 0 or more.
        weight: How much each is to carry relative to the others, 1 or more.
        load: Copies each carries that are not to be placed.
        leader_load: How many of those lead.
        assignable: Whether it may be given copies; one that may not keeps what it holds.
        leader_eligible: Whether it may lead.
        last_resort: Whether it is to be used only where nothing else will do.
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
        """Return equal nodes that carry nothing."""
        count = len(rack)
        yes, none = np.ones(count, bool), np.zeros(count, np.int64)
        return cls(rack, none + 1, none, none, yes, yes, ~yes)

    def may_lead(self, own: Iterable[int], racks: frozenset[int] | None) -> tuple[int, ...]:
        """Return who of an item's nodes may lead it, by number: those in these racks, or any if none is there."""
        may = tuple(sorted(node for node in own if self.leader_eligible[node]))
        return tuple(node for node in may if racks is None or int(self.rack[node]) in racks) or may


@dataclass(frozen=True, slots=True)
class PartitionArrays:
    """What has copies.

    Args:
        copies: How many each wants, 1 or more.
        group: Group of each, from 0; a group is to be even over nodes by itself.
        current: Nodes that hold each, the one that leads first; no node twice.
        keep: Whether each goes on being led by whoever leads it, if that node still has it and may; empty for none.
    """

    copies: Ints
    group: Ints
    current: tuple[tuple[int, ...], ...]
    keep: tuple[bool, ...] = ()

    def leaders_kept(self) -> tuple[int, ...]:
        """Return for each the node that is to go on leading it; -1 for none."""
        keep = self.keep or (False,) * len(self.current)
        return tuple(own[0] if own and kept else -1 for own, kept in zip(self.current, keep, strict=True))

    @classmethod
    def fresh(cls, copies: Ints, group: Ints) -> PartitionArrays:
        """Return items that nobody holds yet."""
        return cls(copies, group, ((),) * len(copies))


@dataclass(frozen=True, slots=True)
class Constraints:
    """What every item keeps to.

    Args:
        max_per_rack: Copies of an item in one rack; `even`: no more than it takes to spread them evenly.
        min_racks: Racks an item must be in; None: as many as can be.
        max_racks: Racks it may be in at most.
        counted_racks: Over how many racks `even` is reckoned, with those that have no node now; None: over those
            there are, and a rack too small for its part gives it to the others.
        leader_racks: Racks in which leaders must be; None: any.
        on_shortage: What becomes of copies that cannot be placed so.
    """

    max_per_rack: int | Literal["even"] = EVEN
    min_racks: int | None = None
    max_racks: int | None = None
    counted_racks: int | None = None
    leader_racks: frozenset[int] | None = None
    on_shortage: Shortage = "error"


@dataclass(frozen=True, slots=True)
class Objectives:
    """What is best among all that limits allow.

    Args:
        first: Which objective comes first; the others follow in the order balance, moves, group. Coverage is a part
            of balance, and comes before even nodes, unless it comes first by itself.
        leaders: Whose leads are evened.
        coverage: How many copies racks are to have, relative to each other, before nodes are evened; None: as comes
            of even nodes.
    """

    first: PrimaryObjective = "balance"
    leaders: LeaderGoal = "broker"
    coverage: Ints | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """All that is asked.

    Args:
        items: What has copies.
        nodes: Where they can be.
        limits: What every item keeps to.
        goals: What is best.
    """

    items: PartitionArrays
    nodes: BrokerArrays
    limits: Constraints
    goals: Objectives


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """Where copies go.

    Args:
        nodes: Of each item its nodes, the one that leads first; then -1, -2, .. for copies that have none.
        moved: Copies at nodes that did not hold the item.
        lower_bound: A number of moves that nothing with these limits and these loads can be below.
        proven: Whether each objective is proven best given those before it; leads, and who is next, for these nodes.
        notes: What is not proven or could not be kept to, for people.
        leads_proven: Whether leads are as even as with any other nodes too.
    """

    nodes: tuple[tuple[int, ...], ...]
    moved: int
    lower_bound: int
    proven: bool
    notes: tuple[str, ...] = field(default=())
    leads_proven: bool = False
