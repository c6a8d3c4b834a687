"""Who stays with librdkafka's own assignors sees from its statistics how local they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from rackassign.clients.confluent import StatsMeter, broker_racks
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic

pytestmark = [pytest.mark.brokers, pytest.mark.local]

PARTITIONS, RECORDS, SIZE, KEY = 3, 500, 1000, b"0123456789"
EACH = RECORDS * (SIZE + len(KEY))
"""Bytes of keys and values in a partition."""


def fill(cluster: Cluster, topic: str, compression: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": compression, "linger.ms": 20})
    for number in range(RECORDS * PARTITIONS):
        headers = {"h": b"not counted"}
        producer.produce(topic, bytes(SIZE), KEY, number % PARTITIONS, headers=headers)  # type: ignore[arg-type]
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize(
    ("replicas", "sources"),
    [
        pytest.param([[1], [2], [3]], {"a": 1, "b": 1, "c": 1}, id="RF 1: where the leaders are"),
        pytest.param([[1, 2], [2, 3], [3, 1]], {"a": 2, "b": 1}, id="RF 2: a follower at home is read"),
        pytest.param([[1, 2, 3], [2, 3, 1], [3, 1, 2]], {"a": 3}, id="RF 3: all at home"),
    ],
)
def test_what_is_counted_is_what_was_read_from_where(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    replicas: list[list[int]],
    sources: dict[str, int],
    compression: str,
) -> None:
    topic = make_topic(replicas=replicas)
    fill(rack_cluster, topic, compression)
    conf: dict[str, Any] = {"bootstrap.servers": rack_cluster.bootstrap}
    racks = broker_racks(conf)
    assert racks == broker_racks(AdminClient(conf)) == {broker.id: broker.rack for broker in rack_cluster.brokers}
    meter = StatsMeter("a", racks)
    consumer = Consumer(
        {
            **conf,
            "group.id": unique_name(),
            "client.rack": "a",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 100,
            "stats_cb": meter,
        }
    )
    try:
        consumer.subscribe([topic])
        seen: list[object] = []

        def all_read() -> bool:
            seen.extend(consumer.consume(1000, 0.1))
            counted = sum(amount.records for amount in meter.locality().by_rack().values())
            # Counted is what librdkafka has fetched, which may be more than what it has handed out.
            return counted == RECORDS * PARTITIONS <= len(seen)

        wait_until(all_read, "all records are read and counted")
    finally:
        consumer.close()
    assert len(seen) == RECORDS * PARTITIONS
    assert meter.bytes_by_rack() == {rack: count * EACH for rack, count in sources.items()}
    assert meter.locality().local_share(topic) == sources["a"] / PARTITIONS
    received = meter.received_by_rack()
    for rack, count in sources.items():
        # Without compression a little more than the records; with it much less. What is read at home the first time
        # may be asked for where it leads.
        assert (received[rack] > count * EACH) is (compression == "none")
