"""Ownership of containers and networks, and the removal of those whose owner has ended.

Labels name the lock file that the owner holds while it runs. The kernel releases the lock however the process ends.
So the remains of a crash are identified with certainty, and resources of other live runs are never removed.

`python -m rackassign.testing.docker.cleanup` runs the cleanup manually.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
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

_IN_USE = frozenset({403, 409})
"""Statuses with which an engine refuses to remove a network that has endpoints (403 of Docker 20.10), and a container
that is being removed (409)."""

_PATIENCE_S, _PAUSE_S = 60.0, 0.2


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


def remove(
    client: Any,  # noqa: ANN401 - docker-py is untyped
    should_remove: Callable[[ResourceOwner], bool],
    patience_s: float = _PATIENCE_S,
) -> int:
    """Remove containers with their volumes, then networks, of owners for which `should_remove` returns true.

    Two processes may clean up at the same time, and what a killed process had requested may still be going on. The
    engine then refuses to remove a container that is being removed, and a network to which a container is connected.

    Args:
        client: The engine.
        should_remove: Whether the resources of an owner are to be removed.
        patience_s: Seconds for which a removal is repeated that the engine refuses for these reasons.

    Returns:
        The number of removed containers and networks.

    Raises:
        ClusterError: The engine refuses the request.
    """
    removed: set[str] = set()
    until = time.monotonic() + patience_s
    with engine_errors("containers and networks cannot be removed"):
        while (refusal := _remove_all(client, should_remove, removed)) is not None:
            if time.monotonic() >= until:
                raise refusal
            time.sleep(_PAUSE_S)
    return len(removed)


def _remove_all(client: Any, should_remove: Callable[[ResourceOwner], bool], removed: set[str]) -> Exception | None:  # noqa: ANN401 - as above
    """Remove what there is, and add its IDs to `removed`; return why something has to wait, None if nothing has to."""
    from docker.errors import APIError, NotFound  # noqa: PLC0415 - only for this provider

    refusal: Exception | None = None

    def attempt(found: Any, **options: bool) -> None:  # noqa: ANN401 - as above
        nonlocal refusal
        try:
            found.remove(**options)
        except NotFound:
            # Another process has removed it.
            pass
        except APIError as error:
            if error.status_code not in _IN_USE:
                raise
            refusal = error
            return
        removed.add(found.id)

    for container in client.containers.list(all=True, filters={"label": _RUN}, ignore_removed=True):
        owner = ResourceOwner.from_labels(container.labels)
        if owner and should_remove(owner):
            attempt(container, force=True, v=True)
    for network in client.networks.list(filters={"label": _RUN}):
        owner = ResourceOwner.from_labels(network.attrs.get("Labels"))
        if owner and should_remove(owner):
            attempt(network)
    return refusal


if __name__ == "__main__":
    print(f"Removed {sweep()} containers and networks of runs that have ended")  # noqa: T201 - a command prints
