"""What Java's FetchFromFollowerIntegrationTest.testRackAwareRangeAssignor shows, with members of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from rackassign import RackAwareConsumer, RackAwareRangeAssignor
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.harness import KafkaPythonMember, settle, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import CONSUMER

pytestmark = pytest.mark.brokers

PARTITIONS = 2


def test_partitions_follow_the_racks_of_the_topics_subscribed_to(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    group = unique_name()
    single = make_topic(replicas=[[2], [1]])
    everywhere = make_topic(replicas=[[1, 2], [2, 1]])
    with ExitStack() as opened:
        admin = opened.enter_context(closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)))
        producer = opened.enter_context(closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)))

        def make(i: int, rack: str) -> RackAwareConsumer:
            return RackAwareConsumer(
                single,
                **rack_cluster.client_config(),
                group_id=group,
                group_instance_id=f"instance-{i}",
                client_rack=rack,
                partition_assignment_strategy=[RackAwareRangeAssignor],
                **CONSUMER,
            )

        members = [
            opened.enter_context(KafkaPythonMember(partial(make, i, rack), poll_ms=50))
            for i, rack in enumerate(("a", "b"))
        ]

        def expect(step: bytes, reads: Mapping[str, Callable[[int], int]]) -> None:
            """Wait until member i owns, and reads a record of, the given partition of each topic."""
            topics = dict.fromkeys(reads, PARTITIONS)
            for member in members:
                member.do(lambda consumer: consumer.subscribe(list(topics)))
            settled = settle(admin, group, members, topics)
            expected = [{TopicPartition(topic, partition(i)) for topic, partition in reads.items()} for i in range(2)]
            assert settled == expected
            for topic in topics:
                for partition in range(PARTITIONS):
                    producer.send(topic, step, partition=partition)
            producer.flush()

            def readers() -> list[set[TopicPartition]]:
                return [{read.tp for read in member.records.copy() if read.value == step} for member in members]

            def all_read() -> bool:
                for member in members:
                    member.poll()
                return sum(map(len, readers())) >= len(topics) * PARTITIONS

            wait_until(all_read, f"the records of {step!r}")
            assert readers() == expected

        expect(b"each replica in the other's rack", {single: lambda i: 1 - i})
        expect(b"replicas in both racks", {everywhere: lambda i: i})
        expect(b"both, partitioned alike", {single: lambda i: 1 - i, everywhere: lambda i: 1 - i})
