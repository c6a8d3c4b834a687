"""One objective after the other, each on the smallest network that can decide it.

Cost and balance do not ask who holds what, so they are decided with all members of a kind as one. The prices found
there are prices of the full network too (a node's is its kind's), and there they say which arcs an optimal flow may
use. Only moves need the full network, and by then most of its arcs are gone.
"""

from __future__ import annotations

import numpy as np

from rackassign.optimum.arrays import Ints
from rackassign.optimum.linear import OutOfWorkError, SolverError, Work, minimise
from rackassign.optimum.network import Layout, deal, lay_out
from rackassign.optimum.problem import Grouped


def in_stages(grouped: Grouped, low: Ints, high: Ints, work: Work, *, levels: bool = False) -> tuple[Ints, str]:
    """Return the reader of each partition: cost least, then the squares of loads (with levels), then moves.

    Args:
        grouped: What to distribute.
        low: Least load of a member, by crowd.
        high: Most load of a member, by crowd.
        work: Is drawn on.
        levels: Whether `low` and `high` leave open how even the loads are.

    Returns:
        The readers, and what is not proven about them; empty if they are optimal.

    Raises:
        SolverError: There is no solution, or none was found.
    """
    bare = grouped.without_owners()
    small = lay_out(bare, low, high, levels=levels)
    network, objectives, prices = small.network, [small.cost], []
    if levels:
        objectives.append(small.squares)
    for objective in objectives:
        found = minimise(network, objective, work)
        network = network.narrowed(objective, found.price)
        prices.append(found.price)
    if not len(grouped.held):
        return deal(bare, small, found.flow), ""
    full = lay_out(grouped, low, high, levels=levels)
    network = full.network
    for objective, price in zip([full.cost, full.squares], prices, strict=False):
        network = network.narrowed(objective, _spread(price, small, grouped))
    try:
        best = minimise(network, full.moves, work)
    except OutOfWorkError as error:
        return deal(bare, small, found.flow), str(error)
    if full.cost @ best.flow != small.cost @ found.flow or full.squares @ best.flow != small.squares @ found.flow:
        raise SolverError("prices of the small network do not hold in the full one")
    return deal(grouped, full, best.flow), ""


def _spread(price: Ints, small: Layout, grouped: Grouped) -> Ints:
    """Return prices of the full network that mean the same."""
    classes, hubs, kinds, _, _ = small.rows
    # In the small one a kind is a node.
    shared, _, nodes, sink = np.split(price, np.cumsum([classes + hubs, kinds, kinds]))
    return np.concatenate([shared, nodes, nodes[grouped.node_kind], sink])
