"""Patches for defects of kafka-python, in the order in which they are installed on a consumer.

Rules of this package:

* Nothing is patched globally. A patch shadows methods on the one consumer that it is given.
* A patch that does not fit the installed kafka-python stays off, and a warning says so, once.
* Every patch has a test that fails without it (`proof`).
"""

from __future__ import annotations

from rackassign.clients.kafka_python.patches.base import Remedy
from rackassign.clients.kafka_python.patches.coordinator import (
    LOOK_ON_FOR_COORDINATOR,
    RAISE_WHEN_FENCED,
    REST_BETWEEN_LOOKS,
)
from rackassign.clients.kafka_python.patches.fetch import (
    AWAIT_UNKNOWN_LEADER,
    KEEP_NEAR_REPLICA,
    LEARN_OF_FOLLOWER,
    LEAVE_DEAD_FOLLOWER,
    RESUME_PARKED,
)
from rackassign.clients.kafka_python.patches.fetch_during_rebalance import FETCH_WHILE_JOINING
from rackassign.clients.kafka_python.patches.join import (
    CLAIM_WHAT_IS_HELD,
    GUARD_MEMBERS,
    HEARTBEAT_UNREAD_JOIN,
    KEEP_FINISHED_JOIN,
)

READING: tuple[Remedy, ...] = (
    KEEP_NEAR_REPLICA,
    LEAVE_DEAD_FOLLOWER,
    LEARN_OF_FOLLOWER,
    AWAIT_UNKNOWN_LEADER,
    RESUME_PARKED,
)
"""Those for a consumer without a group as well."""

REMEDIES: tuple[Remedy, ...] = (
    GUARD_MEMBERS,
    KEEP_FINISHED_JOIN,
    HEARTBEAT_UNREAD_JOIN,
    CLAIM_WHAT_IS_HELD,
    REST_BETWEEN_LOOKS,
    FETCH_WHILE_JOINING,
    RAISE_WHEN_FENCED,
    LOOK_ON_FOR_COORDINATOR,
    *READING,
)
