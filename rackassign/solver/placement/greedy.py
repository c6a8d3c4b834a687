"""Placement without a solver, or with too many classes for one: place copies within all constraints, then balance.

Each item first takes nodes that satisfy its constraints, its current nodes before others. Then loads are balanced along
paths (`even_loads`). If few moves come first, that is the optimum of both. Otherwise loads are balanced, and moves are
few but not the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from rackassign.solver.placement.classes import RackChoice, worth_keeping
from rackassign.solver.placement.even_loads import FeasibleMoves, LoadBalancer, NodeLoads
from rackassign.solver.placement.model import BrokerArrays, Problem
from rackassign.solver.placement.rack_limits import Bounds

_NO_NODE = -1


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
    """Nodes that accept new copies, with the least loaded node of a rack at hand.

    Args:
        nodes: All nodes.
        loads: Their loads that are not to be placed, and the cost of one more copy.
        count: Number of copies that are placed already.
    """

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
        """Return how much the balance gets worse when a copy is added to a node."""
        return self._here.more(node)

    def racks_left(self, own: Sequence[int]) -> set[int]:
        """Return the racks that have a node other than these."""
        used = Counter(self._rack[node] for node in own if self._open[node])
        return {rack for rack, heap in self._heaps.items() if len(heap) > used[rack]}

    def best(self, racks: Collection[int], own: Sequence[int]) -> int:
        """Return the best node of the racks other than these."""
        return min(entry for rack in racks if (entry := self._least(rack, own)) is not None)[-1]

    def take(self, node: int) -> None:
        """Add a copy to a node."""
        self._here.count[node] += 1

    def _entry(self, node: int) -> tuple[bool, int, int]:
        return self._reluctant[node], self._here.more(node), node

    def _least(self, rack: int, own: Sequence[int]) -> tuple[bool, int, int] | None:
        heap, taken, found = self._heaps.get(rack, []), list[tuple[bool, int, int]](), None
        while heap:
            entry = self._entry(heap[0][-1])
            if entry != heap[0]:
                # Copies have been added to it since.
                heapreplace(heap, entry)
            elif entry[-1] in own:
                taken.append(heappop(heap))
            else:
                found = entry
                break
        for entry in taken:
            heappush(heap, entry)
        return found


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
    nodes, held, kept = problem.nodes, problem.items.current, problem.items.leaders_kept()
    may = [nodes.may_lead(own, problem.limits.leader_racks) for own in sets]
    loads = NodeLoads(nodes.leader_load.tolist(), nodes)
    now = [own[0] if own and own[0] in of else _NO_NODE for own, of in zip(held, may, strict=True)]
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
    return first, greedy_seconds(sets, first, held, nodes)


def greedy_seconds(
    sets: Sequence[Sequence[int]], first: Sequence[int], held: Sequence[tuple[int, ...]], nodes: BrokerArrays
) -> list[int]:
    """Return the successor of each leader, -1 for none: balanced leader by leader, by the items each leads itself."""
    leads = nodes.leader_load + np.bincount([node for node in first if node != _NO_NODE], minlength=len(nodes.rack))
    found, of_leader = [_NO_NODE] * len(sets), dict[int, list[int]]()
    masks: dict[int, int] = {}
    for item, (own, leader, before) in enumerate(zip(sets, first, held, strict=True)):
        others = [node for node in own if node != leader] if leader != _NO_NODE else []
        able = [node for node in others if nodes.leader_eligible[node]] or others
        if able:
            masks[item] = sum(1 << node for node in able)
            found[item] = before[1] if before[:1] == (leader,) and before[1:2] and before[1] in able else able[0]
            of_leader.setdefault(leader, []).append(item)
    for items in of_leader.values():
        evener = LoadBalancer(
            NodeLoads(leads.tolist(), nodes),
            [[found[item]] for item in items],
            lambda at, _, node, items=items: masks[items[at]] & ~(1 << node),  # type: ignore[misc]
            lambda at, own, items=items: len(own) == 1 and bool(masks[items[at]] >> min(own) & 1),  # type: ignore[misc]
        )
        evener.balance()
        for at, item in enumerate(items):
            found[item] = min(evener.sets[at])
    return found
