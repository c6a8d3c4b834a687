"""HiGHS: what a solve is charged, that it writes nothing, and that other users of it do no harm."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import highspy
import numpy as np
import pytest

from rackassign.solver.network_flow import BudgetExhaustedError, SolveBudget, SolverError
from rackassign.solver.simplex import new_highs, run_highs, simplex_flow
from tests.helpers.networks import PLENTY, chain, ring


@pytest.mark.parametrize("rows", [2, 20_000])
@pytest.mark.parametrize(("arcs", "charged"), [(1, 1), (999, 1), (1000, 2), (3500, 4)])
def test_a_solve_without_iterations_is_charged_by_its_arcs(arcs: int, charged: int, rows: int) -> None:
    # So little is left that no iteration is possible where there are many rows.
    work = SolveBudget(1)
    simplex_flow(chain(arcs, rows), np.ones(arcs, np.int64), work)
    assert 1 - work.left == charged


def test_arcs_that_can_carry_nothing_are_not_charged() -> None:
    network, work = chain(3500), SolveBudget(PLENTY)
    network.upper[1:] = 0
    found = simplex_flow(network, np.full(3500, -1, np.int64), work)
    assert PLENTY - work.left == 1
    assert found.flow.tolist() == [1] + [0] * 3499


def charge(unused: int) -> int:
    network, cost = ring(20, unused)
    work = SolveBudget(PLENTY)
    simplex_flow(network, cost, work)
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
    simplex_flow(network, cost, SolveBudget(needed + 1))
    work = SolveBudget(needed // 2)
    with pytest.raises(BudgetExhaustedError, match="iterations"):
        simplex_flow(network, cost, work)
    assert work.left <= 0
    with pytest.raises(BudgetExhaustedError, match="the budget of the plan is used up"):
        simplex_flow(network, cost, work)


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
    simplex_flow(network, cost, SolveBudget(PLENTY))
    assert capfd.readouterr() == ("", "")


def test_an_option_that_highs_rejects_is_an_error() -> None:
    with pytest.raises(SolverError, match="rejects its input"):
        new_highs({"no such option": 1})


def test_another_use_of_highs_in_the_process_does_no_harm() -> None:
    code = (
        "import highspy\n"
        "other = highspy.Highs(); other.setOptionValue('output_flag', False); other.setOptionValue('threads', 2)\n"
        "other.minimize(other.addVariable(0, 1))\n"
        "from rackassign.solver.network_flow import SolveBudget\n"
        "from rackassign.solver.simplex import simplex_flow\n"
        "from tests.helpers.networks import ring\n"
        "print(len(simplex_flow(*ring(20), SolveBudget(1000)).flow))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    # The other one may write its name.
    assert done.stdout.splitlines()[-1].strip() == "80"
