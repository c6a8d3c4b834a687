"""Brokers in racks, and layouts at random."""

from __future__ import annotations

import random
from typing import Any

from rackassign.model import Broker
from rackassign.placement import Layout, LayoutMetrics, load_placer, rebalance
from rackassign.placement.layout import moved


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


def placed(name: str, brokers: list[Broker], partitions: int, replicas: int, **configs: Any) -> Layout:
    lists = load_placer(name, configs).place(0, partitions, replicas, brokers)
    return Layout(tuple(brokers)).with_topics({"t": lists})


def after(layout: Layout, *args: Any, **options: Any) -> tuple[Any, LayoutMetrics]:
    found = rebalance(layout, *args, **options)
    done = layout.with_topics(found.topics)
    quality = LayoutMetrics.of(done, layout)
    assert quality.moved == found.moved == moved(layout, done) >= found.lower_bound
    return found, quality
