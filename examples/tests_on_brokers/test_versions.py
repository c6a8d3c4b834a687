"""An old and the newest Kafka."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from app import Counting
from kafka import KafkaProducer

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until


@pytest.mark.kafka_version("3.9", "4.4")
def test_records_are_counted(
    rack_cluster: Cluster, make_topic: Callable[..., str], unique_name: Callable[[], str]
) -> None:
    topic, access = make_topic(partitions=3), dict[str, Any](rack_cluster.client_config())
    with closing(KafkaProducer(**access, acks="all")) as producer:
        for partition in range(3):
            producer.send(topic, b"x", partition=partition).get()
    with closing(Counting(topic, "a", group_id=unique_name(), **access)) as member:
        wait_until(lambda: member.step() == 3, "all records counted")
