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

Distances and depths are computed on arrays; only the paths of a blocking flow are followed one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rackassign.solver.types import Bools, Ints

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
        while changed.any():
            charge(len(tail))
            used = np.flatnonzero(changed[tail])
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
        tail, head = self._tail[free], self._head[free]
        while True:
            charge(len(free))
            forward, backward = self.flow[free] < self._upper[free], self.flow[free] > self._lower[free]
            depth = _depths(
                np.concatenate([tail[forward], head[backward]]),
                np.concatenate([head[forward], tail[backward]]),
                self._excess > 0,
            )
            if not ((depth >= 0) & (self._excess < 0)).any():
                return
            ahead = free[forward & (depth[tail] >= 0) & (depth[head] == depth[tail] + 1)]
            back = free[backward & (depth[head] >= 0) & (depth[tail] == depth[head] + 1)]
            self._push_along(ahead, back)

    def _push_along(self, ahead: Ints, back: Ints) -> None:
        """Push a blocking flow along these arcs, forward or back."""
        leave = np.concatenate([self._tail[ahead], self._head[back]])
        enter = np.concatenate([self._head[ahead], self._tail[back]])
        room = np.concatenate([self._upper[ahead] - self.flow[ahead], self.flow[back] - self._lower[back]])
        order = np.argsort(leave, kind="stable")
        first = np.searchsorted(leave[order], np.arange(len(self._excess) + 1))
        moved, self._excess = _blocking_flow(first, enter[order], room[order], self._excess)
        by_arc = np.empty(len(order), np.int64)
        by_arc[order] = moved
        self.flow[ahead] += by_arc[: len(ahead)]
        self.flow[back] -= by_arc[len(ahead) :]


def _depths(tail: Ints, head: Ints, sources: Bools) -> Ints:
    """Return the number of arcs from the sources to each row, -1 if it cannot be reached."""
    depth = np.where(sources, 0, -1)
    frontier, step = sources, 0
    while frontier.any():
        step += 1
        reached = np.zeros(len(depth), bool)
        reached[head[frontier[tail]]] = True
        frontier = reached & (depth < 0)
        depth[frontier] = step
    return depth


def _blocking_flow(first: Ints, enter: Ints, room: Ints, excess: Ints) -> tuple[Ints, Ints]:
    """Move excesses along arcs that lead one step deeper each, until every path is blocked.

    Args:
        first: For each row its first arc, and at the end the number of arcs. Arcs are ordered by the row they leave.
        enter: Row that each arc enters.
        room: How much more each arc can carry.
        excess: Excess of each row; below 0 a deficit.

    Returns:
        What each arc carries, and the excesses that are left.
    """
    at, end = first[:-1].tolist(), first[1:].tolist()
    target, left, over = enter.tolist(), room.tolist(), excess.tolist()
    for source in np.flatnonzero(excess > 0).tolist():
        path: list[int] = []
        row = source
        while over[source] > 0:
            if over[row] < 0:
                amount = min(over[source], -over[row], *[left[arc] for arc in path])
                over[source] -= amount
                over[row] += amount
                again = len(path)
                for i in range(len(path) - 1, -1, -1):
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
    moved = room - np.asarray(left, np.int64)
    return moved, np.asarray(over, np.int64)
