"""Gives items their copies over several dimensions: least collisions, then even loads, then as they were held.

Theory of operation
-------------------
1. *Start*: each item takes a set with its least collisions, held and less loaded nodes first.
2. *Even*: a path of the exchange graph (`graph`) from a node to a less loaded one, one item for each arc, moves one
   copy from its first node to its last and leaves the others as they are. Of paths from the most loaded node there is
   one from, that which evens most is taken, the shortest of those, until none evens.
3. *Keep*: a cycle of that graph changes no load, nor does a path between nodes of which one has just one copy more:
   that is a cycle with an arc from its last node to its first, along which no copy goes. One along which more copies
   come back to nodes that held them than leave such is taken, of fewest arcs, until there is none.

A cycle that returns more than it loses has a node from which on it is ahead at every step. So walks are followed from
each node as long as they are ahead, all by one arc at a time, and of those that are as long and end at the same node
only the one that is most ahead.

With one dimension, and no bound on how many of its values are used, the sets of an item that are as good as can be are
the bases of a matroid, and loads are a separable convex cost over their sum: then no improving path, and no cycle that
returns more, means no improvement at all, so both steps end in the optimum, as the flow that it is would. An item may
be needed for several arcs, and its moves may be sound one by one but not together; along a path or cycle of fewest
arcs they are, since what would be amiss is an arc that makes it shorter. With more dimensions none of that need be so:
what is not sound is not done, and the result is not called proven.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from rackassign.solver.arc_search import bits_of, shortest_path_tree
from rackassign.solver.standby.collisions import CollisionIndex, ItemDemand, Topology
from rackassign.solver.standby.exchange_graph import RETURNS, Arcs, ExchangeGraph

MOST_ROUNDS = 20_000
"""Exchanges that are made from a start; 20,000 copies at 100 nodes, to which 20 empty ones came, took half of them."""


@dataclass(frozen=True, slots=True)
class StandbyPlacement:
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


def place_standbys(
    items: Sequence[ItemDemand],
    field: Topology,
    starts: Sequence[Sequence[tuple[int, ...]]] = (),
    until: float = math.inf,
) -> StandbyPlacement:
    """Give every item its copies.

    Args:
        items: What wants copies.
        field: Where they can be.
        starts: Other placements to begin with as well, where they have as few collisions; the best result is taken.
        until: Deadline, on the clock of `time.monotonic`: past it no further exchange is made.
    """
    rooms = CollisionIndex(field)
    least = [
        rooms.lowered(item, rooms.least(item), [start[number] for start in starts]) for number, item in enumerate(items)
    ]
    flow = len(field.dimensions) <= 1 and not any(dimension.max_unused for dimension in field.dimensions)
    known = flow and all(each.proven for each in least)
    best = _Exchange(ExchangeGraph(rooms, items, least), until).improved()
    for start in starts:
        if (known and best.ended) or time.monotonic() >= until:
            break
        begun = ExchangeGraph(rooms, items, least, [set(own) for own in start])
        if all(begun.is_feasible(number, own) for number, own in enumerate(begun.sets)):
            best = _better(best, _Exchange(begun, until), items)
    sets = best.graph.sets
    return StandbyPlacement(
        tuple(tuple(sorted(own)) for own in sets),
        tuple(best.graph.collisions(number, own) if own else 0 for number, own in enumerate(sets)),
        tuple(item.copies - each.copies for item, each in zip(items, least, strict=True)),
        best.graph.kept(),
        known and best.ended,
    )


def _better(best: _Exchange, other: _Exchange, items: Sequence[ItemDemand]) -> _Exchange:
    """Return the better of two, of which one is only begun: what cannot be better is left."""
    other.even()
    if other.graph.uneven() > best.graph.uneven():
        return best
    if other.graph.uneven() == best.graph.uneven():
        most = sum(min(len(own), len(item.current)) for own, item in zip(best.graph.sets, items, strict=True))
        if best.graph.kept() >= most:
            return best
    return min(best, other.improved(), key=lambda each: each.rank())


class _Exchange:
    """A placement that is made better.

    Args:
        graph: Of it.
        until: Deadline, on the clock of `time.monotonic`.
    """

    def __init__(self, graph: ExchangeGraph, until: float) -> None:
        self.graph = graph
        self._until = until
        self._nodes = range(len(graph.count))
        self._left = MOST_ROUNDS

    @property
    def ended(self) -> bool:
        """Whether there was no exchange left when it ended."""
        return self._left > 0

    def rank(self) -> tuple[float, int]:
        """Return how uneven loads are, and how few copies are where they were: less is better."""
        return self.graph.uneven(), -self.graph.kept()

    def improved(self) -> _Exchange:
        """Make it as good as exchanges can."""
        self.even()
        # With one dimension loads are as even as can be by now.
        while self._left and self._keep() and self.even():
            pass
        return self

    def even(self) -> bool:
        """Even loads as far as paths do; tell whether that was anything."""
        before = self._left
        while self._may_go_on() and self._evened():
            self._left -= 1
        return self._left < before

    def _keep(self) -> bool:
        """Bring copies back as far as cycles do; tell whether that was anything."""
        before = self._left
        while self._may_go_on() and self._kept_more():
            pass
        return self._left < before

    def _may_go_on(self) -> bool:
        if time.monotonic() >= self._until:
            self._left = 0
        return self._left > 0

    def _evened(self) -> bool:
        """Take the path that evens most; tell whether there was one."""
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
                if self._moved(path[::-1]):
                    return True
            if not ends:
                # What evens nothing for this source does so even less for those that come after it.
                dead |= sum(1 << node for node in before)
        return False

    def _moved(self, path: Sequence[int]) -> bool:
        """Move a copy along each arc of a path; tell whether that could be done."""
        steps: list[tuple[int, int, int]] = []
        for source, target in pairwise(path):
            told = self.graph.best_move(source, target, [number for number, _, _ in steps])
            if told is None:
                return False
            steps.append((told[1], source, target))
        return self.graph.move(steps)

    def _kept_more(self) -> bool:
        """Take cycles along which copies come back, of the fewest arcs there are; tell whether there was one."""
        arcs = self._arcs()
        walks = [_CycleSearch(start, arcs) for start in self._nodes if arcs[start][0]]
        for _ in self._nodes:
            walks = [each for each in walks if each.longer()]
            # All were found in the graph as it was: each is looked at again before it is taken.
            taken = False
            for cycle in chain.from_iterable(each.closed() for each in walks):
                taken |= self._left > 0 and self._cycled(cycle)
            if taken or not walks:
                return taken
        return False

    def _arcs(self) -> list[Arcs]:
        """Return the arcs of each node, with those along which no copy goes."""
        level: dict[float, int] = defaultdict(int)
        for node in self._nodes:
            level[self.graph.less(node)] |= 1 << node
        found = []
        for node, (back, same, away) in zip(self._nodes, map(self.graph.arcs, self._nodes), strict=True):
            found.append((back, same | level.get(self.graph.more(node), 0) & ~(1 << node), away))
        return found

    def _cycled(self, cycle: Sequence[int]) -> bool:
        """Go along a cycle, where that is sound and returns something; tell whether it is so."""
        graph = self.graph
        returned = 0
        steps: list[tuple[int, int, int]] = []
        for source, target in pairwise([*cycle, cycle[0]]):
            told = graph.best_move(source, target, [number for number, _, _ in steps])
            if (told is None or told[0] < 0) and abs(graph.less(target) - graph.more(source)) <= _NOTHING:
                continue
            if told is None:
                return False
            returned += told[0]
            steps.append((told[1], source, target))
        if returned <= 0 or not graph.move(steps):
            return False
        self._left -= 1
        return True


_NOTHING = 1e-9


class _CycleSearch:
    """Walks from a node along which more has come back than left, at every step.

    Args:
        start: The node.
        arcs: Of each node.
    """

    def __init__(self, start: int, arcs: Sequence[Arcs]) -> None:
        self._start = start
        self._arcs = arcs
        self._reached = [1 << start]
        """Nodes reached with so much returned, or more."""

        self._steps: list[dict[int, tuple[int, int]]] = [{start: (0, start)}]
        """After so many arcs: by node how much has come back, and the node before."""

    def longer(self) -> bool:
        """Make them longer by an arc; tell whether any can be."""
        found: dict[int, tuple[int, int]] = {}
        # As much has come back as there are arcs, at most.
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
                    found.update(dict.fromkeys(bits_of(new), (more, node)))
        self._steps.append(found)
        return bool(found)

    def closed(self) -> Iterator[list[int]]:
        """Yield those that one more arc makes a cycle, each as its nodes."""
        for node, (total, _) in self._steps[-1].items():
            back, same, away = self._arcs[node]
            if (back | same | (away if total > 1 else 0)) >> self._start & 1:
                walk = [node]
                for step in self._steps[:0:-1]:
                    walk.append(step[walk[-1]][1])
                if len(set(walk)) == len(walk):
                    yield walk[::-1]
