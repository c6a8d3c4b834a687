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
    NewLeader,
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


def choices(
    items: PartitionArrays, nodes: BrokerArrays, costs: LeaderCosts, racks: frozenset[int] | None
) -> list[dict[int, int]]:
    """Return what each node costs that may lead each item, and then the copies and the change."""
    found = []
    for item, own in enumerate(items.current):
        of = {node: costs.of[item][node] * BYTE for node in nodes.may_lead(costs.of[item], racks)}
        for rack, new in costs.new[item].items():
            for node in range(len(nodes.rack)):
                takes = nodes.assignable[node] and nodes.leader_eligible[node] and node not in own
                if takes and nodes.rack[node] == rack and (racks is None or rack in racks):
                    of[node] = new.cost * BYTE + ((node not in costs.had[item]) - new.saved) * COPY
        found.append({node: cost + (own[:1] != (node,)) for node, cost in of.items()})
    return found


def bounds(
    items: PartitionArrays,
    nodes: BrokerArrays,
    costs: LeaderCosts,
    racks: frozenset[int] | None,
    able: list[list[int]],
) -> tuple[list[int], list[int]]:
    """Return how many items each node may lead, by the definition of the option."""
    problem = Problem(
        items_of(items.copies.tolist(), None, items.current), nodes, Constraints(leader_racks=racks), Objectives()
    )
    even = leaders(problem, able, SolveBudget(DEFAULT_WORK))[0]
    now = [
        [led if led in may else then for led, may, then in zip(each, able, even, strict=True)]
        for each in ([own[0] if own else -1 for own in items.current], costs.led)
    ]
    base, weight = nodes.leader_load.tolist(), nodes.weight.tolist()
    total = sum(base) + sum(node >= 0 for node in even)
    may = [bool(nodes.leader_eligible[n]) and (racks is None or int(nodes.rack[n]) in racks) for n in range(len(base))]
    shares = sum(each for each, can in zip(weight, may, strict=True) if can)
    low, high = [], []
    for node, count in enumerate(base):
        led = count + even.count(node)
        fair = [total * weight[node] // shares, -(-total * weight[node] // shares)] if shares else [led]
        fewest, most = min(led, *fair) - costs.max_skew, max(led, *fair) + costs.max_skew
        low.append(min([max(0, fewest - count), *(each.count(node) for each in now)]))
        high.append(max([most - count, *(each.count(node) for each in now)]))
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
    new, had = [], []
    for own in held:
        had.append(tuple(node for node in range(count) if node not in own and rng.random() < 0.1))
        some = [rack for rack in range(racks) if own and rng.random() < 0.5]
        new.append({rack: NewLeader(rng.randint(0, 50), tuple(own), int(rng.random() < 0.2)) for rack in some})
    led = [rng.choice([*own, -1]) for own in held]
    costs = LeaderCosts(of, new, had, led, rng.choice([0, 0, 1, 3]))
    inside = frozenset(range(racks - 1)) if racks > 1 and rng.random() < 0.2 else None
    return items_of([max(1, len(own)) for own in held], None, held), nodes, costs, inside


@pytest.mark.parametrize("seed", seeds(40, 200))
def test_nothing_costs_less_and_then_copies_and_changes_less(seed: int) -> None:
    items, nodes, costs, racks = random_case(seed)

    found = cheapest_leaders(items, nodes, costs, Constraints(leader_racks=racks))

    priced = choices(items, nodes, costs, racks)
    choosing = [item for item, of in enumerate(priced) if of]
    led = Counter(found.nodes[item][0] for item in choosing)
    low, high = bounds(items, nodes, costs, racks, [sorted(of) for of in priced])
    assert all(low[node] <= led[node] <= high[node] for node in range(len(low)))
    best = cheapest_choice([priced[item] for item in choosing], low, high)
    assert sum(priced[item][found.nodes[item][0]] for item in choosing) == best
    for item, (own, listed) in enumerate(zip(items.current, found.nodes, strict=True)):
        assert len(listed) == len(own)
        assert len(set(listed) - set(own)) == (bool(listed) and listed[0] not in own)
        assert item in choosing or listed == own


@pytest.mark.parametrize("size", [2**30, 2**55, 2**63, 2**200])
def test_costs_of_any_size_are_exact_or_a_note_reports_their_unit(size: int) -> None:
    # The first node would lead all: the one item that costs least elsewhere has to go, by a difference of one.
    items, nodes = items_of([2, 2, 2, 2], None, [(1, 0), *[(0, 1)] * 3]), nodes_of([0, 1])
    of = [{0: 0, 1: size + (item != 2)} for item in range(4)]

    found = cheapest_leaders(items, nodes, LeaderCosts(of, max_skew=1))

    assert [own[0] for own in found.nodes].count(1) == 1
    if size < 2**56:
        assert (found.proven, found.nodes[2][0]) == (True, 1)
    else:
        assert found.notes == (f"costs of leaders were rounded to multiples of {size // 2**57}",)


def test_a_common_factor_of_costs_loses_nothing() -> None:
    items, nodes = items_of([2, 2], None, [(0, 1), (1, 0)]), nodes_of([0, 1])

    found = cheapest_leaders(items, nodes, LeaderCosts([{0: 0, 1: 2**300}, {0: 0, 1: 3 * 2**299}]))

    assert (found.notes, [own[0] for own in found.nodes]) == ((), [1, 0])


def test_without_a_gain_or_a_budget_nothing_changes() -> None:
    items, nodes = items_of([2] * 6, None, [(0, 1)] * 5 + [(1, 0)]), nodes_of([0, 1])

    assert cheapest_leaders(items, nodes, LeaderCosts([{0: 0, 1: 0}] * 6)).nodes == items.current
    unsolved = cheapest_leaders(items, nodes, LeaderCosts([{0: 5, 1: 0}] * 6), work=0)
    assert (unsolved.nodes, unsolved.proven) == (items.current, False)
    assert "budget" in unsolved.notes[0]


def test_ten_thousand_items_are_solved_exactly_within_a_small_budget() -> None:
    rng = random.Random(5)
    held = [tuple(rng.sample(range(30), 3)) for _ in range(10_000)]
    of = [{node: rng.randrange(2**50) for node in own} for own in held]
    items = PartitionArrays(np.full(10_000, 3), np.arange(10_000), tuple(held))

    found = cheapest_leaders(items, nodes_of([node % 3 for node in range(30)]), LeaderCosts(of), work=100_000)

    assert found.proven
    led, now = (Counter(own[0] for own in lists) for lists in (found.nodes, held))
    assert all(min(333, now[node]) <= led[node] <= max(334, now[node]) for node in range(30))
