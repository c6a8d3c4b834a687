"""Flows of least cost, by linear programming, with a proof in integers.

Rules: this is the only file that knows HiGHS. It is given arcs and bounds and gives flows; what they mean is not
known here.

Theory
------
Every column is an arc: it leaves one row and enters another, so the matrix is that of a network and every vertex
of the feasible set is integral if the bounds are. The simplex method ends in a vertex, for the flows and for the
prices of the rows; both are rounded and then checked in integers, which is the proof: if flows keep to all
bounds and their cost equals the bound that the prices give, they are optimal, whatever happened in floating
point on the way.

One objective after the other: once a cost is least, arcs whose reduced cost is not 0 stay at the bound they sit on, and
rows whose price is not 0 likewise. What remains is exactly the set of optimal flows, since an optimal flow and optimal
prices are complementary, whichever of each. The next objective is minimised within: `restrict_to_optimal` is that set
as a network.

Work is counted in iterations of the simplex method, which are the same on every machine; seconds are not. A solve that
presolve ends takes no iteration, so each is charged by its arcs as well. A deadline beside it is for callers that must
answer in time, whatever the machine is doing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackassign.solver.types import Ints

try:
    import highspy
except ImportError:  # pragma: no cover - tests take it away in a process of their own
    highspy = None  # type: ignore[assignment]


class SolverError(Exception):
    """There is no solution to be had: no solver, out of work, or its answer does not hold."""


class NoSolverError(SolverError):
    """HiGHS cannot be imported."""


class InfeasibleError(SolverError):
    """No flow keeps to all bounds."""


class BudgetExhaustedError(SolverError):
    """The budget of iterations is used up."""


class OutOfTimeError(BudgetExhaustedError):
    """The deadline has passed."""


_ROWS = 10_000
"""In a network of so many rows an iteration counts once, in one of n times as many n times."""


_ARCS = 1_000
"""A solve counts as an iteration for each so many arcs, however few iterations it takes."""


@dataclass(slots=True)
class SolveBudget:
    """A budget of iterations, shared by all solves of one plan, and a deadline.

    Args:
        left: Iterations that are left.
        until: Deadline, on the clock of `time.monotonic`; infinite if there is none.
    """

    left: int
    until: float = math.inf

    def late(self) -> bool:
        """Tell whether the deadline has passed."""
        return time.monotonic() >= self.until

    def check(self) -> None:
        """Raise if nothing is left.

        Raises:
            OutOfTimeError: The deadline has passed.
            OutOfWorkError: The budget is used up.
        """
        if self.late():
            raise OutOfTimeError("the time limit of the plan is over")
        if self.left <= 0:
            raise BudgetExhaustedError("no iterations are left")


@dataclass(frozen=True, slots=True)
class Network:
    """Arcs between rows, and what each row must see.

    The net flow out of a row (what leaves it less what enters) lies within the row's bounds.

    Args:
        tail: Row each arc leaves.
        head: Row each arc enters.
        lower: The least it must carry.
        upper: The most it may carry.
        low: Least net flow out of each row.
        high: Most net flow out of each row.
    """

    tail: Ints
    head: Ints
    lower: Ints
    upper: Ints
    low: Ints
    high: Ints

    def reduced_costs(self, cost: Ints, price: Ints) -> Ints:
        """Return what each arc costs beyond the difference of its rows' prices."""
        return cost - price[self.tail] + price[self.head]

    def restrict_to_optimal(self, cost: Ints, price: Ints) -> Network:
        """Return the network that allows only what is optimal, by these prices."""
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
        """Tell whether a flow keeps to all bounds."""
        rows = len(self.low)
        # In doubles, which is exact: no sum of flows comes near 2 ** 53.
        net = np.bincount(self.tail, flow, rows) - np.bincount(self.head, flow, rows)
        return bool(
            (flow >= self.lower).all()
            and (flow <= self.upper).all()
            and (net >= self.low).all()
            and (net <= self.high).all()
        )

    def dual_bound(self, cost: Ints, price: Ints) -> int:
        """Return a cost that no flow can be below, by these prices (weak duality)."""
        reduced = self.reduced_costs(cost, price)
        return int(np.where(reduced > 0, self.lower, self.upper) @ reduced) + int(
            np.where(price > 0, self.low, self.high) @ price
        )


@dataclass(frozen=True, slots=True)
class CertifiedFlow:
    """A flow of least cost, and why there is no better.

    Args:
        flow: On each arc.
        dual: Of each row.
    """

    flow: Ints
    dual: Ints


def min_cost_flow(network: Network, cost: Ints, work: SolveBudget, *, presolve: bool = True) -> CertifiedFlow:
    """Return a flow of least cost.

    Args:
        network: Arcs and bounds.
        cost: Of each arc.
        work: Is drawn on.
        presolve: Whether the solver looks for structure first. That costs a little where it does not help, and saves
            nine tenths where one member joins ten thousand; but among the ties that a narrowed network of copies has
            left, it looks for minutes where the simplex method walks through in tenths of a second.

    Raises:
        NoSolverError: There is no HiGHS.
        OutOfWorkError: The budget was used up before; `OutOfTimeError` if the deadline has passed.
        InfeasibleError: No flow is allowed.
        SolverError: The solver's answer does not hold.
    """
    if highspy is None:
        raise NoSolverError("HiGHS (highspy) cannot be imported")
    work.check()
    # An arc that can carry nothing is none.
    used = np.flatnonzero(network.upper > 0)
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    # An iteration takes as long as there are rows.
    price_of_one = max(1, len(network.low) // _ROWS)
    limit = max(1, work.left // price_of_one)
    options = _OPTIONS | {"presolve": "on" if presolve else "off", "simplex_iteration_limit": limit}
    for option, value in options.items():
        _check(highs.setOptionValue(option, value))
    _check(highs.passModel(_model(network, cost, used)))
    # Making a model of millions of arcs takes seconds of its own.
    work.check()
    if not math.isinf(work.until):
        _check(highs.setOptionValue("time_limit", max(0.0, work.until - time.monotonic())))
    if highs.run() == highspy.HighsStatus.kError:
        # HiGHS has one pool of threads per process, and refuses another size once somebody has used it. The size
        # makes no difference to a solver that takes one thread of it.
        _check(highs.setOptionValue("threads", 0))
        _check(highs.run())
    iterations = max(0, highs.getInfo().simplex_iteration_count)
    work.left -= max(iterations * price_of_one, 1 + len(used) // _ARCS)
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kIterationLimit:
        raise BudgetExhaustedError("the solver used up its iterations")
    if status == highspy.HighsModelStatus.kTimeLimit:
        raise OutOfTimeError("the time limit of the plan is over")
    if status == highspy.HighsModelStatus.kInfeasible:
        raise InfeasibleError("no flow keeps to all bounds")
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"the solver ends with: {highs.modelStatusToString(status)}")
    solution = highs.getSolution()
    flow = np.zeros(len(cost), np.int64)
    flow[used] = _rounded(solution.col_value)
    price = _rounded(solution.row_dual)
    if not network.is_feasible(flow) or int(cost @ flow) != network.dual_bound(cost, price):
        raise SolverError("the solver's answer does not hold in integers")
    return CertifiedFlow(flow, price)


_OPTIONS: dict[str, Any] = {
    "output_flag": False,
    # One thread and one path through the work: the same answer everywhere.
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    "solver": "simplex",
    # The dual method with Devex pricing; the primal one takes several times as long on these networks.
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
        raise SolverError("the solver refuses its input")


def _rounded(values: Sequence[float]) -> Ints:
    return np.rint(np.asarray(values, np.float64)).astype(np.int64)
