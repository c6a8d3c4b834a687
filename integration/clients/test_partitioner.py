"""Producers that write to leaders in their rack, on real brokers, also after leaders have moved."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from rackassign import RackAwareProducer
from rackassign.admin.alter import ReassignmentAdmin
from rackassign.admin.describe import describe_topics
from rackassign.model import TopicPartition as OwnTopicPartition
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic

pytestmark = pytest.mark.brokers

RACK_OF = {1: "a", 2: "b", 3: "c"}


def ends(cluster: Cluster, topic: str, partitions: int) -> list[int]:
    with closing(KafkaConsumer(**cluster.client_config())) as consumer:
        found = consumer.end_offsets([TopicPartition(topic, number) for number in range(partitions)])
    return [found[TopicPartition(topic, number)] for number in range(partitions)]


def send(producer: KafkaProducer, topic: str, number: int, **more: Any) -> None:
    for result in [producer.send(topic, b"x" * 100, **more) for _ in range(number)]:
        result.get(600)


@pytest.mark.parametrize("rack", ["a", "b", "c"])
def test_records_without_a_key_are_written_in_the_rack(rack_cluster: Cluster, make_topic: MakeTopic, rack: str) -> None:
    topic = make_topic(6)
    with closing(RackAwareProducer(**rack_cluster.client_config(), client_rack=rack, batch_size=500)) as producer:
        send(producer, topic, 500)
        written = ends(rack_cluster, topic, 6)
        home = [number for number in range(6) if RACK_OF[number % 3 + 1] == rack]
        assert sum(written) == sum(written[number] for number in home) == 500
        # It does not stay with one of them.
        assert all(written[number] for number in home)
        send(producer, topic, 1, partition=(home[0] + 1) % 6)
    assert sum(ends(rack_cluster, topic, 6)[number] for number in home) == 500


@pytest.mark.long
@pytest.mark.local
def test_leaders_that_move_are_followed_and_nothing_is_lost(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(["a", "b", "c"])
    with (
        closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin,
        closing(
            RackAwareProducer(**cluster.client_config(), client_rack="a", acks="all", metadata_max_age_ms=500)
        ) as producer,
    ):
        create_topic(cluster.bootstrap, "t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        send(producer, "t", 100)
        assert ends(cluster, "t", 3) == [100, 0, 0]
        cluster.kill_rack("a")
        wait_until(lambda: 1 not in leaders(admin), "leaders in the other racks")
        send(producer, "t", 100)
        assert sum(ends(cluster, "t", 3)) == 200
        cluster.start_rack("a")

        def is_home() -> bool:
            # Refused until the broker's replica is in sync again.
            ReassignmentAdmin(admin).elect_preferred_leaders([OwnTopicPartition("t", 0)])
            before = ends(cluster, "t", 3)[0]
            send(producer, "t", 10)
            return ends(cluster, "t", 3)[0] - before == 10

        wait_until(is_home, "records at home again")


def leaders(admin: KafkaAdminClient) -> list[int | None]:
    return [row.leader for row in describe_topics(admin, ["t"])["t"].partitions]
