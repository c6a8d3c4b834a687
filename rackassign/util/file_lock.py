"""Locks on files between processes (`flock`).

A lock belongs to the open file, not to the process: it is released when the last descriptor of that open file is
closed. A child process that inherits the descriptor therefore keeps the lock of a parent that has ended, and a crash
leaves no lock behind.
"""

from __future__ import annotations

import fcntl
from typing import IO, Any


def lock(file: int | IO[Any]) -> None:
    """Lock an open file; wait as long as another open file has the lock.

    Args:
        file: The open file, or its descriptor.
    """
    fcntl.flock(file, fcntl.LOCK_EX)


def try_lock(file: int | IO[Any]) -> bool:
    """Lock an open file unless another open file has the lock; return whether it is locked.

    Args:
        file: The open file, or its descriptor.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
