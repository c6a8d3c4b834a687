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
found out once for each multiset of cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as made

NO_VALUE = -1

MOST_TRIED = 200_000
"""Sets of cells that are tried for an item; more, and the best of those is taken."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """What copies are spread over.

    Args:
        value: Of each node, from 0; `NO_VALUE` for none.
        values: How many there are, with those that no node has now.
        most: Copies of an item that one value may have; 0: no more than it takes to spread them evenly.
        fewer: Of k copies k less this many values may be used at most; 0 for all.
    """

    value: tuple[int, ...]
    values: int
    most: int = 0
    fewer: int = 0

    def collisions(self, counts: Counter[int], copies: int) -> int:
        """Return how many copies are beyond what is allowed.

        Args:
            counts: Copies of an item by value.
            copies: How many it is to have in all.
        """
        most = self.most or -(-copies // max(1, self.values))
        beyond = sum(max(0, count - most) for count in counts.values())
        return beyond + (max(0, len(counts) - max(1, copies - self.fewer)) if self.fewer else 0)


@dataclass(frozen=True, slots=True)
class Field:
    """Where copies can be.

    Args:
        weight: How much each node is to carry relative to the others, 1 or more.
        load: Copies that each carries already, fixed ones included.
        dimensions: What copies are spread over.
        strict: Whether a copy that would collide is left out instead.
    """

    weight: tuple[int, ...]
    load: tuple[int, ...]
    dimensions: tuple[Dimension, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """An item.

    Args:
        fixed: Node of its fixed copy; -1 if it has none.
        copies: How many it wants besides.
        held: Nodes that have had one, the best first.
    """

    fixed: int
    copies: int
    held: tuple[int, ...] = ()


Cells = tuple[int, ...]
"""Numbers of cells, sorted; one that is used twice is there twice."""


@dataclass(slots=True)
class Rooms:
    """The cells of a field, and how good sets of them are.

    Args:
        field: Whose.
    """

    field: Field
    of: list[int] = made(init=False)
    """The cell of each node."""

    nodes: list[tuple[int, ...]] = made(init=False)
    """The nodes of each cell."""

    _values: list[tuple[int, ...]] = made(init=False)
    _known: dict[tuple[Cells, int], int] = made(init=False, default_factory=dict)
    _best: dict[tuple[int, int], tuple[int, int, bool]] = made(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        values = [tuple(each.value[node] for each in self.field.dimensions) for node in range(len(self.field.weight))]
        self._values = sorted(set(values))
        number = {value: cell for cell, value in enumerate(self._values)}
        self.of = [number[value] for value in values]
        self.nodes = [
            tuple(node for node, cell in enumerate(self.of) if cell == each) for each in range(len(self._values))
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

    def least(self, item: Wanted) -> tuple[int, int, bool]:
        """Return how many copies an item can have, with how few collisions, and whether that is proven."""
        kind = (self.of[item.fixed] if item.fixed >= 0 else -1, item.copies)
        if kind not in self._best:
            self._best[kind] = self._searched(item)
        return self._best[kind]

    def _searched(self, item: Wanted) -> tuple[int, int, bool]:
        others = len(self.of) - (item.fixed >= 0)
        most = min(item.copies, others)
        all_in_all = item.copies + (item.fixed >= 0) if self.field.strict else most + (item.fixed >= 0)
        for copies in range(most, 0, -1) if self.field.strict else (most,):
            best, proven = None, True
            for tried, (_, found) in enumerate(self.sets(item, copies, all_in_all, list(range(len(self.nodes))))):
                if best is None or found < best:
                    best = found
                if best == 0:
                    break
                if tried >= MOST_TRIED:
                    proven = False
                    break
            if best is not None and (best == 0 or not self.field.strict):
                return copies, best, proven
        return 0, 0, True

    def sets(
        self, item: Wanted, copies: int, all_in_all: int, order: Sequence[int], bound: int | None = None
    ) -> Iterator[tuple[Cells, int]]:
        """Yield sets of cells that an item's copies can be in, with their collisions, each better than those before.

        Args:
            item: Which.
            copies: How many.
            all_in_all: Copies the item is to have, for what counts as even.
            order: Of the cells: the first are tried first.
            bound: Only sets with so many collisions or fewer; None for any.
        """
        fixed = [self.of[item.fixed]] if item.fixed >= 0 else []
        room = {cell: len(self.nodes[cell]) - (cell in fixed) for cell in order}
        best = [bound if bound is not None else 1 << 30]

        def add(chosen: list[int], start: int) -> Iterator[tuple[Cells, int]]:
            found = self.collisions(tuple(sorted(fixed + chosen)), all_in_all)
            if found > best[0]:
                # One more copy never makes it less.
                return
            if len(chosen) == copies:
                if bound is None:
                    best[0] = found - 1
                yield tuple(sorted(chosen)), found
                return
            for place in range(start, len(order)):
                cell = order[place]
                if chosen.count(cell) < room[cell]:
                    yield from add([*chosen, cell], place)

        return add([], 0)
