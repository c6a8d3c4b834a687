"""Live groups of any client: what their coordinators tell of them, and what to make of it.

Rules of this room:

* To look changes nothing in a group that works. What may change one that does not is in `wedge`, and says so.
* Looking and judging are apart: `doctor` gets values and does no I/O.
* What members sent is hostile until it is decoded: nothing a member sends stops the description of the others.
"""

from __future__ import annotations

from rackassign.observe.cluster import LiveCluster
from rackassign.observe.doctor import Finding, findings, may_not_settle
from rackassign.observe.groups import (
    LiveBroker,
    LiveGroup,
    LiveMember,
    Watched,
    describe_brokers,
    describe_group,
    watch,
)
from rackassign.observe.inspection import Action, Inspection, Reach
from rackassign.observe.inspector import Inspector, Odd, Shots, Survey
from rackassign.observe.money import Price
from rackassign.observe.rackmap import RackMap
from rackassign.observe.rates import Rates
from rackassign.observe.reading import Flows, Read
from rackassign.observe.rolling import Step, step
from rackassign.observe.snapshot import Snapshot
from rackassign.observe.wedge import Freed, free, is_wedged
from rackassign.observe.written import as_json, said, troubles

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
