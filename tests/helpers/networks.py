"""Small networks for tests of flows."""

from __future__ import annotations

import random

import numpy as np

from rackassign.solver.network_flow import Ints, Network

PLENTY = 10**6
"""A budget that no test uses up."""


def ints(*numbers: int) -> Ints:
    return np.asarray(numbers, np.int64)


def chain(arcs: int) -> Network:
    """Return a network in which arcs from the first row to the second one carry at most one unit each."""
    ones = np.ones(arcs, np.int64)
    return Network(0 * ones, ones, 0 * ones, ones, ints(0, -arcs), ints(arcs, 0))


def ring(rows: int) -> tuple[Network, Ints]:
    """Return a network that needs an iteration of the simplex method for each of its rows or so, and its costs."""
    rng = random.Random(rows)
    ends = [(i, (i + 1) % rows) for i in range(rows)] + [tuple(rng.sample(range(rows), 2)) for _ in range(3 * rows)]
    supply = np.zeros(rows, np.int64)
    supply[: rows // 2], supply[rows // 2 : rows // 2 * 2] = 3, -3
    many = len(ends)
    network = Network(
        ints(*(tail for tail, _ in ends)),
        ints(*(head for _, head in ends)),
        np.zeros(many, np.int64),
        np.full(many, 3 * rows, np.int64),
        supply,
        supply,
    )
    return network, ints(*(rng.randrange(1, 30) for _ in ends))
