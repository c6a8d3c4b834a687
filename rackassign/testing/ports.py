"""Reservation of loopback ports without conflicts between clusters and processes."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from dataclasses import dataclass
from pathlib import Path

from rackassign.errors import ClusterError
from rackassign.testing.paths import cache_dir

_LOWEST = 20_000
_HIGHEST = 32_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TOP = 65_536


@dataclass(frozen=True, slots=True)
class ReservedPorts:
    """Ports that no other cluster takes while one of the descriptors is open in any process.

    Args:
        numbers: The ports.
        descriptors: Open files that hold the reservations. A child process may inherit them; `close()` closes them.
    """

    numbers: tuple[int, ...]
    descriptors: tuple[int, ...]

    def close(self) -> None:
        """Close the descriptors of this process; a child process that inherited them keeps the reservations."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def reserve_ports(count: int) -> ReservedPorts:
    """Reserve free ports of 127.0.0.1 outside the kernel's range of ephemeral ports.

    Any outgoing connection could take a port of that range while its broker is down.

    Raises:
        ClusterError: Fewer than `count` ports are free.
    """
    directory = cache_dir() / "ports"
    directory.mkdir(parents=True, exist_ok=True)
    # Not a secret: a random order avoids collisions between processes that start at the same time.
    candidates = random.sample(_candidates(), k=len(_candidates()))
    numbers: list[int] = []
    descriptors: list[int] = []
    for port in candidates:
        descriptor = _reserve(directory / str(port), port)
        if descriptor is not None:
            numbers.append(port)
            descriptors.append(descriptor)
        if len(numbers) == count:
            return ReservedPorts(tuple(numbers), tuple(descriptors))
    ReservedPorts((), tuple(descriptors)).close()
    raise ClusterError(f"only {len(numbers)} of {count} ports are free on 127.0.0.1")


def _candidates() -> range:
    """Return the widest part of the candidate range that has no ephemeral ports."""
    try:
        low, high = (int(word) for word in _EPHEMERAL.read_text("ascii").split())
    except FileNotFoundError:
        return range(_LOWEST, _HIGHEST)
    around = (range(_LOWEST, min(_HIGHEST, low)), range(max(_LOWEST, high + 1), _HIGHEST))
    widest = max(around, key=len)
    if len(widest) >= 1_000:  # noqa: PLR2004 - enough for many clusters
        return widest
    # A wider ephemeral range than the default covers the candidates: use the larger side of it, or any port at all.
    return max((range(1_024, low), range(high + 1, _TOP), range(_LOWEST, _HIGHEST)), key=len)


def _reserve(path: Path, port: int) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            # With the option that the broker uses: connections of an earlier owner in TIME_WAIT do not prevent binding.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        # Reserved by another cluster, or bound by another program.
        os.close(descriptor)
        return None
    return descriptor
