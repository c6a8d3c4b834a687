"""Balance loads by moving copies along paths: without a solver, for any number of items.

Theory of operation
-------------------
There is an arc from node u to node v if some item can replace u by v without a loss in the objectives that come first.
A path of such arcs from a loaded node to a less loaded one moves one copy from its first node to its last and leaves
the loads of the others unchanged. The search starts at the most loaded node, takes the best end of its paths, and
repeats this until no path improves the balance.

The sets that an item may have within its bounds are the bases of a matroid (a flow with one source), and so are those
of lowest cost for the item. Loads are a convex cost over their sum. So if no path improves the balance, nothing does:
the result is optimal, as that of the flow would be. An item that is needed for two arcs of a path is checked as a
whole. Shortest paths are taken, along which its moves are feasible together.

Rounds are counted, so that equal input gives an equal result on every machine. The time of a round is about
proportional to the number of nodes and of copies on the nodes of its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop
from itertools import pairwise

from rackassign.solver.arc_search import bits_of, shortest_path_tree
from rackassign.solver.placement.convex_cost import inverse_weights
from rackassign.solver.placement.model import BrokerArrays
from rackassign.solver.placement.rack_limits import Bounds

MOST_ROUNDS = 20_000
"""Limit of paths. 30,000 partitions that were placed without regard to racks, on 60 brokers, take about 1,000."""

_NO_NODE = -1
_FRESH = 1 << 40
"""Factor by which a placed copy counts more than existing load, if placed copies are to be balanced first."""


class NodeLoads:
    """Loads of nodes, and the cost of one more copy.

    Args:
        base: Copies that are not to be placed, by node.
        nodes: The nodes; their weights count.
        fresh: Whether placed copies are balanced first, and existing load only after them.
    """

    def __init__(self, base: Iterable[int], nodes: BrokerArrays, *, fresh: bool = False) -> None:
        self.base = list(base)
        self.count = [0] * len(self.base)
        self._scale: list[int] = inverse_weights(nodes.weight).tolist()
        self._fresh = _FRESH if fresh else 0

    def less(self, node: int) -> int:
        """Return how much the balance improves when a copy leaves a node."""
        return self.more(node) - 2 * self._scale[node] * (1 + self._fresh)

    def more(self, node: int) -> int:
        """Return how much the balance gets worse when a copy is added to a node."""
        count = self.count[node]
        return self._scale[node] * (2 * (self.base[node] + count) + 1 + self._fresh * (2 * count + 1))

    def uneven(self) -> int:
        """Return how uneven loads are: less is better."""
        return sum(
            scale * ((base + count) ** 2 + self._fresh * count**2)
            for scale, base, count in zip(self._scale, self.base, self.count, strict=True)
        )


class LoadBalancer:
    """Copies on nodes that are moved until loads are balanced.

    Args:
        loads: Loads of the nodes; placed copies are added.
        sets: Nodes of each item.
        targets: Returns, for an item, its set and one node of it, the nodes that can replace that node, as bits.
        sound: Returns whether an item may have a set that results from several moves at once.
        dear: A node of each item that it gives up only if no other item can move instead; -1 for none.
    """

    def __init__(
        self,
        loads: NodeLoads,
        sets: Sequence[Iterable[int]],
        targets: Callable[[int, frozenset[int], int], int],
        sound: Callable[[int, frozenset[int]], bool],
        dear: Sequence[int] | None = None,
    ) -> None:
        self.loads = loads
        self._dear = [_NO_NODE] * len(sets) if dear is None else dear
        self._targets, self._sound = targets, sound
        self._nodes = range(len(loads.base))
        self.sets: list[frozenset[int]] = [frozenset() for _ in sets]
        self._at: list[dict[int, int]] = [{} for _ in self._nodes]
        self._arcs: list[int | None] = [None for _ in self._nodes]
        for item, own in enumerate(sets):
            self._apply(item, frozenset(own))

    def balance(self, rounds: int = MOST_ROUNDS) -> bool:
        """Take paths until none improves the balance; return whether that happened within the limit of rounds."""
        while rounds and self._improve_along_path():
            rounds -= 1
        return rounds > 0

    def _apply(self, item: int, own: frozenset[int]) -> None:
        for node in self.sets[item]:
            self.loads.count[node] -= 1
            self._arcs[node] = None
            self._at[node].pop(item, None)
        self.sets[item] = own
        for node in own:
            self.loads.count[node] += 1
            found = self._targets(item, own, node)
            if found:
                self._arcs[node] = None
                self._at[node][item] = found

    def _arcs_of(self, node: int) -> int:
        known = self._arcs[node]
        if known is None:
            known = 0
            for targets in self._at[node].values():
                known |= targets
            self._arcs[node] = known
        return known

    def _improve_along_path(self) -> bool:
        """Take the path that balances most, from the most loaded node that has one; return whether there was one."""
        loads, dead = self.loads, 0
        # The first is nearly always sufficient, so the others need not be sorted.
        sources = [(-loads.less(node), node) for node in self._nodes if self._at[node]]
        heapify(sources)
        while sources:
            less, source = heappop(sources)
            if dead >> source & 1:
                continue
            before = shortest_path_tree(self._arcs_of, source, dead)
            ends = [(more, node) for node in before if node != source and (more := loads.more(node)) < -less]
            for _, target in sorted(ends):
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
        """Move a copy along each arc of a path; return whether that was feasible."""
        sets: dict[int, frozenset[int]] = {}
        twice = False
        for source, target in pairwise(path):
            able = [item for item, targets in self._at[source].items() if targets >> target & 1]
            if not able:
                return False
            item = min(able, key=lambda number: (number in sets, self._dear[number] == source, number))
            own = sets.get(item, self.sets[item])
            twice |= item in sets
            if source not in own or target in own:
                return False
            sets[item] = own - {source} | {target}
        if twice and not all(self._sound(item, own) for item, own in sets.items()):
            return False
        for item, own in sets.items():
            self._apply(item, own)
        return True


class FeasibleMoves:
    """The sets that items may have: within their bounds, at no higher cost than they begin with.

    The costs of an item, in order: a node that is used only as a last resort; a node that did not have the item, if
    few moves come first; a node that accepts no new copies, if another one that had the item could stay.

    Args:
        nodes: Nodes on which copies can be placed.
        held: Nodes that have each item and may keep it.
        bounds: Bounds of each item.
        moves_first: Whether few moves come before balance.
    """

    def __init__(
        self, nodes: BrokerArrays, held: Sequence[Iterable[int]], bounds: Sequence[Bounds], *, moves_first: bool
    ) -> None:
        self._rack, self._bounds, self._moves_first = nodes.rack.tolist(), bounds, moves_first
        racks = max(self._rack, default=-1) + 1
        self._open = _bits(node for node, is_open in enumerate(nodes.assignable.tolist()) if is_open)
        self._reluctant = _bits(node for node, is_so in enumerate(nodes.last_resort.tolist()) if is_so)
        self._inside = [_bits(node for node, rack in enumerate(self._rack) if rack == at) for at in range(racks)]
        self._held = [_bits(own) for own in held]
        self._known: dict[tuple[int, tuple[int, ...], int], int] = {}

    def targets(self, item: int, own: frozenset[int], node: int) -> int:
        """Return the nodes that can replace a node of an item, at no higher cost, as bits."""
        free = self._within(item, own, node)
        return self._no_dearer(item, node, free) if free else 0

    def sound(self, item: int, own: frozenset[int]) -> bool:
        """Return whether a set satisfies the bounds of an item; its cost is that of the moves that lead to it."""
        return self._bounds[item].allow(self._rack[node] for node in own)

    def cheapest(self, item: int, own: frozenset[int]) -> frozenset[int]:
        """Return the set of lowest cost for an item that is closest to a given one."""
        while True:
            better = (
                (node, cheaper)
                for node in sorted(own)
                if (cheaper := self._cheaper(item, node, self._within(item, own, node)))
            )
            found = next(better, None)
            if found is None:
                return own
            node, targets = found
            own = own - {node} | {next(bits_of(targets))}

    def _within(self, item: int, own: frozenset[int], node: int) -> int:
        bounds = self._bounds[item]
        racks = tuple(sorted(self._rack[other] for other in own))
        key = (id(bounds), racks, self._rack[node])
        found = self._known.get(key)
        if found is None:
            rest = list(racks)
            rest.remove(self._rack[node])
            good = (rack for rack in range(len(self._inside)) if bounds.allow([*rest, rack]))
            found = self._known[key] = sum(self._inside[rack] for rack in good)
        return found & (self._open | self._held[item]) & ~_bits(own)

    def _no_dearer(self, item: int, node: int, free: int) -> int:
        bit, held = 1 << node, self._held[item]
        alike = free & (self._reluctant if bit & self._reluctant else ~self._reluctant)
        if self._moves_first and bit & held:
            alike &= held & self._open if bit & self._open else held
        return alike | (free & ~self._reluctant if bit & self._reluctant else 0)

    def _cheaper(self, item: int, node: int, free: int) -> int:
        bit, held = 1 << node, self._held[item]
        if bit & self._reluctant and free & ~self._reluctant:
            return free & ~self._reluctant
        alike = free & (self._reluctant if bit & self._reluctant else ~self._reluctant)
        if not self._moves_first:
            return 0
        if not bit & held:
            return alike & held & self._open or alike & held
        return 0 if bit & self._open else alike & held & self._open


def _bits(nodes: Iterable[int]) -> int:
    found = 0
    for node in nodes:
        found |= 1 << node
    return found
