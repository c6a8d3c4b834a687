"""Construction of a network block by block, and its solution for one objective after the other.

Even loads are arcs: a convex cost, divided into segments. The cost of a load is its square divided by the weight of its
node, so a segment from a to b copies costs (a + b) times a scale per copy. Segments are single copies near the expected
load and double in width away from it. A wide segment costs the mean of its copies, so the result is optimal as soon as
every load is among single segments: a local minimum of a convex cost is the global one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rackassign.solver.network_flow import Bools, BudgetExhaustedError, Ints, Network, SolveBudget, min_cost_flow


@dataclass(frozen=True, slots=True)
class Block:
    """Arcs of one type."""

    tail: Ints
    head: Ints
    lower: Ints
    upper: Ints


@dataclass(slots=True)
class Builder:
    """Rows and blocks of arcs."""

    blocks: dict[str, Block] = field(default_factory=dict)
    rows: int = 0
    # First row, and net flows out, of rows that have a net flow.
    sources: list[tuple[int, Ints]] = field(default_factory=list)

    def add_rows(self, count: int, net: Ints | None = None) -> int:
        """Add rows whose net flow is 0 unless given. Return the number of the first."""
        first = self.rows
        self.rows += count
        if net is not None:
            self.sources.append((first, net))
        return first

    def add(self, name: str, tail: Ints, head: Ints, upper: Ints, lower: Ints | None = None) -> None:
        self.blocks[name] = Block(tail, head, np.zeros(len(tail), np.int64) if lower is None else lower, upper)

    def network(self) -> Network:
        net = np.zeros(self.rows, np.int64)
        for first, values in self.sources:
            net[first : first + len(values)] = values
        blocks = self.blocks.values()
        return Network(
            tail=np.concatenate([block.tail for block in blocks]),
            head=np.concatenate([block.head for block in blocks]),
            lower=np.concatenate([block.lower for block in blocks]),
            upper=np.concatenate([block.upper for block in blocks]),
            low=net,
            high=net,
        )

    def values(self, **of_blocks: Ints) -> Ints:
        """Return a value for each arc, a cost or a flow: the given one for named blocks, 0 for the others."""
        return np.concatenate(
            [of_blocks.get(name, np.zeros(len(block.tail), np.int64)) for name, block in self.blocks.items()]
        )

    def split(self, flow: Ints) -> dict[str, Ints]:
        ends = np.cumsum([len(block.tail) for block in self.blocks.values()])[:-1]
        return dict(zip(self.blocks, np.split(flow, ends), strict=True))


def solve(
    builder: Builder, objectives: Sequence[Ints], work: SolveBudget, start: Ints | None = None
) -> tuple[dict[str, Ints], str]:
    """Return flows that are optimal in each objective given those before it, and a note on what is not proven.

    Args:
        builder: The complete network.
        objectives: Cost of each arc, in each objective; at least one.
        work: Budget. The steps used are deducted.
        start: Suggested flow of arcs without a cost in the first objective.

    Raises:
        SolverError: There is no solution.
    """
    network = builder.network()
    flow: Ints | None = None
    for objective in objectives:
        try:
            # A flow that is optimal so far is feasible, and mostly near the best one of the next objective.
            best = min_cost_flow(network, objective, work, start if flow is None else flow)
        except BudgetExhaustedError as error:
            if flow is None:
                raise
            return builder.split(flow), str(error)
        network, flow = network.restrict_to_optimal(objective, best.dual), best.flow
    assert flow is not None  # noqa: S101 - there is at least one objective
    return builder.split(flow), ""


def shift_by_median(costs: Ints) -> Ints:
    """Return costs less their median. If every unit takes exactly one arc of the block, the optimum is unchanged."""
    return costs - np.sort(costs)[len(costs) // 2] if len(costs) else costs


_FINEST = 60
"""Scale of the highest weight if weights differ: the precision to which a quotient by weight is rounded."""


@dataclass(frozen=True, slots=True)
class CostSegments:
    """Segments of loads."""

    # Node, rack or group of each segment, the number of copies in it, and the cost of one of them.
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
    # `most` and the expected load `centre` are beyond `base`, which is not to be placed. Segments are single copies
    # up to the distance `single` from the centre.
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
