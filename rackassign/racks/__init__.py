"""Racks: where a consumer stands, and where brokers stood when they were last seen."""

from __future__ import annotations

from rackassign.racks.detect import Finding, ZoneForm, ask_all, detect_rack
from rackassign.racks.environment import RACK_VARIABLE, rack_from_environment
from rackassign.racks.memory import RackMemory

__all__ = ["RACK_VARIABLE", "Finding", "RackMemory", "ZoneForm", "ask_all", "detect_rack", "rack_from_environment"]
