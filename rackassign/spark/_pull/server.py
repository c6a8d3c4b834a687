"""The sockets of a coordinator, which any program in the network of the driver can connect to.

A request begins with the token, so that its first bytes authenticate the sender. Each connection has a thread, and they
are limited in number. One that has not sent the token within two seconds is closed, so that others wait no longer.
"""

from __future__ import annotations

import hmac
import logging
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rackassign.errors import ConfigError
from rackassign.spark._pull.protocol import (
    MALFORMED,
    MAX_LINE_BYTES,
    WRONG_TOKEN,
    ErrorResponse,
    check_reachable,
    encode,
)
from rackassign.text import truncate

log = logging.getLogger(__name__)

_MAX_CONNECTIONS = 512
"""Connections at the same time, of which each has a thread; others wait until one ends."""

_TOKEN_S = 2.0
"""Seconds in which a connection has to send the token."""

_LINE_S = 10.0
"""Seconds for the rest of a request after its token, and for sending the response."""

_CLOSED_WITHIN_S = 0.05
_ACCEPT_BACKOFF_S = 0.05
_BACKLOG = 1024
_TOKEN_BYTES = 128
"""Bytes of a line that suffice to decide whether it contains the token."""

_TOKEN = re.compile(rb'\s*\{\s*"token"\s*:\s*"([^"]*)"')


def local_address_for(servers: str) -> str:
    """Return the local address for connections to these servers. Executors usually can reach it, too."""
    host, _, port = servers.partition(",")[0].strip().rpartition("//")[2].rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
            # Connecting a UDP socket sends nothing. It only selects a route.
            probe.connect(found[4])
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return socket.gethostname()


def listen(host: str, port: int, token: str, answer: Callable[[bytes], bytes]) -> Listener:
    """Listen on an address. The caller has to close the listener."""
    try:
        version, address = resolve(host, port)
        check_reachable(str(address[0]))
        return Listener(version, address, token, answer)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"coordinatorHost: cannot listen on {truncate(host)}, port {port}: {problem}") from None


def resolve(host: str, port: int) -> tuple[int, tuple[str | int, ...]]:
    """Return the version of the Internet Protocol as a number of the socket API, and the socket address."""
    # Spark writes an IPv6 address in brackets. Of a name with addresses of both versions it takes an IPv4 address.
    known = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    version, *_, (address, _, *scope) = min(known, key=lambda each: each[0])
    return version, (address, port, *scope)


def read_line(connection: socket.socket, deadline: float, max_bytes: int) -> bytes:
    """Return the bytes received until a line is complete or too long, or the connection is closed."""
    line = b""
    while not line.endswith(b"\n") and len(line) <= max_bytes:
        left = deadline - time.monotonic()
        if left <= 0:
            # The timeout of the socket restarts with each byte.
            raise TimeoutError("timed out before a complete line was received")
        connection.settimeout(left)
        more = connection.recv(max_bytes + 1 - len(line))
        if not more:
            break
        line += more
    return line


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Reads a request from each connection, and answers it with `answer`, in a thread for each, until it is closed."""

    allow_reuse_address = True
    request_queue_size = _BACKLOG
    # A connection has an end of its own, so nothing waits for it.
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, version: int, address: tuple[str | int, ...], token: str, answer: Callable[[bytes], bytes]
    ) -> None:
        self.address_family = version
        super().__init__(address, _Request)  # type: ignore[arg-type] # an IPv6 address has four parts
        self.address: tuple[str, int] = self.server_address[:2]  # type: ignore[assignment] # of TCP
        self.token = token.encode()
        self.answer = answer
        self._free = threading.Semaphore(_MAX_CONNECTIONS)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_CLOSED_WITHIN_S,), name="rackassign-coordinator", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Repeated calls have no effect."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError as error:
            # Probably no file descriptors are left. Connections that end free some.
            log.warning("the coordinator cannot accept a connection: %s", error.strerror)
            time.sleep(_ACCEPT_BACKOFF_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as of socketserver
        """Answer in another thread, or in this one if no more can be started."""
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self.process_request_thread(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as of socketserver
        """Answer, and let another connection in."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as of socketserver
        """Log an error; of a connection that broke or is too slow nothing, as the client repeats its request."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("the coordinator failed to answer a request", exc_info=error)


class _Request(socketserver.BaseRequestHandler):
    server: Listener

    def handle(self) -> None:
        connection: socket.socket = self.request
        deadline = time.monotonic() + _TOKEN_S
        line = read_line(connection, deadline, _TOKEN_BYTES)
        match = _TOKEN.match(line)
        known = match is not None and hmac.compare_digest(match[1], self.server.token)
        if not line.endswith(b"\n"):
            # Of a client without the token the rest is irrelevant, but reading it lets the client receive the response.
            deadline = time.monotonic() + _LINE_S if known else deadline
            line += read_line(connection, deadline, MAX_LINE_BYTES - len(line))
        if not line.endswith(b"\n") or len(line) > MAX_LINE_BYTES:
            return
        connection.settimeout(_LINE_S)
        if known:
            connection.sendall(self.server.answer(line))
        else:
            connection.sendall(encode(ErrorResponse(MALFORMED if match is None else WRONG_TOKEN)))
