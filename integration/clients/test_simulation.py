"""The simulated cluster (`tests/simulation`) answers as a broker does: the same requests to both, field by field."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.parser import KafkaProtocol

from rackassign.clients.kafka_python.patches.patch import create_response_classes
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.wire import Subscription, encode_subscription
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.kafka_python import SimulatedSocket
from tests.simulation.world import ClientProcess, World

pytestmark = [pytest.mark.brokers, pytest.mark.local]

# A broker decodes subscriptions too, and fails at others.
ONE, TWO = (encode_subscription(Subscription(("topic",), user_data=data)) for data in (b"one", b"two"))

UNKNOWN_MEMBER_ID = 25

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

    def __init__(self, cluster: SimulatedCluster, group: str, name: str) -> None:
        self._world = cluster.world
        address = cluster.coordinator(group).address
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

    def __init__(self, group: str, topic: str, connect: Callable[[], Wire]) -> None:
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
            self._wires[member] = self._connect()
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

    def commit(self, member_id: str, generation: int, offset: int, instance: str | None = None) -> Any:
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
            topics=[topic(version=8, name=self._topic, partitions=[partition])],
        )

    def committed(self) -> Any:
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
    talk.ask("a", talk.commit("", -1, 7))
    talk.ask("a", talk.describe())
    talk.ask("a", talk.committed())
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
    simulated_cluster = SimulatedCluster(world, ["a"], _Unwatched(), {topic: 2})
    simulated = Dialogue(group, topic, lambda: SimulatedWire(simulated_cluster, group, "client"))
    wires: list[BrokerWire] = []

    def connect() -> BrokerWire:
        wires.append(BrokerWire(_coordinator(rack_cluster, group)))
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


def _coordinator(cluster: Cluster, group: str) -> tuple[str, int]:
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    found: list[tuple[str, int]] = []

    def ready() -> bool:
        asked = BrokerWire((host, int(port)))
        try:
            asked.send(FindCoordinatorRequest(version=4, key_type=0, coordinator_keys=[group]))
            (coordinator,) = asked.receive().coordinators
        finally:
            asked.close()
        if coordinator.error_code:
            return False
        found[:] = [(coordinator.host, coordinator.port)]
        wire = BrokerWire(found[0])
        try:
            # It may still load its groups.
            wire.send(HeartbeatRequest(version=4, group_id=group, generation_id=1, member_id="unknown"))
            return bool(wire.receive().error_code == UNKNOWN_MEMBER_ID)
        finally:
            wire.close()

    wait_until(ready, "a coordinator")
    return found[0]
