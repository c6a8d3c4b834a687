"""A temporary directory in memory, for properties: each example makes files, and a disk takes longer for that than the
code that is tried."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of an unused name is made in it
_ENOUGH = 256 * 1024 * 1024
"""Bytes that must be free: in a container there may be few."""


def memory_directory() -> TemporaryDirectory[str]:
    """Return a new temporary directory, in memory where there is room and on disk otherwise."""
    try:
        roomy = shutil.disk_usage(_MEMORY).free >= _ENOUGH
    except OSError:
        roomy = False
    return TemporaryDirectory(dir=_MEMORY if roomy else None)
