"""Items to place on nodes: their copies, constraints and classes, and the result.

Constraints imply bounds for one item: how many copies in each rack, and in how many racks. Items of one *kind* have
equally many copies and equally many usable nodes in each rack. The bounds are computed once for each kind, by counting.
With them, no flow is infeasible.

Equal items form a class: they have equally many copies, one group, and the same current nodes.

If an item may be in fewer racks than the constraints would spread it over, its racks are chosen before anything else,
one item after the other. That is the only choice of this package that no flow makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Literal, get_args

import numpy as np

from rackassign.solver.network_flow import Bools, Ints

DEFAULT_WORK = 3_000_000
"""Steps of the solver, each about as long as a look at 1,000 arcs: minutes at most."""

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


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the items of a kind."""

    # Copies that can be placed, and those that cannot.
    copies: int
    missing: int
    # Fewest and most copies in each rack, and fewest racks of an item.
    low: tuple[int, ...]
    high: tuple[int, ...]
    racks: int
    # Racks of which one must have a copy; empty if there is no such constraint.
    leaders: frozenset[int]
    # Constraints that could not be satisfied; empty if there are none.
    note: str = ""

    @property
    def plain(self) -> bool:
        """Whether `low` and `high` are the only bounds."""
        if self.leaders:
            return False
        alone = max(self.high, default=0) <= 1
        return alone or self.racks <= max(1, sum(1 for least in self.low if least))

    def allow(self, racks: Iterable[int]) -> bool:
        """Return whether an item may have copies in these racks, one entry each."""
        counts = [0] * len(self.high)
        for rack in racks:
            counts[rack] += 1
        led = any(count and rack in self.leaders for rack, count in enumerate(counts))
        return (
            sum(counts) == self.copies
            and all(low <= count <= high for low, count, high in zip(self.low, counts, self.high, strict=True))
            and sum(1 for count in counts if count) >= self.racks
            and (led or not self.leaders)
        )


def bounds_of(copies: int, free_nodes: Sequence[int], limits: Constraints) -> Bounds:
    """Compute the bounds of an item.

    Args:
        copies: Number of copies.
        free_nodes: Number of nodes it can use, by rack.
        limits: Constraints.

    Raises:
        ShortageError: Not all copies can be placed, and `on_shortage` is `error`.
    """
    most = _most_per_rack(copies, free_nodes, limits)
    racks = sum(1 for nodes in free_nodes if nodes)
    # The minimum number of racks does not apply beyond the number of copies.
    lacking = max(0, min(limits.min_racks or 0, copies) - min(racks, limits.max_racks or racks))
    placed = max(0, min(copies, _capacity(free_nodes, most), copies - lacking))
    note = ""
    if placed < copies:
        if limits.on_shortage == "error":
            raise ShortageError(_shortage(copies, placed, free_nodes, most, lacking))
        if limits.on_shortage == "relax":
            placed = min(copies, sum(free_nodes))
            most = max(most, _filled(placed, free_nodes))
            lacking = 0
            note = "constraints had to be relaxed" if placed == copies else "there are fewer nodes than copies"
    leaders = limits.leader_racks or frozenset()
    if limits.leader_racks is not None and not any(free_nodes[rack] for rack in leaders):
        if limits.on_shortage == "error":
            raise ShortageError("no rack in which leaders must be has a node")
        leaders, note = frozenset(), "no rack in which leaders must be has a node"
    high = tuple(min(nodes, most) for nodes in free_nodes)
    evenly = limits.max_per_rack == EVEN and placed == copies and limits.counted_racks is None
    low = tuple(min(nodes, most - 1) if evenly else 0 for nodes in free_nodes)
    possible = min(placed, sum(1 for top in high if top))
    wanted = possible if limits.min_racks is None else min(possible, limits.min_racks)
    return Bounds(placed, copies - placed, low, high, wanted, leaders if placed else frozenset(), note)


