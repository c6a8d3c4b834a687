"""When a cluster is ready.

Further listeners of test clusters, without brokers.

What is shown of a test on brokers that has failed, besides its error.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.testing import Broker, LocalCluster
from rackassign.testing._broker_config import _identity, plan_brokers, ports_needed
from rackassign.testing._cluster import alive_brokers, unready_brokers
from rackassign.testing._security import ClusterCertificates
from rackassign.testing.docker_resources import environment, published
from tests.helpers.kafka.failure_context import LINES, failure_context, of_groups, tails
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


BOTH = {"SECURE": "SASL_SSL", "OTHER": "PLAINTEXT"}


def test_an_unknown_listener_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no listener 'SECURED': the cluster has SECURE, OTHER"):
        LocalCluster(["a"], listeners=BOTH).client_config("SECURED")


def test_every_listener_of_every_local_broker_has_a_port_of_its_own(tmp_path: Path) -> None:
    count = ports_needed(2, len(BOTH))
    nodes = plan_brokers(["a", None], range(1, count + 1), tmp_path, list(BOTH))
    ports = [port for node in nodes for port in (node.port, node.controller_port, *node.listeners.values())]
    assert sorted(map(str, ports)) == sorted(map(str, range(1, count + 1)))
    told = _identity(nodes[0], nodes, BOTH)
    assert told["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1,SECURE://127.0.0.1:3,OTHER://127.0.0.1:5"
    assert told["listener.security.protocol.map"] == (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,OTHER:PLAINTEXT"
    )


def test_listeners_of_a_container_are_published_one_by_one() -> None:
    broker = Broker(1, "a", "127.0.0.1", 5001, {"SECURE": 5002, "OTHER": 5003})
    assert published(broker) == {9092: 5001, 9094: 5002, 9095: 5003}
    told = environment(broker, 1, "id", {}, BOTH)
    assert told["KAFKA_LISTENERS"] == (
        "EXTERNAL://:9092,SECURE://:9094,OTHER://:9095,INTERNAL://:19092,CONTROLLER://:9093"
    )
    assert "SECURE://127.0.0.1:5002,OTHER://127.0.0.1:5003" in told["KAFKA_ADVERTISED_LISTENERS"]


def test_certificates_fit_into_properties(tmp_path: Path) -> None:
    security = ClusterCertificates.issued("127.0.0.1", tmp_path)
    properties = security.broker_properties(BOTH)
    assert not any(set("\r\n") & set(value) for value in properties.values())
    assert properties["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY----- ")
    assert [name for name in properties if "jaas" in name] == ["listener.name.secure.scram-sha-512.sasl.jaas.config"]
    assert "BEGIN CERTIFICATE" in Path(security.client_config()["ssl_cafile"]).read_text()


def test_the_last_lines_of_what_programs_have_written_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "member.err").write_text("".join(f"line {number}\n" for number in range(100)))
    (tmp_path / "empty.out").touch()
    (tmp_path / "state.sqlite").write_bytes(b"\0" * 100)
    (found,) = tails(tmp_path)
    assert found[0] == "a/member.err: last lines"
    assert found[1].splitlines() == [f"line {number}" for number in range(100 - LINES, 100)]


def test_what_cannot_be_looked_at_hides_no_error(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Path, "rglob", lambda *_: 1 / 0)
    item: Any = SimpleNamespace(name="test_x", funcargs={"tmp_path": tmp_path})
    ((title, text),) = failure_context(item)
    assert (title, text) == ("files", "not available: ZeroDivisionError('division by zero')")


def test_of_the_group_coordinator_only_lines_about_groups_of_the_test_are_shown() -> None:
    manager = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
    ours = f"[t] INFO Preparing to rebalance group test-x-1 with old generation 3 (reason: left) {manager}"
    others = [f"[t] WARN line {number} (kafka.server.X)" for number in range(100)]
    found = of_groups([ours, *others, f"[t] INFO group test-y-1 stabilized {manager}"], "test-x")
    assert found == ([ours], others[-LINES:])
