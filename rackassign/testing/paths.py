"""Where the testing room keeps what it writes: one directory, for jars, port reservations and clusters."""

from __future__ import annotations

import os
from pathlib import Path

from rackassign.errors import MissingExtraError


def cache_dir() -> Path:
    """Return the one directory below which everything is written.

    It is the value of the environment variable `RACKASSIGN_CACHE`, else the user's cache directory for
    "rackassign". Removing it while no cluster runs costs nothing but the next download.

    Returns:
        An absolute path; the directory need not exist yet.

    Raises:
        MissingExtraError: The extra `testing` is not installed and `RACKASSIGN_CACHE` is not set.
    """
    chosen = os.environ.get("RACKASSIGN_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    try:
        import platformdirs  # noqa: PLC0415 - wanted only where the variable is not set
    except ImportError as error:
        raise MissingExtraError("platformdirs", "testing") from error
    return Path(platformdirs.user_cache_dir("rackassign", appauthor=False)).absolute()
