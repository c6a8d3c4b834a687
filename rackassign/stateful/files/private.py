"""Permissions of state: it has the content of records, so only its owner can read it."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)

_OTHERS = 0o077


def make_private(folder: Path, files: Iterable[Path]) -> None:
    """Remove the permissions of others from a directory and its files, and log it once.

    Args:
        folder: The directory.
        files: Its files; those that do not exist any more are skipped.
    """
    changed = 0
    try:
        # A directory with the sticky bit belongs to all users (/tmp).
        shared = folder.stat().st_mode & stat.S_ISVTX
        for path in (*files,) if shared else (folder, *files):
            if path.exists() and (mode := path.stat().st_mode & 0o7777) & _OTHERS:
                path.chmod(mode & ~_OTHERS)
                changed += path.name != "lock"
    except OSError as error:
        # A directory of another owner, as volumes of Kubernetes have it.
        log.warning("%s can be read by others, and its permissions cannot be changed: %s", folder, error.strerror)
    if changed:
        log.warning("%s could be read by others: it is now for its owner only, with its files", folder)
