"""Even loads as arcs: a convex cost, divided into segments.

The cost of a load is its square divided by the weight of its node, so a segment from a to b copies costs (a + b) times
a scale per copy. Segments are single copies near the expected load and double in width away from it. A wide segment
costs the mean of its copies, so the result is optimal as soon as every load is among single segments: a local minimum
of a convex cost is the global one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.types import Bools, Ints

_FINEST = 60
"""Scale of the highest weight if weights differ: the precision to which a quotient by weight is rounded."""


@dataclass(frozen=True, slots=True)
class CostSegments:
    """Segments of loads.

    Args:
        owner: Node, rack or group of each segment.
        width: Number of copies in it.
        cost: Cost of one of them.
    """

    owner: Ints
    width: Ints
    cost: Ints


def inverse_weights(weight: Ints) -> Ints:
    """Return integers approximately proportional to 1 / weight; all 1 for equal weights."""
    if not len(weight) or (weight == weight[0]).all():
        return np.ones(len(weight), np.int64)
    found: Ints = np.maximum(1, np.rint(_FINEST * weight.max() / np.maximum(weight, 1))).astype(np.int64)
    return found


def segment_loads(most: Ints, centre: Ints, base: Ints, scale: Ints, single: int) -> CostSegments:
    """Divide loads into segments.

    Args:
        most: The highest possible load of each, beyond its base.
        centre: Its expected load, beyond its base.
        base: Its load that is not to be placed.
        scale: Scale of its cost.
        single: Distance from the centre up to which segments are single copies.
    """
    reach = int(most.max(initial=0)) + int(centre.max(initial=0)) + 1
    near = np.arange(-single, single + 1)
    far = single + np.cumsum(2 ** np.arange(1, max(2, reach.bit_length() + 1)))
    cuts = np.concatenate([-far[::-1], near, far])
    edges = np.clip(centre[:, None] + cuts[None, :], 0, most[:, None])
    # For every centre, the segments begin with no copies and end with all.
    edges[:, 0], edges[:, -1] = 0, most
    low, high = edges[:, :-1], edges[:, 1:]
    owner, column = np.nonzero(high > low)
    a, b = low[owner, column], high[owner, column]
    cost = scale[owner] * (2 * base[owner] + a + b)
    return CostSegments(owner, b - a, cost)


def on_unit_segments(load: Ints, most: Ints, centre: Ints, single: int) -> Bools:
    """Return whether each load is strictly among single segments, or at an end that single segments reach."""
    above = (load > centre - single) | (centre - single <= 0)
    below = (load < centre + single) | (centre + single >= most)
    return above & below
