"""Repair: giving partitions that exist other replicas, so that nothing is lost, left half done or left slowed down.

Rules of this room:

* What shall change is worked out first (`plan`), from one look at a cluster, for what was asked (`wish`), and written
  down with all lists as they were (`journal`). Only then is anything done, and a rollback makes the same lists again.
* What to do next about a partition is decided from what the cluster tells of it now (`partition_state`), never from
  what was done before. So a run that was killed is gone on with by running it again.
* A reassignment that runs is never given another target. It is cancelled, and only then something else begun.
* A throttle (`throttle`) is taken away however a run ends; if it was killed, by the next one.
* `waves` knows no client, and `run` none but its errors: `live` is their hands.
"""

from __future__ import annotations

from rackassign.reassignment.batches import ExecutionLimits, ExecutionResult, Progress
from rackassign.reassignment.executor import ThrottleNotRemovedError, execute_plan
from rackassign.reassignment.journal import Journal
from rackassign.reassignment.partition_state import ReplicaMove
from rackassign.reassignment.planner import ReassignmentPlan, layout_of, plan_leader_balance, plan_reassignment
from rackassign.reassignment.request import ReassignmentRequest
from rackassign.reassignment.service import PreparedReassignment

__all__ = [
    "ExecutionLimits",
    "ExecutionResult",
    "Journal",
    "PreparedReassignment",
    "Progress",
    "ReassignmentPlan",
    "ReassignmentRequest",
    "ReplicaMove",
    "ThrottleNotRemovedError",
    "execute_plan",
    "layout_of",
    "plan_leader_balance",
    "plan_reassignment",
]
