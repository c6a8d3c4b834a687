"""Commands to a test cluster from another process: a rack is killed or started.

A request and its response are one line of JSON each, over a TCP connection on 127.0.0.1. Requests without the token of
the cluster are refused. The owner of the cluster handles one request at a time, on the thread that waits for them.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing.cluster import Cluster
from rackassign.testing.registry import ControlAddress
from rackassign.util.text import describe_error

KILL, START = "kill-rack", "start-rack"

_HOST = "127.0.0.1"
_READ_TIMEOUT_S = 5.0
_RESPONSE_TIMEOUT_S = 300.0
_LONGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class RackChange:
    """Result of a request.

    Args:
        rack: The rack.
        changed: IDs of the brokers that were killed or started; empty if all were in the requested state.
        running: IDs of all brokers that are up now.
    """

    rack: str
    changed: tuple[int, ...]
    running: tuple[int, ...]


class ControlServer:
    """Takes requests for one cluster.

    Args:
        cluster: A cluster that is up.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._token = secrets.token_hex(16)
        self._socket = socket.create_server((_HOST, 0))

    @property
    def address(self) -> ControlAddress:
        """The address for `send_request`."""
        return ControlAddress(self._socket.getsockname()[1], self._token)

    def close(self) -> None:
        """Take no more requests."""
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
    """Kill the brokers of a rack that are up, or start those that are down and wait until they are ready.

    Raises:
        ConfigError: The cluster has no such rack, or there is no such command.
        ClusterError: A broker does not start.
    """
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
    """Send a request to the owner of a cluster and wait until it is done.

    Raises:
        ConfigError: The cluster has no such rack.
        ClusterError: A broker does not start, or the owner does not respond.
    """
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
    """Read one JSON object.

    Raises:
        OSError: The connection ended, or nothing came in time.
        ValueError: It is not one line with a JSON object.
    """
    with connection.makefile("rb") as stream:
        line = stream.readline(_LONGEST)
    if not line:
        raise ConnectionResetError("the connection has ended without a line")
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - as json raises it
    return value
