"""Optimize one objective after the other, each on the smallest network that is sufficient.

Cost and balance do not depend on ownership, so they are optimized with all members of a kind as one node. The resulting
prices are also valid in the full network, where the price of a node is that of its kind. There they determine which
arcs an optimal flow may use. Only moves need the full network, and by then most of its arcs have been removed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.assignment_network import NetworkLayout, TopicBounds, build_network, expand_flow
from rackassign.solver.min_cost_flow import SolveBudget, SolverError, min_cost_flow
from rackassign.solver.problem import CompressedProblem
from rackassign.solver.types import Ints


@dataclass(frozen=True, slots=True)
class LexicographicResult:
    """Flows of lowest cost, then of most even loads, then of fewest moves.

    Args:
        grouped: Problem that was solved: the given one, or the one without owners if ownership made no difference.
        layout: The network.
        flow: Flow of each arc.
    """

    grouped: CompressedProblem
    layout: NetworkLayout
    flow: Ints

    def assignment(self) -> Ints:
        """Return the member of each partition."""
        return expand_flow(self.grouped, self.layout, self.flow)


def solve_lexicographic(
    grouped: CompressedProblem,
    low: Ints,
    high: Ints,
    work: SolveBudget,
    *,
    levels: bool = False,
    topics: TopicBounds | None = None,
) -> LexicographicResult:
    """Compute the flows.

    Args:
        grouped: Problem to solve.
        low: Lower bound of a member's load, by subscription class.
        high: Upper bound of a member's load, by subscription class.
        work: Budget. The steps used are deducted.
        levels: Whether `low` and `high` leave open how even the loads are.
        topics: Bounds of each topic class; none if omitted.

    Raises:
        SolverError: There is no solution, or none was found. A solution of the first objectives alone would be valid
            as well, but it moves nearly everything; `greedy` keeps nearly everything.
    """
    bare = grouped.ignoring_ownership()
    small = build_network(bare, low, high, levels=levels, topics=topics)
    network, flow = small.network, small.network.lower
    prices: list[Ints] = []
    for objective in [small.cost(), small.squares()] if levels else [small.cost()]:
        found = min_cost_flow(network, objective, work)
        network, flow = network.restrict_to_optimal(objective, found.dual), found.flow
        prices.append(found.dual)
    if not len(grouped.current):
        return LexicographicResult(bare, small, flow)
    full = build_network(grouped, low, high, levels=levels, topics=topics)
    network = full.network
    for objective, price in zip([full.cost(), full.squares()], prices, strict=False):
        network = network.restrict_to_optimal(objective, _spread(price, small, full, grouped))
    best = min_cost_flow(network, full.moves(), work).flow
    if full.cost() @ best != small.cost() @ flow or full.squares() @ best != small.squares() @ flow:
        raise SolverError("prices of the small network are not valid in the full one")
    return LexicographicResult(grouped, full, best)


def _spread(price: Ints, small: NetworkLayout, full: NetworkLayout, grouped: CompressedProblem) -> Ints:
    """Return equivalent prices of the full network."""
    classes, hubs, middle, kinds, _ = small.rows
    # In the small network a kind is a node.
    shared, middles, nodes, sink = np.split(price, np.cumsum([classes + hubs, middle, kinds]))
    of_middle = middles[np.searchsorted(small.middle_keys, full.middle_keys)]
    return np.concatenate([shared, of_middle, nodes[grouped.node_kind], sink])
