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
import ipaddress
import json
import logging
import re
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from rackassign.errors import ConfigError
from rackassign.util.text import truncate

log = logging.getLogger(__name__)

LONGEST = 65_536
"""The highest number of bytes in a line."""

MOST_STRANGERS = 256
MOST_OF_ADDRESS = 32
"""The highest numbers of connections that have not sent the token yet: in total, and per address."""

_MOST_AT_ONCE = 64
"""Requests that are processed at the same time; others wait."""

_TOKEN_S = 2.0
"""Seconds in which a connection has to send the token."""

_LINE_S = 10.0
"""Seconds for the rest of a request behind its token, and for sending the response."""

_LOOK_S = 1.0
_REST_S = 0.05
_BACKLOG = 256
_HEAD = 128
"""Bytes of a line that suffice to decide whether it contains the token."""

_BEGINS = re.compile(rb'\s*\{\s*"token"\s*:\s*"([^"]*)"')


def local_address_for(servers: str) -> str:
    """Return the local address for connections to these servers. Executors usually can reach it, too.

    Args:
        servers: Addresses as HOST:PORT, separated by commas.
    """
    host, _, port = servers.partition(",")[0].strip().rpartition("//")[2].rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as asked:
            # Connecting a UDP socket sends nothing. It only selects a route.
            asked.connect(found[4])
            return str(asked.getsockname()[0])
    except (OSError, ValueError):
        return socket.gethostname()


def check_reachable(host: str) -> None:
    """Reject the unspecified address (0.0.0.0 or ::), which executors cannot connect to.

    Raises:
        ConfigError: The host is the unspecified address.
    """
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        # The host is a name.
        return
    if everywhere:
        raise ConfigError(f"coordinatorHost: expected the address by which executors reach the driver, got {host}")


def listening(host: str, port: int, token: str, answer: Callable[[bytes], dict[str, Any]]) -> Listener:
    """Listen on an address. The caller has to close the listener.

    Args:
        host: The address or host name to listen on.
        port: The port to listen on; 0 for any free port.
        token: The token with which requests begin.
        answer: Returns the response to a line.

    Raises:
        ConfigError: The address is not available, or executors cannot reach it.
    """
    try:
        # Spark writes an IPv6 address in brackets. For a name with both kinds IPv4 is used, as Spark does.
        known = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        family, *_, (address, _, *scope) = min(known, key=lambda each: each[0])
        check_reachable(str(address))
        return Listener(_bound(family, (address, port, *scope)), token, answer)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"coordinatorHost: cannot listen on {truncate(host)}, port {port}: {problem}") from None


def _bound(family: int, address: Any) -> socket.socket:  # noqa: ANN401 - by family
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def read_line(connection: socket.socket, deadline: float) -> bytes:
    """Return the bytes received until a line is complete or too long, or the connection is closed.

    Args:
        connection: The socket to receive from.
        deadline: The time of `time.monotonic` at which the whole line must have been received.

    Raises:
        TimeoutError: The line is not complete at the deadline.
    """
    line = b""
    while not line.endswith(b"\n") and len(line) <= LONGEST:
        left = deadline - time.monotonic()
        if left <= 0:
            # The timeout of the socket restarts with each byte.
            raise TimeoutError("no whole line came in time")
        connection.settimeout(left)
        more = connection.recv(LONGEST + 1 - len(line))
        if not more:
            break
        line += more
    return line


class _Asking:
    """A connection with the part of its request that was received so far.

    Args:
        connection: The socket.
        address: The address of the client.
        deadline: When the connection is closed unless its request is complete.
    """

    def __init__(self, connection: socket.socket, address: str, deadline: float) -> None:
        self.connection = connection
        self.address = address
        self.deadline = deadline
        self.line = bytearray()
        self.said = 0
        """Bytes received, including those that were discarded."""
        self.judged = False
        self.trusted = False


