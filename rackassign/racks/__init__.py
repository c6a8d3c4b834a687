"""Racks: where a consumer stands."""

from __future__ import annotations

from rackassign.racks.environment import RACK_VARIABLE, rack_from_environment

__all__ = ["RACK_VARIABLE", "rack_from_environment"]
