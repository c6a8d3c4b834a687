"""Placement without flows: within all constraints, and then balanced along paths, for any number of items.

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

It is used if the budget of the flows is used up, and with too many classes for them. Each item first takes nodes that
satisfy its constraints, its current nodes before others. Then loads are balanced along paths. If few moves come first,
that is the optimum of both. Otherwise loads are balanced, and moves are few but not the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise

import numpy as np

from rackassign.solver.network_flow import bits_of, shortest_path_tree
from rackassign.solver.placement.network_builder import inverse_weights
from rackassign.solver.placement.problem import Bounds, BrokerArrays, Problem, RackChoice, worth_keeping

MOST_ROUNDS = 20_000
"""Limit of paths. 30,000 partitions that were placed without regard to racks, on 60 brokers, take about 1,000."""

_NO_NODE = -1
_FRESH = 1 << 40
"""Factor by which a placed copy counts more than existing load, if placed copies are to be balanced first."""


class NodeLoads:
    """Loads of nodes, and the cost of one more copy."""

    def __init__(self, base: Iterable[int], nodes: BrokerArrays, *, fresh: bool = False) -> None:
        # `base` is not to be placed. With `fresh`, placed copies are balanced first, and existing load after them.
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
    """Copies on nodes that are moved until loads are balanced."""

    def __init__(
        self,
        loads: NodeLoads,
        sets: Sequence[Iterable[int]],
        targets: Callable[[int, frozenset[int], int], int],
        sound: Callable[[int, frozenset[int]], bool],
        dear: Sequence[int] | None = None,
    ) -> None:
        # Placed copies are added to `loads`. `targets` are nodes that can replace one of an item's, as bits. `sound` is
        # asked about sets that result from several moves at once. A `dear` node, -1 for none, is given up last.
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
    """

    def __init__(
        self, nodes: BrokerArrays, held: Sequence[Iterable[int]], bounds: Sequence[Bounds], *, moves_first: bool
    ) -> None:
        # `held`: nodes that have each item and may keep it. `moves_first`: few moves come before balance.
        self._rack, self._bounds, self._moves_first = nodes.rack.tolist(), bounds, moves_first
        racks = max(self._rack, default=-1) + 1
        self._open = _bits(node for node, is_open in enumerate(nodes.assignable.tolist()) if is_open)
        self._reluctant = _bits(node for node, is_so in enumerate(nodes.last_resort.tolist()) if is_so)
        self._inside = [_bits(node for node, rack in enumerate(self._rack) if rack == at) for at in range(racks)]
        self._held = [_bits(own) for own in held]
        self._known: dict[tuple[int, tuple[int, ...], int], int] = {}

    def targets(self, item: int, own: frozenset[int], node: int) -> int:
        """Return the nodes that can replace a node of an item, at no higher cost, as bits."""
        # Most nodes have none, whatever the bounds allow, which takes longer to find out.
        free = self._no_dearer(item, node, self._usable(item, own))
        return free & self._within(item, own, node) if free else 0

    def sound(self, item: int, own: frozenset[int]) -> bool:
        """Return whether a set satisfies the bounds of an item; its cost is that of the moves that lead to it."""
        return self._bounds[item].allow(self._rack[node] for node in own)

    def cheapest(self, item: int, own: frozenset[int]) -> frozenset[int]:
        """Return the set of lowest cost for an item that is closest to a given one."""
        while True:
            usable = self._usable(item, own)
            better = (
                (node, cheaper)
                for node in sorted(own)
                if self._cheaper(item, node, usable)
                and (cheaper := self._cheaper(item, node, usable & self._within(item, own, node)))
            )
            found = next(better, None)
            if found is None:
                return own
            node, targets = found
            own = own - {node} | {next(bits_of(targets))}

    def _usable(self, item: int, own: frozenset[int]) -> int:
        return (self._open | self._held[item]) & ~_bits(own)

    def _within(self, item: int, own: frozenset[int], node: int) -> int:
        """Return the nodes in whose racks the bounds of an item allow a replacement of a node."""
        bounds = self._bounds[item]
        racks = tuple(sorted(self._rack[other] for other in own))
        key = (id(bounds), racks, self._rack[node])
        length = self._known.get(key)
        if length is None:
            rest = list(racks)
            rest.remove(self._rack[node])
            count, allowed, length = Counter(rest), dict[tuple[int, int, int, bool], bool](), 0
            for rack, inside in enumerate(self._inside):
                # Racks with the same bounds and copies are alike.
                kind = (bounds.low[rack], bounds.high[rack], count[rack], rack in bounds.leaders)
                if kind not in allowed:
                    allowed[kind] = bounds.allow([*rest, rack])
                length |= inside if allowed[kind] else 0
            self._known[key] = length
        return length

    def _no_dearer(self, item: int, node: int, free: int) -> int:
        bit, current = 1 << node, self._held[item]
        alike = free & (self._reluctant if bit & self._reluctant else ~self._reluctant)
        if self._moves_first and bit & current:
            alike &= current & self._open if bit & self._open else current
        return alike | (free & ~self._reluctant if bit & self._reluctant else 0)

    def _cheaper(self, item: int, node: int, free: int) -> int:
        bit, current = 1 << node, self._held[item]
        if bit & self._reluctant and free & ~self._reluctant:
            return free & ~self._reluctant
        alike = free & (self._reluctant if bit & self._reluctant else ~self._reluctant)
        if not self._moves_first:
            return 0
        if not bit & current:
            return alike & current & self._open or alike & current
        return 0 if bit & self._open else alike & current & self._open


