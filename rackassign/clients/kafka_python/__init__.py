"""kafka-python 3: assignors for any `KafkaConsumer`, a consumer with patches and metrics, and a producer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackassign.assignor.rack_monitor import RackChangePolicy
    from rackassign.clients.fetch_metrics import FetchMeter
    from rackassign.clients.kafka_python._assignors import (
        RackAwareCooperativeStickyAssignor,
        RackAwareRangeAssignor,
        RackAwareStickyAssignor,
    )
    from rackassign.clients.kafka_python._consumer import RackAwareConsumer, attach
    from rackassign.clients.kafka_python._partitioner import RackAwarePartitioner, RackAwareProducer
    from rackassign.clients.kafka_python._standby_assignor import StandbyAwareAssignor
    from rackassign.clients.kafka_python.patches import PATCHES

__all__ = [
    "PATCHES",
    "FetchMeter",
    "RackAwareConsumer",
    "RackAwareCooperativeStickyAssignor",
    "RackAwarePartitioner",
    "RackAwareProducer",
    "RackAwareRangeAssignor",
    "RackAwareStickyAssignor",
    "RackChangePolicy",
    "StandbyAwareAssignor",
    "attach",
]


_MODULES = {
    "PATCHES": "clients.kafka_python.patches",
    "FetchMeter": "clients.fetch_metrics",
    "RackAwareConsumer": "clients.kafka_python._consumer",
    "RackAwareCooperativeStickyAssignor": "clients.kafka_python._assignors",
    "RackAwarePartitioner": "clients.kafka_python._partitioner",
    "RackAwareProducer": "clients.kafka_python._partitioner",
    "RackAwareRangeAssignor": "clients.kafka_python._assignors",
    "RackAwareStickyAssignor": "clients.kafka_python._assignors",
    "RackChangePolicy": "assignor.rack_monitor",
    "StandbyAwareAssignor": "clients.kafka_python._standby_assignor",
    "attach": "clients.kafka_python._consumer",
}
"""Modules of the names: an assignor needs neither the consumer nor its patches."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"rackassign.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
