"""Whose a container or a network is, and the removal of those whose owner is gone.

Each carries labels that name the lock file its owner holds for as long as it lives. The kernel gives the lock up
however the process ends, so what a crash has left is known for certain; what another live run has is never touched.

`python -m rackassign.testing.docker.cleanup` sweeps by hand.
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.testing.docker.engine import connect, engine_errors

if TYPE_CHECKING:
    from typing_extensions import Self

_RUN = "rackassign.run"
_HOST = "rackassign.owner.host"
_LOCK = "rackassign.owner.lock"


@dataclass(frozen=True, slots=True)
class ResourceOwner:
    """Who has made something on a Docker engine.

    Args:
        run: Names one cluster.
        host: The machine of its process; of others nothing can be told from here.
        lock: The file whose lock that process holds.
    """

    run: str
    host: str
    lock: str

    @classmethod
    def for_this_process(cls, lock: Path) -> Self:
        """Return this process as owner of a cluster named for the lock file it holds."""
        return cls(lock.stem, platform.node(), str(lock))

    @classmethod
    def from_labels(cls, labels: Mapping[str, str] | None) -> Self | None:
        """Read an owner from what something is labelled with; None if it is not ours."""
        found = labels or {}
        if not {_RUN, _HOST, _LOCK} <= set(found):
            return None
        return cls(found[_RUN], found[_HOST], found[_LOCK])

    @property
    def labels(self) -> dict[str, str]:
        """What everything of this owner is labelled with."""
        return {_RUN: self.run, _HOST: self.host, _LOCK: self.lock}

    def is_gone(self) -> bool:
        """Return whether its process has ended, as far as that is known for certain."""
        if self.host != platform.node():
            return False
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            # Removed by the owner when it had finished, or by a sweep of lock files after its end.
            return True
        except PermissionError:
            # Another user's.
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True


def sweep() -> int:
    """Remove all containers and networks of clusters whose process has ended; return how many there were.

    Raises:
        ClusterError: No Docker engine answers, or it cannot remove them.
        MissingExtraError: testcontainers is not installed.
    """
    client = connect()
    try:
        return remove(client, ResourceOwner.is_gone)
    finally:
        client.close()


def remove(client: Any, condemned: Callable[[ResourceOwner], bool]) -> int:  # noqa: ANN401 - docker-py is untyped
    """Remove the containers, with their volumes, and then the networks of those owners; return how many.

    Raises:
        ClusterError: The engine refuses.
    """
    from docker.errors import NotFound  # noqa: PLC0415 - only for this provider

    removed = 0
    with engine_errors("containers and networks cannot be removed"):
        for container in client.containers.list(all=True, filters={"label": _RUN}, ignore_removed=True):
            owner = ResourceOwner.from_labels(container.labels)
            if owner and condemned(owner):
                # Two may sweep at a time.
                with suppress(NotFound):
                    container.remove(force=True, v=True)
                removed += 1
        for network in client.networks.list(filters={"label": _RUN}):
            owner = ResourceOwner.from_labels(network.attrs.get("Labels"))
            if owner and condemned(owner):
                with suppress(NotFound):
                    network.remove()
                removed += 1
    return removed


if __name__ == "__main__":
    print(f"{sweep()} containers and networks of dead runs removed")  # noqa: T201 - a command prints
