"""Racks: detection of a process's rack, zone hints in client IDs, and a cache of the racks of brokers."""

from __future__ import annotations

from rackassign.racks.cache import BrokerRackCache
from rackassign.racks.detect import RACK_VARIABLE, ZoneForm, detect_rack, rack_from_environment
from rackassign.racks.zone_hint import ZoneHint, client_id_with_zone

__all__ = [
    "RACK_VARIABLE",
    "BrokerRackCache",
    "ZoneForm",
    "ZoneHint",
    "client_id_with_zone",
    "detect_rack",
    "rack_from_environment",
]
