"""Networks and their flows of lowest cost, against a search of all flows."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from rackassign.solver.network_flow import (
    BudgetExhaustedError,
    InfeasibleError,
    Ints,
    Network,
    OutOfTimeError,
    SolveBudget,
    UnprovenFlow,
    low_cost_flow,
    min_cost_flow,
)
from tests.helpers.highs import lowest_cost
from tests.helpers.networks import PLENTY, chain, ints, ring


def net(network: Network, flow: Ints) -> list[int]:
    """Return the net flow out of each row, added up arc by arc."""
    out = [0] * len(network.low)
    for tail, head, units in zip(network.tail.tolist(), network.head.tolist(), flow.tolist(), strict=True):
        out[tail] += units
        out[head] -= units
    return out


def all_flows(network: Network) -> list[Ints]:
    """Return each flow that is allowed."""
    ranges = [range(low, high + 1) for low, high in zip(network.lower, network.upper, strict=True)]
    bounds = list(zip(network.low.tolist(), network.high.tolist(), strict=True))
    flows = [ints(*flow) for flow in itertools.product(*ranges)]
    return [
        flow
        for flow in flows
        if all(low <= out <= high for out, (low, high) in zip(net(network, flow), bounds, strict=True))
    ]


def small_network(seed: int) -> tuple[Network, Ints, list[Ints]]:
    """Return a network, costs, and all its flows, of which there are few, but at least one."""
    rng = random.Random(seed)
    rows, arcs = rng.randrange(2, 5), rng.randrange(2, 6)
    ends = [rng.sample(range(rows), 2) for _ in range(arcs)]
    tail, head = (ints(*(pair[side] for pair in ends)) for side in (0, 1))
    lower = ints(*(rng.randrange(2) for _ in range(arcs)))
    upper = lower + ints(1, *(rng.randrange(3) for _ in range(arcs - 1)))
    within = Network(tail, head, lower, upper, np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    some = ints(*(rng.randint(low, high) for low, high in zip(lower.tolist(), upper.tolist(), strict=True)))
    out = ints(*net(within, some))
    low, high = (ints(*(rng.randrange(2) for _ in range(rows))) for _ in range(2))
    network = Network(tail, head, lower, upper, out - low, out + high)
    return network, ints(*(rng.randrange(-2, 3) for _ in range(arcs))), all_flows(network)


@pytest.mark.parametrize("seed", range(60))
def test_a_flow_has_the_lowest_cost_and_its_prices_prove_it(seed: int) -> None:
    network, cost, flows = small_network(seed)
    found = min_cost_flow(network, cost, SolveBudget(PLENTY))
    lowest = min(int(cost @ flow) for flow in flows)
    assert any(np.array_equal(found.flow, flow) for flow in flows)
    assert int(cost @ found.flow) == network.dual_bound(cost, found.dual) == lowest
    # A second objective is free in the restricted network, so that has all optimal flows, and none besides.
    restricted = {tuple(flow.tolist()) for flow in all_flows(network.restrict_to_optimal(cost, found.dual))}
    assert restricted == {tuple(flow.tolist()) for flow in flows if int(cost @ flow) == lowest}


@pytest.mark.parametrize("seed", range(30))
def test_no_prices_give_a_bound_above_the_lowest_cost(seed: int) -> None:
    network, cost, flows = small_network(seed)
    rng = random.Random(seed)
    for _ in range(10):
        price = ints(*(rng.randrange(-4, 5) for _ in network.low))
        assert network.dual_bound(cost, price) <= min(int(cost @ flow) for flow in flows)


@pytest.mark.parametrize("seed", range(30))
def test_a_flow_is_feasible_if_it_is_one_of_all(seed: int) -> None:
    network, _, flows = small_network(seed)
    allowed = {tuple(flow.tolist()) for flow in flows}
    wider = [range(low - 1, high + 2) for low, high in zip(network.lower, network.upper, strict=True)]
    for flow in itertools.product(*wider):
        assert network.is_feasible(ints(*flow)) == (flow in allowed)


@pytest.mark.parametrize("seed", range(40))
def test_the_simplex_method_finds_the_same_cost(seed: int) -> None:
    network, cost = ring(3 + seed)
    assert cost @ min_cost_flow(network, cost, SolveBudget(PLENTY)).flow == lowest_cost(network, cost)


def test_the_work_is_charged_by_the_arcs_looked_at() -> None:
    used = []
    for arcs in (100, 20_000):
        work = SolveBudget(PLENTY)
        min_cost_flow(chain(arcs), np.ones(arcs, np.int64), work)
        used.append(PLENTY - work.left)
    assert used[0] < 20
    assert used[1] > 5 * used[0]


def test_a_solve_that_needs_more_steps_than_are_left_ends() -> None:
    network, cost = ring(60)
    work = SolveBudget(PLENTY)
    min_cost_flow(network, cost, work)
    needed = PLENTY - work.left
    min_cost_flow(network, cost, SolveBudget(needed))
    for left in (0, 1, needed // 2, needed - 1):
        with pytest.raises(BudgetExhaustedError, match="used up"):
            min_cost_flow(network, cost, SolveBudget(left))


@pytest.mark.parametrize("seed", range(60))
def test_any_flow_to_begin_with_leads_to_the_lowest_cost(seed: int) -> None:
    network, cost, flows = small_network(seed)
    rng = random.Random(seed)
    lowest = min(int(cost @ flow) for flow in flows)
    for _ in range(10):
        start = ints(*(rng.randrange(-1, 6) for _ in cost))
        assert int(cost @ min_cost_flow(network, cost, SolveBudget(PLENTY), start).flow) == lowest


@pytest.mark.parametrize("seed", range(60))
def test_past_the_budget_there_is_a_flow_within_all_bounds(seed: int) -> None:
    network, cost, flows = small_network(seed)
    proven = 0
    for left in range(12):
        found = low_cost_flow(network, cost, SolveBudget(left))
        assert any(np.array_equal(found.flow, flow) for flow in flows)
        if isinstance(found, UnprovenFlow):
            assert found.reason == "the budget of the plan is used up"
            # More steps would have been enough if fewer were.
            assert not proven
        else:
            proven += 1
            assert int(cost @ found.flow) == min(int(cost @ flow) for flow in flows)
    assert isinstance(low_cost_flow(network, cost, SolveBudget(0)), UnprovenFlow)


def test_without_any_flow_there_is_none_past_the_budget_either() -> None:
    network = chain(2)
    network.low[0] = network.high[0] = 3
    network.low[1] = -3
    for left in (0, PLENTY):
        with pytest.raises(InfeasibleError):
            low_cost_flow(network, ints(1, 1), SolveBudget(left))


def test_a_flow_that_is_optimal_already_needs_one_look() -> None:
    network, cost = ring(60)
    free = 0 * cost
    whole, again = SolveBudget(PLENTY), SolveBudget(PLENTY)
    found = min_cost_flow(network, free, whole)
    assert np.array_equal(min_cost_flow(network, free, again, found.flow).flow, found.flow)
    assert PLENTY - again.left == 1 < PLENTY - whole.left


def test_time_that_is_over_ends_a_solve() -> None:
    network, cost = ring(20)
    with pytest.raises(OutOfTimeError, match="time limit"):
        min_cost_flow(network, cost, SolveBudget(PLENTY, until=0.0))


def test_more_than_can_be_carried_is_infeasible() -> None:
    network = chain(2)
    network.low[0] = network.high[0] = 3
    network.low[1] = -3
    with pytest.raises(InfeasibleError):
        min_cost_flow(network, ints(1, 1), SolveBudget(PLENTY))
