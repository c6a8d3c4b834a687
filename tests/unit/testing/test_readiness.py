"""When a cluster is ready."""

from __future__ import annotations

import socket
import threading
import time

from rackassign.testing.readiness import alive_brokers, unready_brokers
from tests.helpers.processes import DEADLINE_S


def answering(answer: bytes) -> tuple[int, threading.Thread]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return int(server.getsockname()[1]), thread


METADATA = (
    b"\0\0\0\x01" + b"\0\0\0\0" + b"\0\0\0\x02"  # correlation, throttle, two brokers
    b"\0\0\0\x01\0\x01h\0\0\0\x05\0\x01a"  # with a rack
    b"\0\0\0\x03\0\x02hh\0\0\0\x06\xff\xff"  # without
    b"the rest is not read"
)


def test_a_broker_is_asked_who_is_alive() -> None:
    port, thread = answering(len(METADATA).to_bytes(4, "big") + METADATA)
    assert alive_brokers("127.0.0.1", port, DEADLINE_S) == {1, 3}
    thread.join()


def test_a_broker_that_another_does_not_see_is_not_ready() -> None:
    port, thread = answering(len(METADATA).to_bytes(4, "big") + METADATA)
    deadline = time.monotonic() + DEADLINE_S
    assert unready_brokers([(1, "127.0.0.1", port)], deadline) == {}
    thread.join()
    port, thread = answering(len(METADATA).to_bytes(4, "big") + METADATA)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        wanted = [(1, "127.0.0.1", port), (2, "127.0.0.1", closed.getsockname()[1])]
        problems = unready_brokers(wanted, deadline)
    thread.join()
    assert problems[2].startswith("does not respond") or "according to broker 1" in problems[2]


def test_a_broker_that_hangs_up_is_not_ready() -> None:
    port, thread = answering(b"\0\0")
    problems = unready_brokers([(1, "127.0.0.1", port)], time.monotonic() + DEADLINE_S)
    thread.join()
    assert "closed the connection" in problems[1]
