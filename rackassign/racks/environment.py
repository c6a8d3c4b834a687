"""The rack as the environment tells it."""

from __future__ import annotations

import os
from collections.abc import Mapping

RACK_VARIABLE = "RACKASSIGN_RACK"


def rack_from_environment(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the rack set in `RACKASSIGN_RACK`, without surrounding blanks; None if unset or empty."""
    return environment.get(RACK_VARIABLE, "").strip() or None
