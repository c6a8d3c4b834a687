"""Maximum flows by the method of Dinic: paths of one length at a time, until no path of any length is left.

Rules: rows have an excess, or below 0 a deficit. Arcs have a tail, a head and room, and no cost. What they mean is left
to the callers.

Depths are computed on arrays; only the paths of a blocking flow are followed one by one.
"""

from __future__ import annotations

import numpy as np

from rackassign.solver.types import Bools, Ints


def depths(tail: Ints, head: Ints, sources: Bools) -> Ints:
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


def arcs_on_paths(ends: tuple[Ints, Ints], depth: Ints, targets: Bools) -> Ints:
    """Return the arcs that lead one step deeper and on to a target; nearly all others would be dead ends.

    Args:
        ends: Tails and heads of the arcs.
        depth: Depth of each row, from `depths`.
        targets: Whether each row is a target.
    """
    tail, head = ends
    arcs = np.flatnonzero((depth[tail] >= 0) & (depth[head] == depth[tail] + 1))
    useful = targets & (depth >= 0)
    level = depth[head[arcs]]
    # From the deepest arcs to the first ones.
    by_level = arcs[np.argsort(-level, kind="stable")]
    for there in np.split(by_level, np.cumsum(np.bincount(level)[:0:-1])):
        useful[tail[there[useful[head[there]]]]] = True
    return arcs[useful[head[arcs]]]


def blocking_flow(ends: tuple[Ints, Ints], arcs: Ints, room: Ints, excess: Ints) -> tuple[Ints, Ints]:
    """Move excesses to deficits along some arcs, until every path of them is blocked.

    Args:
        ends: Tails and heads of all arcs.
        arcs: The arcs to use, from `arcs_on_paths`.
        room: How much each of all arcs can carry.
        excess: Excess of each row; below 0 a deficit.

    Returns:
        What each of all arcs carries, and the excesses that are left.
    """
    tail, head = ends
    moved, excess = np.zeros(len(tail), np.int64), excess.copy()
    # Arcs are ordered by the row they leave, and only rows with arcs are looked at.
    arcs = arcs[np.argsort(tail[arcs], kind="stable")]
    used = np.zeros(len(excess), bool)
    used[tail[arcs]] = used[head[arcs]] = True
    rows = np.flatnonzero(used)
    place = np.cumsum(used) - 1
    first = np.append(0, np.cumsum(np.bincount(place[tail[arcs]], minlength=len(rows))))
    left, over = room[arcs].tolist(), excess[rows].tolist()
    _push(np.flatnonzero(excess[rows] > 0).tolist(), first.tolist(), place[head[arcs]].tolist(), left, over)
    moved[arcs] = room[arcs] - np.asarray(left, np.int64)
    excess[rows] = over
    return moved, excess


def _push(sources: list[int], first: list[int], target: list[int], left: list[int], over: list[int]) -> None:
    """Follow paths, and update what arcs can carry and what rows have.

    Args:
        sources: Rows with an excess.
        first: For each row its first arc, and at the end the number of arcs.
        target: Row that each arc enters.
        left: How much more each arc can carry.
        over: Excess of each row.
    """
    at, end = first[:-1], first[1:]
    for source in sources:
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
