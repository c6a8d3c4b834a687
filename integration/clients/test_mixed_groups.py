"""One group of three clients: ours, librdkafka's and Java's, all under the name `range`, whoever leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from kafka import KafkaAdminClient, KafkaProducer

from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.java.group_member import RANGE, JavaMember, java_command
from tests.helpers.kafka.assignment_recorder import Ours, settle
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.waiting import wait_until

pytestmark = [pytest.mark.brokers, pytest.mark.java, pytest.mark.local]

OURS, LIBRDKAFKA, JAVA = "ours", "librdkafka", "java"
RACKS = {OURS: "a", LIBRDKAFKA: "b", JAVA: "c"}
ONE_RACK_EACH = [[1], [2], [3], [1], [2], [3]]
AT_HOME = {OURS: {0, 3}, LIBRDKAFKA: {1, 4}, JAVA: {2, 5}}

CONFIG = {
    "auto.offset.reset": CONSUMER["auto_offset_reset"],
    "enable.auto.commit": "false",
    "heartbeat.interval.ms": str(CONSUMER["heartbeat_interval_ms"]),
    "session.timeout.ms": str(CONSUMER["session_timeout_ms"]),
}


class Librdkafka:
    """A consumer of confluent-kafka as a member; counts what it reads."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        self._consumer = Consumer(config)
        self._consumer.subscribe([topic])
        self._read: Counter[TopicPartition] = Counter()

    @property
    def id(self) -> str:
        return self._consumer.memberid() or ""

    def poll(self) -> None:
        for message in self._consumer.consume(100, timeout=0.05):
            error, topic, partition = message.error(), message.topic(), message.partition()
            if error is not None and error.code() == KafkaError.NOT_COORDINATOR:
                # It looks for it again by itself: after tests that stop brokers coordinators move back.
                continue
            if error is not None:
                raise KafkaException(error)
            assert topic is not None
            assert partition is not None
            self._read[TopicPartition(topic, partition)] += 1

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(tp.topic, tp.partition) for tp in self._consumer.assignment())

    def records(self) -> Counter[TopicPartition]:
        return self._read

    def close(self) -> None:
        self._consumer.close()


class Fleet:
    """A group with at most one member of each client, each in its own rack."""

    def __init__(self, cluster: Cluster, group: str, topic: str, admin: KafkaAdminClient) -> None:
        self._bootstrap = cluster.bootstrap
        self._group = group
        self._topic = topic
        self._admin = admin
        self._java = java_command()
        self._members: dict[str, Ours | Librdkafka | JavaMember] = {}
        self._open: dict[str, ExitStack] = {}

    def join(self, client: str) -> None:
        opened = self._open[client] = ExitStack()
        if client == OURS:
            ours = Ours(self._bootstrap, self._group, [self._topic], RACKS[client])
            self._members[client] = opened.enter_context(closing(ours))
            return
        named = {"bootstrap.servers": self._bootstrap, "group.id": self._group, "client.rack": RACKS[client]}
        if client == LIBRDKAFKA:
            librdkafka = Librdkafka({**CONFIG, **named, "partition.assignment.strategy": "range"}, self._topic)
            self._members[client] = opened.enter_context(closing(librdkafka))
        else:
            config = {**CONFIG, **named, "partition.assignment.strategy": RANGE}
            self._members[client] = opened.enter_context(JavaMember(self._java, [self._topic], config))

    def leave(self, client: str) -> None:
        del self._members[client]
        self._open.pop(client).close()

    def settle(self) -> dict[str, set[int]]:
        """Wait until each has what the leader decided, and nothing is without an owner; return who has what."""
        settled = settle(self._admin, self._group, list(self._members.values()), {self._topic: len(ONE_RACK_EACH)})
        return {client: numbers(settled[member.id]) for client, member in self._members.items()}

    def decided_by_ours(self) -> list[dict[str, set[int]]]:
        """Return what our member decided each time it led; members that have left have no name any more."""
        ours = self._members[OURS]
        assert isinstance(ours, Ours)
        names = {member.id: client for client, member in self._members.items()}
        return [
            {names.get(member, member): numbers(owned) for member, owned in decided.items()}
            for decided in ours.assignor.decided
        ]

    def write(self, records: int) -> None:
        """Write so many records to each partition."""
        with closing(KafkaProducer(bootstrap_servers=self._bootstrap)) as producer:
            for _ in range(records):
                for partition in range(len(ONE_RACK_EACH)):
                    producer.send(self._topic, b"x", partition=partition)
            producer.flush()

    def read(self) -> dict[str, Counter[int]]:
        """Let all work for a moment; return how many records each has read of each partition."""
        for member in self._members.values():
            member.poll()
        return {
            client: Counter({place.partition: count for place, count in member.records().items()})
            for client, member in self._members.items()
        }

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for opened in self._open.values():
                all_of_them.push(opened)


def numbers(owned: frozenset[TopicPartition]) -> set[int]:
    return {place.partition for place in owned}


@pytest.fixture
def fleet(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Iterator[Fleet]:
    admin = KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)
    topic = make_topic(replicas=ONE_RACK_EACH)
    with closing(admin), closing(Fleet(rack_cluster, unique_name(), topic, admin)) as made:
        yield made


def form(fleet: Fleet, leader: str) -> None:
    """Let the leader join first, and all others when it leads."""
    fleet.join(leader)
    assert fleet.settle() == {leader: {0, 1, 2, 3, 4, 5}}
    for client in RACKS:
        if client != leader:
            fleet.join(client)


@pytest.mark.parametrize("leader", [LIBRDKAFKA, JAVA])
def test_ours_reads_at_home_under_another_client_and_then_leads_others_to_theirs(fleet: Fleet, leader: str) -> None:
    form(fleet, leader)
    assert fleet.settle() == AT_HOME
    assert fleet.decided_by_ours() == []

    fleet.leave(leader)
    for client, owned in fleet.settle().items():
        assert owned > AT_HOME[client]

    # Which of two is the next leader is the coordinator's choice; of one, there is none.
    last = next(client for client in RACKS if client not in {OURS, leader})
    fleet.leave(last)
    assert fleet.settle() == {OURS: {0, 1, 2, 3, 4, 5}}
    fleet.join(leader)
    fleet.join(last)
    assert fleet.settle() == AT_HOME
    assert fleet.decided_by_ours()[-1] == AT_HOME


def test_ours_leads_others_to_their_racks_and_comes_back_to_its_own_under_another(fleet: Fleet) -> None:
    form(fleet, OURS)
    assert fleet.settle() == AT_HOME
    assert fleet.decided_by_ours()[-1] == AT_HOME

    fleet.leave(OURS)
    for client, owned in fleet.settle().items():
        assert owned > AT_HOME[client]

    fleet.join(OURS)
    assert fleet.settle() == AT_HOME
    assert fleet.decided_by_ours() == []


def test_each_client_reads_what_it_owns(fleet: Fleet) -> None:
    form(fleet, OURS)
    assert fleet.settle() == AT_HOME
    fleet.write(3)
    wait_until(lambda: sum(sum(read.values()) for read in fleet.read().values()) >= 18, "every record read")
    assert fleet.read() == {client: dict.fromkeys(owned, 3) for client, owned in AT_HOME.items()}
