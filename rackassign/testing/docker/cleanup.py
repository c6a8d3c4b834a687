"""Ownership of containers and networks, and the removal of those whose owner has ended.

Labels name the lock file that the owner holds while it runs. The kernel releases the lock however the process ends.
So the remains of a crash are identified with certainty, and resources of other live runs are never removed.

`python -m rackassign.testing.docker.cleanup` runs the cleanup manually.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.testing.docker.engine import connect, engine_errors
from rackassign.util.file_lock import try_lock

if TYPE_CHECKING:
    from typing_extensions import Self

_RUN = "rackassign.run"
_HOST = "rackassign.owner.host"
_LOCK = "rackassign.owner.lock"


@dataclass(frozen=True, slots=True)
class ResourceOwner:
    """Owner of a container or network on a Docker engine.

    Args:
        run: Name of the cluster.
        host: Machine of the owner's process; the state of other machines' processes is unknown here.
        lock: File whose lock the process holds.
    """

    run: str
    host: str
    lock: str

    @classmethod
    def for_this_process(cls, lock: Path) -> Self:
        """Return this process as the owner of a cluster with the name of the lock file it holds."""
        return cls(lock.stem, platform.node(), str(lock))

    @classmethod
    def from_labels(cls, labels: Mapping[str, str] | None) -> Self | None:
        """Return the owner that labels name; None if rackassign did not create the resource."""
        found = labels or {}
        if not {_RUN, _HOST, _LOCK} <= set(found):
            return None
        return cls(found[_RUN], found[_HOST], found[_LOCK])

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all resources of this owner."""
        return {_RUN: self.run, _HOST: self.host, _LOCK: self.lock}

    def is_gone(self) -> bool:
        """Return whether the owner's process is known to have ended."""
        if self.host != platform.node():
            return False
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            # Removed by the owner when it finished, or by a cleanup of lock files after it ended.
            return True
        except PermissionError:
            # The lock file belongs to another user.
            return False
        try:
            return try_lock(descriptor)
        finally:
            os.close(descriptor)


def sweep() -> int:
    """Remove all containers and networks of clusters whose process has ended; return their number.

    Raises:
        ClusterError: No Docker engine responds, or it cannot remove them.
        MissingExtraError: testcontainers is not installed.
    """
    client = connect()
    try:
        return remove(client, ResourceOwner.is_gone)
    finally:
        client.close()


def remove(client: Any, should_remove: Callable[[ResourceOwner], bool]) -> int:  # noqa: ANN401 - docker-py is untyped
    """Remove containers with their volumes, then networks, of owners for which `should_remove` returns true.

    Returns:
        The number of removed containers and networks.

    Raises:
        ClusterError: The engine refuses the request.
    """
    from docker.errors import NotFound  # noqa: PLC0415 - only for this provider

    removed = 0
    with engine_errors("containers and networks cannot be removed"):
        for container in client.containers.list(all=True, filters={"label": _RUN}, ignore_removed=True):
            owner = ResourceOwner.from_labels(container.labels)
            if owner and should_remove(owner):
                # Two processes may clean up at the same time.
                with suppress(NotFound):
                    container.remove(force=True, v=True)
                removed += 1
        for network in client.networks.list(filters={"label": _RUN}):
            owner = ResourceOwner.from_labels(network.attrs.get("Labels"))
            if owner and should_remove(owner):
                with suppress(NotFound):
                    network.remove()
                removed += 1
    return removed


if __name__ == "__main__":
    print(f"Removed {sweep()} containers and networks of runs that have ended")  # noqa: T201 - a command prints