def _bits(nodes: Iterable[int]) -> int:
    found = 0
    for node in nodes:
        found |= 1 << node
    return found


def greedy(problem: Problem, chosen: RackChoice) -> tuple[list[list[int]], bool]:
    """Return the nodes of each item, and whether they are optimal in the objectives moves, then balance of nodes."""
    nodes, goals = problem.nodes, problem.goals
    moves_first = goals.first == "moves"
    leads = [
        worth_keeping(leader, usable, bounds, nodes)
        for leader, usable, bounds in zip(problem.items.leaders_kept(), chosen.usable, chosen.bounds, strict=True)
    ]
    fits = FeasibleMoves(nodes, chosen.usable, chosen.bounds, moves_first=moves_first)
    # The placed items are the only group: it is balanced first, then total loads of nodes.
    loads = NodeLoads(nodes.load.tolist(), nodes, fresh=goals.first == "group")
    sets = [fits.cheapest(item, own) for item, own in enumerate(_place_items(nodes, chosen, loads, leads))]
    evener = LoadBalancer(loads, sets, fits.targets, fits.sound, leads)
    ended = evener.balance()
    return [sorted(own) for own in evener.sets], ended and moves_first


def _place_items(
    nodes: BrokerArrays, chosen: RackChoice, loads: NodeLoads, leads: Sequence[int]
) -> list[frozenset[int]]:
    """Return valid nodes of each item: first items that can stay as they are, then one copy after the other."""
    rack = nodes.rack.tolist()
    settled = [
        bounds.allow(rack[node] for node in own) for own, bounds in zip(chosen.usable, chosen.bounds, strict=True)
    ]
    count = [0] * len(rack)
    for usable, stays in zip(chosen.usable, settled, strict=True):
        for node in usable if stays else ():
            count[node] += 1
    free = _FreeNodes(nodes, loads, count)
    placed: list[frozenset[int]] = []
    for usable, bounds, stays, leader in zip(chosen.usable, chosen.bounds, settled, leads, strict=True):
        if stays:
            placed.append(frozenset(usable))
            continue
        own, counts = list[int](), [0] * len(bounds.high)
        while len(own) < bounds.copies:
            there = {rack[node] for node in usable if node not in own} | free.racks_left(own)
            racks = _racks(own, rack, counts, bounds, there)
            held = [node for node in usable if node not in own and rack[node] in racks]
            if held:
                best = min(held, key=lambda node: (*free.liking(node), node != leader, free.more(node), node))
            else:
                best = free.best(racks, own)
            own.append(best)
            counts[rack[best]] += 1
            free.take(best)
        placed.append(frozenset(own))
    return placed


class _FreeNodes:
    """Nodes that accept new copies, with the least loaded node of a rack at hand."""

    def __init__(self, nodes: BrokerArrays, loads: NodeLoads, count: Sequence[int]) -> None:
        # The loads that are balanced later start without these copies.
        self._here = NodeLoads(loads.base, nodes)
        self._here.count = list(count)
        self._rack, self._open = nodes.rack.tolist(), nodes.assignable.tolist()
        self._reluctant = nodes.last_resort.tolist()
        self._heaps: dict[int, list[tuple[bool, int, int]]] = {}
        for node, rack in enumerate(self._rack):
            if self._open[node]:
                self._heaps.setdefault(rack, []).append(self._entry(node))
        for heap in self._heaps.values():
            heapify(heap)

    def liking(self, node: int) -> tuple[bool, bool]:
        """Return the criteria that count before loads; less is better."""
        return self._reluctant[node], not self._open[node]

    def more(self, node: int) -> int:
        return self._here.more(node)

    def racks_left(self, own: Sequence[int]) -> set[int]:
        used = Counter(self._rack[node] for node in own if self._open[node])
        return {rack for rack, heap in self._heaps.items() if len(heap) > used[rack]}

    def best(self, racks: Collection[int], own: Sequence[int]) -> int:
        return min(entry for rack in racks if (entry := self._least(rack, own)) is not None)[-1]

    def take(self, node: int) -> None:
        self._here.count[node] += 1

    def _entry(self, node: int) -> tuple[bool, int, int]:
        return self._reluctant[node], self._here.more(node), node

    def _least(self, rack: int, own: Sequence[int]) -> tuple[bool, int, int] | None:
        heap, taken, least = self._heaps.get(rack, []), list[tuple[bool, int, int]](), None
        while heap:
            entry = self._entry(heap[0][-1])
            if entry != heap[0]:
                # Copies have been added to it since.
                heapreplace(heap, entry)
            elif entry[-1] in own:
                taken.append(heappop(heap))
            else:
                least = entry
                break
        for entry in taken:
            heappush(heap, entry)
        return least


