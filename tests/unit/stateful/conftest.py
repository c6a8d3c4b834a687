"""Files of state that fail, and a cluster with members."""

from __future__ import annotations

from tests.helpers.faulty_files import files
from tests.helpers.stateful_world import stage

__all__ = ["files", "stage"]
