"""Partitions that are added to the input while a group with state runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.strategies.standby import StandbyOptions
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic

pytestmark = [pytest.mark.brokers, pytest.mark.local]

TIMEOUT_S = 600.0


def count(_: Any, store: StateStore) -> None:
    store.put(b"n", b"%d" % (int(store.get(b"n") or 0) + 1))


def test_the_changelog_grows_with_the_input_and_nothing_stops_meanwhile(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, group = make_topic(replicas=[[1, 2], [2, 3]]), unique_name()
    bootstrap = rack_cluster.bootstrap

    def write(partitions: int) -> None:
        with closing(KafkaProducer(bootstrap_servers=bootstrap, metadata_max_age_ms=500)) as producer:
            # The broker that it asks may not know a new one yet, and the client then raises at once.
            wait_until(lambda: len(producer.partitions_for(topic)) >= partitions, "the partitions", timeout_s=TIMEOUT_S)
            for number in range(10 * partitions):
                producer.send(topic, b"%d" % number, partition=number % partitions)

    def begun() -> StatefulConsumer:
        return StatefulConsumer(
            topic,
            process=count,
            state_dir=tmp_path,
            standbys=StandbyOptions(0),
            bootstrap_servers=bootstrap,
            group_id=group,
            metadata_max_age_ms=1000,
        )

    def counted(member: StatefulConsumer, *expected: int) -> None:
        def so() -> bool:
            member.poll(100)
            active = sorted(member.active_partitions())
            found = [int(member.store(tp).get(b"n") or 0) for tp in active]
            return (active, found) == ([TopicPartition(topic, p) for p in range(len(expected))], list(expected))

        wait_until(so, f"counts of {expected}", timeout_s=TIMEOUT_S)

    write(2)
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        with begun() as member:
            counted(member, 10, 10)
            admin.create_partitions({topic: 3})
            wait_until(lambda: len(described(admin, topic)) == 3, "the new partition", timeout_s=TIMEOUT_S)
            write(3)
            counted(member, 20, 20, 10)
        replicas = [len(each["replica_nodes"]) for each in described(admin, f"{group}-{topic}-changelog")]
        assert replicas == [2, 2, 2]
        # While no member runs.
        admin.create_partitions({topic: 4})
        wait_until(lambda: len(described(admin, topic)) == 4, "another new partition", timeout_s=TIMEOUT_S)
    write(4)
    with begun() as member:
        counted(member, 30, 30, 20, 10)


def described(admin: KafkaAdminClient, topic: str) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = admin.describe_topics([topic])[0]["partitions"]
    return partitions
