"""Monitoring of live groups of any client: what their coordinators report about them, and its analysis.

Invariants of this package:

* Reading changes nothing in a group that works. The code that may change a group that does not is in `wedged_group`,
  and its docstrings state that.
* Reading and analysis are separate: `analysis`, and the checks of `health` (`findings`), get values and do no I/O.
* Data that members sent is untrusted until it is decoded: no member's data prevents the description of the others.
"""

from __future__ import annotations

from rackassign.monitoring.advice import Advice, cluster_advice, describe_change, rack_map_to_fill
from rackassign.monitoring.analysis import SORT_KEYS, GroupAnalysis, RecommendedChange, SortKey, StrategyOutcome
from rackassign.monitoring.collector import (
    ClusterReport,
    ClusterSnapshot,
    GroupCollector,
    SkippedGroup,
    collect_repeatedly,
)
from rackassign.monitoring.health import (
    Examination,
    Finding,
    MigrationStep,
    examine,
    findings,
    may_not_settle,
    migration_step,
)
from rackassign.monitoring.live_groups import (
    BrokerDescription,
    GroupDescription,
    GroupObservation,
    MemberDescription,
    RackMap,
    Snapshot,
    describe_brokers,
    describe_group,
    watch,
)
from rackassign.monitoring.read_rates import ReadRates
from rackassign.monitoring.report import (
    Price,
    as_json,
    collection_warnings,
    describe_cross,
    describe_gain,
    describe_rates,
    describe_savings,
    describe_uncounted,
    verdict,
)
from rackassign.monitoring.stateful_group import (
    ChangelogSizes,
    GroupState,
    PartitionState,
    StateCopy,
    describe_state,
    lag_of,
    read_changelog_sizes,
    with_default_changelogs,
)
from rackassign.monitoring.throughput import Throughput
from rackassign.monitoring.traffic import ObservedCluster, PartitionRead, TrafficMatrix
from rackassign.monitoring.wedged_group import RecoveryResult, is_wedged, recover

__all__ = [
    "SORT_KEYS",
    "Advice",
    "BrokerDescription",
    "ChangelogSizes",
    "ClusterReport",
    "ClusterSnapshot",
    "Examination",
    "Finding",
    "GroupAnalysis",
    "GroupCollector",
    "GroupDescription",
    "GroupObservation",
    "GroupState",
    "MemberDescription",
    "MigrationStep",
    "ObservedCluster",
    "PartitionRead",
    "PartitionState",
    "Price",
    "RackMap",
    "ReadRates",
    "RecommendedChange",
    "RecoveryResult",
    "SkippedGroup",
    "Snapshot",
    "SortKey",
    "StateCopy",
    "StrategyOutcome",
    "Throughput",
    "TrafficMatrix",
    "as_json",
    "cluster_advice",
    "collect_repeatedly",
    "collection_warnings",
    "describe_brokers",
    "describe_change",
    "describe_cross",
    "describe_gain",
    "describe_group",
    "describe_rates",
    "describe_savings",
    "describe_state",
    "describe_uncounted",
    "examine",
    "findings",
    "is_wedged",
    "lag_of",
    "may_not_settle",
    "migration_step",
    "rack_map_to_fill",
    "read_changelog_sizes",
    "recover",
    "verdict",
    "watch",
    "with_default_changelogs",
]
