"""Request the registered and unfenced brokers from one given broker.

The request is encoded here for two reasons. An admin client chooses the broker it sends a request to, while here the
broker that was just started has to respond itself. And kafka-python leaves sockets to offline brokers open.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

_METADATA = 3
_VERSION = 4
"""Version of the Metadata request: supported by every broker since 0.11, and with fixed-width fields."""

_CLIENT = b"rackassign-testing"
_ATTEMPT_S = 5.0


def unready_brokers(expected: Sequence[tuple[int, str, int]], deadline: float) -> dict[int, str]:
    """Return the brokers that are not up, with the reason; empty if all are up.

    A broker is up if it responds and all of the brokers list it as registered and unfenced. A broker responds only once
    it has caught up with its own registration, so an earlier registration with an equal ID is not mistaken for it.

    Args:
        expected: ID, host and port of the brokers that should be up.
        deadline: Deadline on the monotonic clock; a request to one broker takes 5 s at most.
    """
    problems: dict[int, str] = {}
    for broker, host, port in expected:
        timeout_s = max(0.5, min(_ATTEMPT_S, deadline - time.monotonic()))
        try:
            alive = alive_brokers(host, port, timeout_s)
        except OSError as error:
            problems[broker] = f"does not respond on {host}:{port} ({error})"
            continue
        for other, _, _ in expected:
            if other not in alive:
                problems.setdefault(other, f"is not registered or is fenced, according to broker {broker}")
    return problems


def alive_brokers(host: str, port: int, timeout_s: float) -> frozenset[int]:
    """Return the IDs of the registered and unfenced brokers that the broker at an address lists.

    Raises:
        OSError: The broker does not respond, or not in time.
    """
    # Header: api key, version, correlation id, client id. Body: no topics, no automatic creation.
    request = struct.pack("!hhih", _METADATA, _VERSION, 1, len(_CLIENT)) + _CLIENT + struct.pack("!i?", 0, False)  # noqa: FBT003
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack("!i", len(request)) + request)
        (size,) = struct.unpack("!i", _receive(connection, 4))
        return _broker_ids(_receive(connection, size))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        received += part
    return received


def _broker_ids(response: bytes) -> frozenset[int]:
    """Decode the list of brokers, which follows the correlation ID and the throttle time."""
    (count,) = struct.unpack_from("!i", response, 8)
    at = 12
    found: set[int] = set()
    for _ in range(count):
        broker, host_length = struct.unpack_from("!ih", response, at)
        at += 6 + host_length + 4
        (rack_length,) = struct.unpack_from("!h", response, at)
        at += 2 + max(rack_length, 0)
        found.add(broker)
    return frozenset(found)
