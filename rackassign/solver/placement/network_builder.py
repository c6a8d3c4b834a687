"""Construction of a network block by block, and its solution for one objective after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rackassign.solver.min_cost_flow import BudgetExhaustedError, Network, SolveBudget
from rackassign.solver.simplex import simplex_flow
from rackassign.solver.types import Ints


@dataclass(frozen=True, slots=True)
class Block:
    """Arcs of one type.

    Args:
        tail: Row that each arc leaves.
        head: Row that each arc enters.
        lower: Lower bound of the flow on each arc.
        upper: Upper bound of the flow on each arc.
    """

    tail: Ints
    head: Ints
    lower: Ints
    upper: Ints


@dataclass(slots=True)
class Builder:
    """Rows and blocks of arcs.

    Args:
        blocks: Blocks by name, in the order they were added.
        rows: Number of rows.
        sources: First row, and net flows out, of rows that have a net flow.
    """

    blocks: dict[str, Block] = field(default_factory=dict)
    rows: int = 0
    sources: list[tuple[int, Ints]] = field(default_factory=list)

    def add_rows(self, count: int, net: Ints | None = None) -> int:
        """Add rows whose net flow is 0 unless given. Return the number of the first."""
        first = self.rows
        self.rows += count
        if net is not None:
            self.sources.append((first, net))
        return first

    def add(self, name: str, tail: Ints, head: Ints, upper: Ints, lower: Ints | None = None) -> None:
        """Add a block of arcs."""
        self.blocks[name] = Block(tail, head, np.zeros(len(tail), np.int64) if lower is None else lower, upper)

    def network(self) -> Network:
        """Return the complete network."""
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

    def objective(self, **costs: Ints) -> Ints:
        """Return the cost of each arc: the given one for named blocks, 0 for the others."""
        return np.concatenate(
            [costs.get(name, np.zeros(len(block.tail), np.int64)) for name, block in self.blocks.items()]
        )

    def split(self, flow: Ints) -> dict[str, Ints]:
        """Return the flow by block."""
        ends = np.cumsum([len(block.tail) for block in self.blocks.values()])[:-1]
        return dict(zip(self.blocks, np.split(flow, ends), strict=True))


def solve(builder: Builder, objectives: Sequence[Ints], work: SolveBudget) -> tuple[dict[str, Ints], str]:
    """Return flows that are optimal in each objective given those before it, and a note on what is not proven.

    Raises:
        SolverError: There is no solution.
    """
    network = builder.network()
    flow: Ints | None = None
    for objective in objectives:
        try:
            best = simplex_flow(network, objective, work)
        except BudgetExhaustedError as error:
            if flow is None:
                raise
            return builder.split(flow), str(error)
        network, flow = network.restrict_to_optimal(objective, best.dual), best.flow
    if flow is None:
        flow = simplex_flow(network, np.zeros(len(network.tail), np.int64), work).flow
    return builder.split(flow), ""


def shift_by_median(costs: Ints) -> Ints:
    """Return costs less their median. If every unit takes exactly one arc of the block, the optimum is unchanged."""
    return costs - np.sort(costs)[len(costs) // 2] if len(costs) else costs
