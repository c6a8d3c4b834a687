"""Maximum flows by the method of Dinic: paths of one length at a time, until no path of any length is left.

Rules: rows have an excess, or below 0 a deficit. Arcs have a tail, a head and room, and no cost. What they mean is left
to the callers. All work is charged, whether it is done on arrays or along paths.

Depths are computed on arrays; only the paths of a blocking flow are followed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from rackassign.solver.types import Bools, Ints

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
    """The work of passes over arrays, which is charged when it is worth a call.

    Args:
        charge: Called with the work.
    """

    def __init__(self, charge: Charge) -> None:
        self._charge, self._owed = charge, 0

    def add(self, used: int, tested: int) -> None:
        """Add a pass that used some of the arcs that it tested."""
        self._owed += _ARCS_OF_A_PASS + used // _PASSES_OF_AN_ARC + tested // _ARCS_TESTED
        if self._owed > _WORTH_A_CALL:
            self.end()

    def end(self) -> None:
        """Charge what has not been charged yet."""
        self._charge(self._owed)
        self._owed = 0


def depths(tail: Ints, head: Ints, sources: Bools, charge: Charge) -> Ints:
    """Return the number of arcs from the sources to each row, -1 if it cannot be reached."""
    depth = np.where(sources, 0, -1)
    frontier, step, past = sources, 0, 0
    passes = Passes(charge)
    while frontier.any():
        used = np.flatnonzero(frontier[tail])
        passes.add(len(used), len(tail))
        reached = np.zeros(len(depth), bool)
        reached[head[used]] = True
        frontier = reached & (depth < 0)
        step += 1
        depth[frontier] = step
        past += len(used)
        if 4 * past > len(tail):
            # Most of them end in rows that have been reached.
            open_ = np.flatnonzero(depth[head] < 0)
            tail, head, past = tail[open_], head[open_], 0
    passes.end()
    return depth


def blocking_flow(ends: tuple[Ints, Ints], depth: Ints, room: Ints, excess: Ints, charge: Charge) -> tuple[Ints, Ints]:
    """Move excesses to deficits until every path along which depths increase is blocked.

    Args:
        ends: Tails and heads of the arcs.
        depth: Depth of each row, from `depths`, with the excesses as sources.
        room: How much each arc can carry.
        excess: Excess of each row; below 0 a deficit.
        charge: Called with the work.

    Returns:
        What each arc carries, and the excesses that are left.
    """
    tail, head = ends
    moved, excess = np.zeros(len(tail), np.int64), excess.copy()
    charge(len(tail) // 4)
    arcs = _arcs_on_paths(ends, depth, excess < 0)
    charge(_ARCS_OF_A_STEP * len(arcs) // 4)
    # Arcs are ordered by the row they leave, and only rows with arcs are looked at.
    arcs = arcs[np.argsort(tail[arcs], kind="stable")]
    used = np.zeros(len(excess), bool)
    used[tail[arcs]] = used[head[arcs]] = True
    rows = np.flatnonzero(used)
    place = np.cumsum(used) - 1
    first = np.append(0, np.cumsum(np.bincount(place[tail[arcs]], minlength=len(rows))))
    left, over = room[arcs].tolist(), excess[rows].tolist()
    steps = _push(np.flatnonzero(excess[rows] > 0).tolist(), first.tolist(), place[head[arcs]].tolist(), left, over)
    charge(_ARCS_OF_A_STEP * steps)
    moved[arcs] = room[arcs] - np.asarray(left, np.int64)
    excess[rows] = over
    return moved, excess


def _arcs_on_paths(ends: tuple[Ints, Ints], depth: Ints, targets: Bools) -> Ints:
    """Return the arcs that lead one step deeper and on to a target; nearly all others would be dead ends.

    Args:
        ends: Tails and heads of the arcs.
        depth: Depth of each row, from `depths`.
        targets: Whether each row is a target.
    """
    tail, head = ends
    below = depth[head]
    arcs = np.flatnonzero((depth[tail] == below - 1) & (below > 0))
    useful = targets & (depth >= 0)
    level = below[arcs]
    deepest = int(level.max(initial=0))
    # From the deepest arcs to the first ones. Small integers are sorted without comparisons.
    by_level = arcs[np.argsort((deepest - level).astype(np.min_scalar_type(deepest)), kind="stable")]
    for there in np.split(by_level, np.cumsum(np.bincount(level)[:0:-1])):
        useful[tail[there[useful[head[there]]]]] = True
    return arcs[useful[head[arcs]]]


def _push(sources: list[int], first: list[int], target: list[int], left: list[int], over: list[int]) -> int:
    """Follow paths, update what arcs can carry and what rows have, and return the number of steps.

    Args:
        sources: Rows with an excess.
        first: For each row its first arc, and at the end the number of arcs.
        target: Row that each arc enters.
        left: How much more each arc can carry.
        over: Excess of each row.
    """
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
