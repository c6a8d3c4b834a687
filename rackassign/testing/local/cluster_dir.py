"""Directories of clusters, with locks that distinguish running clusters from the remains of a crash."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackassign.testing.paths import cache_dir, cache_errors
from rackassign.util import file_lock


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    """Directory of one cluster.

    Args:
        directory: Directory that contains everything the cluster writes.
        lock: Lock file next to it; the cluster is running while a process holds the lock.
        descriptor: Descriptor that holds the lock; the supervisor process inherits it.
    """

    directory: Path
    lock: Path
    descriptor: int


def create_cluster_directory() -> ClusterDirectory:
    """Remove the directories of crashed clusters, and create one for a new cluster.

    Raises:
        ClusterError: It cannot be created.
    """
    root = cache_dir() / "clusters"
    with cache_errors():
        root.mkdir(parents=True, exist_ok=True)
        return _create(root)


def _create(root: Path) -> ClusterDirectory:
    with _alone(root):
        _sweep(root)
        name = secrets.token_hex(6)
        lock = root / f"{name}.lock"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        file_lock.lock(descriptor)
        directory = root / name
        try:
            directory.mkdir()
        except OSError:
            # Without the lock, the start of the next cluster removes the file.
            os.close(descriptor)
            raise
    return ClusterDirectory(directory, lock, descriptor)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Prevent other processes from removing a directory whose lock is not held yet."""
    with (root / "lock").open("w") as held:
        file_lock.lock(held)
        yield


def _sweep(root: Path) -> None:
    for lock in root.glob("*.lock"):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # The supervisor of the cluster has just finished.
            continue
        try:
            if not file_lock.try_lock(descriptor):
                # The cluster is running.
                continue
            abandoned = lock.with_suffix("")
            if abandoned.exists():
                shutil.rmtree(abandoned)
            lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
