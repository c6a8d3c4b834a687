"""Min-cost flows by the primal-dual method: the shortest way first, as much as fits at once.

Rules: as for `min_cost_flow`, whose networks these are. Everything is integer arithmetic, so prices need no rounding.

Theory
------
Row bounds become arcs out of one more row, the *ground*, so that only rows with an excess or a deficit are not
balanced. Every arc with a cost begins at the bound that its cost asks for, and every other arc at any flow that callers
suggest; both are optimal but for these rows. In each phase the distances from all excesses, with reduced costs as
lengths, become prices. Then flows along arcs of reduced cost 0 remain optimal, so as much as possible is moved along
them (Dinic), until no deficit can be reached at this price.

The number of phases is limited by the number of different lengths of shortest paths. Costs of a few different sizes
have few. The work is small where the beginning is nearly a solution: owners that keep what they have. The simplex
method spends its time on ties there, of which these networks consist.
"""

from __future__ import annotations

import numpy as np

from rackassign.solver.blocking_flow import Charge, Passes, blocking_flow, depths
from rackassign.solver.types import Ints

_FAR = np.iinfo(np.int64).max // 4


class PrimalDual:
    """One problem: flows that are optimal for their prices, and the rows that are not balanced yet.

    Args:
        ends: Tails and heads of the arcs.
        bounds: Lower and upper bounds of the arcs.
        net: Lower and upper bounds of the net flow out of each row.
        cost: Cost of each arc.
        start: Suggested flow of each arc, used where the cost is 0.
    """

    def __init__(
        self, ends: tuple[Ints, Ints], bounds: tuple[Ints, Ints], net: tuple[Ints, Ints], cost: Ints, start: Ints
    ) -> None:
        (lower, upper), (low, high) = bounds, net
        rows = len(low)
        self._arcs = len(cost)
        flow = np.where(cost < 0, upper, np.where(cost > 0, lower, np.clip(start, lower, upper)))
        out = (np.bincount(ends[0], flow, rows) - np.bincount(ends[1], flow, rows)).astype(np.int64)
        ground = np.clip(out, low, high)
        self._excess = np.append(ground - out, -int(ground.sum()))
        # The other rows have no choice.
        loose = np.flatnonzero(low < high)
        self._tail = np.concatenate([ends[0], np.full(len(loose), rows)])
        self._head = np.concatenate([ends[1], loose])
        self._lower = np.concatenate([lower, low[loose]])
        self._upper = np.concatenate([upper, high[loose]])
        self._cost = np.concatenate([cost, np.zeros(len(loose), np.int64)])
        self.flow = np.concatenate([flow, ground[loose]])
        self._price = np.zeros(rows + 1, np.int64)

    def solve(self, charge: Charge) -> bool:
        """Balance all rows; return False if that is impossible.

        Args:
            charge: Called with the work; raises an error to end the solution.
        """
        while (self._excess > 0).any():
            if not self._raise_prices(charge):
                return False
            self._push(charge)
        return True

    def complete(self, charge: Charge) -> bool:
        """Balance all rows at any cost, after `solve` was ended; return False if that is impossible.

        What has not been balanced by then is little, so the flow remains close to one of minimum cost.

        Args:
            charge: Called with the work.
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
            used = np.flatnonzero(changed[tail])
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
        self._move(np.flatnonzero(self._reduced_costs() == 0), charge)

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