def _racks(own: list[int], rack: Sequence[int], counts: Sequence[int], bounds: Bounds, free: set[int]) -> set[int]:
    """Return the racks of which one must get the next copy: minimums of the bounds come before maximums."""
    used = {rack[node] for node in own}
    if bounds.leaders and not used & bounds.leaders:
        return {number for number in bounds.leaders if number in free and bounds.high[number]}
    short = {number for number in free if counts[number] < bounds.low[number]}
    if short:
        return short
    if len(used) < bounds.racks:
        return {number for number in free - used if bounds.high[number]}
    return {number for number in free if counts[number] < bounds.high[number]}


def greedy_leads(problem: Problem, sets: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return the leader and the successor of each item, -1 for none: balanced by node, with few leader changes."""
    nodes, current, kept = problem.nodes, problem.items.current, problem.items.leaders_kept()
    may = [nodes.may_lead(own, problem.limits.leader_racks) for own in sets]
    loads = NodeLoads(nodes.leader_load.tolist(), nodes)
    now = [own[0] if own and own[0] in of else _NO_NODE for own, of in zip(current, may, strict=True)]
    for leader in now:
        if leader != _NO_NODE:
            loads.count[leader] += 1
    first = list(now)
    for item, of in enumerate(may):
        if first[item] == _NO_NODE and of:
            first[item] = min(of, key=lambda node: (loads.more(node), node))
            loads.count[first[item]] += 1
    choosing = [item for item, of in enumerate(may) if of and kept[item] not in of]
    fixed = np.bincount(
        [first[item] for item in sorted(set(range(len(first))) - set(choosing)) if first[item] != _NO_NODE],
        minlength=len(nodes.rack),
    )
    masks = [sum(1 << node for node in may[item]) for item in choosing]
    evener = LoadBalancer(
        NodeLoads((nodes.leader_load + fixed).tolist(), nodes),
        [[first[item]] for item in choosing],
        lambda at, _, node: masks[at] & ~(1 << node),
        lambda at, own: len(own) == 1 and bool(masks[at] >> min(own) & 1),
    )
    evener.balance()
    for at, item in enumerate(choosing):
        first[item] = min(evener.sets[at])
    return first, greedy_seconds(sets, first, current, nodes)


def greedy_seconds(
    sets: Sequence[Sequence[int]], first: Sequence[int], held: Sequence[tuple[int, ...]], nodes: BrokerArrays
) -> list[int]:
    """Return the successor of each leader, -1 for none: balanced leader by leader, by the items each leads itself."""
    leads = nodes.leader_load + np.bincount([node for node in first if node != _NO_NODE], minlength=len(nodes.rack))
    successors, of_leader = [_NO_NODE] * len(sets), dict[int, list[int]]()
    masks: dict[int, int] = {}
    for item, (own, leader, before) in enumerate(zip(sets, first, held, strict=True)):
        others = [node for node in own if node != leader] if leader != _NO_NODE else []
        able = [node for node in others if nodes.leader_eligible[node]] or others
        if able:
            masks[item] = sum(1 << node for node in able)
            successors[item] = before[1] if before[:1] == (leader,) and before[1:2] and before[1] in able else able[0]
            of_leader.setdefault(leader, []).append(item)
    for items in of_leader.values():
        evener = LoadBalancer(
            NodeLoads(leads.tolist(), nodes),
            [[successors[item]] for item in items],
            lambda at, _, node, items=items: masks[items[at]] & ~(1 << node),  # type: ignore[misc]
            lambda at, own, items=items: len(own) == 1 and bool(masks[items[at]] >> min(own) & 1),  # type: ignore[misc]
        )
        evener.balance()
        for at, item in enumerate(items):
            successors[item] = min(evener.sets[at])
    return successors
