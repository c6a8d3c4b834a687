"""Leaders where they cost least, with the number of each node within bounds.

Each item has a cost for each node that may lead it: for each of its own nodes, and for other nodes by rack, where the
new leader replaces one of its nodes. The sum is minimal within the bounds, then as few items as possible are copied,
then as few leaders as possible change, then copies are spread evenly. This is a transportation problem: items are
shipped to nodes, directly or by a *pool*, the other nodes of a rack.

Costs have many digits and are nearly all different, so shortest paths of the primal-dual method would have nearly as
many lengths as there are items. Costs are therefore scaled: the problem is solved with the first binary digit of each
cost, and the prices, doubled, are where the next digit begins. Each digit adds at most one to the length of an arc, so
that few lengths occur at a time. The last digit gives the exact optimum, which is certified as any other.

The bounds of a node are its fair share, rounded down and up, and what it leads now. So no sum is above that of the
leaders as they are, and a second choice changes nothing. The bounds are wider where the nodes of items do not allow the
fair share: then they include the node's number in the most even choice of leaders, which makes them feasible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackassign.solver.network_flow import Ints, Network, SolveBudget, SolverError, min_cost_flow
from rackassign.solver.placement.leaders import (
    NO_NODE,
    Choices,
    choose_successors,
    distribute,
    group_choices,
    leaders,
    leaders_outside_racks,
    ordered,
)
from rackassign.solver.placement.network_builder import Builder, CostSegments, inverse_weights, segment_loads
from rackassign.solver.placement.problem import (
    DEFAULT_WORK,
    BrokerArrays,
    Constraints,
    Objectives,
    PartitionArrays,
    PlacementResult,
    Problem,
)

_SINGLE = 2

_MOST_DIGITS = 60
"""Limit of the lengths of paths, in binary digits."""


@dataclass(frozen=True, slots=True)
class NewLeader:
    """A node that does not have an item yet, and leads it in place of one of its nodes.

    Args:
        cost: Its cost, 0 or more.
        replaced: The nodes of which any may be replaced.
        saved: Copies that are not made with it, as the replaced node does not have the item's data yet: 0 or 1; or -1,
            if the replaced node is preferred also to one that has the data.
    """

    cost: int
    replaced: tuple[int, ...]
    saved: int = 0


@dataclass(frozen=True, slots=True)
class LeaderCosts:
    """What leaders cost.

    Args:
        of: For each item the cost of each of its nodes that can lead it: 0 or more, of any size.
        new: For each item the new leaders by rack; empty for none.
        had: For each item the other nodes that have its data: it is not copied to them.
        led: Leaders as they are at the moment, if those are not the first nodes; -1 for none.
        max_skew: How many leaders more or less than its fair share, rounded, a node may have.
    """

    of: Sequence[Mapping[int, int]]
    new: Sequence[Mapping[int, NewLeader]] = ()
    had: Sequence[tuple[int, ...]] = ()
    led: Sequence[int] = ()
    max_skew: int = 0


def cheapest_leaders(
    items: PartitionArrays,
    nodes: BrokerArrays,
    costs: LeaderCosts,
    limits: Constraints | None = None,
    *,
    work: int = DEFAULT_WORK,
) -> PlacementResult:
    """Choose the leader of each item among the nodes that have a cost, and a successor where the leader changes.

    Args:
        items: Items with their nodes; their number of copies is not used.
        nodes: The nodes.
        costs: Cost of each leader.
        limits: Racks in which leaders must be; no other constraint is used.
        work: Budget, in steps of the solver.
    """
    # Groups do not matter for the bounds, and would multiply the size of the network.
    alike = replace(items, group=0 * items.group, keep=())
    problem = Problem(alike, nodes, limits or Constraints(), Objectives())
    budget, sets = SolveBudget(work), [list(own) for own in items.current]
    try:
        first, note = _cheapest(problem, costs, budget)
        sets = _with_new(problem, costs, first)
        second, other_note = choose_successors(problem, sets, first, budget, keep=True)
    except SolverError as error:
        # Leaders stay: others could cost more.
        return PlacementResult(items.current, 0, 0, proven=False, notes=(f"leaders: {error}",))
    away = leaders_outside_racks(first, nodes, problem.limits.leader_racks)
    notes = tuple(each for each in (note, other_note, away) if each)
    lists = tuple(
        ordered(tuple(own), leader, next_, nodes) for own, leader, next_ in zip(sets, first, second, strict=True)
    )
    return PlacementResult(lists, 0, 0, proven=not notes, notes=notes)


def _with_new(problem: Problem, costs: LeaderCosts, first: Sequence[int]) -> list[list[int]]:
    """Return the nodes of each item; a new leader replaces the node with the highest load by its weight."""
    nodes, sets = problem.nodes, [list(own) for own in problem.items.current]
    load = nodes.load + np.bincount([n for own in sets for n in own], minlength=len(nodes.rack))
    taken = [item for item, (own, leader) in enumerate(zip(sets, first, strict=True)) if leader not in {NO_NODE, *own}]
    np.add.at(load, [first[item] for item in taken], 1)
    for item in taken:
        leader = first[item]
        replaced = costs.new[item][int(nodes.rack[leader])].replaced
        gone = max(replaced, key=lambda node: (load[node] / nodes.weight[node], -node))
        load[gone] -= 1
        sets[item] = [leader, *(node for node in sets[item] if node != gone)]
    return sets


def _cheapest(problem: Problem, costs: LeaderCosts, work: SolveBudget) -> tuple[list[int], str]:
    """Return the leader of each item, -1 for none, and a note on what is not exact."""
    priced = _Priced.of(problem, costs)
    choices, count = priced.choices, len(problem.nodes.rack)
    if not len(choices.size):
        return [NO_NODE] * len(costs.of), ""
    even, note = leaders(problem, priced.able, work)
    low, high = _bounds(problem, costs, even, priced.able)
    class_, target, stays = choices.arcs.T
    builder = Builder()
    class_row = builder.add_rows(len(choices.size), choices.size)
    # A target is a node, or a pool behind them.
    node_row = builder.add_rows(count)
    builder.add_rows(len(priced.pools))
    new_row = builder.add_rows(count)
    sink = builder.add_rows(1, np.asarray([-int(choices.size.sum())]))
    builder.add("choice", class_row + class_, node_row + target, choices.size[class_])
    of_pools = np.asarray([(count + at, node) for at, pool in enumerate(priced.pools) for node in pool], np.int64)
    pool, member = of_pools.reshape(-1, 2).T
    most = np.bincount(target, choices.size[class_], count + len(priced.pools)).astype(np.int64)
    builder.add("pool", node_row + pool, new_row + member, most[pool])
    copies = _copies(problem, np.bincount(member, most[pool], count).astype(np.int64))
    builder.add("new", new_row + copies.owner, node_row + copies.owner, copies.width)
    builder.add("node", node_row + np.arange(count), np.full(count, sink), high, low)
    network, cost = builder.network(), builder.values(choice=priced.cost)
    flow, price = _scaled_flow(network, cost, work)
    for further in ({"choice": priced.copied}, {"choice": -stays}, {"new": copies.cost}):
        if any(values.any() for values in further.values()):
            network, cost = network.restrict_to_optimal(cost, price), builder.values(**further)
            found = min_cost_flow(network, cost, work, flow)
            flow, price = found.flow, found.dual
    parts = builder.split(flow)
    taking = dict[int, list[int]]()
    for at, node, taken in zip(pool.tolist(), member.tolist(), parts["pool"].tolist(), strict=True):
        taking.setdefault(at, []).extend([node] * taken)
    chosen = [taking[at].pop() if at >= count else at for at in distribute(choices, parts["choice"])]
    rounded = f"costs of leaders were rounded to multiples of {priced.unit}" if priced.unit > 1 else ""
    return chosen, rounded or note


def _copies(problem: Problem, most: Ints) -> CostSegments:
    """Return segments of the copies that each node takes, beside all that it has now."""
    nodes = problem.nodes
    load = nodes.load + np.bincount([n for own in problem.items.current for n in own], minlength=len(nodes.rack))
    share = load.sum() * nodes.weight // nodes.weight.sum()
    return segment_loads(most, (share - load).clip(0, most), load, inverse_weights(nodes.weight), _SINGLE)


def _bounds(
    problem: Problem, costs: LeaderCosts, even: Sequence[int], able: Sequence[Sequence[int]]
) -> tuple[Ints, Ints]:
    """Return the fewest and the most items that each node may lead."""
    # `even` is the most even choice of leaders, `able` the nodes that may lead each item.
    nodes, racks = problem.nodes, problem.limits.leader_racks
    may = nodes.leader_eligible if racks is None else nodes.leader_eligible & np.isin(nodes.rack, sorted(racks))

    def led(first: Iterable[int]) -> Ints:
        return np.bincount([node for node in first if node != NO_NODE], minlength=len(nodes.rack))

    # With the leader of the even choice where the present one may not lead, what is there now is feasible.
    now = [[own[0] if own else NO_NODE for own in problem.items.current], costs.led]
    stays = [[a if a in own else b for a, b, own in zip(each, even, able, strict=True)] for each in now if each]
    low = high = nodes.leader_load + led(even)
    if weight := int(nodes.weight[may].sum()):
        whole = int(low.sum())
        low = np.minimum(low, whole * nodes.weight // weight)
        high = np.maximum(high, -(-whole * nodes.weight // weight))
    # Not added to the number now: each plan would go as far beyond the last one.
    skew = min(costs.max_skew, len(even))
    low, high = low - skew - nodes.leader_load, high + skew - nodes.leader_load
    return np.minimum.reduce([low.clip(0), *map(led, stays)]), np.maximum.reduce([high, *map(led, stays)])


@dataclass(frozen=True, slots=True)
class _Priced:
    """Items by class, and for each arc of a class its cost and whether the item is copied."""

    # Targets of arcs are nodes, and behind them pools.
    choices: Choices
    # Nodes that may lead each item.
    able: list[list[int]]
    pools: list[tuple[int, ...]]
    # Of each arc: its cost beyond the lowest of its class, in units, and copies beside those of the item's own nodes.
    cost: Ints
    copied: Ints
    # The unit; 1 unless costs are too large to be exact.
    unit: int

    @classmethod
    def of(cls, problem: Problem, costs: LeaderCosts) -> _Priced:
        nodes, racks = problem.nodes, problem.limits.leader_racks
        takes = nodes.leader_eligible & nodes.assignable
        in_rack: dict[int, list[int]] = {}
        for node in takes.nonzero()[0].tolist():
            if racks is None or int(nodes.rack[node]) in racks:
                in_rack.setdefault(int(nodes.rack[node]), []).append(node)
        rows: dict[tuple[tuple[int, int, int], ...], int] = {}
        pools: dict[tuple[int, ...], int] = {}
        offers, able = [], []
        for item, (own, of) in enumerate(zip(problem.items.current, costs.of, strict=True)):
            may = nodes.may_lead(of, racks)
            row = [(node, of[node], 0) for node in may]
            for rack, new in costs.new[item].items() if costs.new else ():
                fit = [node for node in in_rack.get(rack, ()) if node not in own]
                row += [(node, new.cost, -new.saved) for node in fit if node in costs.had[item]]
                pool = tuple(node for node in fit if node not in costs.had[item])
                if pool:
                    row.append((len(nodes.rack) + pools.setdefault(pool, len(pools)), new.cost, 1 - new.saved))
                may += tuple(fit)
            lowest = min((cost for _, cost, _ in row), default=0)
            priced = tuple((target, cost - lowest, copied) for target, cost, copied in row)
            now = own[0] if own and own[0] in of and own[0] in may else NO_NODE
            offers.append((rows.setdefault(priced, len(rows)), tuple(target for target, *_ in row), now))
            able.append(sorted(may))
        choices = group_choices(offers)
        by_key = list(rows)
        arcs = [arc for key in choices.key.tolist() for arc in by_key[key]]
        shared = math.gcd(*(cost for _, cost, _ in arcs)) or 1
        # A path visits each node and pool once at most, and has an arc with a cost to it and one from it.
        longest = max((cost for _, cost, _ in arcs), default=0) // shared * (2 * (len(nodes.rack) + len(pools)) + 2)
        shift = max(0, longest.bit_length() - _MOST_DIGITS)
        return cls(
            choices,
            able,
            list(pools),
            np.asarray([cost // shared >> shift for _, cost, _ in arcs], np.int64),
            np.asarray([copied for *_, copied in arcs], np.int64),
            shared << shift if shift else 1,
        )


def _scaled_flow(network: Network, cost: Ints, work: SolveBudget) -> tuple[Ints, Ints]:
    """Return a min-cost flow and its prices, computed digit by digit."""
    price, flow = np.zeros(len(network.low), np.int64), None
    for shift in range(max(0, int(cost.max(initial=0)).bit_length() - 1), -1, -1):
        price *= 2
        found = min_cost_flow(network, network.reduced_costs(cost >> shift, price), work, flow)
        flow, price = found.flow, price + found.dual
    assert flow is not None  # noqa: S101 - there is at least one digit
    return flow, price
