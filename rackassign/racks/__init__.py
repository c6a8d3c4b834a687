"""Racks: detection of a process's rack, and a cache of the racks of brokers."""

from __future__ import annotations

from rackassign.racks.cache import BrokerRackCache
from rackassign.racks.detect import RACK_VARIABLE, ZoneForm, detect_rack, rack_from_environment

__all__ = [
    "RACK_VARIABLE",
    "BrokerRackCache",
    "ZoneForm",
    "detect_rack",
    "rack_from_environment",
]
