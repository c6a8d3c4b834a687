"""One objective after the other, each on the smallest network that can decide it.

Cost and balance do not ask who holds what, so they are decided with all members of a kind as one. The prices found
there are prices of the full network too (a node's is its kind's), and there they say which arcs an optimal flow may
use. Only moves need the full network, and by then most of its arcs are gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.assignment_network import NetworkLayout, build_network, expand_flow
from rackassign.solver.min_cost_flow import SolveBudget, SolverError, min_cost_flow
from rackassign.solver.problem import CompressedProblem
from rackassign.solver.types import Ints


@dataclass(frozen=True, slots=True)
class LexicographicResult:
    """Flows of least cost, then of most even loads, then of fewest moves.

    Args:
        grouped: What was distributed: as asked, or without owners if they decided nothing.
        layout: The network.
        flow: Of each of its arcs.
    """

    grouped: CompressedProblem
    layout: NetworkLayout
    flow: Ints

    def assignment(self) -> Ints:
        """Return the reader of each partition."""
        return expand_flow(self.grouped, self.layout, self.flow)


def solve_lexicographic(
    grouped: CompressedProblem, low: Ints, high: Ints, work: SolveBudget, *, levels: bool = False
) -> LexicographicResult:
    """Find the flows.

    Args:
        grouped: What to distribute.
        low: Least load of a member, by crowd.
        high: Most load of a member, by crowd.
        work: Is drawn on.
        levels: Whether `low` and `high` leave open how even the loads are.

    Raises:
        SolverError: There is no solution, or none was found. That of the first objectives alone would be one as well,
            but it moves nearly everything; `fallback` keeps nearly everything.
    """
    bare = grouped.ignoring_ownership()
    small = build_network(bare, low, high, levels=levels)
    network, flow = small.network, small.network.lower
    prices: list[Ints] = []
    for objective in [small.cost(), small.squares()] if levels else [small.cost()]:
        found = min_cost_flow(network, objective, work)
        network, flow = network.restrict_to_optimal(objective, found.dual), found.flow
        prices.append(found.dual)
    if not len(grouped.current):
        return LexicographicResult(bare, small, flow)
    full = build_network(grouped, low, high, levels=levels)
    network = full.network
    for objective, price in zip([full.cost(), full.squares()], prices, strict=False):
        network = network.restrict_to_optimal(objective, _spread(price, small, grouped))
    best = min_cost_flow(network, full.moves(), work).flow
    if full.cost() @ best != small.cost() @ flow or full.squares() @ best != small.squares() @ flow:
        raise SolverError("prices of the small network do not hold in the full one")
    return LexicographicResult(grouped, full, best)


def _spread(price: Ints, small: NetworkLayout, grouped: CompressedProblem) -> Ints:
    """Return prices of the full network that mean the same."""
    classes, hubs, kinds, _, _ = small.rows
    # In the small one a kind is a node.
    shared, _, nodes, sink = np.split(price, np.cumsum([classes + hubs, kinds, kinds]))
    return np.concatenate([shared, nodes, nodes[grouped.node_kind], sink])
