"""Which partitions of a real cluster may exist although a broker does not describe them."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from rackassign.admin.describe import DescribedTopic
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.reassignment import kafka_cluster
from rackassign.reassignment.kafka_cluster import ReassignmentCluster

KNOWN = DescribedTopic((Partition((1, 2), 1),))
UNKNOWN = DescribedTopic(problem="UnknownTopicOrPartitionError", unknown=True)


def test_a_partition_is_deleted_only_if_no_broker_that_responds_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    described: dict[int, dict[str, DescribedTopic]] = {
        1: {"lagging": UNKNOWN, "deleted": UNKNOWN, "short": KNOWN, "failing": UNKNOWN},
        2: {"lagging": KNOWN, "deleted": UNKNOWN, "short": KNOWN, "failing": DescribedTopic(problem="UnknownError")},
    }

    def describe(_: object, broker: int, names: list[str]) -> dict[str, DescribedTopic]:
        if broker not in described:
            raise KafkaConnectionError
        return {name: described[broker][name] for name in names}

    brokers = (*(Broker(number, "a") for number in (1, 2, 3)), Broker(4, "a", fenced=True))
    monkeypatch.setattr(kafka_cluster, "list_brokers", lambda _: brokers)
    monkeypatch.setattr(kafka_cluster, "describe_topics_on", describe)
    admin: Any = None
    tps = [TopicPartition(topic, 0) for topic in ("lagging", "deleted", "failing")] + [TopicPartition("short", 1)]
    assert ReassignmentCluster(admin).not_deleted(tps) == {
        TopicPartition("lagging", 0): "not all brokers report it: their metadata differs",
        TopicPartition("failing", 0): "UnknownError",
    }
    assert ReassignmentCluster(admin).not_deleted([]) == {}
