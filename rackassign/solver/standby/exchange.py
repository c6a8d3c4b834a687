"""Place standbys over several dimensions: fewest collisions, then even loads, then fewest moves.

Exchange graph
--------------
Which copy can move where; it is updated while copies move.

There is an arc from node u to node v if some item can replace u by v at no higher cost. Arcs are distinguished by
their return: a copy comes back to a node that had it, leaves such a node, or neither.

Sets of nodes are bits of an int: all targets for an item are found in one step, however many nodes there are. The
targets of an item from a node depend only on the item's own nodes. So when copies move, only arcs from the nodes of
moved items are computed again.

Search
------
1. *Start*: each item takes a set with its fewest collisions; nodes that have a copy and less loaded nodes come first.
2. *Even*: a path of the exchange graph from a node to a less loaded one has one item for each arc.
   It moves one copy from its first node to its last and leaves the loads of the others unchanged. The search starts at
   the most loaded node that has such a path. It takes the path that balances most, the shortest of those, and repeats
   this until no path improves the balance.
3. *Keep*: a cycle of that graph changes no load. Neither does a path between nodes of which one has just one copy
   more: that is a cycle with an arc from its last node to its first along which no copy moves. Cycles along which more
   copies return to their former nodes than leave them are taken, those of fewest arcs first, until there is none.
4. *Stay*: what is there and costs as little is left only for a placement with more even loads, and only if the search
   does not return from there. Otherwise copies could move for ever with nothing changed: with more dimensions, what is
   found depends on the former nodes, and while copies move there are those of both placements.

A cycle that returns more copies than it loses has a node from which on its balance is positive at every step. So walks
are extended from each node as long as their balance is positive, all by one arc at a time. Of walks that are equally
long and end at the same node only the one with the highest balance is kept.

With one dimension, and no limit on how many of its values are used, the optimal sets of an item are the bases of a
matroid, and loads are a separable convex cost over their sum. Then a result without improving path, and without a cycle
that returns more, cannot be improved at all. So both steps end in the optimum, as a flow would. An item may be needed
for several arcs, and its moves may be feasible one by one but not together. Along a path or cycle of fewest arcs they
are feasible together, since a violation would imply an arc that makes it shorter. With more dimensions none of that is
guaranteed. Infeasible moves are not made, items are then switched to other sets as a whole (`set_switches`), and the
result is called proven only if it reaches a bound.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

from rackassign.solver.network_flow import bits_of, shortest_path_tree
from rackassign.solver.standby.collisions import (
    CELLS_LATE,
    CollisionBound,
    CollisionIndex,
    ItemDemand,
    SearchBudget,
    Topology,
)
from rackassign.solver.standby.set_switches import SetSwitches

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
    """The exchange graph of a placement."""

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
        """Return the best return along an arc, and its item, one that is `used` only if no other returns as much."""
        for place, returned in enumerate(RETURNS):
            able = [number for number, arcs in self._at[source].items() if arcs[place] >> target & 1]
            if able:
                return returned, min(able, key=lambda number: (number in used, number))
        return None

    def move(self, steps: Sequence[tuple[int, int, int]]) -> bool:
        """Move copies (item, from, to) at once, if no item then costs more; return whether they were moved."""
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
        return round(sum(count * count / weight for count, weight in zip(self.count, self._weight, strict=True)), 6)

    def kept(self) -> int:
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
        nodes = self._held[number]
        for node in own:
            self.count[node] += 1
            self._arcs[node] = None
            targets = self._targets(number, cells, self._index.of[node]) & free
            back, other = targets & nodes, targets & ~nodes
            self._at[node][number] = (0, back, other) if nodes >> node & 1 else (back, other, 0)

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
    """The nodes by load while sets are chosen item by item: there are as many choices, so none looks at all nodes."""

    def __init__(self, index: CollisionIndex, count: Sequence[int]) -> None:
        self._index = index
        self._count = list(count)
        self._all = sorted(map(self._load, range(len(count))))
        self._inside = [sorted(map(self._load, nodes)) for nodes in index.nodes]

    def _load(self, node: int) -> tuple[float, int]:
        return (self._count[node] + 1) / self._index.field.weight[node], node

    def add(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            ordered = self._all, self._inside[self._index.of[node]]
            before = self._load(node)
            self._count[node] += 1
            for each in ordered:
                del each[bisect_left(each, before)]
                insort(each, self._load(node))

    def first(self, item: ItemDemand, least: CollisionBound) -> dict[int, list[tuple[bool, float, int]]]:
        """Return some cells with their best nodes for an item's copies: former nodes, then the least loaded."""
        # A cell has as many nodes as there are copies: whether the node is no former one, its load, and the node.
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


MOST_ROUNDS = 20_000
"""Limit of the exchanges from one start. 20,000 copies on 100 nodes, to which 20 empty ones were added, took half."""


