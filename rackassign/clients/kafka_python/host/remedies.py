"""All remedies, in the order they are put on a consumer."""

from __future__ import annotations

from rackassign.clients.kafka_python.host.coordinators import LOOK_ON_FOR_COORDINATOR, REST_BETWEEN_LOOKS
from rackassign.clients.kafka_python.host.fenced import RAISE_WHEN_FENCED
from rackassign.clients.kafka_python.host.flow import FETCH_WHILE_JOINING
from rackassign.clients.kafka_python.host.followers import (
    AWAIT_UNKNOWN_LEADER,
    KEEP_NEAR_REPLICA,
    LEARN_OF_FOLLOWER,
    LEAVE_DEAD_FOLLOWER,
)
from rackassign.clients.kafka_python.host.joins import (
    CLAIM_WHAT_IS_HELD,
    HEARTBEAT_UNREAD_JOIN,
    KEEP_FINISHED_JOIN,
)
from rackassign.clients.kafka_python.host.members import GUARD_MEMBERS
from rackassign.clients.kafka_python.host.parked import RESUME_PARKED
from rackassign.clients.kafka_python.host.remedy import Remedy

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
