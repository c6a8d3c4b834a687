"""Fleet audit: all groups of a cluster, evaluated under every strategy from snapshots in Parquet.

Invariants of this package:

* A row contains a group and everything needed to evaluate it (`schema`), so that rows can be evaluated anywhere and in
  any order.
* One function, `audit_groups`, evaluates rows in this process and in Spark's executors, with equal results per row.
* A what-if is a row with one change (`what_if`). The same function evaluates it.

Only `spark` uses Spark, and it imports Spark when it is called. No module connects to Kafka.
"""

from __future__ import annotations

from rackassign.errors import MissingExtraError

try:
    from rackassign.fleet.evaluation import AS_IS, WHAT_IFS, FleetAudit, audit_groups
    from rackassign.fleet.schema import GroupRow, from_arrow, to_arrow
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise MissingExtraError("pyarrow", "spark") from None

__all__ = ["AS_IS", "WHAT_IFS", "FleetAudit", "GroupRow", "audit_groups", "from_arrow", "to_arrow"]
