"""The simulated cluster (`tests/simulation`) answers as a broker does: the same requests to both, field by field."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from rackassign.clients.kafka_python.patches.patch import create_response_classes
from rackassign.placement.cluster_state import RATES, THROTTLED
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.wire import Subscription, encode_subscription
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.kafka_python import SimulatedSocket
from tests.simulation.reassigning import ReassigningCluster
from tests.simulation.transactions import TransactionalCluster
from tests.simulation.world import ClientProcess, World

pytestmark = [pytest.mark.brokers, pytest.mark.local]

# A broker decodes subscriptions too, and fails at others.
ONE, TWO = (encode_subscription(Subscription(("topic",), user_data=data)) for data in (b"one", b"two"))

UNKNOWN_MEMBER_ID = 25

STRANGER = "stranger"
"""Asks another broker than the coordinator."""

_CONNECTION = frozenset({"throttle_time_ms", "client_id", "client_host"})
"""Fields of what a connection is, and not of its group."""


class Wire(Protocol):
    """A connection to the coordinator of a group."""

    def send(self, request: Any) -> None: ...

    def receive(self) -> Any: ...


class BrokerWire:
    """A connection to a real broker."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._parser = KafkaProtocol(client_id="wire")

    def send(self, request: Any) -> None:
        self._parser.send_request(request)
        self._socket.sendall(self._parser.send_bytes())

    def receive(self) -> Any:
        while True:
            data = self._socket.recv(65536)
            assert data, "the broker closes the connection"
            for _, response in self._parser.receive_bytes(data):
                return response

    def close(self) -> None:
        self._socket.close()


class _Client(ClientProcess):
    """A client without an application."""

    def wake_loop(self) -> None:
        """Do nothing: what has arrived is read by the test."""


