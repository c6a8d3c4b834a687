"""Brokers in racks, and layouts at random."""

from __future__ import annotations

import random

from rackassign.model import Broker
from rackassign.placement import (
    Layout,
)


def brokers_in(*sizes: int) -> list[Broker]:
    """Brokers from 1, so many in each of the racks a, b, .."""
    racks = [rack for rack, size in zip("abcdef", sizes, strict=False) for _ in range(size)]
    return [Broker(number, rack) for number, rack in enumerate(racks, 1)]


def random_layout(brokers: list[Broker], partitions: int, replicas: int, seed: int, topics: int = 1) -> Layout:
    """Replicas wherever it happens, racks or not."""
    rng = random.Random(seed)
    ids = [broker.id for broker in brokers]
    lists = [tuple(rng.sample(ids, replicas)) for _ in range(partitions)]
    size = -(-partitions // topics)
    return Layout(tuple(brokers), {f"t{n:03d}": tuple(lists[n * size : (n + 1) * size]) for n in range(topics)})
