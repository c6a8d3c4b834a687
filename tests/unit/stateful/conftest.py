"""Files of state that fail."""

from __future__ import annotations

from tests.helpers.faulty_files import files

__all__ = ["files"]
