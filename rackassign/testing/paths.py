"""Cache directory of `rackassign.testing`, with jars, port reservations and clusters."""

from __future__ import annotations

import os
from pathlib import Path

from rackassign.errors import MissingExtraError


def cache_dir() -> Path:
    """Return the directory below which all files are written.

    It is the value of the environment variable `RACKASSIGN_CACHE`, or else the user's cache directory for "rackassign".
    You can remove it while no cluster runs; the next start downloads Kafka again.

    Returns:
        An absolute path; the directory may not exist yet.

    Raises:
        MissingExtraError: The extra `testing` is not installed and `RACKASSIGN_CACHE` is not set.
    """
    chosen = os.environ.get("RACKASSIGN_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    try:
        import platformdirs  # noqa: PLC0415 - needed only if the variable is not set
    except ImportError as error:
        raise MissingExtraError("platformdirs", "testing") from error
    return Path(platformdirs.user_cache_dir("rackassign", appauthor=False)).absolute()
