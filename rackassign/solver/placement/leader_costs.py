"""Leaders where they cost least, with the number of each node within bounds.

Each item has a cost for each node that may lead it. The sum is minimal within the bounds, then as few items as possible
take another set of nodes, then as few leaders as possible change. This is a transportation problem: items are shipped
to nodes.

Costs have many digits and are nearly all different, so shortest paths of the primal-dual method would have nearly as
many lengths as there are items. Costs are therefore scaled: the problem is solved with the first binary digit of each
cost, and the prices, doubled, are where the next digit begins. Each digit adds at most one to the length of an arc, so
that few lengths occur at a time. The last digit gives the exact optimum, which is certified as any other.

The bounds of a node are its fair share, rounded down and up. They are wider where the sets of items do not allow that:
then they include the node's number in the most even choice of leaders, which makes them feasible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from rackassign.solver.placement.local_search import greedy_leads
from rackassign.solver.placement.network_builder import Builder
from rackassign.solver.placement.problem import (
    DEFAULT_WORK,
    BrokerArrays,
    Constraints,
    Objectives,
    PartitionArrays,
    PlacementResult,
    Problem,
)

_MOST_DIGITS = 60
"""Limit of the lengths of paths, in binary digits."""


@dataclass(frozen=True, slots=True)
class LeaderCosts:
    """What leaders cost.

    Args:
        of: For each item the cost of each node that can lead it: 0 or more, of any size.
        other: For some items another set of nodes, of which the first would lead; it needs a cost as well.
        max_skew: How many leaders more or less than its fair share, rounded, a node may have.
        at_least_now: Whether a node may also have as many, or as few, leaders as it has now.
    """

    of: Sequence[Mapping[int, int]]
    other: Mapping[int, tuple[int, ...]]
    max_skew: int = 0
    at_least_now: bool = False


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
        sets = [
            list(costs.other[item]) if item in costs.other and leader == costs.other[item][0] else own
            for item, (own, leader) in enumerate(zip(sets, first, strict=True))
        ]
        second, other_note = choose_successors(problem, sets, first, budget, keep=True)
    except SolverError as error:
        first, second = greedy_leads(problem, items.current)
        note, other_note = f"leaders: {error}", ""
    away = leaders_outside_racks(first, nodes, problem.limits.leader_racks)
    notes = tuple(each for each in (note, other_note, away) if each)
    lists = tuple(
        ordered(tuple(own), leader, next_, nodes) for own, leader, next_ in zip(sets, first, second, strict=True)
    )
    return PlacementResult(lists, 0, 0, proven=not notes, notes=notes)


def _cheapest(problem: Problem, costs: LeaderCosts, work: SolveBudget) -> tuple[list[int], str]:
    """Return the leader of each item, -1 for none, and a note on what is not exact.

    Raises:
        SolverError: There is no solution, or the budget is used up.
    """
    items, nodes = problem.items, problem.nodes
    # An item stays on its nodes if one of them may lead.
    all_able = [nodes.may_lead(of, problem.limits.leader_racks) for of in costs.of]
    able = [
        [node for node in may if node in own] or list(may) for own, may in zip(items.current, all_able, strict=True)
    ]
    even, note = leaders(problem, able, work)
    now = [own[0] if own and own[0] in may else NO_NODE for own, may in zip(items.current, able, strict=True)]
    skew = min(costs.max_skew, len(even))
    low, high = _bounds(problem, even, skew, now if costs.at_least_now else None)
    priced = _Priced.of(problem, costs)
    choices = priced.choices
    if not len(choices.size):
        return [NO_NODE] * len(able), note
    class_, node, stays = choices.arcs.T
    builder = Builder()
    class_row = builder.add_rows(len(choices.size), choices.size)
    node_row = builder.add_rows(len(nodes.rack))
    sink = builder.add_rows(1, np.asarray([-int(choices.size.sum())]))
    builder.add("choice", class_row + class_, node_row + node, choices.size[class_])
    builder.add("node", node_row + np.arange(len(nodes.rack)), np.full(len(nodes.rack), sink), high, low)
    network, cost = builder.network(), builder.values(choice=priced.cost)
    flow, price = _scaled_flow(network, cost, work)
    for further in (priced.copied, -stays):
        if further.any():
            network, cost = network.restrict_to_optimal(cost, price), builder.values(choice=further)
            found = min_cost_flow(network, cost, work, flow)
            flow, price = found.flow, found.dual
    rounded = f"costs of leaders were rounded to multiples of {priced.unit}" if priced.unit > 1 else ""
    return distribute(choices, builder.split(flow)["choice"]), rounded or note


def _bounds(problem: Problem, even: Sequence[int], skew: int, now: Sequence[int] | None) -> tuple[Ints, Ints]:
    """Return the fewest and the most items that each node may lead.

    Args:
        problem: Nodes and limits.
        even: The most even choice of leaders.
        skew: How far a node may be from its fair share, or from that choice.
        now: Leaders that may stay, however uneven they are; None for none.
    """
    nodes, racks = problem.nodes, problem.limits.leader_racks
    may = nodes.leader_eligible if racks is None else nodes.leader_eligible & np.isin(nodes.rack, sorted(racks))

    def led(first: Sequence[int]) -> Ints:
        of = np.bincount([node for node in first if node != NO_NODE], minlength=len(nodes.rack))
        return nodes.leader_load + of

    low = high = led(even)
    if weight := int(nodes.weight[may].sum()):
        whole = int(low.sum())
        low = np.minimum(low, whole * nodes.weight // weight)
        high = np.maximum(high, -(-whole * nodes.weight // weight))
    # Not added to the number now: each plan would go as far beyond the last one.
    low, high = low - skew, high + skew
    if now is not None:
        stays = led(now)
        low, high = np.minimum(low, stays), np.maximum(high, stays)
    return (low - nodes.leader_load).clip(0), high - nodes.leader_load


@dataclass(frozen=True, slots=True)
class _Priced:
    """Items by class, and for each arc of a class its cost and whether it leads to another set of nodes.

    Args:
        choices: Items by class.
        cost: Cost of each arc beyond the lowest of its class, in units.
        copied: 1 for each arc to a node that does not have the items yet.
        unit: The unit; 1 unless costs are too large to be exact.
    """

    choices: Choices
    cost: Ints
    copied: Ints
    unit: int

    @classmethod
    def of(cls, problem: Problem, costs: LeaderCosts) -> _Priced:
        nodes, racks = problem.nodes, problem.limits.leader_racks
        rows: dict[tuple[tuple[int, int, bool], ...], int] = {}
        offers = []
        for current, of in zip(problem.items.current, costs.of, strict=True):
            may = nodes.may_lead(of, racks)
            lowest = min((of[node] for node in may), default=0)
            row = tuple((node, of[node] - lowest, node not in current) for node in may)
            now = current[0] if current[:1] and current[0] in may else NO_NODE
            offers.append((rows.setdefault(row, len(rows)), may, now))
        choices = group_choices(offers)
        by_key = list(rows)
        arcs = [arc for key in choices.key.tolist() for arc in by_key[key]]
        shared = math.gcd(*(cost for _, cost, _ in arcs)) or 1
        # A path visits each node once at most, and has an arc with a cost to it and one from it.
        longest = max((cost for _, cost, _ in arcs), default=0) // shared * (2 * len(nodes.rack) + 2)
        shift = max(0, longest.bit_length() - _MOST_DIGITS)
        return cls(
            choices,
            np.asarray([cost // shared >> shift for _, cost, _ in arcs], np.int64),
            np.asarray([new for *_, new in arcs], np.int64),
            shared << shift if shift else 1,
        )


def _scaled_flow(network: Network, cost: Ints, work: SolveBudget) -> tuple[Ints, Ints]:
    """Return a min-cost flow and its prices, computed digit by digit.

    Raises:
        SolverError: There is no solution, or the budget is used up.
    """
    price, flow = np.zeros(len(network.low), np.int64), None
    for shift in range(max(0, int(cost.max(initial=0)).bit_length() - 1), -1, -1):
        price *= 2
        found = min_cost_flow(network, network.reduced_costs(cost >> shift, price), work, flow)
        flow, price = found.flow, price + found.dual
    assert flow is not None  # noqa: S101 - there is at least one digit
    return flow, price
