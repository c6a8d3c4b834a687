"""Live groups of any client: what their coordinators tell of them, and what to make of it.

Rules of this room:

* To look changes nothing in a group that works. What may change one that does not is in `wedge`, and says so.
* Looking and judging are apart: `doctor` gets values and does no I/O.
* What members sent is hostile until it is decoded: nothing a member sends stops the description of the others.
"""

from __future__ import annotations

from rackassign.monitoring.analysis import GroupAnalysis, RecommendedChange, StrategyOutcome
from rackassign.monitoring.cluster import ObservedCluster
from rackassign.monitoring.collector import ClusterReport, ClusterSnapshot, GroupCollector, SkippedGroup
from rackassign.monitoring.groups import (
    BrokerDescription,
    GroupDescription,
    GroupObservation,
    MemberDescription,
    describe_brokers,
    describe_group,
    watch,
)
from rackassign.monitoring.health import Finding, findings, may_not_settle
from rackassign.monitoring.migration import MigrationStep, migration_step
from rackassign.monitoring.pricing import Price
from rackassign.monitoring.rack_map import RackMap
from rackassign.monitoring.serialize import as_json, collection_warnings, describe_action
from rackassign.monitoring.snapshot import Snapshot
from rackassign.monitoring.throughput import Throughput
from rackassign.monitoring.traffic import PartitionRead, TrafficMatrix
from rackassign.monitoring.wedged_group import RecoveryResult, is_wedged, recover

__all__ = [
    "BrokerDescription",
    "ClusterReport",
    "ClusterSnapshot",
    "Finding",
    "GroupAnalysis",
    "GroupCollector",
    "GroupDescription",
    "GroupObservation",
    "MemberDescription",
    "MigrationStep",
    "ObservedCluster",
    "PartitionRead",
    "Price",
    "RackMap",
    "RecommendedChange",
    "RecoveryResult",
    "SkippedGroup",
    "Snapshot",
    "StrategyOutcome",
    "Throughput",
    "TrafficMatrix",
    "as_json",
    "collection_warnings",
    "describe_action",
    "describe_brokers",
    "describe_group",
    "findings",
    "is_wedged",
    "may_not_settle",
    "migration_step",
    "recover",
    "watch",
]
