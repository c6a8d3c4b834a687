"""Standbys over several dimensions at once, for example zones and clusters, as given by client tags.

An item has a copy that is fixed (the active one) and needs more, each on another node. A node has at most one value on
each dimension. A dimension limits how many of an item's copies one value may have and how many values an item may use;
copies beyond these limits are *collisions*. A node without a value on a dimension never collides on it. On a `distinct`
dimension an item first uses as many values as it can: a copy that adds no value to those of the others is *redundant*,
and one redundant copy costs more than all collisions (KIP-708 measures a placement by its distinct values).

Theory of operation
-------------------
Capacity is unlimited, so each item can have its minimum of this cost independently of the others. It is searched item
by item (`least`). Among all sets of nodes that cost no more, loads are balanced and then copies are kept on their
nodes, by exchanges (`exchange`), and where these are not enough, by switches between such sets (`set_switches`).

Nodes with the same values are one *cell*. The cost of a set depends on its cells alone, so it is computed once for each
multiset of cells. Cells that differ only in values that no other cell has are twins: replacing one by the other does
not change the cost, so only the first of the unused twins is tried.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as made

NO_VALUE = -1

_ANOTHER = -2
"""Placeholder for a value that none of the given copies has."""

_REDUNDANT = 1 << 12
"""Cost of a copy that adds no value: more than all collisions of an item together, each of which costs 1."""

_NEVER = 1 << 40
"""Cost of a collision on a strict dimension: more than all others together."""

MOST_TRIED = 5_000
"""Limit of the sets of cells that are tried for the least collisions of an item. Then the best one so far is used."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension over which copies are spread."""

    # Value of each node, from 0; `NO_VALUE` for none.
    value: tuple[int, ...]
    # Number of values, including those that no node has now.
    values: int
    # Limit of an item's copies on one value; 0: as few as an even spread needs.
    max_per_value: int = 0
    # Of k copies, k less this many values may be used at most; 0 for all.
    max_unused: int = 0
    # Whether a copy that would collide is omitted instead, and whether an item first uses as many values as it can.
    strict: bool = False
    distinct: bool = False

    def cost(self, counts: Counter[int], blank: int, copies: int) -> int:
        """Return what an item's copies cost, by value, or without one (`blank`), of so many that it is to have."""
        redundant = counts.total() - len(counts) + blank if self.distinct else 0
        collisions = self.collisions(counts, copies)
        return redundant * _REDUNDANT + (collisions * _NEVER if self.strict else collisions)

    def collisions(self, counts: Counter[int], copies: int) -> int:
        """Return the number of copies beyond the limits, of so many that the item is to have."""
        most = self.max_per_value or -(-copies // max(1, self.values))
        beyond = sum(max(0, count - most) for count in counts.values())
        beyond += max(0, len(counts) - max(1, copies - self.max_unused)) if self.max_unused else 0
        return beyond

    def least_cost(self, copies: int) -> int:
        present = len({value for value in self.value if value != NO_VALUE})
        return max(0, copies - present) * _REDUNDANT if self.distinct else 0


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes on which copies can be placed."""

    # Capacity of each node relative to the others, 1 or more.
    weight: tuple[int, ...]
    # Copies on each node that are not to be placed, including fixed ones.
    load: tuple[int, ...]
    dimensions: tuple[Dimension, ...] = ()

    @property
    def strict(self) -> bool:
        """Whether copies may be omitted although there is a node for them."""
        return any(dimension.strict for dimension in self.dimensions)


@dataclass(frozen=True, slots=True)
class ItemDemand:
    """An item and the copies it needs."""

    # Node of its fixed copy or -1, the copies needed in addition, and nodes that have had one, the best first.
    fixed: int
    copies: int
    current: tuple[int, ...] = ()


Cells = tuple[int, ...]
"""Numbers of cells, sorted; a cell that is used twice is listed twice."""


@dataclass(frozen=True, slots=True)
class CollisionBound:
    """The lowest known cost of an item's set."""

    copies: int
    # The lowest cost with so many copies, including that of the fixed copy.
    cost: int
    # Whether less is proven impossible.
    proven: bool
    # Cells of a set with this cost, without that of the fixed copy.
    cells: Cells


_TRIED_LATE = 20
"""Limit after the deadline: enough to find a set at all."""

CELLS_LATE = 16
"""How many cells are tried after the deadline, unless that is too few to place an item."""


@dataclass(slots=True)
class SearchBudget:
    """Number of sets that a search may still try."""

    left: int = MOST_TRIED
    # Deadline, on the clock of `time.monotonic`, after which hardly any are left.
    until: float = math.inf

    def spend(self) -> bool:
        """Deduct one set; return whether there was one left."""
        if time.monotonic() >= self.until:
            self.left = min(self.left, _TRIED_LATE)
        if not self.left:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class CollisionIndex:
    """The cells of a topology, and the cost of sets of cells."""

    field: Topology
    # Deadline, on the clock of `time.monotonic`. Later searches end with the first set that they find.
    until: float = math.inf
    of: list[int] = made(init=False)
    """The cell of each node."""

    nodes: list[tuple[int, ...]] = made(init=False)
    """The nodes of each cell."""

    _values: list[tuple[int, ...]] = made(init=False)
    """The values of each cell, by dimension."""

    _having: list[dict[int, int]] = made(init=False)
    """For each dimension and value the nodes that have it, as bits."""

    _kinds: list[tuple[int, ...]] = made(init=False)
    """For each cell its number of nodes, and its values, except those that no other cell has."""

    _joining: dict[tuple[Cells, int, int], int] = made(init=False, default_factory=dict)
    _known: dict[tuple[Cells, int], int] = made(init=False, default_factory=dict)
    _best: dict[tuple[int, int], CollisionBound] = made(init=False, default_factory=dict)
    _first_twin: dict[tuple[int, ...], int] = made(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        dimensions = self.field.dimensions
        values = [tuple(each.value[node] for each in dimensions) for node in range(len(self.field.weight))]
        self._values = sorted(set(values))
        cell_of = {value: cell for cell, value in enumerate(self._values)}
        self.of = [cell_of[value] for value in values]
        inside: list[list[int]] = [[] for _ in self._values]
        for node, cell in enumerate(self.of):
            inside[cell].append(node)
        self.nodes = [tuple(nodes) for nodes in inside]
        self._having = []
        for dimension in dimensions:
            having: dict[int, int] = {}
            for node, value in enumerate(dimension.value):
                having[value] = having.get(value, 0) | 1 << node
            self._having.append(having)
        cells_with = [Counter(value[number] for value in self._values) for number in range(len(dimensions))]
        self._kinds = [
            (
                len(nodes),
                *(
                    _ANOTHER if each != NO_VALUE and cells_with[number][each] == 1 else each
                    for number, each in enumerate(value)
                ),
            )
            for nodes, value in zip(self.nodes, self._values, strict=True)
        ]

    def cost(self, cells: Cells, copies: int) -> int:
        """Return the cost of sorted cells, including that of the fixed copy, for an item of so many copies."""
        key = cells, copies
        if key not in self._known:
            self._known[key] = sum(
                dimension.cost(*self._counts(number, cells), copies)
                for number, dimension in enumerate(self.field.dimensions)
            )
        return self._known[key]

    def collisions(self, cells: Cells, copies: int) -> int:
        """Return the collisions of a set of cells; arguments as for `cost`."""
        return sum(
            dimension.collisions(self._counts(number, cells)[0], copies)
            for number, dimension in enumerate(self.field.dimensions)
        )

    def _counts(self, number: int, cells: Cells) -> tuple[Counter[int], int]:
        """Return the copies by value on a dimension, and the number of copies without a value."""
        values = [self._values[cell][number] for cell in cells]
        return Counter(value for value in values if value != NO_VALUE), values.count(NO_VALUE)

    def joining(self, cells: Cells, copies: int, most: int) -> int:
        """Return the nodes, as bits, on which one more copy beside sorted cells costs `most` at most."""
        key = cells, copies, most
        if key not in self._joining:
            # Dimensions are independent: nodes by the cost on the dimensions so far.
            nodes = {0: (1 << len(self.of)) - 1}
            for number in range(len(self._having)):
                collisions: dict[int, int] = {}
                for cost, having in self._joined(number, cells, copies):
                    for before, bits in nodes.items():
                        if bits & having and before + cost <= most:
                            collisions[before + cost] = collisions.get(before + cost, 0) | bits & having
                nodes = collisions
            self._joining[key] = sum(nodes.values())
        return self._joining[key]

    def _joined(self, number: int, cells: Cells, copies: int) -> Iterator[tuple[int, int]]:
        """Yield the cost on a dimension after one more copy, with the nodes at which the copy causes it."""
        dimension, having = self.field.dimensions[number], self._having[number]
        counts, blank = self._counts(number, cells)
        others = (1 << len(self.of)) - 1
        for value in (NO_VALUE, *counts):
            joined = counts if value == NO_VALUE else counts + Counter([value])
            yield dimension.cost(joined, blank + (value == NO_VALUE), copies), having.get(value, 0)
            others &= ~having.get(value, 0)
        # All values that no copy has are equivalent.
        yield dimension.cost(counts + Counter([_ANOTHER]), blank, copies), others

    def least(self, item: ItemDemand) -> CollisionBound:
        if item.fixed < 0:
            key = -1, item.copies
            if key not in self._best:
                self._best[key] = self._search(item)
            return self._best[key]
        # With a tag of hosts there may be a thousand cells that differ in nothing else, and one search is enough.
        cell = self.of[item.fixed]
        first = self._first_twin.setdefault(self._kinds[cell], cell)
        key = first, item.copies
        if key not in self._best:
            self._best[key] = self._search(replace(item, fixed=self.nodes[first][0]))
        best = self._best[key]
        if cell == first:
            return best
        swapped = {cell: first, first: cell}
        return replace(best, cells=tuple(sorted(swapped.get(each, each) for each in best.cells)))

    def lowered(self, item: ItemDemand, least: CollisionBound, known: Sequence[tuple[int, ...]]) -> CollisionBound:
        """Return the lowest cost of an item, given sets that may be better than the search result."""
        if least.proven:
            return least
        fixed = [self.of[item.fixed]] if item.fixed >= 0 else []
        copies = (item.copies if self.field.strict else least.copies) + len(fixed)
        for own in known:
            cells = sorted(self.of[node] for node in own)
            cost = self.cost(tuple(sorted(cells + fixed)), copies)
            if len({*own} - {item.fixed}) == least.copies == len(own) and cost < least.cost:
                least = replace(least, cost=cost, cells=tuple(cells))
        return least

    def _search(self, item: ItemDemand) -> CollisionBound:
        others = len(self.of) - (item.fixed >= 0)
        most = min(item.copies, others)
        all_in_all = item.copies + (item.fixed >= 0) if self.field.strict else most + (item.fixed >= 0)
        order = range(len(self.nodes))
        if self.late() and len(order) > CELLS_LATE:
            # Spread over all of them, since cells are ordered by their values.
            best, _ = self._best_of(item, most, all_in_all, order[:: len(order) // CELLS_LATE])
            if best is not None:
                return CollisionBound(most, best[1], proven=False, cells=best[0])
        proven = True
        for copies in range(most, 0, -1) if self.field.strict else (most,):
            best, ended = self._best_of(item, copies, all_in_all, order)
            proven = proven and ended
            if best is not None:
                return CollisionBound(copies, best[1], proven, best[0])
        return CollisionBound(0, 0, proven, ())

    def _best_of(
        self, item: ItemDemand, copies: int, all_in_all: int, order: Sequence[int]
    ) -> tuple[tuple[Cells, int] | None, bool]:
        """Return the best set of some cells with its cost, None if there is none, and whether all were tried."""
        tries, best = SearchBudget(until=self.until), None
        lowest = sum(each.least_cost(copies + (item.fixed >= 0)) for each in self.field.dimensions)
        for found in self.sets(item, copies, all_in_all, order, bound=_NEVER - 1, tries=tries):
            best = found
            if found[1] == lowest:
                break
        return best, tries.left > 0

    def late(self) -> bool:
        return time.monotonic() >= self.until

    def sets(
        self,
        item: ItemDemand,
        copies: int,
        all_in_all: int,
        order: Sequence[int],
        *,
        bound: int,
        tries: SearchBudget,
    ) -> Iterator[tuple[Cells, int]]:
        """Yield sets of cells for an item's copies, with their cost, each better than those before."""
        # The item is to have `all_in_all`, which define an even spread. `bound` limits the cost.
        fixed = [self.of[item.fixed]] if item.fixed >= 0 else []
        capacity = {cell: len(self.nodes[cell]) - (cell in fixed) for cell in order}
        twin = self._equivalent_cells(fixed, order)
        best = [bound]

        def add(chosen: list[int], start: int) -> Iterator[tuple[Cells, int]]:
            if not tries.spend():
                return
            cells = tuple(sorted(fixed + chosen))
            cost = self.cost(cells, all_in_all)
            if cost > best[0]:
                # One more copy never reduces the cost.
                return
            if len(chosen) == copies:
                best[0] = cost - 1
                yield tuple(sorted(chosen)), cost
                return
            able = self.joining(cells, all_in_all, best[0])
            for place in range(start, len(order)):
                cell = order[place]
                if not able >> self.nodes[cell][0] & 1 or chosen.count(cell) >= capacity[cell]:
                    continue
                if cell not in twin or chosen.count(twin[cell]) > chosen.count(cell):
                    yield from add([*chosen, cell], place)

        return add([], 0)

    def _equivalent_cells(self, fixed: Sequence[int], order: Sequence[int]) -> dict[int, int]:
        """Return for each cell the equivalent cell before it: if that one is not used, this one need not be tried.

        A cell is equivalent if it has as many nodes and the same values, except for those that no other cell has.
        """
        last: dict[tuple[int, ...], int] = {}
        cells = {}
        for cell in order:
            if cell not in fixed:
                kind = self._kinds[cell]
                if kind in last:
                    cells[cell] = last[kind]
                last[kind] = cell
        return cells
