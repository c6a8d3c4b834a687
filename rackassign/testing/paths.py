"""Cache directory of `rackassign.testing`, with jars, port reservations and clusters."""

from __future__ import annotations

import os
from pathlib import Path

from rackassign.errors import ConfigError, MissingExtraError
from rackassign.util.text import short_repr


def cache_dir() -> Path:
    """Return the directory below which all files are written.

    It is the value of the environment variable `RACKASSIGN_CACHE`, or else the user's cache directory for "rackassign".
    You can remove it while no cluster runs; the next start downloads Kafka again.

    Returns:
        An absolute path; the directory may not exist yet.

    Raises:
        ConfigError: `RACKASSIGN_CACHE` begins with the home directory of an unknown user; or it is not set, and this
            user has no home directory.
        MissingExtraError: The extra `testing` is not installed and `RACKASSIGN_CACHE` is not set.
    """
    chosen = os.environ.get("RACKASSIGN_CACHE")
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError:
            raise ConfigError(f"RACKASSIGN_CACHE: the home directory in {short_repr(chosen)} is unknown") from None
    try:
        import platformdirs  # noqa: PLC0415 - needed only if the variable is not set
    except ImportError as error:
        raise MissingExtraError("platformdirs", "testing") from error
    try:
        return Path(platformdirs.user_cache_dir("rackassign", appauthor=False)).absolute()
    except RuntimeError:
        # A container may run with a user ID that is in no list of users.
        raise ConfigError(
            "this user has no home directory: set RACKASSIGN_CACHE to a directory for the cache"
        ) from None
