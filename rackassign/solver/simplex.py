"""HiGHS: min-cost flows by the simplex method, and solvers for other programs.

Rules: only this module and `standby.joint` use HiGHS.

Every column is an arc: it leaves one row and enters another, so the matrix is that of a network and every vertex of the
feasible set is integral if the bounds are. The simplex method ends in a vertex, for the flows and for the prices of the
rows. Both are rounded, and then checked in integers like all results.

Nothing but tests calls `simplex_flow`, which `min_cost_flow` is compared with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rackassign.solver.network_flow import (
    ARCS_PER_STEP,
    BudgetExhaustedError,
    CertifiedFlow,
    InfeasibleError,
    Ints,
    Network,
    OutOfTimeError,
    SolveBudget,
    SolverError,
    certified,
)

try:
    import highspy
except ImportError:  # pragma: no cover - tests remove it in a separate process
    highspy = None  # type: ignore[assignment]
else:

    class _SilentHighs(highspy.Highs):
        def enableCallbacks(self) -> None:  # noqa: N802 - called by the constructor
            """Do nothing: nothing here needs callbacks, and from HiGHS 1.16 on this writes to standard output."""


class NoSolverError(SolverError):
    """HiGHS cannot be imported."""


_ROWS = 10_000
"""Number of rows up to which an iteration counts once; with n times as many rows it counts n times."""


def simplex_flow(network: Network, cost: Ints, work: SolveBudget) -> CertifiedFlow:
    """Compute a min-cost flow by the simplex method.

    It is called without presolve: for the ties that a restricted network of replicas contains, presolve takes minutes
    where the simplex method takes tenths of a second.

    Args:
        network: Arcs and bounds.
        cost: Cost of each arc.
        work: Budget. An iteration is a step, or several on a large network.

    Raises:
        NoSolverError: HiGHS is not installed.
        BudgetExhaustedError: The budget was used up before; `OutOfTimeError` if the deadline has passed.
        InfeasibleError: No flow is allowed.
        SolverError: The solver's result failed the check in integers.
    """
    if highspy is None:
        raise NoSolverError("HiGHS (highspy) cannot be imported")
    work.check()
    # Drop arcs that can carry nothing.
    used = np.flatnonzero(network.upper > 0)
    # The time of an iteration is proportional to the number of rows.
    price_of_one = max(1, len(network.low) // _ROWS)
    limit = work.left // price_of_one
    options = _OPTIONS | {"presolve": "off", "simplex_iteration_limit": limit}
    highs = new_highs(options)
    _check(highs.passModel(_model(network, cost, used)))
    # Building a model of millions of arcs takes seconds by itself.
    work.check()
    if not math.isinf(work.until):
        _check(highs.setOptionValue("time_limit", max(0.0, work.until - time.monotonic())))
    _check(run_highs(highs))
    iterations = max(0, highs.getInfo().simplex_iteration_count)
    work.left -= max(iterations * price_of_one, 1 + len(used) // ARCS_PER_STEP)
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kIterationLimit:
        raise BudgetExhaustedError("the solver used up its iterations")
    if status == highspy.HighsModelStatus.kTimeLimit:
        raise OutOfTimeError("the time limit of the plan is exceeded")
    if status == highspy.HighsModelStatus.kInfeasible:
        raise InfeasibleError("no flow satisfies all bounds")
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"the solver ended with status: {highs.modelStatusToString(status)}")
    solution = highs.getSolution()
    flow = np.zeros(len(cost), np.int64)
    flow[used] = _rounded(solution.col_value)
    price = _rounded(solution.row_dual)
    return certified(network, cost, flow, price)


def new_highs(options: Mapping[str, Any]) -> highspy.Highs:
    """Return a solver with these options, which writes nothing anywhere.

    Raises:
        SolverError: HiGHS rejects an option.
    """
    highs = _SilentHighs()  # type: ignore[no-untyped-call]
    # The first option, before anything else: any other call may write.
    for option, value in {"output_flag": False, **options}.items():
        _check(highs.setOptionValue(option, value))
    return highs


def run_highs(highs: highspy.Highs) -> highspy.HighsStatus:
    """Run HiGHS with `ONE_ORDER`, also if another package of the process has used it with more threads."""
    status = highs.run()
    if status != highspy.HighsStatus.kError:
        return status
    # HiGHS has one thread pool per process and rejects another size once it has been used. The size makes no difference
    # to a solver that uses one of its threads.
    _check(highs.setOptionValue("threads", 0))
    return highs.run()


ONE_ORDER: dict[str, Any] = {
    # One thread and one order of work: the same result everywhere.
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
}
"""Options of HiGHS without which results would depend on the machine."""

_OPTIONS = ONE_ORDER | {
    "solver": "simplex",
    # The dual method with Devex pricing; the primal method takes several times as long on these networks.
    "simplex_strategy": 1,
    "simplex_dual_edge_weight_strategy": 1,
}


def _model(network: Network, cost: Ints, used: Ints) -> highspy.HighsLp:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(used), len(network.low)
    model.col_cost_ = cost[used].astype(np.float64)
    model.col_lower_, model.col_upper_ = network.lower[used].astype(np.float64), network.upper[used].astype(np.float64)
    model.row_lower_, model.row_upper_ = network.low.astype(np.float64), network.high.astype(np.float64)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, 2 * len(used) + 1, 2, dtype=np.int32)
    model.a_matrix_.index_ = np.stack([network.tail[used], network.head[used]], axis=1).ravel().astype(np.int32)
    model.a_matrix_.value_ = np.tile(np.asarray([1.0, -1.0]), len(used))
    return model


def _check(status: highspy.HighsStatus) -> None:
    if status == highspy.HighsStatus.kError:
        raise SolverError("the solver rejects its input")


def _rounded(values: Sequence[float]) -> Ints:
    return np.rint(np.asarray(values, np.float64)).astype(np.int64)
