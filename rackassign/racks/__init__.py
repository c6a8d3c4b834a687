"""Racks: where a consumer stands, and where brokers stood when they were last seen."""

from __future__ import annotations

from rackassign.racks.cache import BrokerRackCache
from rackassign.racks.detect import (
    RACK_VARIABLE,
    RackDetection,
    ZoneForm,
    detect_all,
    detect_rack,
    rack_from_environment,
)

__all__ = [
    "RACK_VARIABLE",
    "BrokerRackCache",
    "RackDetection",
    "ZoneForm",
    "detect_all",
    "detect_rack",
    "rack_from_environment",
]
