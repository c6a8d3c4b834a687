"""Flows on networks: maximum flows, min-cost flows and their proof, all in integers.

Rules: this module gets arcs and bounds, and does not depend on what they mean.

Maximum flows
-------------
The method of Dinic: paths of one length at a time, until no path of any length is left. Rows have an excess, or below 0
a deficit. Arcs have a tail, a head and room, and no cost. What they mean is left to the callers. All work is charged,
whether it is done on arrays or along paths.

Depths are computed on arrays; only the paths of a blocking flow are followed one by one.

Min-cost flows
--------------
The primal-dual method: the shortest way first, as much as fits at once. Everything is integer arithmetic, so prices
need no rounding.

Row bounds become arcs out of one more row, the *ground*, so that only rows with an excess or a deficit are not
balanced. Every arc with a cost begins at the bound that its cost asks for, and every other arc at any flow that callers
suggest; both are optimal but for these rows. In each phase the distances from all excesses, with reduced costs as
lengths, become prices. Then flows along arcs of reduced cost 0 remain optimal, so as much as possible is moved along
them (Dinic), until no deficit can be reached at this price.

The number of phases is limited by the number of different lengths of shortest paths. Costs of a few different sizes
have few. The work is small where the beginning is nearly a solution: owners that keep what they have. The simplex
method spends its time on ties there, of which these networks consist.

Proofs
------
Flows and prices of rows prove each other: if the cost of flows that satisfy all bounds equals the bound that the prices
give, both are optimal. This is checked in integers for each result, however it was computed.

Objectives are optimized one after the other. Once a cost is minimal, arcs whose reduced cost is not 0 stay at their
bound, and so do rows whose price is not 0. What remains is exactly the set of optimal flows, since every optimal flow
and all optimal prices are complementary. The next objective is minimized within this set: `restrict_to_optimal` returns
it as a network.

Work is counted in arcs that were looked at, which are equal on every machine; seconds are not. The deadline is for
callers that must respond in time, whatever the load of the machine.
"""

from __future__ import annotations

import math
import operator
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