@dataclass(frozen=True, slots=True)
class StandbyPlacement:
    """A placement of copies."""

    # Of each item: its nodes, sorted, without that of its fixed copy; collisions; copies that have no node.
    nodes: tuple[tuple[int, ...], ...]
    collisions: tuple[int, ...]
    missing: tuple[int, ...]
    kept: int
    # Optimal in the order collisions, loads, kept.
    proven: bool


def place_standbys(
    items: Sequence[ItemDemand],
    field: Topology,
    starts: Sequence[Sequence[tuple[int, ...]]] = (),
    until: float = math.inf,
) -> StandbyPlacement:
    # `starts` are used if they have as few collisions. After `until` (`time.monotonic`) no exchange is made, and hardly
    # anything is searched for.
    rooms = CollisionIndex(field, until)
    least = [
        rooms.lowered(item, rooms.least(item), [start[number] for start in starts]) for number, item in enumerate(items)
    ]
    best, proven = _searched(rooms, items, least, starts, until)
    found = best.graph
    there = [set(item.current) for item in items]
    copies = sum(map(len, there))
    if not proven and found.kept() < copies and all(found.is_feasible(*each) for each in enumerate(there)):
        stays = ExchangeGraph(rooms, items, least, there)
        between = [
            replace(item, current=(*item.current, *sorted(own.difference(item.current))))
            for item, own in zip(items, found.sets, strict=True)
        ]
        after = _searched(rooms, between, least, starts, until)[0].graph
        if max(found.uneven(), after.uneven()) >= stays.uneven() or after.kept() < copies:
            found = stays
    return StandbyPlacement(
        tuple(tuple(sorted(own)) for own in found.sets),
        tuple(found.collisions(number, own) if own else 0 for number, own in enumerate(found.sets)),
        tuple(item.copies - each.copies for item, each in zip(items, least, strict=True)),
        found.kept(),
        proven,
    )


def _searched(
    rooms: CollisionIndex,
    items: Sequence[ItemDemand],
    least: Sequence[CollisionBound],
    starts: Sequence[Sequence[tuple[int, ...]]],
    until: float,
) -> tuple[_Exchange, bool]:
    """Return the best placement that is found, and whether it is proven optimal."""
    dimensions = rooms.field.dimensions
    flow = len(dimensions) <= 1 and not any(dimension.max_unused for dimension in dimensions)
    known = flow and all(each.proven for each in least)
    best = _Exchange(ExchangeGraph(rooms, items, least), until).improved()
    for start in starts:
        if (known and best.ended) or time.monotonic() >= until:
            break
        begun = ExchangeGraph(rooms, items, least, [set(own) for own in start])
        if all(begun.is_feasible(number, own) for number, own in enumerate(begun.sets)):
            best = _better(best, _Exchange(begun, until), items)
    proven = known and best.ended
    if not proven:
        switches = SetSwitches.of(rooms, items, least)
        if switches is not None:
            while (switched := switches.improved(best.graph.sets, until)) is not None:
                best = _Exchange(ExchangeGraph(rooms, items, least, switched), until).improved()
            proven = all(each.proven for each in least) and switches.reaches_bound(best.graph.sets)
    return best, proven


def _better(best: _Exchange, other: _Exchange, items: Sequence[ItemDemand]) -> _Exchange:
    """Return the better of two, of which `other` is only started; it is abandoned if it cannot be better."""
    other.even()
    if other.graph.uneven() > best.graph.uneven():
        return best
    if other.graph.uneven() == best.graph.uneven():
        most = sum(min(len(own), len(item.current)) for own, item in zip(best.graph.sets, items, strict=True))
        if best.graph.kept() >= most:
            return best
    return min(best, other.improved(), key=lambda each: each.rank())


