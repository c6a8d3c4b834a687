"""Min-cost flows by linear programming, with a proof in integers.

Rules: this is the only module that uses HiGHS. It gets arcs and bounds and returns flows; it does not depend on what
they mean.

Theory
------
Every column is an arc: it leaves one row and enters another, so the matrix is that of a network and every vertex
of the feasible set is integral if the bounds are. The simplex method ends in a vertex, for the flows and for the
prices of the rows. Both are rounded and then checked in integers. This check is the proof: flows that satisfy all
bounds, and whose cost equals the bound that the prices give, are optimal, whatever happened in floating point before.

Objectives are optimized one after the other. Once a cost is minimal, arcs whose reduced cost is not 0 stay at their
bound, and so do rows whose price is not 0. What remains is exactly the set of optimal flows, since every optimal flow
and all optimal prices are complementary. The next objective is minimized within this set: `restrict_to_optimal`
returns it as a network.

Work is counted in iterations of the simplex method, which are equal on every machine; seconds are not. A solve that
presolve completes takes no iteration, so each solve is also charged by its number of arcs. The deadline is for callers
that must respond in time, whatever the load of the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackassign.solver.types import Ints

try:
    import highspy
except ImportError:  # pragma: no cover - tests remove it in a separate process
    highspy = None  # type: ignore[assignment]
else:

    class _SilentHighs(highspy.Highs):
        def enableCallbacks(self) -> None:  # noqa: N802 - called by the constructor
            """Do nothing: nothing here needs callbacks, and from HiGHS 1.16 on this writes to standard output."""


class SolverError(Exception):
    """There is no usable solution: no solver, the budget is used up, or the solution failed the check."""


class NoSolverError(SolverError):
    """HiGHS cannot be imported."""


class InfeasibleError(SolverError):
    """No flow satisfies all bounds."""


class BudgetExhaustedError(SolverError):
    """The budget of iterations is used up."""


class OutOfTimeError(BudgetExhaustedError):
    """The deadline has passed."""


_ROWS = 10_000
"""Number of rows up to which an iteration counts once; with n times as many rows it counts n times."""


_ARCS = 1_000
"""Number of arcs for which a solve is charged one iteration, however few iterations it takes."""


@dataclass(slots=True)
class SolveBudget:
    """A budget of iterations, shared by all solves of one plan, and a deadline.

    Args:
        left: Iterations left.
        until: Deadline, on the clock of `time.monotonic`; infinite if there is none.
    """

    left: int
    until: float = math.inf

    def late(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() >= self.until

    def check(self) -> None:
        """Raise an error if nothing is left.

        Raises:
            OutOfTimeError: The deadline has passed.
            BudgetExhaustedError: The budget is used up.
        """
        if self.late():
            raise OutOfTimeError("the time limit of the plan is exceeded")
        if self.left <= 0:
            raise BudgetExhaustedError("no iterations are left")


@dataclass(frozen=True, slots=True)
class Network:
    """Arcs between rows, and the bounds of the net flow of each row.

    The net flow out of a row (what leaves it less what enters) must be within the row's bounds.

    Args:
        tail: Row that each arc leaves.
        head: Row that each arc enters.
        lower: Lower bound of the flow on each arc.
        upper: Upper bound of the flow on each arc.
        low: Lower bound of the net flow out of each row.
        high: Upper bound of the net flow out of each row.
    """

    tail: Ints
    head: Ints
    lower: Ints
    upper: Ints
    low: Ints
    high: Ints

    def reduced_costs(self, cost: Ints, price: Ints) -> Ints:
        """Return the reduced cost of each arc: its cost less the difference of its rows' prices."""
        return cost - price[self.tail] + price[self.head]

    def restrict_to_optimal(self, cost: Ints, price: Ints) -> Network:
        """Return the network that allows only optimal flows, by these prices."""
        reduced = self.reduced_costs(cost, price)
        return Network(
            self.tail,
            self.head,
            lower=np.where(reduced < 0, self.upper, self.lower),
            upper=np.where(reduced > 0, self.lower, self.upper),
            low=np.where(price < 0, self.high, self.low),
            high=np.where(price > 0, self.low, self.high),
        )

    def is_feasible(self, flow: Ints) -> bool:
        """Return whether a flow satisfies all bounds."""
        rows = len(self.low)
        # In doubles, which is exact: no sum of flows is near 2 ** 53.
        net = np.bincount(self.tail, flow, rows) - np.bincount(self.head, flow, rows)
        return bool(
            (flow >= self.lower).all()
            and (flow <= self.upper).all()
            and (net >= self.low).all()
            and (net <= self.high).all()
        )

    def dual_bound(self, cost: Ints, price: Ints) -> int:
        """Return a lower bound of the cost of all flows, by these prices (weak duality)."""
        reduced = self.reduced_costs(cost, price)
        return int(np.where(reduced > 0, self.lower, self.upper) @ reduced) + int(
            np.where(price > 0, self.low, self.high) @ price
        )


@dataclass(frozen=True, slots=True)
class CertifiedFlow:
    """A min-cost flow with the dual solution that proves it.

    Args:
        flow: Flow on each arc.
        dual: Price of each row.
    """

    flow: Ints
    dual: Ints


def min_cost_flow(network: Network, cost: Ints, work: SolveBudget, *, presolve: bool = True) -> CertifiedFlow:
    """Compute a min-cost flow.

    Args:
        network: Arcs and bounds.
        cost: Cost of each arc.
        work: Budget. The iterations used are deducted.
        presolve: Whether the solver simplifies the network first. That costs a little where it does not help, and
            saves nine tenths where one member joins ten thousand. But for the ties that a restricted network of
            replicas contains, presolve takes minutes where the simplex method takes tenths of a second.

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
    options = _OPTIONS | {"presolve": "on" if presolve else "off", "simplex_iteration_limit": limit}
    highs = new_highs(options)
    _check(highs.passModel(_model(network, cost, used)))
    # Building a model of millions of arcs takes seconds by itself.
    work.check()
    if not math.isinf(work.until):
        _check(highs.setOptionValue("time_limit", max(0.0, work.until - time.monotonic())))
    _check(run_highs(highs))
    iterations = max(0, highs.getInfo().simplex_iteration_count)
    work.left -= max(iterations * price_of_one, 1 + len(used) // _ARCS)
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
    if not network.is_feasible(flow) or int(cost @ flow) != network.dual_bound(cost, price):
        raise SolverError("the solver's result failed the check in integers")
    return CertifiedFlow(flow, price)


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
