"""Without a solver, and where there are too many classes for one: copies are placed within all limits, then evened.

Each item first takes what keeps to its limits, held nodes before others. Then loads are evened along paths (`even`):
if few moves come first that is the optimum of both; otherwise loads are even, and moves few but not the fewest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackassign.optimum.spread.bounds import Bounds
from rackassign.optimum.spread.classes import Chosen, worth_keeping
from rackassign.optimum.spread.even import Evener, Fits, Loads
from rackassign.optimum.spread.problem import Nodes, Problem

_NOBODY = -1


def greedy(problem: Problem, chosen: Chosen) -> tuple[list[list[int]], bool]:
    """Return the nodes of each item, and whether nothing is better in the objectives moves, then even nodes."""
    nodes, goals = problem.nodes, problem.goals
    moves_first = goals.first == "moves"
    leads = [
        worth_keeping(leader, usable, bounds, nodes)
        for leader, usable, bounds in zip(problem.items.leaders_kept(), chosen.usable, chosen.bounds, strict=True)
    ]
    fits = Fits(nodes, chosen.usable, chosen.bounds, moves_first=moves_first)
    # What is placed is the only group there is: it is evened first, then what nodes carry.
    loads = Loads(nodes.load.tolist(), nodes, fresh=goals.first == "group")
    sets = [fits.cheapest(item, own) for item, own in enumerate(_placed(nodes, chosen, loads, leads))]
    evener = Evener(loads, sets, fits.targets, fits.sound, leads)
    ended = evener.evened()
    return [sorted(own) for own in evener.sets], ended and moves_first


def _placed(nodes: Nodes, chosen: Chosen, loads: Loads, leads: Sequence[int]) -> list[frozenset[int]]:
    """Return valid nodes of each item: what can stay as it is first, then one copy after the other."""
    rack, open_, reluctant = nodes.rack.tolist(), nodes.open.tolist(), nodes.reluctant.tolist()
    settled = [
        bounds.allow(rack[node] for node in own) for own, bounds in zip(chosen.usable, chosen.bounds, strict=True)
    ]
    count = [0] * len(rack)
    for usable, stays in zip(chosen.usable, settled, strict=True):
        for node in usable if stays else ():
            count[node] += 1
    # The loads that are evened later begin with none of this.
    here = Loads(loads.base, nodes)
    here.count = count
    open_nodes = [node for node in range(len(rack)) if open_[node]]
    placed: list[frozenset[int]] = []
    own: list[int]
    for usable, bounds, stays, leader in zip(chosen.usable, chosen.bounds, settled, leads, strict=True):
        if stays:
            placed.append(frozenset(usable))
            continue
        own, counts, holders = [], [0] * len(bounds.high), set(usable)
        candidates = sorted({*open_nodes, *usable})
        for _ in range(bounds.copies):
            racks = _racks(own, rack, counts, bounds, {rack[node] for node in candidates if node not in own})
            best = min(
                (node for node in candidates if rack[node] in racks and node not in own),
                key=lambda node: (
                    reluctant[node],
                    node not in holders,
                    not open_[node],
                    node != leader,
                    here.more(node),
                    node,
                ),
            )
            own.append(best)
            counts[rack[best]] += 1
            count[best] += 1
        placed.append(frozenset(own))
    return placed


def _racks(own: list[int], rack: Sequence[int], counts: Sequence[int], bounds: Bounds, free: set[int]) -> set[int]:
    """Return the racks of which one must have the next copy: what limits ask for comes before what they allow."""
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
    """Return who leads each item and who is next, -1 for nobody: even by node, and few leaders changed."""
    nodes, held, kept = problem.nodes, problem.items.held, problem.items.leaders_kept()
    may = [nodes.may_lead(own, problem.limits.leader_racks) for own in sets]
    loads = Loads(nodes.leads.tolist(), nodes)
    now = [own[0] if own and own[0] in of else _NOBODY for own, of in zip(held, may, strict=True)]
    for leader in now:
        if leader != _NOBODY:
            loads.count[leader] += 1
    first = list(now)
    for item, of in enumerate(may):
        if first[item] == _NOBODY and of:
            first[item] = min(of, key=lambda node: (loads.more(node), node))
            loads.count[first[item]] += 1
    choosing = [item for item, of in enumerate(may) if of and kept[item] not in of]
    fixed = np.bincount(
        [first[item] for item in sorted(set(range(len(first))) - set(choosing)) if first[item] != _NOBODY],
        minlength=len(nodes.rack),
    )
    masks = [sum(1 << node for node in may[item]) for item in choosing]
    evener = Evener(
        Loads((nodes.leads + fixed).tolist(), nodes),
        [[first[item]] for item in choosing],
        lambda at, _, node: masks[at] & ~(1 << node),
        lambda at, own: len(own) == 1 and bool(masks[at] >> min(own) & 1),
    )
    evener.evened()
    for at, item in enumerate(choosing):
        first[item] = min(evener.sets[at])
    return first, greedy_seconds(sets, first, held, nodes)


def greedy_seconds(
    sets: Sequence[Sequence[int]], first: Sequence[int], held: Sequence[tuple[int, ...]], nodes: Nodes
) -> list[int]:
    """Return who is next to lead each item, -1 for nobody: evened leader by leader, by what each leads itself."""
    leads = nodes.leads + np.bincount([node for node in first if node != _NOBODY], minlength=len(nodes.rack))
    found, of_leader = [_NOBODY] * len(sets), dict[int, list[int]]()
    masks: dict[int, int] = {}
    for item, (own, leader, before) in enumerate(zip(sets, first, held, strict=True)):
        others = [node for node in own if node != leader] if leader != _NOBODY else []
        able = [node for node in others if nodes.eligible[node]] or others
        if able:
            masks[item] = sum(1 << node for node in able)
            found[item] = before[1] if before[:1] == (leader,) and before[1:2] and before[1] in able else able[0]
            of_leader.setdefault(leader, []).append(item)
    for items in of_leader.values():
        evener = Evener(
            Loads(leads.tolist(), nodes),
            [[found[item]] for item in items],
            lambda at, _, node, items=items: masks[items[at]] & ~(1 << node),  # type: ignore[misc]
            lambda at, own, items=items: len(own) == 1 and bool(masks[items[at]] >> min(own) & 1),  # type: ignore[misc]
        )
        evener.evened()
        for at, item in enumerate(items):
            found[item] = min(evener.sets[at])
    return found