class Listener:
    """A thread that reads requests and passes them to other threads, until it is closed.

    Args:
        bound: A listening socket.
        token: The token with which requests begin.
        answer: Returns the response to a line; called by several threads at the same time.
    """

    def __init__(self, bound: socket.socket, token: str, answer: Callable[[bytes], dict[str, Any]]) -> None:
        self._bound = bound
        self.address: tuple[str, int] = bound.getsockname()[:2]
        self._token = token.encode()
        self._answers = _Answers(answer)
        self._strangers: dict[_Asking, None] = {}
        self._trusted: dict[_Asking, None] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._closing = threading.Event()
        self._complained = False
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
                for key, _ in self._selector.select(self._patience_s()):
                    if key.fileobj is self._bound:
                        self._accept()
                    elif isinstance(key.data, _Asking):
                        self._hear(key.data)
                self._drop_late()
        finally:
            for asking in [*self._strangers, *self._trusted]:
                self._drop(asking)
            self._selector.close()
            for each in (self._bound, self._wake, self._woken):
                each.close()

    def _patience_s(self) -> float:
        first = [next(iter(asking)).deadline for asking in (self._strangers, self._trusted) if asking]
        return max(0.0, min([*first, time.monotonic() + _LOOK_S]) - time.monotonic())

    def _accept(self) -> None:
        try:
            connection, (address, *_) = self._bound.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Probably no file descriptors are left: closing a connection without the token frees one.
            if not self._complained:
                log.warning("the coordinator cannot take a connection, and closes old ones: %s", error.strerror)
            self._complained = True
            self._make_room(self._strangers)
            time.sleep(_REST_S)
            return
        self._complained = False
        connection.settimeout(0)
        asking = _Asking(connection, str(address), time.monotonic() + _TOKEN_S)
        of_address = [each for each in self._strangers if each.address == asking.address]
        if len(of_address) >= MOST_OF_ADDRESS:
            self._make_room(of_address)
        elif len(self._strangers) >= MOST_STRANGERS:
            most = Counter(each.address for each in self._strangers).most_common(1)[0][0]
            self._make_room(each for each in self._strangers if each.address == most)
        self._strangers[asking] = None
        self._selector.register(connection, selectors.EVENT_READ, asking)
        # In most cases the request has been received already.
        self._hear(asking)

    def _make_room(self, among: Iterable[_Asking]) -> None:
        """Close the connection that has waited longest."""
        oldest = next(iter(among), None)
        if oldest is not None:
            self._drop(oldest)

    def _hear(self, asking: _Asking) -> None:
        try:
            more = asking.connection.recv(LONGEST)
        except BlockingIOError:
            return
        except OSError:
            # The connection broke. The client repeats its request.
            self._drop(asking)
            return
        asking.said += len(more)
        asking.line += more
        whole = more.endswith(b"\n")
        if not asking.judged and (whole or len(asking.line) >= _HEAD):
            self._judge(asking)
        if not more or asking.said > LONGEST:
            self._drop(asking)
        elif whole and asking.trusted:
            self._forget(asking)
            self._answers.ask(asking.connection, bytes(asking.line))
        elif whole:
            self._refuse(asking)
        elif asking.judged and not asking.trusted:
            # The rest of the request is irrelevant, but reading it lets the client receive the response.
            del asking.line[_HEAD:]

    def _judge(self, asking: _Asking) -> None:
        asking.judged = True
        begins = _BEGINS.match(asking.line)
        if begins is not None and hmac.compare_digest(begins[1], self._token):
            asking.trusted = True
            asking.deadline = time.monotonic() + _LINE_S
            del self._strangers[asking]
            self._trusted[asking] = None

    def _refuse(self, asking: _Asking) -> None:
        problem = "no question" if _BEGINS.match(asking.line) is None else "wrong token"
        # The response fits into the send buffer, which is empty. If sending fails, the client has gone.
        with suppress(OSError):
            asking.connection.send(_written({"error": problem}))
        self._drop(asking)

    def _drop_late(self) -> None:
        now = time.monotonic()
        # Both are in the order of deadlines.
        for waiting in (self._strangers, self._trusted):
            while waiting and (first := next(iter(waiting))).deadline <= now:
                self._drop(first)

    def _drop(self, asking: _Asking) -> None:
        self._forget(asking)
        asking.connection.close()

    def _forget(self, asking: _Asking) -> None:
        self._strangers.pop(asking, None)
        self._trusted.pop(asking, None)
        self._selector.unregister(asking.connection)


class _Answers:
    """A limited number of threads that answer requests, and that end when there are no more requests.

    Args:
        answer: Returns the response to a line.
    """

    def __init__(self, answer: Callable[[bytes], dict[str, Any]]) -> None:
        self._answer = answer
        self._waiting: deque[tuple[socket.socket, bytes]] = deque()
        self._threads = 0
        self._lock = threading.Lock()

    def ask(self, connection: socket.socket, line: bytes) -> None:
        """Answer a line in a thread, and then close the connection."""
        with self._lock:
            self._waiting.append((connection, line))
            if self._threads >= _MOST_AT_ONCE:
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
                    connection.sendall(_written(self._answer(line)))
                except OSError:
                    # The connection broke. The client repeats its request.
                    continue
                except Exception:
                    log.exception("the coordinator has no answer")


def _written(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"
