"""Live groups of any client: what their coordinators tell of them, and what to make of it.

Rules of this room:

* To look changes nothing in a group that works. What may change one that does not is in `wedge`, and says so.
* Looking and judging are apart: `doctor` gets values and does no I/O.
* What members sent is hostile until it is decoded: nothing a member sends stops the description of the others.
"""

from __future__ import annotations

from rackassign.monitoring.analysis import Action, Inspection, Reach
from rackassign.monitoring.cluster import LiveCluster
from rackassign.monitoring.collector import Inspector, Odd, Shots, Survey
from rackassign.monitoring.groups import (
    LiveBroker,
    LiveGroup,
    LiveMember,
    Watched,
    describe_brokers,
    describe_group,
    watch,
)
from rackassign.monitoring.health import Finding, findings, may_not_settle
from rackassign.monitoring.migration import Step, step
from rackassign.monitoring.pricing import Price
from rackassign.monitoring.rack_map import RackMap
from rackassign.monitoring.serialize import as_json, said, troubles
from rackassign.monitoring.snapshot import Snapshot
from rackassign.monitoring.throughput import Rates
from rackassign.monitoring.traffic import Flows, Read
from rackassign.monitoring.wedged_group import Freed, free, is_wedged

__all__ = [
    "Action",
    "Finding",
    "Flows",
    "Freed",
    "Inspection",
    "Inspector",
    "LiveBroker",
    "LiveCluster",
    "LiveGroup",
    "LiveMember",
    "Odd",
    "Price",
    "RackMap",
    "Rates",
    "Reach",
    "Read",
    "Shots",
    "Snapshot",
    "Step",
    "Survey",
    "Watched",
    "as_json",
    "describe_brokers",
    "describe_group",
    "findings",
    "free",
    "is_wedged",
    "may_not_settle",
    "said",
    "step",
    "troubles",
    "watch",
]
