"""Placement: which brokers have the replicas of a topic, and who leads.

Rules of this room:

* A placer answers for new partitions, and is anybody's to write (`placer`, after KIP-660). Ours are Kafka's two, to
  the letter (`kafka`, `striped`), and the exact one (`optimal`), with rules of other systems as `presets`.
* Brokers and racks become numbers at the door of `optimal`; what is best is decided in `optimum.place_replicas`, which
  knows neither.
* How good a layout is, is told by `quality`, which asks no placer.
* Same input, same answer: the order of brokers, topics and settings plays no part, and chance has a seed.

Nothing here talks to a cluster.
"""

from __future__ import annotations

from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.layout import Layout
from rackassign.placement.metrics import LayoutMetrics
from rackassign.placement.placer import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    ReplicaPlacementError,
    ReplicaPlacer,
    UsableBroker,
    load_placer,
    placer_names,
)
from rackassign.placement.placers.optimal import OptimalPlacer, Placement, rebalance

__all__ = [
    "InvalidPartitionsError",
    "InvalidReplicationFactorError",
    "Layout",
    "LayoutMetrics",
    "OptimalPlacer",
    "Placement",
    "PlacementConstraints",
    "ReplicaPlacementError",
    "ReplicaPlacer",
    "UsableBroker",
    "load_placer",
    "placer_names",
    "rebalance",
]
