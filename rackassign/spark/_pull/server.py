"""The sockets of a coordinator. Any program can connect to them, and none without the token can block them.

Theory of operation
-------------------
A request begins with the token, so that its first bytes authenticate the sender. One thread reads all requests. Only
complete requests with the token are answered, in threads of their own. So a client without the token costs a file
descriptor and no thread, even if it is silent, slow or never stops sending.

A connection that has not authenticated is closed after two seconds. The number of such connections is limited, per
address and in total. A connection that exceeds the limit replaces the one that has waited longest and is not rejected
itself. Clients with the token send it immediately, and then do not count towards the limits any more.
"""

from __future__ import annotations

import hmac
import logging
import re
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress

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

MAX_UNAUTHENTICATED = 256
MAX_UNAUTHENTICATED_PER_ADDRESS = 32
"""The highest numbers of connections that have not sent the token yet: in total, and per address."""

_MAX_CONCURRENT_REQUESTS = 64
"""Requests that are processed at the same time; others wait."""

_TOKEN_S = 2.0
"""Seconds in which a connection has to send the token."""

_LINE_S = 10.0
"""Seconds for the rest of a request after its token, and for sending the response."""

_MAX_SELECT_S = 1.0
_ACCEPT_BACKOFF_S = 0.05
_BACKLOG = 256
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
        return Listener(bind_socket(version, address, _BACKLOG), token, answer)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"coordinatorHost: cannot listen on {truncate(host)}, port {port}: {problem}") from None


def resolve(host: str, port: int) -> tuple[int, tuple[str | int, ...]]:
    """Return the version of the Internet Protocol as a number of the socket API, and the socket address."""
    # Spark writes an IPv6 address in brackets. Of a name with addresses of both versions it takes an IPv4 address.
    known = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    version, *_, (address, _, *scope) = min(known, key=lambda each: each[0])
    return version, (address, port, *scope)


