"""The fleet: every group there is, judged under every strategy, from snapshots in Parquet.

Rules of this room:

* A row is a group with all it takes to judge it (`rows`), so that rows can be judged anywhere, in any order.
* One function judges (`audit_groups`), in this process or in Spark's executors; the answers are the same, row by row.
* A what-if is the same row with something changed (`whatif`), judged by the same function.

Nothing here imports Spark, and nothing talks to Kafka.
"""

from __future__ import annotations

from rackassign.fleet.audit import FleetAudit, audit_groups
from rackassign.fleet.schema import GroupRow, from_arrow, to_arrow
from rackassign.fleet.what_if import AS_IS, WHAT_IFS

__all__ = ["AS_IS", "WHAT_IFS", "FleetAudit", "GroupRow", "audit_groups", "from_arrow", "to_arrow"]
