"""Reassignment: change the replica lists of existing partitions without data loss, leftover work or leftover throttles.

Invariants of this package:

* A plan (`plan`) is computed before anything is changed, from one description of the cluster and a request. It is
  stored with the original replica lists (`journal`), and a rollback restores exactly those lists.
* The next action for a partition (`partition_execution`) depends only on what the cluster reports now, never on what
  was done before. An interrupted run is therefore resumed by starting it again.
* A reassignment in progress is never given another target. It is cancelled before another one begins.
* A throttle (`throttle`) is removed however a run ends. If the process was killed, the next run removes it.
* `executor` uses only a client's errors: `kafka_cluster` does the requests.
"""

from __future__ import annotations

from rackassign.reassignment.executor import (
    ExecutionLimits,
    ExecutionResult,
    Progress,
    ThrottleNotRemovedError,
    execute_plan,
)
from rackassign.reassignment.journal import Journal
from rackassign.reassignment.operations import PreparedReassignment, ReassignmentOutcome, ReassignmentRunner
from rackassign.reassignment.partition_execution import ReplicaMove
from rackassign.reassignment.plan import (
    ReassignmentPlan,
    layout_of,
    plan_leader_balance,
    plan_reassignment,
)
from rackassign.reassignment.request import ReassignmentRequest

__all__ = [
    "ExecutionLimits",
    "ExecutionResult",
    "Journal",
    "PreparedReassignment",
    "Progress",
    "ReassignmentOutcome",
    "ReassignmentPlan",
    "ReassignmentRequest",
    "ReassignmentRunner",
    "ReplicaMove",
    "ThrottleNotRemovedError",
    "execute_plan",
    "layout_of",
    "plan_leader_balance",
    "plan_reassignment",
]
