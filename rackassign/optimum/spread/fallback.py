"""Without a solver: copies are placed one at a time, within all limits, and held where they may be."""

from __future__ import annotations

from collections.abc import Sequence

from rackassign.optimum.spread.bounds import Bounds
from rackassign.optimum.spread.classes import Chosen
from rackassign.optimum.spread.problem import Nodes


def greedy(nodes: Nodes, chosen: Chosen) -> list[list[int]]:
    """Return the nodes of each item: valid, near even, and far from the fewest moves."""
    rack, weight, open_ = nodes.rack.tolist(), nodes.weight.tolist(), nodes.open.tolist()
    reluctant, load = nodes.reluctant.tolist(), nodes.load.tolist()
    placed: list[list[int]] = []
    for usable, bounds in zip(chosen.usable, chosen.bounds, strict=True):
        own: list[int] = []
        holders = set(usable)
        candidates = [node for node in range(len(rack)) if open_[node] or node in holders]
        for _ in range(bounds.copies):
            racks = _racks(own, rack, bounds, {rack[node] for node in candidates if node not in own})
            best = min(
                (node for node in candidates if rack[node] in racks and node not in own),
                key=lambda node: (reluctant[node], node not in holders, (load[node] + 1) / weight[node], node),
            )
            own.append(best)
            load[best] += 1
        placed.append(own)
    return placed


def _racks(own: list[int], rack: list[int], bounds: Bounds, free: set[int]) -> set[int]:
    """Return the racks of which one must have the next copy: what limits ask for comes before what they allow."""
    counts = [0] * len(bounds.high)
    for node in own:
        counts[rack[node]] += 1
    used = {number for number, count in enumerate(counts) if count}
    if bounds.leaders and not used & bounds.leaders:
        return {number for number in bounds.leaders if number in free and bounds.high[number]}
    short = {number for number in free if counts[number] < bounds.low[number]}
    if short:
        return short
    if len(used) < bounds.racks:
        return {number for number in free - used if bounds.high[number]}
    return {number for number in free if counts[number] < bounds.high[number]}


def greedy_order(
    sets: list[list[int]], nodes: Nodes, leader_racks: frozenset[int] | None
) -> tuple[list[int], list[int]]:
    """Return who leads each item and who is next, -1 for nobody: those who lead least."""
    leads = nodes.leads.tolist()
    first: list[int] = []
    second: list[int] = []
    for own in sets:
        may = nodes.may_lead(own, leader_racks)
        leader = min(may, key=lambda node: (leads[node], node)) if may else -1
        if leader >= 0:
            leads[leader] += 1
        others = sorted(node for node in own if node != leader) if leader >= 0 else []
        first.append(leader)
        second.append(min(others, key=lambda node: (leads[node], node)) if others else -1)
    return first, second


def greedy_leads(
    held: Sequence[tuple[int, ...]], nodes: Nodes, leader_racks: frozenset[int] | None
) -> tuple[list[int], list[int]]:
    """Return who leads each item and who is next, -1 for nobody: whoever does, unless another would lead less."""
    may = [nodes.may_lead(own, leader_racks) for own in held]
    leads, weight = nodes.leads.tolist(), nodes.weight.tolist()
    first = [own[0] if own and own[0] in of else (of[0] if of else -1) for own, of in zip(held, may, strict=True)]
    for leader in first:
        if leader >= 0:
            leads[leader] += 1
    better = True
    # Each change takes from the fuller of two what leaves the other below it, so there is an end.
    while better:
        better = False
        for item, leader in enumerate(first):
            if leader < 0:
                continue
            least = min(may[item], key=lambda node: ((leads[node] + 1) / weight[node], node))
            if (leads[least] + 1) * weight[leader] < leads[leader] * weight[least]:
                leads[leader] -= 1
                leads[least] += 1
                first[item], better = least, True
    second = [
        min((node for node in own if node != leader), key=lambda node: not nodes.eligible[node], default=-1)
        if leader >= 0
        else -1
        for own, leader in zip(held, first, strict=True)
    ]
    return first, second
