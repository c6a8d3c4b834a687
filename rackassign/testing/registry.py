"""Clusters that a process keeps running under a name, for commands from other processes of the user.

The owner of a cluster holds a lock on a file with its process ID and, once the cluster is up, with the address of its
control socket. The lock ends with the process, however it ends, so a file without a lock is the remains of a crash and
counts as no file.

A request and its response are one line of JSON each, over a TCP connection on 127.0.0.1. Requests without the token of
the cluster are refused. The owner of the cluster handles one request at a time, on the thread that waits for them.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing._cluster import Cluster
from rackassign.testing._machine import cache_dir
from rackassign.text import describe_error, truncate
from rackassign.util.files import lock, try_lock


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Where the owner of a cluster takes requests."""

    port: int
    # Secret that a request must have; only the user can read it.
    token: str


class Registration:
    """The file of a running cluster, open and locked by its owner."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._write({"pid": os.getpid()})

    def announce(self, address: ControlAddress) -> None:
        """Add the address of the control socket, once the cluster is up."""
        self._write({"pid": os.getpid(), **asdict(address)})

    def _write(self, content: dict[str, object]) -> None:
        try:
            os.ftruncate(self._file.fileno(), 0)
            # Without a buffer: what a full disk refuses would be written, and refused, again when the file is closed.
            os.write(self._file.fileno(), json.dumps(content).encode("ascii"))
        except OSError as error:
            raise _unusable(Path(self._file.name), error) from None


class RegisteredCluster:
    """A cluster that another process keeps running."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @property
    def address(self) -> ControlAddress | None:
        """The address of the control socket; None while the cluster is starting."""
        content = self._read()
        return ControlAddress(content["port"], content["token"]) if "port" in content else None

    def end(self) -> None:
        """Ask the owner to end the cluster and wait until it has."""
        pid = self._read().get("pid")
        if pid is None:
            raise ConfigError("the cluster is only just starting; try again")
        # It can end by itself at this moment.
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)
        lock(self._file)

    def _read(self) -> dict[str, Any]:
        self._file.seek(0)
        try:
            content = json.loads(self._file.read())
        except ValueError:
            # The owner is writing at this moment.
            return {}
        return content if isinstance(content, dict) else {}


@contextmanager
def register(name: str) -> Iterator[Registration]:
    """Register this process as the owner of a cluster while the block lasts."""
    file = _file(name)
    while True:
        with _created(file) as opened:
            if not try_lock(opened):
                raise ConfigError(
                    f"a cluster {name!r} is up already; end it with: rackassign cluster down --name {name}"
                )
            if os.fstat(opened.fileno()).st_nlink == 0:
                # Another process has just removed it as the remains of a crash.
                continue
            try:
                yield Registration(opened)
            finally:
                file.unlink(missing_ok=True)
            return


@contextmanager
def find_registered(name: str) -> Iterator[RegisteredCluster | None]:
    """Yield the running cluster of a name; None if there is none. Remove what a crash has left of it."""
    file = _file(name)
    try:
        opened = file.open("r+", encoding="ascii")
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _unusable(file, error) from None
    with opened:
        if not try_lock(opened):
            yield RegisteredCluster(opened)
            return
        if os.fstat(opened.fileno()).st_nlink:
            file.unlink(missing_ok=True)
    yield None


def _created(file: Path) -> IO[str]:
    """Open a file, which is created with its folder if it is missing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Only the user may read the token.
        return open(file, "a+", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600))
    except OSError as error:
        raise _unusable(file, error) from None


def _unusable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the file of the cluster, {truncate(str(file))}, cannot be used: {error.strerror}")


def _file(name: str) -> Path:
    if not name.isidentifier():
        raise ConfigError(f"name must be letters, digits and _, and begin with no digit, got {name!r}")
    return cache_dir() / "up" / f"{name}.json"


KILL, START = "kill-rack", "start-rack"

_HOST = "127.0.0.1"
_READ_TIMEOUT_S = 5.0
_RESPONSE_TIMEOUT_S = 300.0
_LONGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class RackChange:
    rack: str
    # IDs of the brokers that were killed or started; empty if all were in the requested state.
    changed: tuple[int, ...]
    running: tuple[int, ...]


class ControlServer:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._token = secrets.token_hex(16)
        self._socket = socket.create_server((_HOST, 0))

    @property
    def address(self) -> ControlAddress:
        return ControlAddress(self._socket.getsockname()[1], self._token)

    def close(self) -> None:
        self._socket.close()

    def serve(self) -> NoReturn:
        """Handle requests until a signal ends the process."""
        while True:
            self.serve_one()

    def serve_one(self) -> None:
        """Wait for one connection and respond to its request; one that is no request is closed without response."""
        connection, _ = self._socket.accept()
        with connection:
            connection.settimeout(_READ_TIMEOUT_S)
            try:
                request = _read_line(connection)
            except (OSError, ValueError):
                # Another program has connected to the port.
                return
            if not secrets.compare_digest(str(request.get("token")).encode(), self._token.encode()):
                return
            response = self._respond(request)
            try:
                connection.sendall(_line(response))
            except OSError:
                # The other process did not wait; what it asked for is done.
                return

    def _respond(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"result": asdict(change_rack(self._cluster, request.get("command"), str(request.get("rack"))))}
        except ConfigError as error:
            return {"refused": str(error)}
        except ClusterError as error:
            return {"failed": str(error)}


def change_rack(cluster: Cluster, command: object, rack: str) -> RackChange:
    """Kill the brokers of a rack that are up, or start those that are down and wait until they are ready."""
    if command not in {KILL, START}:
        raise ConfigError(f"command must be {KILL} or {START}, got {command!r}")
    running, ids = cluster.running, {broker.id for broker in cluster.rack_brokers(rack)}
    changed = ids & running if command == KILL else ids - running
    if changed and command == KILL:
        cluster.kill_rack(rack)
    elif changed:
        cluster.start_rack(rack)
        cluster.wait_ready()
    return RackChange(rack, tuple(sorted(changed)), tuple(sorted(cluster.running)))


def send_request(address: ControlAddress, command: str, rack: str) -> RackChange:
    """Send a request to the owner of a cluster and wait until it is done."""
    try:
        with socket.create_connection((_HOST, address.port), _READ_TIMEOUT_S) as connection:
            connection.settimeout(_RESPONSE_TIMEOUT_S)
            connection.sendall(_line({"token": address.token, "command": command, "rack": rack}))
            response = _read_line(connection)
    except (OSError, ValueError) as error:
        raise ClusterError(f"the process of the cluster does not respond: {describe_error(error)}") from None
    if "refused" in response:
        raise ConfigError(response["refused"])
    if "failed" in response:
        raise ClusterError(response["failed"])
    result = response["result"]
    return RackChange(result["rack"], tuple(result["changed"]), tuple(result["running"]))


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


def _read_line(connection: socket.socket) -> dict[str, Any]:
    """Read one JSON object; raise an OSError if nothing came in time, and a ValueError for anything else."""
    with connection.makefile("rb") as stream:
        line = stream.readline(_LONGEST)
    if not line:
        raise ConnectionResetError("the connection has ended without a line")
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - as json raises it
    return value
