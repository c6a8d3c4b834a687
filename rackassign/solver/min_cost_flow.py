"""Min-cost flows on networks, with a proof in integers.

Rules: this module gets arcs and bounds and returns flows; it does not depend on what they mean.

Theory
------
Flows and prices of rows prove each other: if the cost of flows that satisfy all bounds equals the bound that the prices
give, both are optimal. This is checked in integers for each result, however it was computed.

Objectives are optimized one after the other. Once a cost is minimal, arcs whose reduced cost is not 0 stay at their
bound, and so do rows whose price is not 0. What remains is exactly the set of optimal flows, since every optimal flow
and all optimal prices are complementary. The next objective is minimized within this set: `restrict_to_optimal`
returns it as a network.

Work is counted in arcs that were looked at, which are equal on every machine; seconds are not. The deadline is for
callers that must respond in time, whatever the load of the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rackassign.solver.primal_dual import PrimalDual
from rackassign.solver.types import Ints


class SolverError(Exception):
    """There is no usable solution: no solver, the budget is used up, or the solution failed the check."""


class InfeasibleError(SolverError):
    """No flow satisfies all bounds."""


class BudgetExhaustedError(SolverError):
    """The budget of steps is used up."""


class OutOfTimeError(BudgetExhaustedError):
    """The deadline has passed."""


ARCS_PER_STEP = 1_000
"""Number of arcs that can be looked at in one step of a budget."""

_MOST_RESERVED = 4
"""Part of the steps left, as a divisor, that is reserved at most."""

_PASSES_TO_COMPLETE = 10
"""How many times each arc is looked at to complete a flow whose budget has ended."""


@dataclass(slots=True)
class SolveBudget:
    """A budget of steps, shared by all solves of one plan, and a deadline.

    Args:
        left: Steps left.
        until: Deadline, on the clock of `time.monotonic`; infinite if there is none.
        owed: Arcs of work in small parts that have not made up a step yet.
    """

    left: int
    until: float = math.inf
    owed: int = 0

    def late(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() >= self.until

    def charge(self, arcs: int) -> None:
        """Deduct the steps for looking at so many arcs.

        Raises:
            OutOfTimeError: The deadline has passed.
            BudgetExhaustedError: The budget is used up.
        """
        self.check()
        self.spend(arcs)
        if self.left < 0:
            self.check()

    def spend(self, arcs: int) -> None:
        """Deduct the steps without ending anything, for what has to be computed in any case."""
        self.left -= 1 + arcs // ARCS_PER_STEP

    def spend_part(self, arcs: int) -> None:
        """Deduct a small part of a computation, which may be less than a step."""
        steps, self.owed = divmod(self.owed + arcs, ARCS_PER_STEP)
        self.left -= steps

    def covers(self, arcs: int) -> bool:
        """Return whether the steps left suffice to look at so many arcs."""
        return arcs // ARCS_PER_STEP <= self.left

    @contextmanager
    def reserved(self, steps: int) -> Iterator[None]:
        """Withhold steps within a block, for what has to be computed if it ends early; at most a part of what is left.

        Args:
            steps: Steps to withhold.
        """
        withheld = min(steps, max(0, self.left) // _MOST_RESERVED)
        self.left -= withheld
        try:
            yield
        finally:
            self.left += withheld

    def end(self) -> str:
        """Return why nothing is left, as text for users; empty if something is."""
        if self.late():
            return "the time limit of the plan is exceeded"
        return "" if self.left > 0 else "the budget of the plan is used up"

    def check(self) -> None:
        """Raise an error if nothing is left.

        Raises:
            OutOfTimeError: The deadline has passed.
            BudgetExhaustedError: The budget is used up.
        """
        reason = self.end()
        if reason:
            raise (OutOfTimeError if self.late() else BudgetExhaustedError)(reason)


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

    def net(self, flow: Ints) -> Ints:
        """Return the net flow out of each row."""
        rows = len(self.low)
        # In doubles, which is exact: no sum of flows is near 2 ** 53.
        return (np.bincount(self.tail, flow, rows) - np.bincount(self.head, flow, rows)).astype(np.int64)

    def is_feasible(self, flow: Ints) -> bool:
        """Return whether a flow satisfies all bounds."""
        net = self.net(flow)
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


@dataclass(frozen=True, slots=True)
class UnprovenFlow:
    """A flow within all bounds that may not be one of minimum cost.

    Args:
        flow: Flow on each arc.
        reason: Why it is not proven, as text for users.
    """

    flow: Ints
    reason: str


FoundFlow: TypeAlias = CertifiedFlow | UnprovenFlow

_INFEASIBLE = "no flow satisfies all bounds"

_FAILED = "the solver's result failed the check in integers"


def min_cost_flow(network: Network, cost: Ints, work: SolveBudget, start: Ints | None = None) -> CertifiedFlow:
    """Compute a min-cost flow.

    Args:
        network: Arcs and bounds.
        cost: Cost of each arc.
        work: Budget. The steps used are deducted.
        start: Flow to begin with on arcs without a cost; 0 or the nearest bound if omitted. The closer it is to an
            optimal one, the less work there is.

    Raises:
        BudgetExhaustedError: The budget is used up; `OutOfTimeError` if the deadline has passed.
        InfeasibleError: No flow is allowed.
        SolverError: The result failed the check.
    """
    # Before arrays of this size are made.
    work.charge(len(cost))
    attempt = _Attempt(network, cost, start)
    if not attempt.problem.solve(work.charge):
        raise InfeasibleError(_INFEASIBLE)
    return attempt.certified()


def low_cost_flow(network: Network, cost: Ints, work: SolveBudget, start: Ints | None = None) -> FoundFlow:
    """Compute a min-cost flow or, if the budget is used up before, a flow that is close to one.

    Args:
        network: As for `min_cost_flow`.
        cost: As for `min_cost_flow`.
        work: As for `min_cost_flow`. Work after the end of the budget is deducted too; it is little.
        start: As for `min_cost_flow`.

    Raises:
        InfeasibleError: No flow is allowed.
        SolverError: The result failed the check.
    """
    attempt = _Attempt(network, cost, start)
    try:
        with work.reserved(_PASSES_TO_COMPLETE * len(cost) // ARCS_PER_STEP):
            work.charge(len(cost))
            if attempt.problem.solve(work.charge):
                return attempt.certified()
    except BudgetExhaustedError as error:
        if attempt.problem.complete(work.spend):
            return attempt.unproven(str(error))
    raise InfeasibleError(_INFEASIBLE)


class _Attempt:
    """The flow problem of the arcs that have a choice: after the first objective most arcs have none."""

    def __init__(self, network: Network, cost: Ints, start: Ints | None) -> None:
        if (network.lower > network.upper).any() or (network.low > network.high).any():
            raise InfeasibleError(_INFEASIBLE)
        self._network, self._cost = network, cost
        self._free = free = np.flatnonzero(network.lower < network.upper)
        self._flow = network.lower.copy()
        self._flow[free] = 0
        fixed = network.net(self._flow)
        self.problem = PrimalDual(
            (network.tail[free], network.head[free]),
            (network.lower[free], network.upper[free]),
            (network.low - fixed, network.high - fixed),
            cost[free],
            np.zeros(len(free), np.int64) if start is None else start[free],
        )

    def certified(self) -> CertifiedFlow:
        """Return the solution after the check."""
        self._flow[self._free], price = self.problem.result()
        return certified(self._network, self._cost, self._flow, price)

    def unproven(self, reason: str) -> UnprovenFlow:
        """Return the flow without prices, after a check of its bounds."""
        self._flow[self._free], _ = self.problem.result()
        if not self._network.is_feasible(self._flow):
            raise SolverError(_FAILED)
        return UnprovenFlow(self._flow, reason)


def certified(network: Network, cost: Ints, flow: Ints, price: Ints) -> CertifiedFlow:
    """Return a flow with its prices after checking that they prove each other.

    Raises:
        SolverError: They do not.
    """
    if not network.is_feasible(flow) or int(cost @ flow) != network.dual_bound(cost, price):
        raise SolverError(_FAILED)
    return CertifiedFlow(flow, price)
