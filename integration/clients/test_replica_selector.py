"""Whether local is local: with and without a rack-aware replica selector on the brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from rackassign import RackAwareRangeAssignor, attach
from rackassign.admin.describe import RACK_AWARE, replica_selectors
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic
from tests.helpers.kafka.consumers import CONSUMER, consumers

pytestmark = pytest.mark.brokers

RECORDS = 60


def fill(bootstrap: str, topic: str) -> None:
    """Write each record as a batch of its own, so that reading takes as many fetches."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, batch_size=0)
    with closing(producer):
        for _ in range(RECORDS):
            producer.send(topic, bytes(1500), partition=0).get()


def read_all(cluster: Cluster, topic: str, *, admin: bool) -> list[str]:
    """Read a topic in small fetches from rack b, and return what was warned of."""

    def make() -> KafkaConsumer:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=f"{topic}-group",
            client_rack="b",
            partition_assignment_strategy=[RackAwareRangeAssignor(rack="b")],
            max_partition_fetch_bytes=2000,
            **CONSUMER,
        )
        client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap) if admin else None
        try:
            return attach(consumer, admin=client)
        finally:
            if client is not None:
                client.close()

    told: list[str] = []

    class Listen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    listen = Listen(logging.WARNING)
    logging.getLogger("rackassign").addHandler(listen)
    try:
        with consumers(make) as (consumer,):
            left = RECORDS

            def read() -> bool:
                nonlocal left
                left -= sum(map(len, consumer.poll(timeout_ms=100).values()))
                return left == 0

            wait_until(read, "all records")
    finally:
        logging.getLogger("rackassign").removeHandler(listen)
    return told


@pytest.mark.parametrize("admin", [False, True])
def test_with_a_selector_nothing_is_said(rack_cluster: Cluster, make_topic: MakeTopic, *, admin: bool) -> None:
    topic = make_topic(replicas=[[1, 2]])
    fill(rack_cluster.bootstrap, topic)
    assert read_all(rack_cluster, topic, admin=admin) == []


@pytest.mark.long
def test_without_a_selector_it_is_said(make_cluster: MakeCluster, unique_name: Callable[[], str]) -> None:
    topic = unique_name()
    cluster = make_cluster(["a", "b"], config={"replica.selector.class": None})
    create_topic(cluster.bootstrap, topic, [[1, 2]])
    fill(cluster.bootstrap, topic)
    (told,) = read_all(cluster, topic, admin=False)
    assert "names no follower" in told
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        assert not any(replica_selectors(admin).values())
    finally:
        admin.close()


def test_brokers_tell_their_selector(rack_cluster: Cluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)
    try:
        assert replica_selectors(admin) == {1: RACK_AWARE, 2: RACK_AWARE, 3: RACK_AWARE}
    finally:
        admin.close()
