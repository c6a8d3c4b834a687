"""kafka-python 3: assignors for any `KafkaConsumer`, and what only the consumer itself can be given."""

from __future__ import annotations

from rackassign.clients.kafka_python.assignor import RackAwareRangeAssignor
from rackassign.clients.kafka_python.consumer import RackAwareConsumer, attach
from rackassign.clients.kafka_python.host import REMEDIES
from rackassign.clients.kafka_python.meter import FetchMeter
from rackassign.clients.kafka_python.standby import StandbyAwareAssignor
from rackassign.clients.kafka_python.sticky import RackAwareCooperativeStickyAssignor, RackAwareStickyAssignor
from rackassign.clients.watch import Watching

__all__ = [
    "REMEDIES",
    "FetchMeter",
    "RackAwareConsumer",
    "RackAwareCooperativeStickyAssignor",
    "RackAwareRangeAssignor",
    "RackAwareStickyAssignor",
    "StandbyAwareAssignor",
    "Watching",
    "attach",
]
