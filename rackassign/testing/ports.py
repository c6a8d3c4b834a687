"""Reservation of loopback ports without conflicts between clusters and processes."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackassign.errors import ClusterError
from rackassign.testing.paths import cache_dir, cache_errors
from rackassign.util import file_lock
from rackassign.util.text import describe_error

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
        refused: Preferred ports that could not be reserved, each with the reason.
    """

    numbers: tuple[int, ...]
    descriptors: tuple[int, ...]
    refused: Mapping[int, str] = field(default_factory=dict)

    def close(self) -> None:
        """Close the descriptors of this process; a child process that inherited them keeps the reservations."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def reserve_ports(count: int, preferred: Sequence[int] = ()) -> ReservedPorts:
    """Reserve free ports of 127.0.0.1 outside the kernel's range of ephemeral ports.

    Any outgoing connection could take a port of that range while its broker is down.

    Args:
        count: Number of ports.
        preferred: Ports to reserve first, in this order. A free port takes the place of one that is not free.

    Raises:
        ClusterError: Fewer than `count` ports are free, or a reservation cannot be written.
    """
    with cache_errors():
        return _reserve_all(count, preferred)


def _reserve_all(count: int, preferred: Sequence[int]) -> ReservedPorts:
    directory = cache_dir() / "ports"
    directory.mkdir(parents=True, exist_ok=True)
    tried = {port: _reserve(directory / str(port), port) for port in preferred}
    reserved = {port: result for port, result in tried.items() if isinstance(result, int)}
    refused = {port: result for port, result in tried.items() if isinstance(result, str)}
    others: list[int] = []
    # Not a secret: a random order avoids collisions between processes that start at the same time.
    for port in random.sample(_candidates(), k=len(_candidates())):
        if len(reserved) == count:
            break
        result = _reserve(directory / str(port), port)
        if isinstance(result, int):
            reserved[port] = result
            others.append(port)
    if len(reserved) < count:
        ReservedPorts((), tuple(reserved.values())).close()
        raise ClusterError(f"only {len(reserved)} of {count} ports are free on 127.0.0.1")
    substitutes = iter(others)
    first = [next(substitutes) if port in refused else port for port in preferred]
    return ReservedPorts((*first, *substitutes), tuple(reserved.values()), refused)


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


def _reserve(path: Path, port: int) -> int | str:
    """Reserve a port; return the descriptor that holds it, or why the port is not free."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        why = "" if file_lock.try_lock(descriptor) else "another test cluster has it"
        with socket.socket() as probe:
            # With the option that the broker uses: connections of an earlier owner in TIME_WAIT do not prevent binding.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError as error:
        why = why or ("another program uses it" if error.errno == errno.EADDRINUSE else describe_error(error))
    if not why:
        return descriptor
    os.close(descriptor)
    return why
