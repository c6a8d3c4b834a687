"""Permissions of state: it has the content of records, so only its owner can read it."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterable
from pathlib import Path

from rackassign.stateful.files.names import LOCK
from rackassign.util.text import join_first

log = logging.getLogger(__name__)

_OTHERS = 0o077
_NAMED = 3


def make_private(folder: Path, files: Iterable[Path]) -> None:
    """Remove the permissions of others from a directory and its files, and log it once.

    Args:
        folder: The directory.
        files: Its files; those that do not exist any more are skipped.
    """
    exposed = [path for path in (folder, *files) if _is_exposed(path, folder)]
    # Each by itself: volumes of Kubernetes have a directory of another owner, with files of this user in it.
    failures = {path: failure for path in exposed if (failure := _restrict(path))}
    if failures:
        named = join_first([f"{path}: {failure}" for path, failure in failures.items()], _NAMED)
        log.warning("%s can be read by others, and its permissions cannot be changed: %s", folder, named)
    if any(path.name != LOCK and path not in failures for path in exposed):
        log.warning("%s could be read by others: it is now for its owner only, with its files", folder)


def _is_exposed(path: Path, folder: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    # A directory with the sticky bit belongs to all users (/tmp).
    return bool(mode & _OTHERS) and not (path == folder and mode & stat.S_ISVTX)


def _restrict(path: Path) -> str:
    """Remove the permissions of others; return the reason why that is not possible, or an empty one."""
    try:
        path.chmod(path.stat().st_mode & 0o7777 & ~_OTHERS)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""
