"""The files of placements and reassignments: replaced atomically, locked against other processes.

A symbolic link stays one: what it leads to is replaced, and the lock file is beside that.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackassign.errors import ConfigError
from rackassign.util.file_lock import lock, try_lock


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Lock a file's name against other processes during the block.

    Args:
        file: The file, which need not exist; its folder must.
        wait: Whether to wait for a process that has the lock.

    Raises:
        ConfigError: Another process has the lock, or the file cannot be locked.
    """
    target = _target(file)
    try:
        handle = target.with_name(f".{target.name}.lock").open("w")
    except OSError as error:
        raise ConfigError(f"cannot create a lock file beside {file}: {error.strerror}") from None
    with handle:
        try:
            if wait:
                lock(handle)
            elif not try_lock(handle):
                raise ConfigError(f"another process is using {file}")
        except OSError as error:
            # Some network file systems have no locks.
            raise ConfigError(f"cannot lock the file beside {file}: {error.strerror}") from None
        yield


def create_folder(file: Path) -> None:
    """Create the folder of a file: of a symbolic link, that of the file it leads to.

    Raises:
        ConfigError: It cannot be created.
    """
    try:
        _target(file).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None


def write_file(file: Path, text: str) -> None:
    """Write a file atomically: readers, and any process after a crash, find the old text or the new one.

    Raises:
        ConfigError: It cannot be written.
    """
    target = _target(file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as to:
                to.write(text)
                to.flush()
                os.fsync(to.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None


def _target(file: Path) -> Path:
    """Return the file that is meant: where a symbolic link leads, or else the file itself."""
    # Not `Path.is_symlink`, which raises OSError for a name that is too long.
    return Path(os.path.realpath(file)) if os.path.islink(file) else file  # noqa: PTH114
