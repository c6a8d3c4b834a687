"""Received bytes of ranges that one consumer reads after each other, on real brokers."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from rackassign.model import TopicPartition
from rackassign.spark._fetch_size import ONE_BATCH
from rackassign.spark._range_reader import ReadOptions, consumer_properties, read
from rackassign.spark._splits import OffsetRange
from rackassign.spark._task_metrics import metered_properties, process_meter
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import create_coordinator, fill

pytestmark = [pytest.mark.brokers, pytest.mark.local]


def test_each_range_counts_its_own_broker_only(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(replicas=[[1], [2], [3]])
    fill(rack_cluster, topic, {0: 4, 1: 4, 2: 4})
    create_coordinator(rack_cluster, topic)
    told = consumer_properties({"bootstrap.servers": rack_cluster.bootstrap}, "a", ONE_BATCH)
    consumer = Consumer({**told, **metered_properties(process_meter())})
    meter = process_meter()
    received: list[set[int]] = []
    try:
        consumer.list_topics(topic, timeout=TIMEOUT_S)
        for partition in (0, 1, 2, 0):
            before = meter.settle(consumer)
            records = read(consumer, [OffsetRange(TopicPartition(topic, partition), 0, 4)], ReadOptions())
            # At the end of the log a fetch of half a second is in flight.
            assert sum(map(len, records)) == 4
            consumer.unassign()
            received.append(set(meter.settle(consumer) - before))
    finally:
        consumer.close()
    assert received == [{1}, {2}, {3}, {1}]
