"""Patches for defects of kafka-python, in the order in which they are installed on a consumer.

Rules of this package:

* Nothing is patched globally. A patch shadows methods on the one consumer that it is given.
* A patch that does not fit the installed kafka-python stays off, and a warning is logged once.
* Every patch has a test that fails without it (`proof`).
* A defect of the whole process is no patch of a consumer (`create_response_classes`).
"""

from __future__ import annotations

from rackassign.clients.kafka_python.patches.fetch import (
    DISCARD_FORMER_COMMITTED_OFFSETS,
    KEEP_INTERRUPTED_RECORDS,
    KEEP_PREFERRED_READ_REPLICA,
    REFRESH_ON_STALE_LEADER,
    REFRESH_ON_UNKNOWN_READ_REPLICA,
    RESET_UNREACHABLE_READ_REPLICA,
    RESUME_PAUSED_FETCHES,
    WAIT_FOR_UNKNOWN_LEADER,
)
from rackassign.clients.kafka_python.patches.fetch_during_rebalance import FETCH_DURING_REBALANCE
from rackassign.clients.kafka_python.patches.group import (
    BACKOFF_COORDINATOR_POLL,
    CLAIM_CURRENT_ASSIGNMENT,
    HEARTBEAT_UNTIL_JOIN_READ,
    KEEP_COMPLETED_JOIN,
    KEEP_GENERATION_WHEN_REMOVED,
    LOSE_PARTITIONS_WHEN_REMOVED_IN_JOIN,
    RAISE_WHEN_FENCED,
    RETRY_COORDINATOR_LOOKUP,
    REVOKE_BEFORE_REMOVAL,
    TOLERATE_MALFORMED_METADATA,
    WATCH_AS_RETURNED_LEADER,
)
from rackassign.clients.kafka_python.patches.patch import Patch

FETCH_PATCHES: tuple[Patch, ...] = (
    KEEP_PREFERRED_READ_REPLICA,
    RESET_UNREACHABLE_READ_REPLICA,
    REFRESH_ON_UNKNOWN_READ_REPLICA,
    WAIT_FOR_UNKNOWN_LEADER,
    RESUME_PAUSED_FETCHES,
    REFRESH_ON_STALE_LEADER,
    KEEP_INTERRUPTED_RECORDS,
)
"""Patches for consumers without a group as well."""

PATCHES: tuple[Patch, ...] = (
    TOLERATE_MALFORMED_METADATA,
    KEEP_COMPLETED_JOIN,
    HEARTBEAT_UNTIL_JOIN_READ,
    CLAIM_CURRENT_ASSIGNMENT,
    BACKOFF_COORDINATOR_POLL,
    REVOKE_BEFORE_REMOVAL,
    FETCH_DURING_REBALANCE,
    RAISE_WHEN_FENCED,
    KEEP_GENERATION_WHEN_REMOVED,
    LOSE_PARTITIONS_WHEN_REMOVED_IN_JOIN,
    DISCARD_FORMER_COMMITTED_OFFSETS,
    RETRY_COORDINATOR_LOOKUP,
    WATCH_AS_RETURNED_LEADER,
    *FETCH_PATCHES,
)
