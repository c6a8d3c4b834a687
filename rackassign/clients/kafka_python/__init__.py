"""kafka-python 3: assignors for any `KafkaConsumer`, and a consumer with patches, fetch metrics and warnings."""

from __future__ import annotations

from rackassign.clients.common.fetch_metrics import FetchMeter
from rackassign.clients.common.rack_monitor import RackChangePolicy
from rackassign.clients.kafka_python.assignors import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
    StandbyAwareAssignor,
)
from rackassign.clients.kafka_python.consumer import RackAwareConsumer, attach
from rackassign.clients.kafka_python.patches import PATCHES

__all__ = [
    "PATCHES",
    "FetchMeter",
    "RackAwareConsumer",
    "RackAwareCooperativeStickyAssignor",
    "RackAwareRangeAssignor",
    "RackAwareStickyAssignor",
    "RackChangePolicy",
    "StandbyAwareAssignor",
    "attach",
]
