"""Networks and their flows of lowest cost, against a search of all flows."""

from __future__ import annotations

import itertools
import random
from typing import Any

import highspy
import numpy as np
import pytest

from rackassign.solver.min_cost_flow import (
    BudgetExhaustedError,
    InfeasibleError,
    Network,
    OutOfTimeError,
    SolveBudget,
    SolverError,
    min_cost_flow,
    new_highs,
    run_highs,
)
from rackassign.solver.types import Ints

PLENTY = 10**6


def ints(*numbers: int) -> Ints:
    return np.asarray(numbers, np.int64)


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
    found = min_cost_flow(network, cost, SolveBudget(PLENTY), presolve=seed % 2 == 0)
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


def chain(arcs: int, rows: int = 2) -> Network:
    """Return a network in which arcs from the first row to the second one carry at most one unit each."""
    low, high = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    high[0] = arcs
    low[1] = -arcs
    ones = np.ones(arcs, np.int64)
    return Network(0 * ones, ones, 0 * ones, ones, low, high)


@pytest.mark.parametrize("rows", [2, 20_000])
@pytest.mark.parametrize(("arcs", "charged"), [(1, 1), (999, 1), (1000, 2), (3500, 4)])
def test_a_solve_without_iterations_is_charged_by_its_arcs(arcs: int, charged: int, rows: int) -> None:
    # So little is left that no iteration is possible where there are many rows.
    work = SolveBudget(1)
    min_cost_flow(chain(arcs, rows), np.ones(arcs, np.int64), work)
    assert 1 - work.left == charged


def test_arcs_that_can_carry_nothing_are_not_charged() -> None:
    network, work = chain(3500), SolveBudget(PLENTY)
    network.upper[1:] = 0
    found = min_cost_flow(network, np.full(3500, -1, np.int64), work)
    assert PLENTY - work.left == 1
    assert found.flow.tolist() == [1] + [0] * 3499


def ring(rows: int, unused: int = 0) -> tuple[Network, Ints]:
    """Return a network that needs an iteration for each of its rows or so, and its costs; and rows without arcs."""
    rng = random.Random(rows)
    ends = [(i, (i + 1) % rows) for i in range(rows)] + [tuple(rng.sample(range(rows), 2)) for _ in range(3 * rows)]
    supply = np.zeros(rows + unused, np.int64)
    supply[: rows // 2], supply[rows // 2 : rows // 2 * 2] = 3, -3
    many = len(ends)
    network = Network(
        ints(*(tail for tail, _ in ends)),
        ints(*(head for _, head in ends)),
        np.zeros(many, np.int64),
        np.full(many, 3 * rows, np.int64),
        supply,
        supply,
    )
    return network, ints(*(rng.randrange(1, 30) for _ in ends))


def charge(unused: int) -> int:
    network, cost = ring(20, unused)
    work = SolveBudget(PLENTY)
    min_cost_flow(network, cost, work, presolve=False)
    return PLENTY - work.left


def test_an_iteration_counts_once_for_each_ten_thousand_rows() -> None:
    once = charge(0)
    assert once > 5
    # The iterations are not the same with more rows, but about as many.
    assert charge(19_979) < 1.5 * once
    assert 1.5 * once < charge(19_980) < 3 * once
    thrice = charge(29_980)
    assert thrice % 3 == 0
    assert 2 * once < thrice < 4.5 * once


def test_a_solve_that_needs_more_iterations_than_are_left_ends() -> None:
    needed = charge(0)
    network, cost = ring(20)
    min_cost_flow(network, cost, SolveBudget(needed + 1), presolve=False)
    work = SolveBudget(needed // 2)
    with pytest.raises(BudgetExhaustedError, match="used up"):
        min_cost_flow(network, cost, work, presolve=False)
    assert work.left <= 0
    with pytest.raises(BudgetExhaustedError, match="no iterations are left"):
        min_cost_flow(network, cost, work, presolve=False)


def test_where_highs_has_other_threads_already_it_runs_with_those() -> None:
    """As if another package had used HiGHS in this process before."""

    class Used:
        def __init__(self) -> None:
            self.options: list[tuple[str, object]] = []

        def run(self) -> highspy.HighsStatus:
            return highspy.HighsStatus.kOk if self.options else highspy.HighsStatus.kError

        def setOptionValue(self, name: str, value: object) -> highspy.HighsStatus:  # noqa: N802 - as highspy has it
            self.options.append((name, value))
            return highspy.HighsStatus.kOk

    used: Any = Used()
    assert run_highs(used) == highspy.HighsStatus.kOk
    assert run_highs(used) == highspy.HighsStatus.kOk
    assert used.options == [("threads", 0)]


def test_a_solve_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    network, cost = ring(20)
    min_cost_flow(network, cost, SolveBudget(PLENTY))
    assert capfd.readouterr() == ("", "")


def test_an_option_that_highs_rejects_is_an_error() -> None:
    with pytest.raises(SolverError, match="rejects its input"):
        new_highs({"no such option": 1})


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
