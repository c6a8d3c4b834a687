"""aiokafka: the same assignors for any `AIOKafkaConsumer`, and a consumer with fetch metrics and warnings."""

from __future__ import annotations

from rackassign.clients.aiokafka.assignors import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
)
from rackassign.clients.aiokafka.consumer import RackAwareConsumer, attach
from rackassign.clients.common.rack_monitor import RackChangePolicy

__all__ = [
    "RackAwareConsumer",
    "RackAwareCooperativeStickyAssignor",
    "RackAwareRangeAssignor",
    "RackAwareStickyAssignor",
    "RackChangePolicy",
    "attach",
]
