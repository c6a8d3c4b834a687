"""Lines in, answers out: the sockets of a coordinator, which strangers may connect to and must not hold up."""

from __future__ import annotations

import ipaddress
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any

from rackassign.errors import ConfigError, cut

LONGEST = 65_536
"""Bytes of a line."""

_MOST_AT_ONCE = 64
_LINE_S = 10.0
"""For a whole question, however it comes."""

_LOOK_S = 0.1


def address_towards(servers: str) -> str:
    """Return the address of this machine that it reaches these servers from; executors mostly reach it there.

    Args:
        servers: HOST:PORT, by comma.
    """
    host, _, port = servers.partition(",")[0].strip().rpartition("//")[2].rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as asked:
            # Sends nothing: a route is chosen.
            asked.connect(found[4])
            return str(asked.getsockname()[0])
    except (OSError, ValueError):
        return socket.gethostname()


def check_reachable(host: str) -> None:
    """Refuse an address that means all of this machine's: to executors it means all of theirs.

    Raises:
        ConfigError: It is one.
    """
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        # A name.
        return
    if everywhere:
        raise ConfigError(f"coordinatorHost: expected the address by which executors reach the driver, got {host}")


def listening(host: str, port: int, answer: Callable[[bytes], dict[str, Any]]) -> Listener:
    """Listen; whoever makes it serves and closes it.

    Args:
        host: The address, or a name of it.
        port: The same; 0 for any.
        answer: Makes an answer of a line.

    Raises:
        ConfigError: It cannot listen there, or nobody could reach it.
    """
    try:
        # Spark writes an IPv6 address in brackets. Of a name with both kinds IPv4 is taken, as Spark does.
        known = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        family, *_, (address, _, *scope) = min(known, key=lambda each: each[0])
        check_reachable(str(address))
        return Listener(family, (address, port, *scope), answer)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"coordinatorHost: cannot listen on {cut(host)}, port {port}: {problem}") from None


class Listener(socketserver.ThreadingTCPServer):
    """A socket that is listened to, each connection by a thread of its own, only so many at once."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, family: int, address: Any, answer: Callable[[bytes], dict[str, Any]]) -> None:  # noqa: ANN401 - by family
        self.address_family = family
        self.answer = answer
        self._closing = threading.Event()
        self._free = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class
        """Begin a thread for a connection as soon as one is free."""
        # Others wait in the queue of connections; each has little time, so it moves.
        while not self._free.acquire(timeout=_LOOK_S):
            if self._closing.is_set():
                self.shutdown_request(request)
                return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the same
        """Hear one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown(self) -> None:
        """Hear no more."""
        self._closing.set()
        super().shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the same
        """Say nothing of a connection that broke: who asked will ask again."""


class _Handler(socketserver.BaseRequestHandler):
    server: Listener

    def handle(self) -> None:
        line = self._line()
        if line.endswith(b"\n"):
            self.request.sendall(json.dumps(self.server.answer(line)).encode() + b"\n")

    def _line(self) -> bytes:
        """Return what comes, until a line is whole or too long.

        Raises:
            TimeoutError: It takes too long.
        """
        deadline = time.monotonic() + _LINE_S
        line = b""
        while not line.endswith(b"\n") and len(line) <= LONGEST:
            left = deadline - time.monotonic()
            if left <= 0:
                # The socket's own timeout begins anew with each byte.
                raise TimeoutError
            self.request.settimeout(left)
            more = self.request.recv(LONGEST + 1 - len(line))
            if not more:
                break
            line += more
        return line
