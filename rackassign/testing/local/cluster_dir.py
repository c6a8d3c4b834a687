"""The directories of clusters: made with a lock that tells the living from those a crash has left behind."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackassign.testing.paths import cache_dir


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    """One cluster's directory.

    Args:
        directory: Everything the cluster writes is below it.
        lock: The file beside it; as long as somebody holds its lock, the cluster lives.
        descriptor: The lock, held; for the keeper to inherit.
    """

    directory: Path
    lock: Path
    descriptor: int


def create_cluster_directory() -> ClusterDirectory:
    """Remove what crashed clusters have left and make a directory for a new one."""
    root = cache_dir() / "clusters"
    root.mkdir(parents=True, exist_ok=True)
    with _alone(root):
        _sweep(root)
        name = secrets.token_hex(6)
        lock = root / f"{name}.lock"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        directory = root / name
        directory.mkdir()
    return ClusterDirectory(directory, lock, descriptor)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep others from sweeping away a directory whose lock is not held yet."""
    with (root / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _sweep(root: Path) -> None:
    for lock in root.glob("*.lock"):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # Its keeper has just finished.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            abandoned = lock.with_suffix("")
            if abandoned.exists():
                shutil.rmtree(abandoned)
            lock.unlink(missing_ok=True)
        except BlockingIOError:
            # In use.
            continue
        finally:
            os.close(descriptor)