class _Unwatched:
    """Watches nothing: these requests are of no real member."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class SimulatedWire:
    """A connection to a simulated broker."""

    def __init__(self, cluster: SimulatedCluster, address: tuple[str, int], name: str) -> None:
        self._world = cluster.world
        link = cluster.connect(_Client(cluster.world, name), address)
        assert link is not None
        self._socket = link.socket = SimulatedSocket(link, address)
        self._parser = KafkaProtocol(client_id="wire")

    def send(self, request: Any) -> None:
        self._parser.send_request(request)
        self._socket.send(memoryview(self._parser.send_bytes()))

    def receive(self) -> Any:
        for _ in range(100):
            self._world.run(self._world.now + 0.01)
            if self._socket.readable:
                ((_, response),) = self._parser.receive_bytes(self._socket.recv(65536))
                return response
        raise AssertionError("the simulated broker does not answer")


class Dialogue:
    """Requests to a group, and what they were answered with; member IDs are numbered as they appear."""

    def __init__(self, group: str, topic: str, connect: Callable[[str], Wire]) -> None:
        self._group, self._topic = group, topic
        self._connect = connect
        self._wires: dict[str, Wire] = {}
        self._ids: dict[str, str] = {}
        self.answers: list[tuple[str, Any]] = []

    def ask(self, member: str, request: Any) -> Any:
        self.send(member, request)
        return self.receive(member, type(request).__name__)

    def send(self, member: str, request: Any) -> None:
        if member not in self._wires:
            self._wires[member] = self._connect(member)
        # Some time passes, so that requests of several members arrive in the order in which they are sent.
        self._wires[member].send(request)

    def receive(self, member: str, what: str) -> Any:
        response = self._wires[member].receive()
        self.answers.append((f"{member}: {what}", self._plain(response.to_dict(json=False))))
        return response

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            plain = {key: self._plain(each) for key, each in value.items() if key not in _CONNECTION}
            for key in ("member_id", "leader"):
                if plain.get(key):
                    plain[key] = self._ids.setdefault(plain[key], f"member {len(self._ids) + 1}")
            return plain
        if isinstance(value, list):
            plain_list = [self._plain(each) for each in value]
            # A coordinator lists members in any order.
            return sorted(plain_list, key=repr)
        return bytes(value) if isinstance(value, memoryview) else value

    def join(self, member_id: str, metadata: bytes = ONE, instance: str | None = None) -> Any:
        return JoinGroupRequest(
            version=7,
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[("first", metadata), ("second", metadata)],
        )

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes], instance: str | None = None) -> Any:
        return SyncGroupRequest(
            version=5,
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="first",
            assignments=list(assignments.items()),
        )

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> Any:
        return HeartbeatRequest(
            version=4,
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )

    def leave(self, member_id: str) -> Any:
        identity = LeaveGroupRequest.MemberIdentity(version=4, member_id=member_id, group_instance_id=None)
        return LeaveGroupRequest(version=4, group_id=self._group, members=[identity])

    def commit(
        self, member_id: str, generation: int, offset: int, instance: str | None = None, topic_name: str = ""
    ) -> Any:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(
            version=8, partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="m"
        )
        return OffsetCommitRequest(
            version=8,
            group_id=self._group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[topic(version=8, name=topic_name or self._topic, partitions=[partition])],
        )

    def committed(self, version: int = 8) -> Any:
        if version < 8:
            one = OffsetFetchRequest.OffsetFetchRequestTopic(
                version=version, name=self._topic, partition_indexes=[0, 1]
            )
            return OffsetFetchRequest(version=version, group_id=self._group, topics=[one])
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        topic = group.OffsetFetchRequestTopics(version=8, name=self._topic, partition_indexes=[0, 1])
        return OffsetFetchRequest(version=8, groups=[group(version=8, group_id=self._group, topics=[topic])])

    def describe(self) -> Any:
        return DescribeGroupsRequest(version=5, groups=[self._group])


def play(talk: Dialogue) -> None:
    """Take a group through its states, with two dynamic members and a static one."""
    a = with_one_member(talk)
    b = with_two_members(talk, a)
    with_a_static_member(talk, a, b)


def with_one_member(talk: Dialogue) -> str:
    a = talk.ask("a", talk.join("")).member_id
    talk.ask("a", talk.join("unknown"))
    talk.ask("a", talk.join(a))
    talk.ask("a", talk.beat(a, 1))
    talk.ask("a", talk.commit(a, 1, 5))
    talk.ask("a", talk.sync(a, 7, {}))
    talk.ask("a", talk.describe())
    talk.ask("a", talk.sync(a, 1, {a: b"all"}))
    talk.ask("a", talk.sync(a, 1, {}))
    talk.ask("a", talk.beat(a, 1))
    talk.ask("a", talk.beat("unknown", 1))
    talk.ask("a", talk.commit(a, 1, 6))
    talk.ask("a", talk.commit(a, 0, 7))
    talk.ask("a", talk.commit("unknown", 1, 7))
    talk.ask("a", talk.commit(a, 1, 7, topic_name="a-topic-that-was-deleted"))
    talk.ask("a", talk.commit("", -1, 7))
    talk.ask("a", talk.describe())
    talk.ask("a", talk.committed())
    for version in (3, 8):
        talk.ask(STRANGER, talk.committed(version))
    return str(a)


def with_two_members(talk: Dialogue, a: str) -> str:
    # Another one joins: the first is asked to, and may commit until it does.
    b = talk.ask("b", talk.join("")).member_id
    talk.send("b", talk.join(b))
    while talk.ask("a", talk.beat(a, 1)).error_code == 0:
        # The join has not arrived yet.
        talk.answers.pop()
    talk.ask("a", talk.commit(a, 1, 8))
    talk.ask("a", talk.describe())
    talk.ask("a", talk.sync(a, 1, {}))
    talk.ask("a", talk.join(a))
    talk.receive("b", "join")
    talk.send("b", talk.sync(b, 2, {}))
    talk.ask("a", talk.sync(a, 2, {a: b"half", b: b"other half"}))
    talk.receive("b", "sync")
    talk.ask("b", talk.beat(b, 1))
    talk.ask("b", talk.commit(b, 2, 9))
    # A follower that joins again with what it had gets the same; with something else, there is a rebalance.
    talk.ask("b", talk.join(b))
    talk.send("b", talk.join(b, TWO))
    while talk.ask("a", talk.beat(a, 2)).error_code == 0:
        talk.answers.pop()
    talk.ask("a", talk.join(a))
    talk.receive("b", "join")
    talk.ask("a", talk.sync(a, 3, {a: b"all"}))
    talk.ask("b", talk.sync(b, 3, {}))
    return str(b)


def with_a_static_member(talk: Dialogue, a: str, b: str) -> None:
    # A static member comes, and returns under another ID.
    talk.send("c", talk.join("", instance="static"))
    while talk.ask("a", talk.beat(a, 3)).error_code == 0:
        talk.answers.pop()
    talk.send("b", talk.join(b))
    talk.ask("a", talk.join(a))
    talk.receive("b", "join")
    c = talk.receive("c", "join").member_id
    talk.ask("a", talk.sync(a, 4, {c: b"static's"}))
    talk.ask("b", talk.sync(b, 4, {}))
    talk.ask("c", talk.sync(c, 4, {}, "static"))
    d = talk.ask("d", talk.join("", instance="static")).member_id
    talk.ask("d", talk.sync(d, 4, {}, "static"))
    talk.ask("d", talk.describe())
    talk.ask("c", talk.beat(c, 4, "static"))
    talk.ask("c", talk.commit(c, 4, 10, "static"))
    talk.ask("c", talk.join(c, instance="static"))
    talk.ask("d", talk.commit(d, 4, 11, "static"))
    # Members leave.
    talk.ask("b", talk.leave(b))
    talk.ask("b", talk.leave("unknown"))
    talk.ask("a", talk.beat(a, 4))
    talk.ask("a", talk.committed())


def test_a_simulated_group_answers_as_a_real_one(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    create_response_classes()
    topic, group = make_topic(2), unique_name()
    world = World(noise=False)
    simulated_cluster = SimulatedCluster(world, ["a", "b"], _Unwatched(), {topic: 2})

    def simulate(member: str) -> SimulatedWire:
        own = simulated_cluster.coordinator(group)
        others = (broker for broker in simulated_cluster.brokers.values() if broker is not own)
        broker = next(others) if member == STRANGER else own
        return SimulatedWire(simulated_cluster, broker.address, "client")

    simulated = Dialogue(group, topic, simulate)
    wires: list[BrokerWire] = []

    def connect(member: str) -> BrokerWire:
        own = _coordinator(rack_cluster, group)
        ports = (int(address.rsplit(":", 1)[1]) for address in rack_cluster.bootstrap.split(","))
        port = next(port for port in ports if port != own[1]) if member == STRANGER else own[1]
        wires.append(BrokerWire((own[0], port)))
        return wires[-1]

    real = Dialogue(group, topic, connect)

    play(simulated)
    try:
        play(real)
    finally:
        for wire in wires:
            wire.close()

    for ours, theirs in zip(simulated.answers, real.answers, strict=True):
        assert ours == theirs


class Transactions:
    """Requests of producers with one transactional ID, and answers to them; IDs of producers are their first one's."""

    def __init__(self, name: str, topic: str, wires: Mapping[str, Wire]) -> None:
        self._name, self._topic, self._wires = name, topic, wires
        self._first_id: int | None = None
        self.answers: list[tuple[str, Any]] = []

    def ask(self, where: str, request: Any) -> Any:
        """Ask a broker; again while a transaction that has ended gets its markers."""
        for _ in range(200):
            self._wires[where].send(request)
            response = self._wires[where].receive()
            plain = self._plain(response.to_dict(json=False))
            if not _PASSES.intersection(_codes(plain)):
                self.answers.append((type(request).__name__, plain))
                return response
            time.sleep(_LOOK_S)
        raise AssertionError("the transaction does not end")

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            plain = {key: self._plain(each) for key, each in value.items() if key not in _OF_BROKERS}
            if plain.get("producer_id", -1) >= 0:
                self._first_id = plain["producer_id"] if self._first_id is None else self._first_id
                plain["producer_id"] -= self._first_id
            return plain
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        return list(_values(bytes(value))) if isinstance(value, (bytes, memoryview)) else value

    def begin(self, producer_id: int = -1, epoch: int = -1) -> Any:
        return InitProducerIdRequest(
            version=4,
            transactional_id=self._name,
            transaction_timeout_ms=60_000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )

    def add(self, producer_id: int, epoch: int, *partitions: int) -> Any:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        return AddPartitionsToTxnRequest(
            version=3,
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic(version=3, name=self._topic, partitions=list(partitions))],
        )

    def add_offsets(self, producer_id: int, epoch: int) -> Any:
        identity = {"producer_id": producer_id, "producer_epoch": epoch}
        return AddOffsetsToTxnRequest(version=3, transactional_id=self._name, group_id=self._name, **identity)

    def end(self, producer_id: int, epoch: int, *, commit: bool) -> Any:
        identity = {"producer_id": producer_id, "producer_epoch": epoch}
        return EndTxnRequest(version=3, transactional_id=self._name, committed=commit, **identity)

    def offsets(self, producer_id: int, epoch: int, offset: int, member: str = "", generation: int = -1) -> Any:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition(
            version=3, partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="m"
        )
        return TxnOffsetCommitRequest(
            version=3,
            transactional_id=self._name,
            group_id=self._name,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
            topics=[topic(version=3, name=self._topic, partitions=[partition])],
        )

    def committed(self, *, stable: bool) -> Any:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        topic = group.OffsetFetchRequestTopics(version=8, name=self._topic, partition_indexes=[0])
        asked = [group(version=8, group_id=self._name, topics=[topic])]
        return OffsetFetchRequest(version=8, groups=asked, require_stable=stable)

    def write(self, producer_id: int, epoch: int, sequence: int, *values: bytes) -> Any:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=True,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            batch_size=1 << 16,
        )
        for offset, value in enumerate(values):
            builder.append(offset, int(time.time() * 1000), None, value, [])
        topic = ProduceRequest.TopicProduceData
        partition = topic.PartitionProduceData(version=9, index=0, records=bytes(builder.build()))
        return ProduceRequest(
            version=9,
            transactional_id=self._name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[topic(version=9, name=self._topic, partition_data=[partition])],
        )

    def end_offset(self, isolation_level: int) -> Any:
        topic = ListOffsetsRequest.ListOffsetsTopic
        partition = topic.ListOffsetsPartition(version=6, partition_index=0, current_leader_epoch=-1, timestamp=-1)
        asked = [topic(version=6, name=self._topic, partitions=[partition])]
        return ListOffsetsRequest(version=6, replica_id=-1, isolation_level=isolation_level, topics=asked)

    def read(self, offset: int, isolation_level: int) -> Any:
        topic = FetchRequest.FetchTopic
        partition = topic.FetchPartition(
            version=11,
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        return FetchRequest(
            version=11,
            replica_id=-1,
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=[topic(version=11, topic=self._topic, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )

    def look(self) -> None:
        """Read the log as a reader of everything and as one of committed records."""
        for isolation_level in (0, 1):
            self.ask("leader", self.end_offset(isolation_level))
            self.ask("leader", self.read(0, isolation_level))


_LOOK_S = 0.02

_PASSES = frozenset({14, 51})
"""`COORDINATOR_LOAD_IN_PROGRESS`, and `CONCURRENT_TRANSACTIONS`."""

_OF_BROKERS = frozenset({"throttle_time_ms", "leader_epoch", "session_id", "log_append_time_ms"})
"""Fields that say nothing of transactions."""


def _codes(value: Any) -> set[int]:
    if isinstance(value, dict):
        found = {each for key, each in value.items() if key.endswith("error_code") and isinstance(each, int)}
        return found.union(*map(_codes, value.values()))
    return set().union(*map(_codes, value)) if isinstance(value, list) else set()


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offsets and values of records, also of those in a marker."""
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        yield from ((record.offset, bytes(record.value)) for record in batch)


def play_transactions(talk: Transactions) -> None:
    """Commit a transaction, have a second one aborted by another producer, and abort a third one."""
    i = talk.ask("coordinator", talk.begin()).producer_id
    talk.ask("coordinator", talk.add(i + 1000, 0, 0))
    talk.ask("coordinator", talk.add(i, 1, 0))
    talk.ask("coordinator", talk.end(i, 0, commit=True))
    talk.ask("leader", talk.write(i, 0, 0, b"in no transaction"))
    talk.ask("coordinator", talk.add(i, 0, 0))
    talk.ask("coordinator", talk.add(i, 0, 0))
    talk.ask("leader", talk.write(i, 0, 0, b"a", b"b"))
    talk.ask("leader", talk.write(i, 0, 0, b"a", b"b"))
    talk.ask("leader", talk.write(i, 0, 5, b"out of order"))
    talk.ask("leader", talk.write(i, 0, 2, b"c"))
    talk.look()
    talk.ask("group", talk.offsets(i, 0, 5))
    talk.ask("coordinator", talk.add_offsets(i, 0))
    talk.ask("group", talk.offsets(i, 0, 5))
    talk.ask("group", talk.offsets(i, 0, 6, "unknown", 1))
    talk.ask("group", talk.offsets(i, 1, 6))
    for stable in (False, True):
        talk.ask("group", talk.committed(stable=stable))
    talk.ask("coordinator", talk.end(i, 0, commit=True))
    talk.ask("coordinator", talk.end(i, 0, commit=True))
    talk.ask("coordinator", talk.end(i, 0, commit=False))
    # A producer that begins again is answered once all markers are written.
    talk.ask("coordinator", talk.begin())
    talk.ask("group", talk.committed(stable=True))
    talk.look()
    # The next one is open when another producer begins.
    talk.ask("coordinator", talk.add(i, 1, 0))
    talk.ask("leader", talk.write(i, 1, 1, b"out of order"))
    talk.ask("leader", talk.write(i, 1, 0, b"d"))
    talk.ask("coordinator", talk.add_offsets(i, 1))
    talk.ask("group", talk.offsets(i, 1, 7))
    talk.ask("coordinator", talk.begin())
    talk.ask("leader", talk.write(i, 1, 1, b"of the former producer"))
    talk.ask("coordinator", talk.add(i, 1, 0))
    talk.ask("coordinator", talk.add_offsets(i, 1))
    talk.ask("coordinator", talk.end(i, 1, commit=True))
    talk.ask("group", talk.offsets(i, 1, 8))
    talk.ask("group", talk.committed(stable=True))
    talk.look()
    # An epoch that is asked to be raised, and an abort.
    talk.ask("coordinator", talk.begin(i, 1))
    talk.ask("coordinator", talk.begin(i, 3))
    talk.ask("coordinator", talk.add(i, 4, 0))
    talk.ask("leader", talk.write(i, 4, 0, b"e", b"f"))
    talk.ask("coordinator", talk.end(i, 4, commit=False))
    talk.ask("coordinator", talk.end(i, 4, commit=False))
    talk.ask("coordinator", talk.end(i, 4, commit=True))
    talk.ask("coordinator", talk.begin())
    talk.look()


def test_simulated_transactions_are_answered_as_real_ones(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    create_response_classes()
    topic, name = make_topic(1), unique_name()
    world = World(noise=False)
    cluster = TransactionalCluster(world, ["a"], _Unwatched(), {topic: 1})
    (broker,) = cluster.brokers.values()
    simulated = Transactions(
        name, topic, {each: SimulatedWire(cluster, broker.address, each) for each in ("coordinator", "leader", "group")}
    )
    with closing(KafkaConsumer(bootstrap_servers=rack_cluster.bootstrap)) as consumer:
        addresses = {
            "coordinator": _coordinator(rack_cluster, name, 1),
            "group": _coordinator(rack_cluster, name),
            "leader": _leader(consumer, topic),
        }
    wires = {each: BrokerWire(address) for each, address in addresses.items()}
    real = Transactions(name, topic, wires)

    play_transactions(simulated)
    try:
        play_transactions(real)
    finally:
        for wire in wires.values():
            wire.close()

    for number, (ours, theirs) in enumerate(zip(simulated.answers, real.answers, strict=True)):
        assert (number, *ours) == (number, *theirs)


class Reassignments:
    """Requests about the replicas of a topic, and answers to them, without texts."""

    def __init__(self, topic: str, wire: Wire, settle: Callable[[], object]) -> None:
        self._topic, self._wire, self._settle = topic, wire, settle
        self.answers: list[tuple[str, Any]] = []

    def ask(self, request: Any) -> Any:
        self._wire.send(request)
        response = self._wire.receive()
        self.answers.append((type(request).__name__, self._plain(response.to_dict())))
        self._settle()
        return response

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            if "config_source" in value:
                return (value["name"], value["value"]) if value["value"] else None
            return {key: self._plain(each) for key, each in value.items() if key not in {*_CONNECTION, "error_message"}}
        if isinstance(value, list):
            return sorted(filter(None, map(self._plain, value)), key=repr)
        return value

    def alter(self, *rows: tuple[int, list[int] | None], topic: str = "") -> None:
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        partitions = [kind.ReassignablePartition(version=0, partition_index=i, replicas=row) for i, row in rows]
        topics = [kind(version=0, name=topic or self._topic, partitions=partitions)]
        self.ask(AlterPartitionReassignmentsRequest(version=0, timeout_ms=30_000, topics=topics))

    def look(self) -> Any:
        kind = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        topics = [kind(version=0, name=self._topic, partition_indexes=[0, 1])]
        return self.ask(ListPartitionReassignmentsRequest(version=0, timeout_ms=30_000, topics=topics))

    def elect(self, *partitions: int) -> None:
        topics = [(self._topic, list(partitions))]
        self.ask(ElectLeadersRequest(version=2, election_type=0, topic_partitions=topics, timeout_ms=30_000))

    def configure(self, value: str | None, *keys: str, kind: int, name: str) -> None:
        changes = [(key, 1 if value is None else 0, value) for key in keys]
        self.ask(IncrementalAlterConfigsRequest(version=1, resources=[(kind, name, changes)], validate_only=False))
        self.ask(DescribeConfigsRequest(version=4, resources=[(kind, name, list(keys))], include_synonyms=False))


def play_reassignments(talk: Reassignments, topic: str) -> None:
    """Reorder, add and remove replicas; throttle a copy, give it another target, and cancel it."""
    talk.alter((0, None), (1, [1, 2, 9]), (5, [1]))
    talk.alter((0, [1, 1]), (1, []))
    talk.alter((0, [1]), topic="unknown")
    talk.look()
    talk.elect(0, 5)
    talk.alter((0, [2, 1]))
    talk.look()
    talk.elect(0)
    talk.elect(0)
    talk.configure("0:1,0:2,0:3,1:1,1:2,1:3", *THROTTLED, kind=2, name=topic)
    talk.configure("1", *RATES, kind=4, name="")
    talk.configure("0:1", *THROTTLED, kind=2, name="unknown")
    talk.alter((1, [3, 1]))
    talk.look()
    talk.elect(1)
    talk.alter((1, [3, 1]))
    talk.look()
    talk.alter((1, None))
    talk.look()
    # What adds nothing leaves what was added before, for ever.
    talk.alter((1, [3, 2, 1]))
    talk.look()
    talk.alter((1, [1, 2]))
    talk.look()
    talk.configure(None, *RATES, kind=4, name="")
    talk.configure(None, *THROTTLED, kind=2, name=topic)
    talk.look()
    talk.alter((1, None))
    talk.look()
    talk.alter((1, [1]), (0, [3, 2, 1]))
    talk.look()


@pytest.mark.long
def test_simulated_reassignments_are_answered_as_real_ones(
    rack_cluster: Cluster, unique_name: Callable[[], str]
) -> None:
    create_response_classes()
    topic, lists, size = unique_name(), [[1, 2], [1, 2]], 8_000_000
    create_topic(rack_cluster.bootstrap, topic, lists)
    with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer:
        for number in range(size // 100_000):
            producer.send(topic, os.urandom(100_000), partition=1)
            if not number % 10:
                producer.flush()
        producer.flush()
    world = World(noise=False)
    cluster = ReassigningCluster(world, "abc", _Unwatched())
    cluster.create(topic, lists, size, {})
    simulated = Reassignments(
        topic, SimulatedWire(cluster, cluster.brokers[1].address, "client"), lambda: world.run(world.now + _SETTLED_S)
    )
    host, port = rack_cluster.bootstrap.split(",")[0].rsplit(":", 1)
    with closing(BrokerWire((host, int(port)))) as wire:
        real = Reassignments(topic, wire, lambda: time.sleep(_SETTLED_S))

        play_reassignments(simulated, topic)
        play_reassignments(real, topic)

    for number, (ours, theirs) in enumerate(zip(simulated.answers, real.answers, strict=True)):
        assert (number, *ours) == (number, *theirs)


_SETTLED_S = 2.0
"""Seconds until brokers have done what the controller has accepted."""


def _leader(consumer: KafkaConsumer, topic: str) -> tuple[str, int]:
    found: list[tuple[str, int]] = []

    def known() -> bool:
        consumer.partitions_for_topic(topic)
        brokers = {each.node_id: each for each in consumer._cluster.brokers()}
        leader = consumer._cluster.leader_for_partition(TopicPartition(topic, 0))
        if leader in brokers:
            found[:] = [(brokers[leader].host, brokers[leader].port)]
        return bool(found)

    wait_until(known, "a leader")
    return found[0]


def _coordinator(cluster: Cluster, group: str, kind: int = 0) -> tuple[str, int]:
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    found: list[tuple[str, int]] = []

    def ready() -> bool:
        asked = BrokerWire((host, int(port)))
        try:
            asked.send(FindCoordinatorRequest(version=4, key_type=kind, coordinator_keys=[group]))
            (coordinator,) = asked.receive().coordinators
        finally:
            asked.close()
        if coordinator.error_code:
            return False
        found[:] = [(coordinator.host, coordinator.port)]
        if kind:
            return True
        wire = BrokerWire(found[0])
        try:
            # It may still load its groups.
            wire.send(HeartbeatRequest(version=4, group_id=group, generation_id=1, member_id="unknown"))
            return bool(wire.receive().error_code == UNKNOWN_MEMBER_ID)
        finally:
            wire.close()

    wait_until(ready, "a coordinator")
    return found[0]
