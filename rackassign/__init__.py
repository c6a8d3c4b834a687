"""Rack-aware partition assignment (KIP-881) for Python Kafka consumers.

The public names are resolved when they are first used, so that `import rackassign` is fast and imports no Kafka
client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackassign.clients.kafka_python import (
        FetchMeter,
        RackAwareConsumer,
        RackAwareCooperativeStickyAssignor,
        RackAwarePartitioner,
        RackAwareProducer,
        RackAwareRangeAssignor,
        RackAwareStickyAssignor,
        RackChangePolicy,
        StandbyAwareAssignor,
        attach,
    )
    from rackassign.monitoring.byte_rates import ByteRates
    from rackassign.rack_sources import detect_rack
    from rackassign.racks import client_id_with_zone

__version__ = "0.1.0"

__all__ = (
    "ByteRates",
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
    "client_id_with_zone",
    "detect_rack",
)

_OTHER_PACKAGES = {"ByteRates": "monitoring.byte_rates", "client_id_with_zone": "racks", "detect_rack": "rack_sources"}


def __getattr__(name: str) -> object:
    if name in __all__:
        package = _OTHER_PACKAGES.get(name, "clients.kafka_python")
        return getattr(import_module(f"rackassign.{package}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
