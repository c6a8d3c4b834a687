"""One group of three clients: ours, librdkafka's and Java's, all under the name `range`, whoever leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError
from kafka import KafkaProducer

from rackassign import RackAwareConsumer
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.harness import ConfluentMember, GroupHarness, KafkaPythonMember, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.java.group_member import RANGE, JavaMember, java_command
from tests.helpers.kafka.assignment_recorder import Recorder
from tests.helpers.kafka.consumers import CONSUMER, PROPERTIES

pytestmark = [pytest.mark.brokers, pytest.mark.java, pytest.mark.local]

OURS, LIBRDKAFKA, JAVA = "ours", "librdkafka", "java"
RACKS = {OURS: "a", LIBRDKAFKA: "b", JAVA: "c"}
ONE_RACK_EACH = [[1], [2], [3], [1], [2], [3]]
LOCAL = {OURS: {0, 3}, LIBRDKAFKA: {1, 4}, JAVA: {2, 5}}


def librdkafka(config: Mapping[str, str], topic: str) -> ConfluentMember:
    def make() -> Consumer:
        consumer = Consumer(dict(config))
        consumer.subscribe([topic])
        return consumer

    # It looks for the coordinator again by itself: after tests that stop brokers coordinators move back.
    return ConfluentMember(make, poll_ms=50, ignore=[KafkaError.NOT_COORDINATOR])


class MixedGroup(GroupHarness[KafkaPythonMember | ConfluentMember | JavaMember]):
    """A group with at most one member of each client, each in its own rack."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        super().__init__(cluster.client_config(), group, {topic: len(ONE_RACK_EACH)})
        self._bootstrap = cluster.bootstrap
        self._topic = topic
        self._java = java_command()

    def join(self, client: str) -> None:
        named = {"bootstrap.servers": self._bootstrap, "group.id": self.group, "client.rack": RACKS[client]}
        if client == OURS:
            self._recorder = Recorder(RACKS[client])
            self.add(client, KafkaPythonMember(partial(self._ours, self._recorder), poll_ms=50))
        elif client == LIBRDKAFKA:
            config = {**PROPERTIES, **named, "partition.assignment.strategy": "range"}
            self.add(client, librdkafka(config, self._topic))
        else:
            config = {**PROPERTIES, **named, "partition.assignment.strategy": RANGE}
            self.add(client, JavaMember(self._java, [self._topic], config))

    def _ours(self, recorder: Recorder) -> RackAwareConsumer:
        return RackAwareConsumer(
            self._topic,
            **self.client_config,
            group_id=self.group,
            client_rack=RACKS[OURS],
            partition_assignment_strategy=[recorder],
            **CONSUMER,
        )

    def ids(self) -> dict[str, set[int]]:
        """Wait until the group has settled; return which partitions each member has."""
        return {client: numbers(owned) for client, owned in self.settle().items()}

    def decided_by_ours(self) -> list[dict[str, set[int]]]:
        """Return what our member decided each time it led; members that have left have no name any more."""
        names = {member.id: client for client, member in self.members.items()}
        return [
            {names.get(member, member): numbers(owned) for member, owned in decided.items()}
            for decided in self._recorder.decided
        ]

    def write(self, records: int) -> None:
        """Write so many records to each partition."""
        with closing(KafkaProducer(**self.client_config)) as producer:
            for _ in range(records):
                for partition in range(len(ONE_RACK_EACH)):
                    producer.send(self._topic, b"x", partition=partition)
            producer.flush()

    def read(self) -> dict[str, Counter[int]]:
        """Return how many records each has read of each partition."""
        counted = {}
        for client, member in self.members.items():
            member.poll()
            if isinstance(member, JavaMember):
                counted[client] = Counter({tp.partition: count for tp, count in member.records().items()})
            else:
                counted[client] = Counter(record.tp.partition for record in member.records.copy())
        return counted


def numbers(owned: frozenset[TopicPartition]) -> set[int]:
    return {tp.partition for tp in owned}


@pytest.fixture
def group(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Iterator[MixedGroup]:
    with MixedGroup(rack_cluster, unique_name(), make_topic(replicas=ONE_RACK_EACH)) as made:
        yield made


def form(group: MixedGroup, leader: str) -> None:
    """Let the leader join first, and all others when it leads."""
    group.join(leader)
    assert group.ids() == {leader: {0, 1, 2, 3, 4, 5}}
    for client in RACKS:
        if client != leader:
            group.join(client)


@pytest.mark.parametrize("leader", [pytest.param(LIBRDKAFKA, marks=pytest.mark.long), JAVA])
def test_ours_reads_at_home_under_another_client_and_then_leads_others_to_theirs(
    group: MixedGroup, leader: str
) -> None:
    form(group, leader)
    assert group.ids() == LOCAL
    assert group.decided_by_ours() == []

    group.end(leader)
    for client, owned in group.ids().items():
        assert owned > LOCAL[client]

    # Which of two is the next leader is the coordinator's choice; of one, there is none.
    last = next(client for client in RACKS if client not in {OURS, leader})
    group.end(last)
    assert group.ids() == {OURS: {0, 1, 2, 3, 4, 5}}
    group.join(leader)
    group.join(last)
    assert group.ids() == LOCAL
    assert group.decided_by_ours()[-1] == LOCAL


@pytest.mark.long
def test_ours_leads_others_to_their_racks_and_comes_back_to_its_own_under_another(group: MixedGroup) -> None:
    form(group, OURS)
    assert group.ids() == LOCAL
    assert group.decided_by_ours()[-1] == LOCAL

    group.end(OURS)
    for client, owned in group.ids().items():
        assert owned > LOCAL[client]

    group.join(OURS)
    assert group.ids() == LOCAL
    assert group.decided_by_ours() == []


@pytest.mark.long
def test_each_client_reads_what_it_owns(group: MixedGroup) -> None:
    form(group, OURS)
    assert group.ids() == LOCAL
    group.write(3)
    wait_until(lambda: sum(sum(read.values()) for read in group.read().values()) >= 18, "every record read")
    assert group.read() == {client: dict.fromkeys(owned, 3) for client, owned in LOCAL.items()}
