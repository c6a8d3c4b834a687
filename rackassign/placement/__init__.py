"""Placement: which brokers get the replicas of a topic, and which of them leads.

Invariants of this package:

* A placer places new partitions, and users can write their own (`placer`, after KIP-660). The built-in ones are
  Kafka's two, reproduced exactly (`kafka_placers`), and the exact one (`optimal_placer`), with rules of other systems
  as presets.
* `optimal_placer` maps brokers and racks to indexes. The optimum is computed in `solver.placement`, which only has
  the indexes.
* `layout` computes the quality of a layout independently of any placer.
* The result depends on the input only: the order of brokers, topics and settings does not matter, and random numbers
  come from a seed.

`cluster_state`, `create_topic` and `local_reads` send requests to a cluster; the other modules do not.
"""

from __future__ import annotations

from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.layout import Layout, LayoutMetrics
from rackassign.placement.optimal_placer import OptimalPlacer, Placement, rebalance
from rackassign.placement.placer import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    ReplicaPlacementError,
    ReplicaPlacer,
    UsableBroker,
    load_placer,
    placer_names,
)

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
