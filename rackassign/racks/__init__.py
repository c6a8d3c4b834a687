"""Racks: where a consumer stands."""

from __future__ import annotations

from rackassign.racks.detect import Finding, ZoneForm, ask_all, detect_rack
from rackassign.racks.environment import RACK_VARIABLE, rack_from_environment

__all__ = ["RACK_VARIABLE", "Finding", "ZoneForm", "ask_all", "detect_rack", "rack_from_environment"]