def _most_per_rack(copies: int, free_nodes: Sequence[int], limits: Constraints) -> int:
    if limits.max_per_rack != EVEN:
        return int(limits.max_per_rack)
    if limits.counted_racks is not None:
        return -(-copies // limits.counted_racks)
    return _filled(min(copies, sum(free_nodes)), free_nodes)


def _filled(copies: int, free_nodes: Sequence[int]) -> int:
    """Return the lowest limit of a rack at which so many copies can be placed."""
    most = 0
    while _capacity(free_nodes, most) < copies:
        most += 1
    return most


def _capacity(free_nodes: Sequence[int], most: int) -> int:
    return sum(min(nodes, most) for nodes in free_nodes)


def _shortage(copies: int, placed: int, free_nodes: Sequence[int], most: int, lacking: int) -> str:
    nodes, racks = sum(free_nodes), sum(1 for count in free_nodes if count)
    if nodes < copies:
        return f"{copies} copies, but only {nodes} nodes"
    if lacking:
        return f"{copies} copies in {racks + lacking} racks at least, but only {racks} racks can be used"
    return f"{copies} copies with at most {most} in a rack, but the {racks} racks take only {placed}"


_NO_NODE = -1
_MOST_CHOICES = 512
"""Limit of the combinations of racks. If there are more, only neighbouring racks are combined."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Items by class."""

    # Class of each item, and of each class its items, its group, and nodes that have it and may keep it, in order.
    of: Ints
    size: Ints
    group: Ints
    current: tuple[tuple[int, ...], ...]
    # The one of those that leads and is worth keeping; -1 for none, or if all of them stay anyway.
    leader_load: tuple[int, ...]
    bounds: tuple[Bounds, ...]
    racks: int

    @classmethod
    def made(cls, items: PartitionArrays, nodes: BrokerArrays, chosen: RackChoice, *, bare: bool = False) -> Classes:
        # With `bare`, groups and current nodes are ignored, except nodes that accept no new copies.
        classes: dict[tuple[int, int, int, tuple[int, ...], int], int] = {}
        of: list[int] = []
        closed, kept = ~nodes.assignable, items.leaders_kept()
        for item, (copies, group, choice) in enumerate(
            zip(items.copies.tolist(), items.group.tolist(), chosen.choice, strict=True)
        ):
            usable = chosen.usable[item]
            if bare:
                usable = tuple(node for node in usable if closed[node])
            leads = _NO_NODE if bare else worth_keeping(kept[item], usable, chosen.bounds[item], nodes)
            of.append(classes.setdefault((copies, 0 if bare else group, choice, usable, leads), len(classes)))
        first = np.unique(np.asarray(of, np.int64), return_index=True)[1].tolist() if of else []
        return cls(
            of=np.asarray(of, np.int64),
            size=np.bincount(np.asarray(of, np.int64), minlength=len(classes)),
            group=np.asarray([group for _, group, *_ in classes], np.int64),
            current=tuple(usable for _, _, _, usable, _ in classes),
            leader_load=tuple(leads for *_, leads in classes),
            bounds=tuple(chosen.bounds[item] for item in first),
            racks=chosen.racks,
        )


def worth_keeping(leader: int, usable: tuple[int, ...], bounds: Bounds, nodes: BrokerArrays) -> int:
    """Return the leader that an item with copies to remove should keep; -1 for none, or if all copies stay."""
    if leader in usable and nodes.leader_eligible[leader]:
        in_rack = Counter(int(nodes.rack[node]) for node in usable)
        if len(usable) > bounds.copies or any(count > bounds.high[at] for at, count in in_rack.items()):
            return leader
    return _NO_NODE


@dataclass(frozen=True, slots=True)
class RackChoice:
    """The racks each item may be in."""

    racks: int
    # Index of the combination of racks of each item.
    choice: tuple[int, ...]
    # Nodes that have the item, may keep it and are in its racks, in order.
    usable: tuple[tuple[int, ...], ...]
    bounds: tuple[Bounds, ...]


def choose(problem: Problem) -> RackChoice:
    """Choose the racks of each item, and compute its bounds; may raise `ShortageError`."""
    items, nodes = problem.items, problem.nodes
    rack, closed = nodes.rack.tolist(), (~nodes.assignable).tolist()
    racks = max(rack, default=-1) + 1
    free = np.bincount(nodes.rack[nodes.assignable], minlength=racks).tolist()
    chooser = _Chooser(problem.limits, _choices(free, problem.limits))
    choice_of, usable_of, bounds_of_item = [], [], []
    for copies, current in zip(items.copies.tolist(), items.current, strict=True):
        free_nodes = list(free)
        for node in current:
            free_nodes[rack[node]] += closed[node]
        number, bounds = chooser.best(copies, [rack[node] for node in current], free_nodes)
        choice_of.append(number)
        usable_of.append(tuple(sorted(node for node in current if bounds.high[rack[node]])))
        bounds_of_item.append(bounds)
    return RackChoice(racks, tuple(choice_of), tuple(usable_of), tuple(bounds_of_item))


def _choices(free: list[int], limits: Constraints) -> list[frozenset[int]]:
    """Return the combinations of racks an item may be in; one with all racks if it may be in all."""
    usable, most = [rack for rack, nodes in enumerate(free) if nodes], limits.max_racks
    if most is None or most >= len(usable):
        return [frozenset(range(len(free)))]
    found = [frozenset(subset) for subset in islice(combinations(usable, most), _MOST_CHOICES + 1)]
    if len(found) <= _MOST_CHOICES:
        return found
    return [frozenset((usable[at:] + usable[:at])[:most]) for at in range(len(usable))]


class _Chooser:
    """Chooses racks, and caches choices and bounds."""

    def __init__(self, limits: Constraints, choices: list[frozenset[int]]) -> None:
        self._limits = limits
        self._choices = choices
        self._taken = [0] * len(choices)
        self._known: dict[tuple[int, tuple[int, ...], int], Bounds | ShortageError] = {}

    def best(self, copies: int, held: list[int], free_nodes: list[int]) -> tuple[int, Bounds]:
        """Return the choice that places most, keeps most and was used least, in this order."""
        candidates: list[tuple[tuple[int, bool, int, int, int], Bounds]] = []
        failed: ShortageError | None = None
        for number, racks in enumerate(self._choices):
            bounds = self._bounds(copies, free_nodes, number)
            if isinstance(bounds, ShortageError):
                failed = failed or bounds
                continue
            kept = sum(min(held.count(rack), bounds.high[rack]) for rack in racks)
            candidates.append(((-bounds.copies, bool(bounds.note), -kept, self._taken[number], number), bounds))
        if not candidates:
            raise failed or ShortageError("there are no racks")
        (*_, number), bounds = min(candidates, key=lambda entry: entry[0])
        self._taken[number] += 1
        return number, bounds

    def _bounds(self, copies: int, free_nodes: list[int], number: int) -> Bounds | ShortageError:
        key = (copies, tuple(free_nodes), number)
        if key not in self._known:
            racks = self._choices[number]
            try:
                within = [nodes if rack in racks else 0 for rack, nodes in enumerate(free_nodes)]
                self._known[key] = bounds_of(copies, within, self._limits)
            except ShortageError as error:
                self._known[key] = error
        return self._known[key]