def bits_of(bits: int) -> Iterator[int]:
    """Yield the nodes of a set."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def shortest_path_tree(arcs_of: Callable[[int], int], source: int, dead: int) -> dict[int, int]:
    """Return all reachable nodes, each with its predecessor on a shortest path."""
    # Targets of a node, and the dead ones that paths avoid, are bits.
    before, seen, waiting = {source: source}, 1 << source | dead, deque([source])
    while waiting:
        node = waiting.popleft()
        new = arcs_of(node) & ~seen
        seen |= new
        for target in bits_of(new):
            before[target] = node
            waiting.append(target)
    return before


Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]


def stable_order(keys: Ints) -> Ints:
    """Return the stable order of keys from 0 on; numpy sorts 16 bits without comparisons, a few times as fast."""
    order: Ints = keys.astype(np.min_scalar_type(int(keys.max(initial=0)))).argsort(kind="stable")
    return order


def split_at(values: Ints, ends: Sequence[int]) -> list[Ints]:
    """Return the parts of an array that end before these indexes, and what follows. `np.split` is ten times as slow."""
    return [values[start:end] for start, end in zip((0, *ends), (*ends, len(values)), strict=True)]


def changes(keys: Ints) -> Bools:
    """Return where keys differ from the one before; the first does."""
    found = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=found[1:])
    return found


def exact_dot(left: Ints, right: Ints) -> int:
    """Return the sum of products, also where it is too large for 64 bits."""
    most = int(np.abs(left).max(initial=0)) * int(np.abs(right).max(initial=0)) * len(left)
    return int(left @ right) if most < 2**63 else sum(map(operator.mul, left.tolist(), right.tolist()))


Charge: TypeAlias = Callable[[int], None]
"""Called with a number of arcs that were looked at. It raises an error to end the computation."""


def uncharged(arcs: int) -> None:
    """Charge nothing, for what has to be computed in any case: charged, it would be taken from what follows."""


_ARCS_OF_A_STEP = 16
"""How many arcs on arrays take as long as one step along a path."""

_ARCS_TESTED = 16
"""How many arcs can be passed over, because their row has not changed, in the time that one that is used takes."""

_PASSES_OF_AN_ARC = 4
"""How many such passes an arc can be used in, in the time that all work on an arc takes."""

_WORTH_A_CALL = 10_000

_ARCS_OF_A_PASS = 300
"""How many arcs take as long as the calls of one pass over arrays, however short they are."""


class Passes:
    """The work of passes over arrays, which is charged when it is worth a call."""

    def __init__(self, charge: Charge) -> None:
        self._charge, self._owed = charge, 0

    def add(self, used: int, tested: int) -> None:
        """Add a pass that used some of the arcs that it tested."""
        self._owed += _ARCS_OF_A_PASS + used // _PASSES_OF_AN_ARC + tested // _ARCS_TESTED
        if self._owed > _WORTH_A_CALL:
            self.end()

    def end(self) -> None:
        self._charge(self._owed)
        self._owed = 0


def depths(tail: Ints, head: Ints, sources: Bools, charge: Charge) -> Ints:
    """Return the number of arcs from the sources to each row, -1 if it cannot be reached."""
    depth = np.where(sources, 0, -1)
    step, past = 0, 0
    passes = Passes(charge)
    while True:
        used = (depth[tail] == step).nonzero()[0]
        passes.add(len(used), len(tail))
        reached = head[used]
        reached = reached[depth[reached] < 0]
        if not len(reached):
            break
        step += 1
        depth[reached] = step
        past += len(used)
        if 4 * past > len(tail):
            # Most of them end in rows that have been reached.
            open_ = (depth[head] < 0).nonzero()[0]
            tail, head, past = tail[open_], head[open_], 0
    passes.end()
    return depth


def blocking_flow(ends: tuple[Ints, Ints], depth: Ints, room: Ints, excess: Ints, charge: Charge) -> tuple[Ints, Ints]:
    """Move excesses to deficits until all paths of increasing depth are blocked; return flows, and what is left."""
    # `depth` is from `depths`, with the excesses as sources. An excess below 0 is a deficit.
    tail, head = ends
    moved, excess = np.zeros(len(tail), np.int64), excess.copy()
    charge(len(tail) // 4)
    arcs = _arcs_on_paths(ends, depth, excess < 0)
    charge(_ARCS_OF_A_STEP * len(arcs) // 4)
    # Arcs are ordered by the row they leave, and only rows with arcs are looked at.
    arcs = arcs[stable_order(tail[arcs])]
    used = np.zeros(len(excess), bool)
    used[tail[arcs]] = used[head[arcs]] = True
    rows = used.nonzero()[0]
    place = used.cumsum() - 1
    first = [0, *np.bincount(place[tail[arcs]], minlength=len(rows)).cumsum().tolist()]
    left, over = room[arcs].tolist(), excess[rows].tolist()
    steps = _push((excess[rows] > 0).nonzero()[0].tolist(), first, place[head[arcs]].tolist(), left, over)
    charge(_ARCS_OF_A_STEP * steps)
    moved[arcs] = room[arcs] - np.asarray(left, np.int64)
    excess[rows] = over
    return moved, excess


def _arcs_on_paths(ends: tuple[Ints, Ints], depth: Ints, targets: Bools) -> Ints:
    """Return the arcs that lead one step deeper and on to a target; nearly all others would be dead ends."""
    tail, head = ends
    below = depth[head]
    arcs = ((depth[tail] == below - 1) & (below > 0)).nonzero()[0]
    useful = targets & (depth >= 0)
    level = below[arcs]
    deepest = int(level.max(initial=0))
    # From the deepest arcs to the first ones.
    by_level = arcs[stable_order(deepest - level)]
    for there in split_at(by_level, np.bincount(level)[:0:-1].cumsum().tolist()):
        useful[tail[there[useful[head[there]]]]] = True
    found: Ints = arcs[useful[head[arcs]]]
    return found


def _push(sources: list[int], first: list[int], target: list[int], left: list[int], over: list[int]) -> int:
    """Follow paths, update what arcs can carry and what rows have, and return the number of steps."""
    # `first` has each row's first arc, and at the end the number of arcs; `over` each row's excess.
    at, end = first[:-1], first[1:]
    steps = 0
    for source in sources:
        path: list[int] = []
        row = source
        while over[source] > 0:
            if over[row] < 0:
                amount = min(over[source], -over[row], *[left[arc] for arc in path])
                over[source] -= amount
                over[row] += amount
                again = len(path)
                steps += again
                for i in range(again - 1, -1, -1):
                    left[path[i]] -= amount
                    if not left[path[i]]:
                        again = i
                # Continue from the first arc that is full now.
                if again < len(path):
                    row = source if again == 0 else target[path[again - 1]]
                    del path[again:]
                continue
            here, last = at[row], end[row]
            while here < last and not left[here]:
                here += 1
            at[row] = here
            if here < last:
                path.append(here)
                row = target[here]
            elif path:
                # A dead end: the arc that led here is not tried again.
                arc = path.pop()
                row = source if not path else target[path[-1]]
                at[row] = arc + 1
            else:
                break
    return steps


_FAR = np.iinfo(np.int64).max // 4


class PrimalDual:
    """One problem: flows that are optimal for their prices, and the rows that are not balanced yet."""

    def __init__(
        self, ends: tuple[Ints, Ints], bounds: tuple[Ints, Ints], net: tuple[Ints, Ints], cost: Ints, start: Ints
    ) -> None:
        # `bounds` are those of arcs, `net` those of the net flow out of each row. `start` is used where the cost is 0.
        (lower, upper), (low, high) = bounds, net
        rows = len(low)
        self._arcs = len(cost)
        flow = np.where(cost < 0, upper, np.where(cost > 0, lower, start.clip(lower, upper)))
        out = (np.bincount(ends[0], flow, rows) - np.bincount(ends[1], flow, rows)).astype(np.int64)
        ground = out.clip(low, high)
        self._excess = np.append(ground - out, -int(ground.sum()))
        # The other rows have no choice.
        loose = (low < high).nonzero()[0]
        self._tail = np.concatenate([ends[0], np.full(len(loose), rows)])
        self._head = np.concatenate([ends[1], loose])
        self._lower = np.concatenate([lower, low[loose]])
        self._upper = np.concatenate([upper, high[loose]])
        self._cost = np.concatenate([cost, np.zeros(len(loose), np.int64)])
        self.flow = np.concatenate([flow, ground[loose]])
        self._price = np.zeros(rows + 1, np.int64)

    def solve(self, charge: Charge) -> bool:
        """Balance all rows; return False if that is impossible. `charge` raises an error to end it."""
        while (self._excess > 0).any():
            if not self._raise_prices(charge):
                return False
            self._push(charge)
        return True

    def complete(self, charge: Charge) -> bool:
        """Balance all rows at any cost, after `solve` was ended; return False if that is impossible.

        What has not been balanced by then is little, so the flow remains close to one of minimum cost.
        """
        self._move(np.arange(len(self._tail)), charge)
        return not (self._excess > 0).any()

    def result(self) -> tuple[Ints, Ints]:
        """Return the flow of each arc and the price of each row."""
        return self.flow[: self._arcs], (self._price - self._price[-1])[:-1]

    def _reduced_costs(self) -> Ints:
        reduced: Ints = self._cost - self._price[self._tail] + self._price[self._head]
        return reduced

    def _raise_prices(self, charge: Charge) -> bool:
        """Set prices by the distances from rows with an excess; return whether a deficit can be reached."""
        charge(len(self._tail))
        more, less = self.flow < self._upper, self.flow > self._lower
        reduced = self._reduced_costs()
        tail = np.concatenate([self._tail[more], self._head[less]])
        head = np.concatenate([self._head[more], self._tail[less]])
        length = np.concatenate([reduced[more], -reduced[less]])
        distance = np.where(self._excess > 0, 0, _FAR)
        changed = self._excess > 0
        passes = Passes(charge)
        while changed.any():
            used = changed[tail].nonzero()[0]
            passes.add(2 * len(used), len(tail))
            nearer = distance.copy()
            np.minimum.at(nearer, head[used], distance[tail[used]] + length[used])
            changed = nearer < distance
            distance = nearer
        passes.end()
        reached = distance < _FAR
        if not (reached & (self._excess < 0)).any():
            return False
        self._price -= np.where(reached, distance, int(distance[reached].max()))
        return True

    def _push(self, charge: Charge) -> None:
        """Move excesses to deficits along arcs of reduced cost 0, until no path is left."""
        charge(len(self._tail) // 2)
        self._move((self._reduced_costs() == 0).nonzero()[0], charge)

    def _move(self, free: Ints, charge: Charge) -> None:
        """Move excesses to deficits along these arcs, until no path is left."""
        while (self._excess > 0).any():
            charge(len(free) // 2)
            ahead, back = free[self.flow[free] < self._upper[free]], free[self.flow[free] > self._lower[free]]
            ends = (
                np.concatenate([self._tail[ahead], self._head[back]]),
                np.concatenate([self._head[ahead], self._tail[back]]),
            )
            depth = depths(*ends, self._excess > 0, charge)
            if not ((depth >= 0) & (self._excess < 0)).any():
                break
            room = np.concatenate([self._upper[ahead] - self.flow[ahead], self.flow[back] - self._lower[back]])
            moved, self._excess = blocking_flow(ends, depth, room, self._excess, charge)
            self.flow[ahead] += moved[: len(ahead)]
            self.flow[back] -= moved[len(ahead) :]


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

_SECONDS_PER_ARC = 3e-8
"""The time in which an arc is looked at, at least; for a look ahead at the deadline, and nothing else."""

_LATE = "the time limit of the plan is exceeded"

_USED_UP = "the budget of the plan is used up"

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

    def check_ahead(self, arcs: int, *, steps: bool) -> None:
        """Raise an error if the deadline does not leave the time, or if the steps do not suffice, for so many arcs."""
        if time.monotonic() + arcs * _SECONDS_PER_ARC >= self.until:
            raise OutOfTimeError(_LATE)
        if steps and not self.covers(arcs):
            # As if they had been looked at: what follows would have nothing left either.
            self.spend(arcs)
            raise BudgetExhaustedError(_USED_UP)

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
            return _LATE
        return "" if self.left > 0 else _USED_UP

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
    """

    tail: Ints
    head: Ints
    # Bounds of the flow on each arc, and of the net flow out of each row.
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
        rows = len(self.low)
        # In doubles, which is exact: no sum of flows is near 2 ** 53.
        return (np.bincount(self.tail, flow, rows) - np.bincount(self.head, flow, rows)).astype(np.int64)

    def is_feasible(self, flow: Ints) -> bool:
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
        return exact_dot(np.where(reduced > 0, self.lower, self.upper), reduced) + exact_dot(
            np.where(price > 0, self.low, self.high), price
        )


