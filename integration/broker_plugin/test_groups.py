"""Consumer groups of KIP-848 on brokers with the plug-in: any client, alone and mixed, and what changes meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from rackassign import RackAwareConsumer
from rackassign.model import TopicPartition
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import ConfluentMember, KafkaPythonMember, wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.java.group_member import JavaMember, java_command
from tests.helpers.kafka.consumers import CONSUMER

pytestmark = [pytest.mark.brokers, pytest.mark.local]

RACKS = "abc"
PARTITIONS = 12
ONE_REPLICA = [[1 + number % 3] for number in range(PARTITIONS)]
LOCAL = {rack: {number for number in range(PARTITIONS) if number % 3 == at} for at, rack in enumerate(RACKS)}

Member = ConfluentMember | KafkaPythonMember | JavaMember


@pytest.fixture
def plugged(make_cluster: MakeCluster, kafka_version: str | None) -> Cluster:
    """Three brokers in three racks that have the plug-in."""
    del kafka_version
    cluster = make_cluster(list(RACKS), broker_plugins=True)
    create_topic(cluster.bootstrap, "t", ONE_REPLICA)
    return cluster


class Group:
    """A group by the name of its members, each of which has the rack of its first letter.

    Args:
        cluster: The brokers.
        opened: Closes members at the end.
    """

    def __init__(self, cluster: Cluster, opened: ExitStack) -> None:
        self._cluster = cluster
        self._opened = opened
        self._ends: dict[str, ExitStack] = {}
        self.members: dict[str, Member] = {}

    def confluent(self, name: str, **more: str) -> None:
        self._add(name, ConfluentMember(partial(self._librdkafka, name, more), poll_ms=50))

    def java(self, name: str) -> None:
        self._add(name, JavaMember(java_command(), ["t"], self._properties(name)))

    def kafka_python(self, name: str) -> None:
        """Add a classic member of ours, which the coordinator takes into a group of the new protocol."""
        config = {**self._cluster.client_config(), **CONSUMER, "group_id": "g", "client_rack": name[0]}
        self._add(name, KafkaPythonMember(lambda: RackAwareConsumer("t", **config), poll_ms=50))

    def _properties(self, name: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self._cluster.bootstrap,
            "group.id": "g",
            "group.protocol": "consumer",
            "client.rack": name[0],
            "auto.offset.reset": "earliest",
        }

    def _librdkafka(self, name: str, more: Mapping[str, str]) -> Consumer:
        consumer = Consumer({**self._properties(name), **more})
        consumer.subscribe(["t"])
        return consumer

    def _add(self, name: str, member: Any) -> None:
        self._ends[name] = ExitStack()
        self._opened.callback(self._ends[name].close)
        self.members[name] = self._ends[name].enter_context(member)

    def end(self, name: str) -> None:
        del self.members[name]
        self._ends.pop(name).close()

    def owned(self) -> dict[str, set[int]]:
        """Return what each member has now."""
        owned = {}
        for name, member in self.members.items():
            member.poll()
            owned[name] = {tp.partition for tp in member.assignment()}
        return owned

    def settle(self) -> dict[str, set[int]]:
        """Wait until every partition has one owner, and loads are even."""

        def settled() -> bool:
            loads = [len(own) for own in self.owned().values()]
            return sum(loads) == PARTITIONS and max(loads) - min(loads) <= 1

        wait_until(settled, "an even group")
        owned = self.owned()
        assert set().union(*owned.values()) == set(range(PARTITIONS))
        return owned


@pytest.fixture
def group(plugged: Cluster) -> Iterator[Group]:
    with ExitStack() as opened:
        yield Group(plugged, opened)


def local(owned: Mapping[str, set[int]]) -> int:
    return sum(len(own & LOCAL[name[0]]) for name, own in owned.items())


def moves(before: Mapping[str, set[int]], after: Mapping[str, set[int]]) -> int:
    """Return how many partitions have another owner, of those whose owner is still there."""
    owner = {number: name for name, own in after.items() for number in own}
    return sum(owner[number] != name for name, own in before.items() if name in after for number in own)


@pytest.mark.kafka_version("4.1", "4.4")
def test_members_of_two_clients_read_locally_and_few_partitions_move(group: Group) -> None:
    group.confluent("a")
    group.java("b")
    group.confluent("c")
    wait_until(lambda: local(group.settle()) == PARTITIONS, "all local")
    three = group.settle()
    group.confluent("a2")
    four = group.settle()
    assert {len(own) for own in four.values()} == {3}
    # What the fourth one gets is all that moves, and it is local but for what its rack does not have.
    assert moves(three, four) == 3
    group.end("a2")
    assert moves(four, after := group.settle()) == 0
    assert local(after) == PARTITIONS


def test_classic_members_of_ours_are_placed_with_their_rack(group: Group) -> None:
    group.kafka_python("a")
    group.kafka_python("b")
    before = group.settle()
    group.confluent("c")
    wait_until(lambda: local(group.settle()) == PARTITIONS, "all local")
    # Two members had six each, so that two of each have to go.
    assert moves(before, group.settle()) == 4
    group.end("c")
    assert {len(own) for own in group.settle().values()} == {6}


def test_nothing_is_lost_when_the_coordinator_is_killed(plugged: Cluster, group: Group) -> None:
    for rack in RACKS:
        group.confluent(rack)
    wait_until(lambda: local(group.settle()) == PARTITIONS, "all local")
    before = group.settle()
    # Its answers come as long as it exists.
    admin = AdminClient({"bootstrap.servers": plugged.bootstrap})
    broker = admin.describe_consumer_groups(["g"])["g"].result().coordinator.id
    plugged.kill(broker)
    time.sleep(2)
    plugged.start(broker)
    plugged.wait_ready()
    group.confluent("b2")
    wait_until(lambda: {len(own) for own in group.settle().values()} == {3}, "four members")
    assert moves(before, group.settle()) == 3
    with closing(KafkaProducer(**plugged.client_config())) as producer:
        for number in range(PARTITIONS):
            producer.send("t", b"x", partition=number)
    read: set[TopicPartition] = set()

    def all_read() -> bool:
        for member in group.members.values():
            member.poll()
            assert isinstance(member, ConfluentMember)
            read.update(record.tp for record in member.records)
        return len(read) == PARTITIONS

    wait_until(all_read, "a record of each partition")
