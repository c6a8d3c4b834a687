"""Leaders at the lowest cost within bounds: as an integer program finds it, exact for numbers of any size."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from rackassign.solver.network_flow import SolveBudget
from rackassign.solver.placement import (
    BrokerArrays,
    Constraints,
    LeaderCosts,
    Objectives,
    PartitionArrays,
    cheapest_leaders,
)
from rackassign.solver.placement.leaders import leaders
from rackassign.solver.placement.problem import DEFAULT_WORK, Problem
from tests.helpers.examples import seeds
from tests.helpers.highs import cheapest_choice
from tests.helpers.reference_placement import items_of, nodes_of

Costs = list[dict[int, int]]

COPY, BYTE = 100, 10_000
"""What a copy and a byte count in the sum that the integer program minimizes; a changed leader counts 1."""


def able(items: PartitionArrays, nodes: BrokerArrays, of: Costs, racks: frozenset[int] | None) -> list[list[int]]:
    found = []
    for own, costs in zip(items.current, of, strict=True):
        may = nodes.may_lead(costs, racks)
        found.append([node for node in may if node in own] or list(may))
    return found


def bounds(
    items: PartitionArrays, nodes: BrokerArrays, costs: LeaderCosts, racks: frozenset[int] | None
) -> tuple[list[int], list[int]]:
    """Return how many items each node may lead, by the definition of the option."""
    problem = Problem(
        items_of(items.copies.tolist(), None, items.current), nodes, Constraints(leader_racks=racks), Objectives()
    )
    there = able(items, nodes, list(map(dict, costs.of)), racks)
    even = leaders(problem, there, SolveBudget(DEFAULT_WORK))[0]
    now = [own[0] if own and own[0] in may else -1 for own, may in zip(items.current, there, strict=True)]
    base, weight = nodes.leader_load.tolist(), nodes.weight.tolist()
    total = sum(base) + sum(node >= 0 for node in even)
    may = [bool(nodes.leader_eligible[n]) and (racks is None or int(nodes.rack[n]) in racks) for n in range(len(base))]
    shares = sum(each for each, can in zip(weight, may, strict=True) if can)
    low, high = [], []
    for node, count in enumerate(base):
        led = count + even.count(node)
        fair = [total * weight[node] // shares, -(-total * weight[node] // shares)] if shares else [led]
        fewest, most = min(led, *fair) - costs.max_skew, max(led, *fair) + costs.max_skew
        stays = [count + now.count(node)] if costs.at_least_now else []
        low.append(max(0, min([fewest, *stays]) - count))
        high.append(max([most, *stays]) - count)
    return low, high


def random_case(seed: int) -> tuple[PartitionArrays, BrokerArrays, LeaderCosts, frozenset[int] | None]:
    rng = random.Random(seed)
    racks = rng.randint(1, 4)
    count = rng.randint(1, 8)
    nodes = nodes_of(
        [node % racks for node in range(count)],
        weight=[rng.choice([1, 1, 1, 2, 3]) for _ in range(count)],
        leader_load=[rng.choice([0, 0, rng.randint(0, 6)]) for _ in range(count)],
        leader_eligible=[rng.random() < 0.9 for _ in range(count)],
    )
    held = [rng.sample(range(count), rng.randint(0, min(count, 4))) for _ in range(rng.randint(0, 30))]
    of: Costs = [{node: rng.choice([0, rng.randint(0, 99)]) for node in own if rng.random() < 0.95} for own in held]
    other = {}
    for item, own in enumerate(held):
        new = [node for node in range(count) if node not in own]
        if own and new and rng.random() < 0.3:
            other[item] = (rng.choice(new), *own[1:])
            of[item][other[item][0]] = rng.randint(0, 50)
    costs = LeaderCosts(of, other, rng.choice([0, 0, 1, 3]), rng.random() < 0.3)
    inside = frozenset(range(racks - 1)) if racks > 1 and rng.random() < 0.2 else None
    return items_of([max(1, len(own)) for own in held], None, held), nodes, costs, inside


@pytest.mark.parametrize("seed", seeds(40, 200))
def test_nothing_costs_less_and_then_copies_and_changes_less(seed: int) -> None:
    items, nodes, costs, racks = random_case(seed)

    found = cheapest_leaders(items, nodes, costs, Constraints(leader_racks=racks))

    def priced(item: int, node: int) -> int:
        own = items.current[item]
        return costs.of[item][node] * BYTE + (node not in own) * COPY + (own[0] != node)

    able_to = {item: nodes.may_lead(of, racks) for item, of in enumerate(costs.of)}
    choosing = [item for item, may in able_to.items() if may]
    led = Counter(found.nodes[item][0] for item in choosing)
    low, high = bounds(items, nodes, costs, racks)
    assert all(low[node] <= led[node] <= high[node] for node in range(len(low)))
    best = cheapest_choice([{node: priced(item, node) for node in able_to[item]} for item in choosing], low, high)
    assert sum(priced(item, found.nodes[item][0]) for item in choosing) == best
    for item, (own, listed) in enumerate(zip(items.current, found.nodes, strict=True)):
        swapped = bool(listed) and listed[0] not in own
        assert set(listed) == set(costs.other[item] if swapped else own)
        assert item in choosing or listed == own


@pytest.mark.parametrize("size", [2**30, 2**55, 2**63, 2**200])
def test_costs_of_any_size_are_exact_or_a_note_reports_their_unit(size: int) -> None:
    # The first node would lead all: the one item that costs least elsewhere has to go, by a difference of one.
    items, nodes = items_of([2, 2, 2, 2], None, [(0, 1)] * 4), nodes_of([0, 1])
    of = [{0: 0, 1: size + (item != 2)} for item in range(4)]

    found = cheapest_leaders(items, nodes, LeaderCosts(of, {}, 1))

    assert [own[0] for own in found.nodes].count(1) == 1
    if size < 2**56:
        assert (found.proven, found.nodes[2][0]) == (True, 1)
    else:
        assert found.notes == (f"costs of leaders were rounded to multiples of {size // 2**57}",)


def test_a_common_factor_of_costs_loses_nothing() -> None:
    items, nodes = items_of([2, 2], None, [(0, 1)] * 2), nodes_of([0, 1])

    found = cheapest_leaders(items, nodes, LeaderCosts([{0: 0, 1: 2**300}, {0: 0, 1: 3 * 2**299}], {}))

    assert (found.notes, [own[0] for own in found.nodes]) == ((), [1, 0])


def test_items_without_costs_keep_their_leader_unless_balance_needs_another() -> None:
    items, nodes = items_of([2] * 6, None, [(0, 1)] * 4 + [(1, 0)] * 2), nodes_of([0, 1])
    nothing: Costs = [{0: 0, 1: 0}] * 6

    assert cheapest_leaders(items, nodes, LeaderCosts(nothing, {}, 1)).nodes == items.current
    even = cheapest_leaders(items, nodes, LeaderCosts(nothing, {}))
    assert sum(own != now for own, now in zip(even.nodes, items.current, strict=True)) == 1
    assert cheapest_leaders(items, nodes, LeaderCosts(nothing, {}, 0, at_least_now=True)).nodes == items.current


def test_past_the_budget_leaders_are_chosen_without_costs_and_a_note_reports_it() -> None:
    items, nodes = items_of([2] * 4, None, [(0, 1)] * 4), nodes_of([0, 1])

    found = cheapest_leaders(items, nodes, LeaderCosts([{0: 0, 1: 5}] * 4, {}), work=0)

    assert "budget" in found.notes[0]
    assert [own[0] for own in found.nodes].count(0) == 2


def test_ten_thousand_items_are_solved_exactly_within_a_small_budget() -> None:
    rng = random.Random(5)
    held = [tuple(rng.sample(range(30), 3)) for _ in range(10_000)]
    of = [{node: rng.randrange(2**50) for node in own} for own in held]
    items = PartitionArrays(np.full(10_000, 3), np.arange(10_000), tuple(held))

    found = cheapest_leaders(items, nodes_of([node % 3 for node in range(30)]), LeaderCosts(of, {}), work=100_000)

    assert found.proven
    led = Counter(own[0] for own in found.nodes)
    assert set(led.values()) <= {333, 334}