@dataclass(frozen=True, slots=True)
class CertifiedFlow:
    """A min-cost flow with the dual solution that proves it."""

    flow: Ints
    # Price of each row.
    dual: Ints


@dataclass(frozen=True, slots=True)
class UnprovenFlow:
    """A flow within all bounds that may not be one of minimum cost."""

    flow: Ints
    # Why it is not proven, as text for users.
    reason: str


FoundFlow: TypeAlias = CertifiedFlow | UnprovenFlow

_INFEASIBLE = "no flow satisfies all bounds"

_FAILED = "the solver's result failed the check in integers"


def min_cost_flow(network: Network, cost: Ints, work: SolveBudget, start: Ints | None = None) -> CertifiedFlow:
    """Compute a min-cost flow; raise an error if none is allowed, the budget ends, or the result fails the check."""
    # `start` is used on arcs without a cost. The closer it is to an optimal flow, the less work there is.
    # Before arrays of this size are made.
    work.charge(len(cost))
    attempt = _Attempt(network, cost, start)
    if not attempt.problem.solve(work.charge):
        raise InfeasibleError(_INFEASIBLE)
    return attempt.certified()


def low_cost_flow(network: Network, cost: Ints, work: SolveBudget, start: Ints | None = None) -> FoundFlow:
    """Compute a min-cost flow or, if the budget is used up before, a flow that is close to one."""
    # Work after the end of the budget is deducted too; it is little.
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
        self._free = free = (network.lower < network.upper).nonzero()[0]
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
        self._flow[self._free], price = self.problem.result()
        return certified(self._network, self._cost, self._flow, price)

    def unproven(self, reason: str) -> UnprovenFlow:
        self._flow[self._free], _ = self.problem.result()
        if not self._network.is_feasible(self._flow):
            raise SolverError(_FAILED)
        return UnprovenFlow(self._flow, reason)


def certified(network: Network, cost: Ints, flow: Ints, price: Ints) -> CertifiedFlow:
    """Return a flow with its prices after checking that they prove each other."""
    if not network.is_feasible(flow) or exact_dot(cost, flow) != network.dual_bound(cost, price):
        raise SolverError(_FAILED)
    return CertifiedFlow(flow, price)
