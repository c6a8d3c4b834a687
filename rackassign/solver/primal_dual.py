"""Min-cost flows by the primal-dual method: the shortest way first, as much as fits at once.

Rules: as for `min_cost_flow`, whose networks these are. Everything is integer arithmetic, so prices need no rounding.

Theory
------
Row bounds become arcs out of one more row, the *ground*, so that only rows with an excess or a deficit are not
balanced. Every arc begins at the bound that its cost asks for, which is optimal but for these rows. In each phase the
distances from all excesses, with reduced costs as lengths, become prices. Then flows along arcs of reduced cost 0
remain optimal, so as much as possible is moved along them (Dinic), until no deficit can be reached at this price.

The number of phases is limited by the number of different lengths of shortest paths. Costs of a few different sizes
have few. The work is small where the beginning is nearly a solution: owners that keep what they have. The simplex
method spends its time on ties there, of which these networks consist.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rackassign.solver.blocking_flow import arcs_on_paths, blocking_flow, depths
from rackassign.solver.types import Ints

_ARC_OF_A_PATH = 8
"""How many arcs on arrays take as long as one that is followed by itself."""

_ARCS_TESTED = 16
"""How many arcs can be passed over, because their row has not changed, in the time that one that is used takes."""

_FAR = np.iinfo(np.int64).max // 4


class PrimalDual:
    """One problem: flows that are optimal for their prices, and the rows that are not balanced yet.

    Args:
        ends: Tails and heads of the arcs.
        bounds: Lower and upper bounds of the arcs.
        net: Lower and upper bounds of the net flow out of each row.
        cost: Cost of each arc.
    """

    def __init__(self, ends: tuple[Ints, Ints], bounds: tuple[Ints, Ints], net: tuple[Ints, Ints], cost: Ints) -> None:
        rows = len(net[0])
        self._arcs = len(cost)
        self._tail = np.concatenate([ends[0], np.full(rows, rows)])
        self._head = np.concatenate([ends[1], np.arange(rows)])
        self._lower = np.concatenate([bounds[0], net[0]])
        self._upper = np.concatenate([bounds[1], net[1]])
        self._cost = np.concatenate([cost, np.zeros(rows, np.int64)])
        self.flow = np.where(self._cost < 0, self._upper, np.clip(0, self._lower, self._upper))
        self.flow = np.where(self._cost > 0, self._lower, self.flow)
        self._price = np.zeros(rows + 1, np.int64)
        into = np.bincount(self._head, self.flow, rows + 1)
        self._excess = (into - np.bincount(self._tail, self.flow, rows + 1)).astype(np.int64)

    def solve(self, charge: Callable[[int], None]) -> bool:
        """Balance all rows; return False if that is impossible.

        Args:
            charge: Called with the number of arcs that a step looks at; raises an error to end the solution.
        """
        while (self._excess > 0).any():
            if not self._raise_prices(charge):
                return False
            self._push(charge)
        return True

    def result(self) -> tuple[Ints, Ints]:
        """Return the flow of each arc and the price of each row."""
        return self.flow[: self._arcs], (self._price - self._price[-1])[:-1]

    def _reduced_costs(self) -> Ints:
        reduced: Ints = self._cost - self._price[self._tail] + self._price[self._head]
        return reduced

    def _raise_prices(self, charge: Callable[[int], None]) -> bool:
        """Set prices by the distances from rows with an excess; return whether a deficit can be reached."""
        more, less = self.flow < self._upper, self.flow > self._lower
        reduced = self._reduced_costs()
        tail = np.concatenate([self._tail[more], self._head[less]])
        head = np.concatenate([self._head[more], self._tail[less]])
        length = np.concatenate([reduced[more], -reduced[less]])
        distance = np.where(self._excess > 0, 0, _FAR)
        changed = self._excess > 0
        charge(len(tail))
        while changed.any():
            used = np.flatnonzero(changed[tail])
            charge(len(used) + len(tail) // _ARCS_TESTED)
            nearer = distance.copy()
            np.minimum.at(nearer, head[used], distance[tail[used]] + length[used])
            changed = nearer < distance
            distance = nearer
        reached = distance < _FAR
        if not (reached & (self._excess < 0)).any():
            return False
        self._price -= np.where(reached, distance, int(distance[reached].max()))
        return True

    def _push(self, charge: Callable[[int], None]) -> None:
        """Move excesses to deficits along arcs of reduced cost 0, until no path is left."""
        free = np.flatnonzero(self._reduced_costs() == 0)
        while True:
            ahead, back = free[self.flow[free] < self._upper[free]], free[self.flow[free] > self._lower[free]]
            tail = np.concatenate([self._tail[ahead], self._head[back]])
            head = np.concatenate([self._head[ahead], self._tail[back]])
            depth = depths(tail, head, self._excess > 0)
            charge(len(free) + int(depth.max(initial=0)) * (len(tail) // _ARCS_TESTED))
            if not ((depth >= 0) & (self._excess < 0)).any():
                return
            room = np.concatenate([self._upper[ahead] - self.flow[ahead], self.flow[back] - self._lower[back]])
            arcs = arcs_on_paths((tail, head), depth, self._excess < 0)
            charge(_ARC_OF_A_PATH * len(arcs))
            moved, self._excess = blocking_flow((tail, head), arcs, room, self._excess)
            self.flow[ahead] += moved[: len(ahead)]
            self.flow[back] -= moved[len(ahead) :]
