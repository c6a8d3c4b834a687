"""Copies over several dimensions at once: zones and clusters, as client tags name them.

An item has a copy that is fixed (whoever runs it) and wants more, each on another node. A node has a value on each
dimension, or none. A dimension says how many of an item's copies one value may have and how many values an item may
use; what is beyond that are *collisions*. A node without a value on a dimension never collides on it.

Theory of operation
-------------------
Capacity is no limit, so each item can have its least collisions whatever the others do: that is searched item by item
(`least`). Among all sets of nodes that have no more, loads are evened and then copies kept where they were, by
exchanges (`exchange`).

Nodes with the same values are one *cell*. Whether a set is as good as can be depends on its cells alone, so that is
found out once for each multiset of cells. Cells that differ only in values that no other cell has are twins: a set
stays as good when one takes the other's place, so of twins those that come first are tried first, and alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as made

NO_VALUE = -1

_ANOTHER = -2
"""Stands for a value that none of the copies looked at has."""

_NEVER = 1 << 20
"""What a collision on a strict dimension counts: more than all others together."""

MOST_TRIED = 5_000
"""Sets of cells that are tried to find the least collisions of an item; of more the best of these is taken."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """What copies are spread over.

    Args:
        value: Of each node, from 0; `NO_VALUE` for none.
        values: How many there are, with those that no node has now.
        max_per_value: Copies of an item that one value may have; 0: no more than it takes to spread them evenly.
        max_unused: Of k copies k less this many values may be used at most; 0 for all.
        strict: Whether a copy that would collide is left out instead.
    """

    value: tuple[int, ...]
    values: int
    max_per_value: int = 0
    max_unused: int = 0
    strict: bool = False

    def collisions(self, counts: Counter[int], copies: int) -> int:
        """Return how many copies are beyond what is allowed.

        Args:
            counts: Copies of an item by value.
            copies: How many it is to have in all.
        """
        most = self.max_per_value or -(-copies // max(1, self.values))
        beyond = sum(max(0, count - most) for count in counts.values())
        beyond += max(0, len(counts) - max(1, copies - self.max_unused)) if self.max_unused else 0
        return beyond * _NEVER if self.strict else beyond


@dataclass(frozen=True, slots=True)
class Topology:
    """Where copies can be.

    Args:
        weight: How much each node is to carry relative to the others, 1 or more.
        load: Copies that each carries already, fixed ones included.
        dimensions: What copies are spread over.
    """

    weight: tuple[int, ...]
    load: tuple[int, ...]
    dimensions: tuple[Dimension, ...] = ()

    @property
    def strict(self) -> bool:
        """Whether copies may be left out that have a node."""
        return any(dimension.strict for dimension in self.dimensions)


@dataclass(frozen=True, slots=True)
class ItemDemand:
    """An item.

    Args:
        fixed: Node of its fixed copy; -1 if it has none.
        copies: How many it wants besides.
        current: Nodes that have had one, the best first.
    """

    fixed: int
    copies: int
    current: tuple[int, ...] = ()


Cells = tuple[int, ...]
"""Numbers of cells, sorted; one that is used twice is there twice."""


@dataclass(frozen=True, slots=True)
class CollisionBound:
    """How good an item's set can be.

    Args:
        copies: That it has.
        collisions: The fewest with so many, the fixed copy's included.
        proven: Whether there are no fewer.
        cells: Of a set that is as good, without the fixed copy's.
    """

    copies: int
    collisions: int
    proven: bool
    cells: Cells


@dataclass(slots=True)
class SearchBudget:
    """How many sets may still be tried in a search."""

    left: int = MOST_TRIED


@dataclass(slots=True)
class CollisionIndex:
    """The cells of a field, and how good sets of them are.

    Args:
        field: Whose.
    """

    field: Topology
    of: list[int] = made(init=False)
    """The cell of each node."""

    nodes: list[tuple[int, ...]] = made(init=False)
    """The nodes of each cell."""

    _values: list[tuple[int, ...]] = made(init=False)
    """The values of each cell, by dimension."""

    _having: list[dict[int, int]] = made(init=False)
    """Of each dimension, the nodes that have a value, as bits."""

    _kinds: list[tuple[int, ...]] = made(init=False)
    """Of each cell how many nodes it has, and its values, without those that are its own."""

    _joining: dict[tuple[Cells, int, int], int] = made(init=False, default_factory=dict)
    _known: dict[tuple[Cells, int], int] = made(init=False, default_factory=dict)
    _best: dict[tuple[int, int], CollisionBound] = made(init=False, default_factory=dict)

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

    def collisions(self, cells: Cells, copies: int) -> int:
        """Return the collisions of a set of cells, the fixed one's included.

        Args:
            cells: Sorted.
            copies: How many the item is to have in all.
        """
        key = cells, copies
        if key not in self._known:
            self._known[key] = sum(
                dimension.collisions(
                    Counter(value for cell in cells if (value := self._values[cell][number]) != NO_VALUE), copies
                )
                for number, dimension in enumerate(self.field.dimensions)
            )
        return self._known[key]

    def joining(self, cells: Cells, copies: int, most: int) -> int:
        """Return the nodes that a copy more can be at, as bits.

        Args:
            cells: Where the item's other copies are, sorted.
            copies: How many it is to have in all.
            most: Collisions that there may be.
        """
        key = cells, copies, most
        if key not in self._joining:
            # Dimensions collide each for itself: nodes by what those looked at so far come to.
            nodes = {0: (1 << len(self.of)) - 1}
            for number in range(len(self._having)):
                found: dict[int, int] = {}
                for collisions, having in self._joined(number, cells, copies):
                    for before, bits in nodes.items():
                        if bits & having and before + collisions <= most:
                            found[before + collisions] = found.get(before + collisions, 0) | bits & having
                nodes = found
            self._joining[key] = sum(nodes.values())
        return self._joining[key]

    def _joined(self, number: int, cells: Cells, copies: int) -> Iterator[tuple[int, int]]:
        """Yield what collides on a dimension when a copy joins, and at which nodes it does."""
        dimension, having = self.field.dimensions[number], self._having[number]
        counts = Counter(value for cell in cells if (value := self._values[cell][number]) != NO_VALUE)
        others = (1 << len(self.of)) - 1
        for value in (NO_VALUE, *counts):
            joined = counts if value == NO_VALUE else counts + Counter([value])
            yield dimension.collisions(joined, copies), having.get(value, 0)
            others &= ~having.get(value, 0)
        # A value that no copy has is as good as another.
        yield dimension.collisions(counts + Counter([_ANOTHER]), copies), others

    def least(self, item: ItemDemand) -> CollisionBound:
        """Return how good an item's set can be."""
        kind = (self.of[item.fixed] if item.fixed >= 0 else -1, item.copies)
        if kind not in self._best:
            self._best[kind] = self._searched(item)
        return self._best[kind]

    def lowered(self, item: ItemDemand, least: CollisionBound, known: Sequence[tuple[int, ...]]) -> CollisionBound:
        """Return how good an item's set can be, where sets are known that may be better than what was searched.

        Args:
            item: Which.
            least: What was found.
            known: Sets of nodes.
        """
        if least.proven:
            return least
        fixed = [self.of[item.fixed]] if item.fixed >= 0 else []
        copies = (item.copies if self.field.strict else least.copies) + len(fixed)
        for own in known:
            cells = sorted(self.of[node] for node in own)
            collisions = self.collisions(tuple(sorted(cells + fixed)), copies)
            if len({*own} - {item.fixed}) == least.copies == len(own) and collisions < least.collisions:
                least = replace(least, collisions=collisions, cells=tuple(cells))
        return least

    def _searched(self, item: ItemDemand) -> CollisionBound:
        others = len(self.of) - (item.fixed >= 0)
        most = min(item.copies, others)
        all_in_all = item.copies + (item.fixed >= 0) if self.field.strict else most + (item.fixed >= 0)
        order = range(len(self.nodes))
        proven = True
        for copies in range(most, 0, -1) if self.field.strict else (most,):
            tries, best = SearchBudget(), None
            for cells, collisions in self.sets(item, copies, all_in_all, order, bound=_NEVER - 1, tries=tries):
                best = cells, collisions
                if not collisions:
                    break
            proven = proven and tries.left > 0
            if best is not None:
                return CollisionBound(copies, best[1], proven, best[0])
        return CollisionBound(0, 0, proven, ())

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
        """Yield sets of cells that an item's copies can be in, with their collisions, each better than those before.

        Args:
            item: Which.
            copies: How many.
            all_in_all: Copies the item is to have, for what counts as even.
            order: Of the cells: the first are tried first.
            bound: Only sets with so many collisions or fewer.
            tries: What may be tried: the search ends when none is left.
        """
        fixed = [self.of[item.fixed]] if item.fixed >= 0 else []
        room = {cell: len(self.nodes[cell]) - (cell in fixed) for cell in order}
        twin = self._twins(fixed, order)
        best = [bound]

        def add(chosen: list[int], start: int) -> Iterator[tuple[Cells, int]]:
            if not tries.left:
                return
            tries.left -= 1
            cells = tuple(sorted(fixed + chosen))
            found = self.collisions(cells, all_in_all)
            if found > best[0]:
                # One more copy never makes it less.
                return
            if len(chosen) == copies:
                best[0] = found - 1
                yield tuple(sorted(chosen)), found
                return
            able = self.joining(cells, all_in_all, best[0])
            for place in range(start, len(order)):
                cell = order[place]
                if not able >> self.nodes[cell][0] & 1 or chosen.count(cell) >= room[cell]:
                    continue
                if cell not in twin or chosen.count(twin[cell]) > chosen.count(cell):
                    yield from add([*chosen, cell], place)

        return add([], 0)

    def _twins(self, fixed: Sequence[int], order: Sequence[int]) -> dict[int, int]:
        """Return for cells the one before them that is as good: what is not taken there need not be tried here.

        That is a cell that has as many nodes and the same values, but for those that no other cell has.
        """
        last: dict[tuple[int, ...], int] = {}
        found = {}
        for cell in order:
            if cell not in fixed:
                kind = self._kinds[cell]
                if kind in last:
                    found[cell] = last[kind]
                last[kind] = cell
        return found
