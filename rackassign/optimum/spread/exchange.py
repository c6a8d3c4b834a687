"""Gives items their copies over several dimensions: least collisions, then even loads, then as they were held.

Theory of operation
-------------------
1. *Start*: each item takes a set with its least collisions, held and less loaded nodes first.
2. *Even*: the *exchange graph* has an arc from node u to node v where some item can give up u and take v without more
   collisions. A path from a node to a less loaded one, one item for each arc, moves one copy from its first node to its
   last and leaves the others as they are. The path that evens most is taken, the shortest of those, until none evens.
3. *Keep*: a cycle of that graph changes no load, nor does a path between nodes of which one has just one copy more. One
   along which more copies come back to nodes that held them than leave such is taken, until there is none.

With one dimension, and no bound on how many of its values are used, the sets of an item that are as good as can be are
the bases of a matroid, and loads are a separable convex cost over their sum: then no improving path means no
improvement at all, so both steps end in the optimum, as the flow that it is would. Otherwise that need not be so, and
the result is not called proven.

Sets of nodes are bits of an int: an arc's targets are found for an item in one step, whatever there are of nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rackassign.optimum.spread.dimensions import Field, Rooms, Wanted

MOST_ROUNDS = 20_000
"""Exchanges that are made; more would take minutes."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where copies go.

    Args:
        nodes: Of each item, without its fixed copy, sorted.
        collisions: Of each item.
        missing: Copies of each item that have no node.
        kept: Copies at nodes that held them.
        proven: Whether nothing is better, in the order collisions, loads, kept.
    """

    nodes: tuple[tuple[int, ...], ...]
    collisions: tuple[int, ...]
    missing: tuple[int, ...]
    kept: int
    proven: bool


def spread_over(items: Sequence[Wanted], field: Field, starts: Sequence[Sequence[tuple[int, ...]]] = ()) -> Placed:
    """Give every item its copies.

    Args:
        items: What wants copies.
        field: Where they can be.
        starts: Other placements to begin with as well, where they have as few collisions; the best result is taken.
    """
    rooms = Rooms(field)
    least = [rooms.least(item) for item in items]
    found = [_Exchange(rooms, items, least).improved()]
    for start in starts:
        begun = _Exchange(rooms, items, least, [set(own) for own in start])
        if begun.sound():
            found.append(begun.improved())
    best = min(found, key=lambda each: each.rank())
    flow = len(field.dimensions) <= 1 and not any(dimension.fewer for dimension in field.dimensions)
    proven = flow and best.ended and all(known for *_, known in least)
    return Placed(
        tuple(tuple(sorted(own)) for own in best.sets),
        tuple(collisions for _, collisions, _ in least),
        tuple(item.copies - copies for item, (copies, _, _) in zip(items, least, strict=True)),
        sum(len(own.intersection(item.held)) for own, item in zip(best.sets, items, strict=True)),
        proven,
    )


class _Exchange:
    """A placement that is made better.

    Args:
        rooms: Of the field.
        items: What wants copies.
        least: Of each item, how many copies it has, with how few collisions, and whether that is proven.
        sets: To begin with; None to choose them.
    """

    def __init__(
        self,
        rooms: Rooms,
        items: Sequence[Wanted],
        least: Sequence[tuple[int, int, bool]],
        sets: list[set[int]] | None = None,
    ) -> None:
        self._rooms = rooms
        self._items = items
        self._least = least
        self._weight = rooms.field.weight
        self._count = list(rooms.field.load)
        self._bits = [sum(1 << node for node in nodes) for nodes in rooms.nodes]
        self._targets: dict[tuple[tuple[int, ...], int, int], int] = {}
        self.ended = False
        self.sets: list[set[int]] = []
        for number in range(len(items)):
            own = self._chosen(number) if sets is None else sets[number]
            self.sets.append(own)
            for node in own:
                self._count[node] += 1

    def sound(self) -> bool:
        """Tell whether all items have as many copies as they can, and as few collisions."""
        return all(
            len(own) == copies and self._fixed(number) not in own and self._collisions(number, own) == collisions
            for number, (own, (copies, collisions, _)) in enumerate(zip(self.sets, self._least, strict=True))
        )

    def rank(self) -> tuple[float, int]:
        """Return how uneven loads are, and how few copies are where they were: less is better."""
        uneven = sum(count * count / weight for count, weight in zip(self._count, self._weight, strict=True))
        kept = sum(len(own.intersection(item.held)) for own, item in zip(self.sets, self._items, strict=True))
        return round(uneven, 6), -kept

    def improved(self) -> _Exchange:
        """Make it as good as exchanges can."""
        left = MOST_ROUNDS
        while left and self._evened():
            left -= 1
        while left and self._kept_more():
            left -= 1
        self.ended = bool(left)
        return self

    def _fixed(self, number: int) -> int:
        return self._items[number].fixed

    def _all_in_all(self, number: int) -> int:
        item = self._items[number]
        copies = item.copies if self._rooms.field.strict else self._least[number][0]
        return copies + (item.fixed >= 0)

    def _cells(self, number: int, own: set[int]) -> tuple[int, ...]:
        fixed = self._fixed(number)
        return tuple(sorted(self._rooms.of[node] for node in (*own, *([fixed] if fixed >= 0 else []))))

    def _collisions(self, number: int, own: set[int]) -> int:
        return self._rooms.collisions(self._cells(number, own), self._all_in_all(number))

    def _chosen(self, number: int) -> set[int]:
        """Return a set with the least collisions: held nodes first, then the least loaded."""
        item, (copies, collisions, _) = self._items[number], self._least[number]
        if not copies:
            return set()

        def liking(node: int) -> tuple[bool, float, int]:
            return node not in item.held, (self._count[node] + 1) / self._weight[node], node

        # In each cell the best nodes are taken first, so a cell is as good as its best.
        ranked = [sorted((n for n in nodes if n != item.fixed), key=liking) for nodes in self._rooms.nodes]
        order = sorted((cell for cell, nodes in enumerate(ranked) if nodes), key=lambda cell: liking(ranked[cell][0]))
        cells, _ = next(self._rooms.sets(item, copies, self._all_in_all(number), order, collisions))
        return {node for cell in set(cells) for node in ranked[cell][: cells.count(cell)]}

    def _arcs(self, number: int, node: int) -> int:
        """Return the nodes that an item can take in place of one of its own, as bits."""
        own, rooms = self.sets[number], self._rooms
        cells, all_in_all = self._cells(number, own), self._all_in_all(number)
        key = (cells, rooms.of[node], all_in_all)
        targets = self._targets.get(key)
        if targets is None:
            rest = list(cells)
            rest.remove(rooms.of[node])
            most = self._least[number][1]
            targets = sum(
                bits
                for cell, bits in enumerate(self._bits)
                if rooms.collisions(tuple(sorted([*rest, cell])), all_in_all) <= most
            )
            self._targets[key] = targets
        taken = sum(1 << each for each in own)
        fixed = self._fixed(number)
        return targets & ~taken & ~(1 << fixed if fixed >= 0 else 0)

    def _graph(self) -> list[int]:
        """Return for each node where one of its copies can go, as bits."""
        arcs = [0] * len(self._weight)
        for number, own in enumerate(self.sets):
            for node in own:
                arcs[node] |= self._arcs(number, node)
        return arcs

    def _gain(self, source: int, target: int) -> float:
        """Return by how much a copy that goes evens loads."""
        count, weight = self._count, self._weight
        less = (2 * count[source] - 1) / weight[source]
        more = (2 * count[target] + 1) / weight[target]
        return less - more

    def _evened(self) -> bool:
        """Take the path that evens most; tell whether there was one."""
        nodes = range(len(self._weight))
        arcs = self._graph()
        ranked = sorted(nodes, key=lambda node: (-(2 * self._count[node] - 1) / self._weight[node], node))
        for source in ranked:
            back = _reached(arcs, source)
            ends = [target for target in back if target != source and self._gain(source, target) > _NOTHING]
            for target in sorted(ends, key=lambda node: (-self._gain(source, node), node)):
                path = [target]
                while path[-1] != source:
                    path.append(back[path[-1]])
                if self._taken(path[::-1]):
                    return True
        return False

    def _taken(self, path: Sequence[int]) -> bool:
        """Move a copy along each arc of a path, each of another item; tell whether that could be done."""
        used: set[int] = set()
        steps = []
        for source, target in pairwise(path):
            number = self._mover(source, target, used)
            if number is None:
                return False
            used.add(number)
            steps.append((number, source, target))
        for number, source, target in steps:
            self._move(number, source, target)
        return True

    def _mover(self, source: int, target: int, used: set[int]) -> int | None:
        """Return the item that can go along an arc: one that comes back rather than one that leaves."""
        best: tuple[int, int] | None = None
        for number, own in enumerate(self.sets):
            if source in own and number not in used and self._arcs(number, source) >> target & 1:
                rank = -self._return(number, source, target), number
                best = rank if best is None else min(best, rank)
        return None if best is None else best[1]

    def _return(self, number: int, source: int, target: int) -> int:
        held = self._items[number].held
        return (target in held) - (source in held)

    def _move(self, number: int, source: int, target: int) -> None:
        self.sets[number].remove(source)
        self.sets[number].add(target)
        self._count[source] -= 1
        self._count[target] += 1

    def _kept_more(self) -> bool:
        """Take a cycle along which copies come back to where they were; tell whether there was one."""
        if all(own.issuperset(item.held) for own, item in zip(self.sets, self._items, strict=True)):
            return False
        return any(self._cycled(cycle) for cycle in _cycles(self._returns()))

    def _returns(self) -> list[list[tuple[int, int] | None]]:
        """Return for each pair of nodes what is best to move from one to the other: how much it returns, and an item.

        Where a copy more at the one and one less at the other is as even, that is an arc as well: of no item.
        """
        nodes = len(self._weight)
        found: list[list[tuple[int, int] | None]] = [[None] * nodes for _ in range(nodes)]
        for number, own in enumerate(self.sets):
            for source in own:
                for target in _bits_of(self._arcs(number, source)):
                    told = self._return(number, source, target), number
                    known = found[source][target]
                    if known is None or told[0] > known[0]:
                        found[source][target] = told
        for source in range(nodes):
            for target in range(nodes):
                # Back along this one: a path from target to source may end there.
                if source != target and abs(self._gain(target, source)) <= _NOTHING and self._count[target]:
                    known = found[source][target]
                    if known is None or known[0] < 0:
                        found[source][target] = (0, _NO_ITEM)
        return found

    def _cycled(self, cycle: Sequence[tuple[int, int, int]]) -> bool:
        """Go along a cycle of (source, target, item), and undo it if it turns out not to be sound."""
        moved = []
        items = [number for _, _, number in cycle if number != _NO_ITEM]
        if len(set(items)) < len(items):
            return False
        before = self.rank()
        for source, target, number in cycle:
            if number != _NO_ITEM:
                self._move(number, source, target)
                moved.append((number, source, target))
        if self.rank() < before:
            return True
        for number, source, target in reversed(moved):
            self._move(number, target, source)
        return False


_NOTHING = 1e-9
_NO_ITEM = -1


def _bits_of(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _reached(arcs: Sequence[int], source: int) -> dict[int, int]:
    """Return all nodes that can be reached, each with the one before it on a shortest path."""
    back = {source: source}
    seen = 1 << source
    waiting = deque([source])
    while waiting:
        node = waiting.popleft()
        new = arcs[node] & ~seen
        seen |= new
        for target in _bits_of(new):
            back[target] = node
            waiting.append(target)
    return back


def _cycles(returns: Sequence[Sequence[tuple[int, int] | None]]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield cycles of (source, target, item) along which more returns than leaves, the shortest first.

    Bellman and Ford's way: the best walk of so many arcs from each node, until one comes back to where it began.
    """
    nodes = range(len(returns))
    for start in nodes:
        best: dict[int, tuple[int, list[int]]] = {start: (0, [start])}
        for _ in nodes:
            longer: dict[int, tuple[int, list[int]]] = {}
            for node, (total, walk) in best.items():
                for target, told in enumerate(returns[node]):
                    if told is None or (target in walk and target != start):
                        continue
                    more = total + told[0]
                    if target == start:
                        if more > 0:
                            yield _arcs_of([*walk, start], returns)
                        continue
                    if target not in longer or more > longer[target][0]:
                        longer[target] = (more, [*walk, target])
            best = longer


def _arcs_of(walk: Sequence[int], returns: Sequence[Sequence[tuple[int, int] | None]]) -> list[tuple[int, int, int]]:
    found = []
    for source, target in pairwise(walk):
        told = returns[source][target]
        if told is not None:
            found.append((source, target, told[1]))
    return found
