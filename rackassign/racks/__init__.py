"""Racks: where a consumer stands, and where brokers stood when they were last seen."""

from __future__ import annotations

from rackassign.racks.cache import RackMemory
from rackassign.racks.detect import RACK_VARIABLE, Finding, ZoneForm, ask_all, detect_rack, rack_from_environment

__all__ = ["RACK_VARIABLE", "Finding", "RackMemory", "ZoneForm", "ask_all", "detect_rack", "rack_from_environment"]
