"""Even loads as arcs: a convex cost, cut into steps.

The cost of a load is its square over the weight of whoever carries it, so the step from a to b copies costs
(a + b) times a scale a copy. Steps are single copies near the load that is expected and double in width away from it;
a wide step costs the mean of its copies, so what is found is the optimum as soon as every load lies among single
steps: a convex cost that is least nearby is least altogether.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.types import Bools, Ints

_FINEST = 60
"""Scale of the heaviest weight where weights differ: how finely a quotient by weight is rounded."""


@dataclass(frozen=True, slots=True)
class CostSegments:
    """Steps of loads.

    Args:
        owner: Whose step it is.
        width: Copies it takes.
        cost: Of one of them.
    """

    owner: Ints
    width: Ints
    cost: Ints


def inverse_weights(weight: Ints) -> Ints:
    """Return integers about proportional to 1 / weight; all 1 for equal weights."""
    if not len(weight) or (weight == weight[0]).all():
        return np.ones(len(weight), np.int64)
    found: Ints = np.maximum(1, np.rint(_FINEST * weight.max() / np.maximum(weight, 1))).astype(np.int64)
    return found


def segment_loads(most: Ints, centre: Ints, base: Ints, scale: Ints, single: int) -> CostSegments:
    """Cut loads into steps.

    Args:
        most: The most each can carry, beyond its base.
        centre: About what it will carry, beyond its base.
        base: What it carries anyway.
        scale: Of the cost of each.
        single: How far from the centre steps are single copies.
    """
    reach = int(most.max(initial=0)) + int(centre.max(initial=0)) + 1
    near = np.arange(-single, single + 1)
    far = single + np.cumsum(2 ** np.arange(1, max(2, reach.bit_length() + 1)))
    cuts = np.concatenate([-far[::-1], near, far])
    edges = np.clip(centre[:, None] + cuts[None, :], 0, most[:, None])
    # Wherever the centre is, the steps begin with none and end with all.
    edges[:, 0], edges[:, -1] = 0, most
    low, high = edges[:, :-1], edges[:, 1:]
    owner, column = np.nonzero(high > low)
    a, b = low[owner, column], high[owner, column]
    cost = scale[owner] * (2 * base[owner] + a + b)
    return CostSegments(owner, b - a, cost)


def on_unit_segments(load: Ints, most: Ints, centre: Ints, single: int) -> Bools:
    """Tell whose load lies strictly among single steps, or at an end that single steps reach."""
    above = (load > centre - single) | (centre - single <= 0)
    below = (load < centre + single) | (centre + single >= most)
    return above & below