class _Exchange:
    """A placement and the exchanges that improve it."""

    def __init__(self, graph: ExchangeGraph, until: float) -> None:
        self.graph = graph
        self._until = until
        self._nodes = range(len(graph.count))
        self._left = MOST_ROUNDS

    @property
    def ended(self) -> bool:
        """Whether it ended because no exchange was left."""
        return self._left > 0

    def rank(self) -> tuple[float, int]:
        """Return how uneven loads are, and minus the number of kept copies; less is better."""
        return self.graph.uneven(), -self.graph.kept()

    def improved(self) -> _Exchange:
        self.even()
        # With one dimension loads are optimal by now.
        while self._left and self._return_copies() and self.even():
            pass
        return self

    def even(self) -> bool:
        """Balance loads as far as paths can; return whether anything changed."""
        before = self._left
        while self._may_go_on() and self._balance_along_path():
            self._left -= 1
        return self._left < before

    def _return_copies(self) -> bool:
        """Return copies to their nodes as far as cycles can; return whether anything changed."""
        before = self._left
        while self._may_go_on() and self._return_along_cycles():
            pass
        return self._left < before

    def _may_go_on(self) -> bool:
        if time.monotonic() >= self._until:
            self._left = 0
        return self._left > 0

    def _balance_along_path(self) -> bool:
        """Take the path that balances most; return whether there was one."""
        graph = self.graph
        arcs = [back | same | away for back, same, away in map(graph.arcs, self._nodes)]
        dead = 0
        for source in sorted(self._nodes, key=lambda node: (-graph.less(node), node)):
            if dead >> source & 1 or not arcs[source]:
                continue
            before = shortest_path_tree(arcs.__getitem__, source, dead)
            less = graph.less(source)
            ends = [node for node in before if node != source and less - graph.more(node) > _NOTHING]
            for target in sorted(ends, key=lambda node: (graph.more(node), node)):
                path = [target]
                while path[-1] != source:
                    path.append(before[path[-1]])
                if self._move_along_path(path[::-1]):
                    return True
            if not ends:
                # A path that does not improve the balance for this source does so even less for the next ones.
                dead |= sum(1 << node for node in before)
        return False

    def _move_along_path(self, path: Sequence[int]) -> bool:
        steps: list[tuple[int, int, int]] = []
        for source, target in pairwise(path):
            move = self.graph.best_move(source, target, [number for number, _, _ in steps])
            if move is None:
                return False
            steps.append((move[1], source, target))
        return self.graph.move(steps)

    def _return_along_cycles(self) -> bool:
        """Take cycles along which copies return, those of the fewest arcs; return whether there was one."""
        arcs = self._arcs()
        walks = [_CycleSearch(start, arcs) for start in self._nodes if arcs[start][0]]
        for _ in self._nodes:
            walks = [each for each in walks if each.longer()]
            # All were found in the graph as it was, so each is checked again before it is taken.
            taken = False
            for cycle in chain.from_iterable(each.closed() for each in walks):
                taken |= self._left > 0 and self._move_along_cycle(cycle)
            if taken or not walks:
                return taken
        return False

    def _arcs(self) -> list[Arcs]:
        """Return the arcs of each node, including those along which no copy moves."""
        level: dict[float, int] = defaultdict(int)
        for node in self._nodes:
            level[self.graph.less(node)] |= 1 << node
        found = []
        for node, (back, same, away) in zip(self._nodes, map(self.graph.arcs, self._nodes), strict=True):
            found.append((back, same | level.get(self.graph.more(node), 0) & ~(1 << node), away))
        return found

    def _move_along_cycle(self, cycle: Sequence[int]) -> bool:
        """Move copies along a cycle if that is feasible and returns copies; return whether it was done."""
        graph = self.graph
        returned = 0
        steps: list[tuple[int, int, int]] = []
        for source, target in pairwise([*cycle, cycle[0]]):
            move = graph.best_move(source, target, [number for number, _, _ in steps])
            if (move is None or move[0] < 0) and abs(graph.less(target) - graph.more(source)) <= _NOTHING:
                continue
            if move is None:
                return False
            returned += move[0]
            steps.append((move[1], source, target))
        if returned <= 0 or not graph.move(steps):
            return False
        self._left -= 1
        return True


_NOTHING = 1e-9


class _CycleSearch:
    """Walks from a node along which at every step more copies have returned than left."""

    def __init__(self, start: int, arcs: Sequence[Arcs]) -> None:
        self._start = start
        self._arcs = arcs
        self._reached = [1 << start]
        """Nodes reached with at least so many returned copies, by that number."""

        self._steps: list[dict[int, tuple[int, int]]] = [{start: (0, start)}]
        """For each number of arcs, by node: the number of returned copies, and the previous node."""

    def longer(self) -> bool:
        """Extend all walks by one arc; return whether any could be extended."""
        reached: dict[int, tuple[int, int]] = {}
        # The number of returned copies is at most the number of arcs.
        self._reached.append(1 << self._start)
        for node, (total, _) in self._steps[-1].items():
            for returned, bits in zip(RETURNS, self._arcs[node], strict=True):
                more = total + returned
                if more <= 0:
                    break
                new = bits & ~self._reached[more]
                if new:
                    for each in range(1, more + 1):
                        self._reached[each] |= new
                    reached.update(dict.fromkeys(bits_of(new), (more, node)))
        self._steps.append(reached)
        return bool(reached)

    def closed(self) -> Iterator[list[int]]:
        """Yield the walks that one more arc makes a cycle, each as its nodes."""
        for node, (total, _) in self._steps[-1].items():
            back, same, away = self._arcs[node]
            # Without the comparison, `_move_along_cycle` rejects the cycle.
            if (back | same | (away if total > 1 else 0)) >> self._start & 1:  # pragma: no mutate
                walk = [node]
                for step in self._steps[:0:-1]:
                    walk.append(step[walk[-1]][1])
                if len(set(walk)) == len(walk):
                    yield walk[::-1]
