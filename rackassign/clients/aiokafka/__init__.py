"""aiokafka: the same assignors for any `AIOKafkaConsumer`, a consumer with metrics, and a producer."""

from __future__ import annotations

from rackassign.assignor.rack_monitor import RackChangePolicy
from rackassign.clients.aiokafka._assignors import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
)
from rackassign.clients.aiokafka._consumer import RackAwareConsumer, attach
from rackassign.clients.aiokafka._producer import RackAwareProducer

__all__ = [
    "RackAwareConsumer",
    "RackAwareCooperativeStickyAssignor",
    "RackAwareProducer",
    "RackAwareRangeAssignor",
    "RackAwareStickyAssignor",
    "RackChangePolicy",
    "attach",
]
