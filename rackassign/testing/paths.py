"""Cache directory of `rackassign.testing`, with jars, port reservations and clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackassign.errors import ClusterError, ConfigError, MissingExtraError
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


def check_cache_path() -> None:
    """Check that processes of Java and Kafka can be given paths below `cache_dir()`.

    A colon separates the jars of a class path, and a comma the directories of a broker. Neither can be escaped.

    Raises:
        ConfigError: The path contains one of them, or a line break.
    """
    path = str(cache_dir())
    if set(path) & set(":,\n\r"):
        raise ConfigError(
            f"the path of the cache, {short_repr(path)}, contains a comma, a colon or a line break: set"
            " RACKASSIGN_CACHE to another one"
        )


@contextmanager
def cache_errors() -> Iterator[None]:
    """Convert errors of files below `cache_dir()` into a ClusterError that names the directory.

    Raises:
        ClusterError: A file cannot be created or written: the disk is full, or the directory cannot be written to.
    """
    try:
        yield
    except OSError as error:
        raise ClusterError(f"no cluster can be created in {cache_dir()}: {error}") from None
