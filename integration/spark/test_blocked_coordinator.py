"""A driver whose port executors reach late, or never, though the driver itself could submit the batch."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from rackassign.spark import Coordinator
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import all_of, fill, session

if TYPE_CHECKING:
    from typing_extensions import Self

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

SPREAD = [[1, 2], [2, 3], [3, 1]]
COUNTS = dict.fromkeys(range(3), 500)
PATIENCE_MS = "2000"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


class Firewall(socketserver.ThreadingTCPServer):
    """A port before that of a coordinator, which drops the requests of tasks until it is opened."""

    daemon_threads = True

    def __init__(self, options: Mapping[str, str]) -> None:
        self.behind = (options["coordinatorHost"], int(options["coordinatorPort"]))
        self.opened = threading.Event()
        self.dropped = 0
        super().__init__((self.behind[0], 0), Connection)
        self._thread = threading.Thread(target=self.serve_forever)

    @property
    def port(self) -> str:
        return str(self.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class Connection(socketserver.StreamRequestHandler):
    """One request, and its response."""

    server: Firewall

    def handle(self) -> None:
        line = self.rfile.readline()
        if "task" in json.loads(line) and not self.server.opened.is_set():
            self.server.dropped += 1
            return
        with socket.create_connection(self.server.behind, TIMEOUT_S) as connection, connection.makefile("rb") as answer:
            connection.sendall(line)
            self.wfile.write(answer.readline())


@pytest.fixture
def blocked(spark: Any) -> Iterator[tuple[Coordinator, Firewall]]:
    with Coordinator(spark) as held, Firewall(held.options) as firewall:
        yield held, firewall


def rows(spark: Any, cluster: Cluster, topic: str, options: Mapping[str, str]) -> list[Any]:
    reader = spark.read.format("rackassign").option("kafka.bootstrap.servers", cluster.bootstrap)
    frame = reader.option("subscribe", topic).options(**options).load()
    return sorted(map(tuple, frame.select("topic", "partition", "offset").collect()))


def test_executors_that_reach_the_driver_late_read_everything(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, blocked: tuple[Coordinator, Firewall]
) -> None:
    held, firewall = blocked
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, COUNTS)

    def open_later() -> None:
        wait_until(lambda: firewall.dropped >= 3, "tasks that have tried several times")
        firewall.opened.set()

    opening = threading.Thread(target=open_later)
    opening.start()
    try:
        # The default patience is ten seconds.
        found = rows(spark, rack_cluster, topic, {**held.options, "coordinatorPort": firewall.port})
    finally:
        opening.join()
    assert found == all_of(topic, COUNTS)
    assert held.stats().local + held.stats().stolen > 0


def test_executors_that_never_reach_the_driver_end_the_query_with_what_to_do(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, blocked: tuple[Coordinator, Firewall]
) -> None:
    held, firewall = blocked
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, COUNTS)
    options = {**held.options, "coordinatorPort": firewall.port, "coordinatorTimeoutMs": PATIENCE_MS}
    began = time.monotonic()
    expected = rf"(?s)coordinator at {firewall.behind[0]}:{firewall.port} does not respond.*rackBinding=executor"
    with pytest.raises(Exception, match=expected):
        rows(spark, rack_cluster, topic, options)
    # Each task has been patient, and nothing was read without the coordinator.
    assert time.monotonic() - began > int(PATIENCE_MS) / 1000
    assert held.stats().local + held.stats().stolen + held.stats().unknown == 0
