"""aiokafka: the same assignors for any `AIOKafkaConsumer`, and a consumer with fetch metrics and warnings."""

from __future__ import annotations

from rackassign.assignor.rack_monitor import RackChangePolicy
from rackassign.clients.aiokafka._assignors import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
)
from rackassign.clients.aiokafka._consumer import RackAwareConsumer, attach

__all__ = [
    "RackAwareConsumer",
    "RackAwareCooperativeStickyAssignor",
    "RackAwareRangeAssignor",
    "RackAwareStickyAssignor",
    "RackChangePolicy",
    "attach",
]
