"""Consumer groups of KIP-848 on brokers with the plug-in: any client, alone and mixed, and what changes meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

from rackassign import RackAwareConsumer, RackAwareRangeAssignor, broker_plugin
from rackassign.admin.groups import GroupAdmin
from rackassign.clients.aiokafka import RackAwareConsumer as AiokafkaConsumer
from rackassign.clients.aiokafka import RackAwareRangeAssignor as AiokafkaRangeAssignor
from rackassign.clients.confluent import StatsMeter, broker_racks
from rackassign.model import TopicPartition
from rackassign.monitoring import Finding, examine
from rackassign.monitoring.prometheus import ConsumerMetrics
from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import AiokafkaMember, ConfluentMember, KafkaPythonMember, wait_until
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic
from tests.helpers.exposition import of, scraped
from tests.helpers.java.group_member import JavaMember, java_command
from tests.helpers.kafka.command import rackassign
from tests.helpers.kafka.consumers import CONSUMER

if TYPE_CHECKING:
    from typing_extensions import Self

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.broker_plugins]

RACKS = "abc"
PARTITIONS = 12
ONE_REPLICA = [[1 + number % 3] for number in range(PARTITIONS)]
OLDEST, OLDER = "4.1", ("4.2", "4.3")
LOCAL = {rack: {number for number in range(PARTITIONS) if number % 3 == at} for at, rack in enumerate(RACKS)}

UNIFORM = {"group.remote.assignor": "uniform"}

Member = ConfluentMember | KafkaPythonMember | AiokafkaMember | JavaMember
NOTHING: Mapping[str, Any] = {}
Owned: TypeAlias = dict[str, set[int]]
T = TypeVar("T")


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(replicas=ONE_REPLICA)


class Group:
    """A group by the name of its members, each of which has the rack of its first letter."""

    def __init__(self, cluster: Cluster, name: str, topic: str, opened: ExitStack) -> None:
        # `topic`: what members subscribe to, unless they say otherwise.
        self._cluster = cluster
        self.name = name
        self._topic = topic
        self._opened = opened
        self._ends: dict[str, ExitStack] = {}
        self.members: dict[str, Member] = {}

    def confluent(self, name: str, *topics: str, more: Mapping[str, Any] = NOTHING) -> None:
        """Add a member; with topics it subscribes to these, and `more` are further properties of librdkafka."""
        self._add(name, ConfluentMember(partial(self._librdkafka, name, topics or (self._topic,), more), poll_ms=50))

    def java(self, name: str) -> None:
        self._add(name, JavaMember(java_command(), [self._topic], self._properties(name)))

    def kafka_python(self, name: str, make: Callable[..., KafkaConsumer] = RackAwareConsumer, **more: Any) -> None:
        """Add a classic member, which the coordinator takes into a group of the new protocol."""
        config = {**self.client_config(), **CONSUMER, "group_id": self.name, "client_rack": name[0], **more}
        self._add(name, KafkaPythonMember(lambda: make(self._topic, **config), poll_ms=50))

    def aiokafka(self, name: str, **more: Any) -> None:
        """Add a classic member of our consumer for aiokafka, which joins and reads on a thread of its own."""
        config = {**self.client_config(), **CONSUMER, "group_id": self.name, "client_rack": name[0], **more}
        self._add(name, AiokafkaMember(lambda: AiokafkaConsumer(self._topic, **config)))

    def _properties(self, name: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self._cluster.bootstrap,
            "group.id": self.name,
            "group.protocol": "consumer",
            "client.rack": name[0],
            "auto.offset.reset": "earliest",
            # What a pattern matches is looked up once in so many milliseconds.
            "metadata.max.age.ms": "1000",
        }

    def _librdkafka(self, name: str, topics: Sequence[str], more: Mapping[str, Any]) -> Consumer:
        consumer = Consumer({**self._properties(name), **more})
        consumer.subscribe(list(topics))
        return consumer

    def _add(self, name: str, member: Any) -> None:
        self._ends[name] = ExitStack()
        self._opened.callback(self._ends[name].close)
        self.members[name] = self._ends[name].enter_context(member)

    def client_config(self) -> dict[str, Any]:
        return self._cluster.client_config()

    def end(self, name: str) -> None:
        del self.members[name]
        self._ends.pop(name).close()

    def owned(self) -> dict[str, set[TopicPartition]]:
        """Return what each member has now."""
        for member in self.members.values():
            member.poll()
        return {name: set(member.assignment()) for name, member in self.members.items()}

    def settle(self, partitions: int = PARTITIONS) -> Owned:
        """Wait until every partition has one owner and loads are even, and return the numbers that members have."""

        def settled() -> bool:
            loads = [len(own) for own in self.owned().values()]
            return sum(loads) == partitions and max(loads) - min(loads) <= 1

        wait_until(settled, "an even group")
        owned = self.owned()
        assert len(set().union(*owned.values())) == partitions
        return {name: {tp.partition for tp in own} for name, own in owned.items()}

    def settle_locally(self) -> Owned:
        """Wait until that is so, and everything is read locally."""
        wait_until(lambda: local(self.settle()) == PARTITIONS, "all local")
        return self.settle()


@pytest.fixture
def group(rack_cluster: Cluster, topic: str, unique_name: Callable[[], str]) -> Iterator[Group]:
    with ExitStack() as opened:
        yield Group(rack_cluster, unique_name(), topic, opened)


def local(owned: Owned) -> int:
    return sum(len(own & LOCAL[name[0]]) for name, own in owned.items())


class GroupCalls:
    """What an admin client is asked about a group, and about replicas."""

    def __init__(self, group: Group) -> None:
        self._group = group.name
        self._admin = KafkaAdminClient(**group.client_config())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def epoch(self) -> int:
        described = GroupAdmin(self._admin).describe_consumer_group(self._group)
        assert described is not None
        return described.epoch

    def is_joining(self) -> bool:
        """Return whether this is a classic group that waits for its members to join."""
        described = GroupAdmin(self._admin).describe_classic_group(self._group)
        return described is not None and described.state == "PreparingRebalance"

    def coordinator(self) -> int:
        described = GroupAdmin(self._admin).describe_consumer_group(self._group)
        assert described is not None
        return described.coordinator

    def findings(self) -> tuple[Finding, ...]:
        """Return what the doctor finds."""
        return examine(self._admin, self._group, observe_s=10).findings

    def move(self, replicas: Mapping[KafkaPythonPartition, list[int]]) -> None:
        assert set(self._admin.alter_partition_reassignments(dict(replicas)).values()) == {None}


def restart_with(cluster: LocalCluster, broker: int, assignors: str) -> None:
    """Restart a broker with a list of assignors of its own."""
    cluster.stop(broker)
    properties = cluster._specs[broker].properties
    lines = [line for line in properties.read_text().splitlines() if not line.startswith(broker_plugin.PROPERTY)]
    properties.write_text("\n".join([*lines, f"{broker_plugin.PROPERTY}={assignors}\n"]))
    cluster.start(broker)
    cluster.wait_ready()


def moves(before: Owned, after: Owned) -> int:
    """Return how many partitions have another owner, of those whose owner is still there."""
    owner = {number: name for name, own in after.items() for number in own}
    return sum(owner[number] != name for name, own in before.items() if name in after for number in own)


@pytest.mark.parametrize(
    "kafka_version",
    [
        *(pytest.param(old, marks=pytest.mark.release) for old in (OLDEST, *OLDER)),
        None,
    ],
)
def test_members_of_two_clients_read_locally_and_few_partitions_move(group: Group) -> None:
    group.confluent("a")
    group.java("b")
    group.confluent("c")
    three = group.settle_locally()
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
    # Two members had six each, so that two of each have to go.
    assert moves(before, group.settle_locally()) == 4
    group.end("c")
    assert {len(own) for own in group.settle().values()} == {6}


@pytest.mark.long
def test_members_of_all_clients_share_a_group_and_a_stock_one_gets_what_is_left(group: Group) -> None:
    group.confluent("c")
    # Kafka 4.1 to 4.4 refuses a member of the new protocol for good while a classic group has its first rebalance.
    group.settle()
    # Classic members need a strategy in common, even if none of them is asked.
    group.kafka_python("a", partition_assignment_strategy=[RackAwareRangeAssignor(rack="a")])
    group.kafka_python("b", KafkaConsumer, partition_assignment_strategy=[RangePartitionAssignor])
    group.aiokafka("b2", partition_assignment_strategy=[AiokafkaRangeAssignor(rack="b")])
    owned = group.settle()
    # The member without rackassign reports no rack, so everything is as good for it.
    assert all(own <= LOCAL[name[0]] for name, own in owned.items() if name in {"a", "b2", "c"})


@pytest.mark.long
def test_a_member_of_aiokafka_is_joining_while_its_group_becomes_one_of_the_new_protocol(group: Group) -> None:
    group.kafka_python("a", partition_assignment_strategy=[RackAwareRangeAssignor(rack="a")])
    group.settle()
    # Its join waits for the first member, which is not polled. Then the broker answers it with REBALANCE_IN_PROGRESS.
    group.aiokafka("b", partition_assignment_strategy=[AiokafkaRangeAssignor(rack="b")])
    with GroupCalls(group) as calls:
        wait_until(calls.is_joining, "a join that waits")
        group.confluent("c")
        # librdkafka joins without being polled.
        wait_until(lambda: not calls.is_joining(), "a group of the new protocol")
    group.settle_locally()


@pytest.mark.long
def test_replicas_that_move_are_followed_with_the_fewest_moves_and_a_plan_for_each_change_at_most(
    group: Group, topic: str
) -> None:
    for rack in RACKS:
        group.confluent(rack)
    before = group.settle_locally()
    moved = {number: 1 + (number + 1) % 3 for number in range(6)}
    broker = {number: moved.get(number, replicas[0]) for number, replicas in enumerate(ONE_REPLICA)}
    with GroupCalls(group) as calls:
        epoch = calls.epoch()
        calls.move({KafkaPythonPartition(topic, number): [there] for number, there in moved.items()})

        def followed() -> bool:
            return all(1 + RACKS.index(name) == broker[n] for name, own in group.settle().items() for n in own)

        wait_until(followed, "all local again")
        assert moves(before, group.settle()) == 6
        # Each change of the racks of replicas is an epoch: one adds all new replicas, and each partition is done on its
        # own. How many of these the coordinator sees at once is a matter of time.
        assert calls.epoch() - epoch <= 1 + len(moved)


@pytest.mark.long
def test_different_subscriptions_and_patterns_are_assigned(group: Group, make_topic: MakeTopic) -> None:
    ours, other = make_topic(replicas=ONE_REPLICA), make_topic(replicas=ONE_REPLICA)
    group.confluent("a", ours, other)
    group.confluent("b", ours)
    group.confluent("c", f"^{other}$")
    wait_until(lambda: sum(map(len, group.owned().values())) == 2 * PARTITIONS, "an owner for everything")
    group.settle(2 * PARTITIONS)
    owned = group.owned()
    assert {tp.topic for tp in owned["b"]} <= {ours}
    assert {tp.topic for tp in owned["c"]} == {other}
    # Eight of each: no member gets less than its own four of each topic in its rack.
    assert LOCAL["b"] <= {tp.partition for tp in owned["b"]}
    assert LOCAL["c"] <= {tp.partition for tp in owned["c"]}


@pytest.mark.parametrize("kafka_version", [pytest.param(OLDEST, marks=pytest.mark.release), None])
def test_members_that_request_uniform_read_locally_too(group: Group) -> None:
    for rack in RACKS:
        group.confluent(rack, more=UNIFORM)
    group.settle_locally()
    group.confluent("a2")
    group.settle()
    group.end("a2")
    group.settle_locally()


@pytest.mark.release
@pytest.mark.parametrize("kafka_version", [pytest.param(OLDEST, marks=pytest.mark.release), None])
def test_a_coordinator_without_the_plug_in_continues_with_kafkas_uniform_and_the_doctor_names_it(
    make_cluster: MakeCluster, unique_name: Callable[[], str]
) -> None:
    cluster = make_cluster(list(RACKS), broker_plugins=True)
    assert isinstance(cluster, LocalCluster)
    create_topic(cluster.bootstrap, topic := unique_name(), ONE_REPLICA)
    with ExitStack() as opened:
        group = Group(cluster, unique_name(), topic, opened)
        for rack in RACKS:
            group.confluent(rack, more=UNIFORM)
        before = group.settle_locally()

        def ask(question: Callable[[GroupCalls], T]) -> T:
            with GroupCalls(group) as calls:
                return question(calls)

        # One broker has it, and two have yet to get it.
        first = ask(GroupCalls.coordinator)
        others = [broker.id for broker in cluster.brokers if broker.id != first]
        for broker in others:
            restart_with(cluster, broker, "uniform,range")
        cluster.stop(first)
        cluster.start(first)
        cluster.wait_ready()
        coordinator = ask(GroupCalls.coordinator)
        assert coordinator in others
        found = ask(GroupCalls.findings)
        assert [(each.kind, each.brokers) for each in found] == [
            ("server-assigned", (coordinator,)),
            ("broker-assignors", tuple(others)),
        ]
        assert group.settle() == before
        group.confluent("a2", more=UNIFORM)
        wait_until(lambda: {len(own) for own in group.settle().values()} == {3}, "four members")
        for broker in others:
            restart_with(cluster, broker, broker_plugin.ASSIGNORS)
        group.end("a2")
        group.settle_locally()
        assert ask(GroupCalls.findings) == ()


@pytest.mark.long
def test_the_doctor_and_an_inspection_know_such_a_group(group: Group, rack_cluster: Cluster) -> None:
    for rack in RACKS:
        group.confluent(rack, more={"group.remote.assignor": "range"})
    group.settle()
    asked = (rack_cluster.bootstrap, "--group", group.name, "--output", "json")
    found = json.loads(rackassign("doctor", *asked, code=1).stdout)
    assert [finding["kind"] for finding in found["findings"]] == ["other-assignor"]
    for rack in RACKS:
        group.end(rack)
    for rack in RACKS:
        group.confluent(rack, more=UNIFORM)
    group.settle_locally()
    found = json.loads(rackassign("doctor", *asked).stdout)
    assert found["findings"] == []
    (seen,) = json.loads(rackassign("inspect", *asked).stdout)["groups"]
    assert (seen["strategy"], seen["local_share"]) == ("rackassign", 1.0)
    assert seen["epoch"] == seen["assignment_epoch"] > 0
    assert {(member["rack"], member["protocol"], member["epoch"]) for member in seen["members"]} == {
        (rack, "consumer", seen["epoch"]) for rack in RACKS
    }
    assert [reach["strategy"] for reach in seen["strategies"]] == ["uniform", "range", "rackassign"]
    assert [reach["partitions"]["local"] for reach in seen["strategies"]][-1] == PARTITIONS
    assert seen["actions"] == []


@pytest.mark.long
def test_statistics_and_metrics_of_confluent_members_show_local_reads(
    group: Group, rack_cluster: Cluster, topic: str
) -> None:
    racks = broker_racks({"bootstrap.servers": rack_cluster.bootstrap})
    meters, metrics = {rack: StatsMeter(rack, racks) for rack in RACKS}, ConsumerMetrics()
    for rack, meter in meters.items():
        # librdkafka calls it in poll().
        group.confluent(rack, more={"stats_cb": meter, "statistics.interval.ms": 100})
        metrics.add(meter, group.name)
    group.settle_locally()
    with closing(KafkaProducer(**rack_cluster.client_config())) as producer:
        for number in range(PARTITIONS):
            producer.send(topic, bytes(1000), partition=number)

    def all_read() -> bool:
        group.owned()
        return sum(amount.records for m in meters.values() for amount in m.locality().by_rack().values()) == PARTITIONS

    wait_until(all_read, "everything is read")
    assert {rack: meter.locality().local_share() for rack, meter in meters.items()} == dict.fromkeys(RACKS, 1.0)
    found = scraped(metrics)
    assert len(found) == len(RACKS)
    for rack in RACKS:
        labels = {"group": group.name, "rack": rack, "from_rack": rack, "locality": "local"}
        assert of(found, "rackassign_read_bytes_total", **labels) == 4000


@pytest.mark.long
def test_a_member_that_comes_back_with_another_rack_is_told_by_the_doctor(group: Group) -> None:
    """KAFKA-20909: its rack changes, and no plan follows until the next change of the group."""
    for name in ("a", "b", "c"):
        group.confluent(name, more={"group.instance.id": name})
    group.settle_locally()
    # They change places, and each keeps what it has.
    for name, rack in (("a", "b"), ("b", "a")):
        group.end(name)
        group.confluent(name, more={"group.instance.id": name, "client.rack": rack})
    group.settle()
    with GroupCalls(group) as calls:
        # The coordinator learns a rack with the first heartbeat of its member.
        wait_until(lambda: [each.problem[:19] for each in calls.findings()] == ["8 partitions fewer "], "the finding")
        # What it advises helps: members join and leave.
        group.confluent("c2")
        group.settle()
        group.end("c2")
        group.settle()
        wait_until(lambda: not calls.findings(), "a healthy group")


@pytest.mark.long
def test_nothing_is_lost_when_the_coordinator_is_killed(group: Group, rack_cluster: Cluster, topic: str) -> None:
    for rack in RACKS:
        group.confluent(rack)
    before = group.settle_locally()
    # Its answers come as long as it exists.
    admin = AdminClient({"bootstrap.servers": rack_cluster.bootstrap})
    broker = admin.describe_consumer_groups([group.name])[group.name].result().coordinator.id
    rack_cluster.kill(broker)
    time.sleep(2)
    rack_cluster.start(broker)
    rack_cluster.wait_ready()
    group.confluent("b2")
    wait_until(lambda: {len(own) for own in group.settle().values()} == {3}, "four members")
    assert moves(before, group.settle()) == 3
    with closing(KafkaProducer(**rack_cluster.client_config())) as producer:
        for number in range(PARTITIONS):
            producer.send(topic, b"x", partition=number)
    read: set[TopicPartition] = set()

    def all_read() -> bool:
        for member in group.members.values():
            member.poll()
            assert isinstance(member, ConfluentMember)
            read.update(record.tp for record in member.records)
        return len(read) == PARTITIONS

    wait_until(all_read, "a record of each partition")
