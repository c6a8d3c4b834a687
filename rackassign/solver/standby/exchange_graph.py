"""Copies on nodes, and the exchange graph: which copy can move where. It is updated while copies move.

There is an arc from node u to node v if some item can replace u by v at no higher cost. Arcs are distinguished by
their return: a copy comes back to a node that had it, leaves such a node, or neither.

Sets of nodes are bits of an int: all targets for an item are found in one step, however many nodes there are. The
targets of an item from a node depend only on the item's own nodes. So when copies move, only arcs from the nodes of
moved items are computed again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from rackassign.solver.standby.collisions import CELLS_LATE, CollisionBound, CollisionIndex, ItemDemand, SearchBudget

Arcs = tuple[int, int, int]
"""Targets as bits: those to which a copy returns, those where it makes no difference, and those for which it leaves."""

MOST_TRIED_FIRST = 1_000
"""Limit of the sets of cells that are tried for the initial set of an item."""

MOST_CELLS_FIRST = 100
"""Limit of the cells that are tried for it, and of the least loaded nodes that they are those of. There is a cell for
each node if a tag has another value on each host."""

RETURNS = (1, 0, -1)
"""Returns of arcs, in the order of `Arcs`."""


class ExchangeGraph:
    """The exchange graph of a placement.

    Args:
        index: Cells of the topology.
        items: Items to place.
        least: Lowest cost of each item.
        sets: Nodes of each item; None to choose them.
    """

    def __init__(
        self,
        index: CollisionIndex,
        items: Sequence[ItemDemand],
        least: Sequence[CollisionBound],
        sets: Sequence[set[int]] | None = None,
    ) -> None:
        self._index = index
        self._items = items
        self._least = least
        self._held = [sum(1 << node for node in item.current) for item in items]
        self._weight = index.field.weight
        self.count = list(index.field.load)
        self._at: list[dict[int, Arcs]] = [{} for _ in self.count]
        self._arcs: list[Arcs | None] = [None for _ in self.count]
        self.sets: list[set[int]] = [set() for _ in items]
        if sets is None:
            ranking = _Ranking(index, self.count)
            for number in range(len(items)):
                self._apply(number, self._best_set(number, ranking))
                ranking.add(self.sets[number])
            return
        for number, own in enumerate(sets):
            self._apply(number, own)

    def arcs(self, node: int) -> Arcs:
        """Return the targets of the copies on a node."""
        known = self._arcs[node]
        if known is None:
            back = same = away = 0
            for arcs in self._at[node].values():
                back |= arcs[0]
                same |= arcs[1]
                away |= arcs[2]
            known = self._arcs[node] = back, same, away
        return known

    def best_move(self, source: int, target: int, used: Sequence[int]) -> tuple[int, int] | None:
        """Return the best return of the moves along an arc, and the item that achieves it.

        Args:
            source: Node that gives up a copy.
            target: Node that takes it.
            used: Items to move only if no other returns as much.
        """
        for place, returned in enumerate(RETURNS):
            able = [number for number, arcs in self._at[source].items() if arcs[place] >> target & 1]
            if able:
                return returned, min(able, key=lambda number: (number in used, number))
        return None

    def move(self, steps: Sequence[tuple[int, int, int]]) -> bool:
        """Move copies at once, if no item then costs more; return whether they were moved.

        Args:
            steps: Items, the node they give up and the node they take: each an arc now.
        """
        sets: dict[int, set[int]] = {}
        for number, source, target in steps:
            own = sets.setdefault(number, set(self.sets[number]))
            own.remove(source)
            own.add(target)
        # A single move is feasible because it is an arc; two moves of an item need not be feasible together.
        if len(sets) < len(steps) and not all(self.is_feasible(number, own) for number, own in sets.items()):
            return False
        for number, own in sets.items():
            self._apply(number, own)
        return True

    def is_feasible(self, number: int, own: set[int]) -> bool:
        """Return whether a set has the lowest cost of an item."""
        least = self._least[number]
        return (
            len(own) == least.copies
            and self._items[number].fixed not in own
            and self._index.cost(self._cells(number, own), self._all_in_all(number)) <= least.cost
        )

    def collisions(self, number: int, own: set[int]) -> int:
        """Return the collisions of an item with a set, including those of its fixed copy."""
        return self._index.collisions(self._cells(number, own), self._all_in_all(number))

    def uneven(self) -> float:
        """Return how uneven loads are: less is better."""
        return round(sum(count * count / weight for count, weight in zip(self.count, self._weight, strict=True)), 6)

    def kept(self) -> int:
        """Return the number of copies on the nodes that had them."""
        return sum(len(own.intersection(item.current)) for own, item in zip(self.sets, self._items, strict=True))

    def less(self, node: int) -> float:
        """Return how much the balance improves when a copy leaves a node."""
        return (2 * self.count[node] - 1) / self._weight[node]

    def more(self, node: int) -> float:
        """Return how much the balance gets worse when a copy is added to a node."""
        return (2 * self.count[node] + 1) / self._weight[node]

    def _all_in_all(self, number: int) -> int:
        item = self._items[number]
        copies = item.copies if self._index.field.strict else self._least[number].copies
        return copies + (item.fixed >= 0)

    def _cells(self, number: int, own: set[int]) -> tuple[int, ...]:
        fixed = self._items[number].fixed
        return tuple(sorted(self._index.of[node] for node in (*own, *([fixed] if fixed >= 0 else []))))

    def _apply(self, number: int, own: set[int]) -> None:
        for node in self.sets[number]:
            self.count[node] -= 1
            self._arcs[node] = None
            del self._at[node][number]
        self.sets[number] = own
        cells = self._cells(number, own)
        taken = sum(1 << node for node in own)
        fixed = self._items[number].fixed
        free = ~(taken | 1 << fixed if fixed >= 0 else taken)
        held = self._held[number]
        for node in own:
            self.count[node] += 1
            self._arcs[node] = None
            targets = self._targets(number, cells, self._index.of[node]) & free
            back, other = targets & held, targets & ~held
            self._at[node][number] = (0, back, other) if held >> node & 1 else (back, other, 0)

    def _targets(self, number: int, cells: tuple[int, ...], cell: int) -> int:
        """Return the nodes that an item can use in place of a node of a cell, as bits."""
        place = cells.index(cell)
        rest = cells[:place] + cells[place + 1 :]
        return self._index.joining(rest, self._all_in_all(number), self._least[number].cost)

    def _best_set(self, number: int, ranking: _Ranking) -> set[int]:
        """Return a set of the lowest cost: nodes that have a copy first, then the least loaded."""
        item, least = self._items[number], self._least[number]
        if not least.copies:
            return set()
        ranked = ranking.first(item, least)
        # In each cell the best nodes are used first, so a cell is rated by its best node.
        order = sorted(ranked, key=lambda cell: ranked[cell][0])
        all_in_all, tries = self._all_in_all(number), SearchBudget(MOST_TRIED_FIRST, self._index.until)
        good = self._index.sets(item, least.copies, all_in_all, order, bound=least.cost, tries=tries)
        # If none is found in that order, the set that proved the bound is used.
        cells, _ = next(good, (least.cells, least.cost))
        return {node for cell in set(cells) for _, _, node in ranked[cell][: cells.count(cell)]}


class _Ranking:
    """The nodes by load while sets are chosen item by item: there are as many choices, so none looks at all nodes.

    Args:
        index: Cells of the topology.
        count: Number of copies on each node.
    """

    def __init__(self, index: CollisionIndex, count: Sequence[int]) -> None:
        self._index = index
        self._count = list(count)
        self._all = sorted(map(self._load, range(len(count))))
        self._inside = [sorted(map(self._load, nodes)) for nodes in index.nodes]

    def _load(self, node: int) -> tuple[float, int]:
        return (self._count[node] + 1) / self._index.field.weight[node], node

    def add(self, nodes: Iterable[int]) -> None:
        """Record one more copy on each of these nodes."""
        for node in nodes:
            ordered = self._all, self._inside[self._index.of[node]]
            before = self._load(node)
            self._count[node] += 1
            for each in ordered:
                del each[bisect_left(each, before)]
                insort(each, self._load(node))

    def first(self, item: ItemDemand, least: CollisionBound) -> dict[int, list[tuple[bool, float, int]]]:
        """Return some cells with their best nodes for an item's copies: former nodes, then the least loaded.

        Args:
            item: The item.
            least: Lowest cost of the item. The cells that prove it are among the cells.

        Returns:
            By cell, as many nodes as there are copies: whether the node is no former one, its load, and the node.
        """
        cells: Iterable[int] = range(len(self._inside))
        most = CELLS_LATE if self._index.late() else MOST_CELLS_FIRST
        if len(self._inside) > most:
            nodes = chain((node for _, node in self._all[:most]), item.current)
            cells = {*(self._index.of[node] for node in nodes), *least.cells}
        former: dict[int, list[tuple[bool, float, int]]] = {}
        for node in {*item.current} - {item.fixed}:
            former.setdefault(self._index.of[node], []).append((False, *self._load(node)))
        taken = {item.fixed, *item.current}
        found: dict[int, list[tuple[bool, float, int]]] = {}
        for cell in cells:
            free = ((True, *each) for each in self._inside[cell] if each[1] not in taken)
            best = [*islice(chain(sorted(former.get(cell, ())), free), least.copies)]
            if best:
                found[cell] = best
        return found