def bind_socket(version: int, address: tuple[str | int, ...], backlog: int) -> socket.socket:
    """Return a socket that listens on an address from `resolve`."""
    bound = socket.socket(version, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(backlog)
    except BaseException:
        bound.close()
        raise
    return bound


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


class _Client:
    """A connected client, with the part of its request that was received so far."""

    def __init__(self, connection: socket.socket, address: str, deadline: float) -> None:
        self.connection = connection
        self.address = address
        self.deadline = deadline
        self.line = bytearray()
        self.received = 0
        """Bytes received, including those that were discarded."""
        self.checked = False
        self.authenticated = False


class Listener:
    """A thread that reads requests and passes them to other threads, which call `answer`, until it is closed."""

    def __init__(self, bound: socket.socket, token: str, answer: Callable[[bytes], bytes]) -> None:
        self._bound = bound
        self.address: tuple[str, int] = bound.getsockname()[:2]
        self._token = token.encode()
        self._answers = _AnswerThreads(answer)
        self._unauthenticated: dict[_Client, None] = {}
        self._authenticated: dict[_Client, None] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._closing = threading.Event()
        self._warned = False
        bound.settimeout(0)
        self._selector.register(bound, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="rackassign-coordinator", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Repeated calls have no effect."""
        if not self._closing.is_set():
            self._closing.set()
            with suppress(OSError):
                self._wake.send(b"x")
        self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._closing.is_set():
                for key, _ in self._selector.select(self._select_timeout_s()):
                    if key.fileobj is self._bound:
                        self._accept()
                    elif key.data in self._unauthenticated or key.data in self._authenticated:
                        # Otherwise the connection was closed for one that was accepted in this very round.
                        self._receive(key.data)
                self._close_late()
        finally:
            for client in [*self._unauthenticated, *self._authenticated]:
                self._close(client)
            self._selector.close()
            for each in (self._bound, self._wake, self._woken):
                each.close()

    def _select_timeout_s(self) -> float:
        first = [next(iter(client)).deadline for client in (self._unauthenticated, self._authenticated) if client]
        return max(0.0, min([*first, time.monotonic() + _MAX_SELECT_S]) - time.monotonic())

    def _accept(self) -> None:
        try:
            connection, (address, *_) = self._bound.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Probably no file descriptors are left: closing a connection without the token frees one.
            if not self._warned:
                log.warning("the coordinator cannot accept a connection and closes the oldest one: %s", error.strerror)
            self._warned = True
            self._close_oldest(self._unauthenticated)
            time.sleep(_ACCEPT_BACKOFF_S)
            return
        self._warned = False
        connection.settimeout(0)
        client = _Client(connection, str(address), time.monotonic() + _TOKEN_S)
        of_address = [each for each in self._unauthenticated if each.address == client.address]
        if len(of_address) >= MAX_UNAUTHENTICATED_PER_ADDRESS:
            self._close_oldest(of_address)
        elif len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
            most = Counter(each.address for each in self._unauthenticated).most_common(1)[0][0]
            self._close_oldest(each for each in self._unauthenticated if each.address == most)
        self._unauthenticated[client] = None
        self._selector.register(connection, selectors.EVENT_READ, client)
        # In most cases the request has been received already.
        self._receive(client)

    def _close_oldest(self, among: Iterable[_Client]) -> None:
        oldest = next(iter(among), None)
        if oldest is not None:
            self._close(oldest)

    def _receive(self, client: _Client) -> None:
        try:
            data = client.connection.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            # The connection broke. The client repeats its request.
            self._close(client)
            return
        client.received += len(data)
        client.line += data
        complete = data.endswith(b"\n")
        if not client.checked and (complete or len(client.line) >= _TOKEN_BYTES):
            self._authenticate(client)
        if not data or client.received > MAX_LINE_BYTES:
            self._close(client)
        elif complete and client.authenticated:
            self._unregister(client)
            self._answers.submit(client.connection, bytes(client.line))
        elif complete:
            self._reject(client)
        elif client.checked and not client.authenticated:
            # The rest of the request is irrelevant, but reading it lets the client receive the response.
            del client.line[_TOKEN_BYTES:]

    def _authenticate(self, client: _Client) -> None:
        client.checked = True
        match = _TOKEN.match(client.line)
        if match is not None and hmac.compare_digest(match[1], self._token):
            client.authenticated = True
            client.deadline = time.monotonic() + _LINE_S
            del self._unauthenticated[client]
            self._authenticated[client] = None

    def _reject(self, client: _Client) -> None:
        problem = MALFORMED if _TOKEN.match(client.line) is None else WRONG_TOKEN
        # The response fits into the send buffer, which is empty. If sending fails, the client has gone.
        with suppress(OSError):
            client.connection.send(encode(ErrorResponse(problem)))
        self._close(client)

    def _close_late(self) -> None:
        now = time.monotonic()
        # Both are in the order of deadlines.
        for waiting in (self._unauthenticated, self._authenticated):
            while waiting and (first := next(iter(waiting))).deadline <= now:
                self._close(first)

    def _close(self, client: _Client) -> None:
        self._unregister(client)
        client.connection.close()

    def _unregister(self, client: _Client) -> None:
        self._unauthenticated.pop(client, None)
        self._authenticated.pop(client, None)
        self._selector.unregister(client.connection)


class _AnswerThreads:
    """A limited number of threads that answer requests, and that end when there are no more requests."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._waiting: deque[tuple[socket.socket, bytes]] = deque()
        self._threads = 0
        self._lock = threading.Lock()

    def submit(self, connection: socket.socket, line: bytes) -> None:
        """Answer a line in a thread, and then close the connection."""
        with self._lock:
            self._waiting.append((connection, line))
            if self._threads >= _MAX_CONCURRENT_REQUESTS:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._work, name="rackassign-coordinator-answer", daemon=True).start()
        except RuntimeError:
            # No more threads can be started: the thread that reads requests also answers this one.
            self._work()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                connection, line = self._waiting.popleft()
            with connection:
                try:
                    connection.settimeout(_LINE_S)
                    connection.sendall(self._answer(line))
                except OSError:
                    # The connection broke. The client repeats its request.
                    continue
                except Exception:
                    log.exception("the coordinator failed to answer a request")
