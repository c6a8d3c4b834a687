"""What test clusters use of this machine: a cache directory, loopback ports, and the list of its processes.

Ports are reserved without conflicts between clusters and processes.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rackassign.errors import ClusterError, ConfigError, MissingExtraError
from rackassign.text import describe_error, short_repr
from rackassign.util.files import try_lock


def cache_dir() -> Path:
    """Return the directory below which all files are written.

    It is the value of the environment variable `RACKASSIGN_CACHE`, or else the user's cache directory for "rackassign".
    You can remove it while no cluster runs; the next start downloads Kafka again.

    Returns:
        An absolute path; the directory may not exist yet.

    Raises:
        ConfigError: `RACKASSIGN_CACHE` begins with the home directory of an unknown user; or it is not set, and this
            user has no home directory.
        MissingExtraError: The extra `testing` is not installed and `RACKASSIGN_CACHE` is not set.
    """
    chosen = os.environ.get("RACKASSIGN_CACHE")
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError:
            raise ConfigError(f"RACKASSIGN_CACHE: the home directory in {short_repr(chosen)} is unknown") from None
    try:
        import platformdirs  # noqa: PLC0415 - needed only if the variable is not set
    except ImportError as error:
        raise MissingExtraError("platformdirs", "testing") from error
    try:
        return Path(platformdirs.user_cache_dir("rackassign", appauthor=False)).absolute()
    except RuntimeError:
        # A container may run with a user ID that is in no list of users.
        raise ConfigError(
            "this user has no home directory: set RACKASSIGN_CACHE to a directory for the cache"
        ) from None


def check_cache_path() -> None:
    """Check that processes of Java and Kafka can be given paths below `cache_dir()`."""
    # A colon separates the jars of a class path, and a comma the directories of a broker. Neither can be escaped.
    path = str(cache_dir())
    if set(path) & set(":,\n\r"):
        raise ConfigError(
            f"the path of the cache, {short_repr(path)}, contains a comma, a colon or a line break: set"
            " RACKASSIGN_CACHE to another one"
        )


@contextmanager
def cache_errors() -> Iterator[None]:
    """Convert errors of files below `cache_dir()` into a ClusterError that names the directory."""
    try:
        yield
    except OSError as error:
        raise ClusterError(f"no cluster can be created in {cache_dir()}: {error}") from None


_LOWEST = 20_000
_HIGHEST = 32_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TOP = 65_536


@dataclass(frozen=True, slots=True)
class ReservedPorts:
    """Ports that no other cluster takes while one of the descriptors is open in any process."""

    numbers: tuple[int, ...]
    # Open files that hold the reservations. A child process may inherit them; `close()` closes them.
    descriptors: tuple[int, ...]
    # Preferred ports that could not be reserved, each with the reason.
    refused: Mapping[int, str] = field(default_factory=dict)

    def close(self) -> None:
        """Close the descriptors of this process; a child process that inherited them keeps the reservations."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def reserve_ports(count: int, preferred: Sequence[int] = ()) -> ReservedPorts:
    """Reserve free ports of 127.0.0.1 outside the kernel's range of ephemeral ports."""
    # Any outgoing connection could take a port of that range while its broker is down. A free port takes the place of a
    # preferred one that is not free.
    with cache_errors():
        return _reserve_all(count, preferred)


def _reserve_all(count: int, preferred: Sequence[int]) -> ReservedPorts:
    directory = cache_dir() / "ports"
    directory.mkdir(parents=True, exist_ok=True)
    tried = {port: _reserve(directory / str(port), port) for port in preferred}
    reserved = {port: result for port, result in tried.items() if isinstance(result, int)}
    refused = {port: result for port, result in tried.items() if isinstance(result, str)}
    taken: list[int] = []
    # Not a secret: a random order avoids collisions between processes that start at the same time.
    for port in random.sample(_candidates(), k=len(_candidates())):
        if len(reserved) == count:
            break
        result = _reserve(directory / str(port), port)
        if isinstance(result, int):
            reserved[port] = result
            taken.append(port)
    if len(reserved) < count:
        ReservedPorts((), tuple(reserved.values())).close()
        raise ClusterError(f"only {len(reserved)} of {count} ports are free on 127.0.0.1")
    substitutes = iter(taken)
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
        why = "" if try_lock(descriptor) else "another test cluster has it"
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


class Process(NamedTuple):
    id: int
    parent: int
    # Truncated to 15 characters.
    name: str
    # CPU time in seconds of the process and of its children that have ended.
    cpu_s: float


def processes() -> Iterator[Process]:
    """Yield all processes, except those that end meanwhile."""
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses and may contain parentheses itself.
            before, _, after = entry.read_text("utf-8", "replace").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = after.split()
        name = before.partition("(")[2]
        yield Process(int(entry.parent.name), int(fields[1]), name, sum(map(int, fields[11:15])) / ticks)
