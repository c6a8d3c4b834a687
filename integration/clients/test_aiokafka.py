"""The assignors inside aiokafka on real brokers: alone, beside kafka-python's members, and beside broken ones."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

import rackassign
from rackassign.clients.aiokafka import (
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
    attach,
)
from rackassign.clients.fetch_metrics import RackTraffic
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.demo import produce_records
from rackassign.testing.harness import TIMEOUT_S, AiokafkaMember, GroupHarness, Owned, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.scenarios import LASTING, MALFORMED_SUBSCRIPTIONS, MalformedMetadataAssignor
from tests.helpers.kafka.threaded_consumer import ThreadedConsumer

pytestmark = [pytest.mark.brokers, pytest.mark.local]

GUARD_S = 200.0
"""Below the age of metadata at which a consumer requests new ones by itself."""

Name = Callable[[], str]

ONE_RACK_EACH = [[1], [2], [3]] * 2
TWO_RACKS_EACH = [[1, 2], [2, 3], [3, 1]] * 2
LOCAL = {"a1": {0, 3}, "b1": {1, 4}, "c1": {2, 5}}
ALL = set(range(6))

RANGE = {"aio": RackAwareRangeAssignor, "python": rackassign.RackAwareRangeAssignor}
COOPERATIVE = {
    "aio": RackAwareCooperativeStickyAssignor,
    "python": rackassign.RackAwareCooperativeStickyAssignor,
}
STICKY = {"aio": RackAwareStickyAssignor, "python": rackassign.RackAwareStickyAssignor}


WATCHER = "rackassign.clients.aiokafka.watcher"


class AioMember(AiokafkaMember):
    """A member whose generation and leadership can be asked for."""

    @property
    def generation(self) -> int:
        return -1 if self.consumer is None else int(self.consumer._coordinator.generation)

    def leads(self) -> bool:
        """Tell whether the group's last generation was decided here."""
        return self.consumer is not None and self.consumer._coordinator._assignors[0]._history.last is not None

    def locality(self) -> RackTraffic:
        read: RackTraffic = self.consumer.locality()
        return read


class MixedGroup(GroupHarness[AioMember | ThreadedConsumer]):
    """A group of members by name, each in the rack that its name begins with, of one of two clients."""

    def __init__(self, cluster: Cluster, group: str, topic: str, partitions: int) -> None:
        super().__init__(cluster.client_config(), group, {topic: partitions})
        self.topic = topic
        self._partitions = partitions

    def config(self, **more: Any) -> dict[str, Any]:
        return {**self.client_config, "group_id": self.group, **CONSUMER, **more}

    def aio(self, name: str, *strategies: Any, make: Any = AIOKafkaConsumer, **more: Any) -> AioMember:
        config = self.config(client_rack=name[0], partition_assignment_strategy=strategies, **more)
        member = AioMember(lambda: make(self.topic, **config))
        self.add(name, member)
        return member

    def python(self, name: str, strategy: Any) -> ThreadedConsumer:
        config = self.config(client_rack=name[0], partition_assignment_strategy=[strategy])
        member = ThreadedConsumer(lambda: rackassign.RackAwareConsumer(self.topic, **config))
        self.add(name, member)
        return member

    def join(self, name: str, client: str, strategies: Mapping[str, Any]) -> None:
        strategy = strategies[client](rack=name[0])
        if client == "aio":
            self.aio(name, strategy)
        else:
            self.python(name, strategy)

    def ids(self) -> dict[str, set[int]]:
        """Wait until the group has settled; return which partitions each member has."""
        return {name: {tp.partition for tp in owned} for name, owned in self.settle().items()}

    def generation(self) -> int:
        return max(m.generation for m in self.members.values() if isinstance(m, AioMember))

    def all_read_once(self, records: int) -> None:
        """Write so many records to each partition, and see that each is read by one member, once."""
        before = self._read()
        produce_records(self.client_config, self.topic, self._partitions, records=records, size=500)
        wanted = records * self._partitions
        wait_until(lambda: sum((self._read() - before).values()) >= wanted, "every record read")
        assert set((self._read() - before).values()) == {1}

    def _read(self) -> Counter[tuple[TopicPartition, int]]:
        for member in self.members.values():
            member.poll()
        return Counter((r.tp, r.offset) for member in self.members.values() for r in member.records.copy())


@pytest.fixture
def make_group(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name) -> Iterator[Callable[..., MixedGroup]]:
    with ExitStack() as opened:

        def make(replicas: Sequence[Sequence[int]]) -> MixedGroup:
            topic = make_topic(replicas=replicas)
            return opened.enter_context(MixedGroup(rack_cluster, unique_name(), topic, len(replicas)))

        yield make


MakeGroup = Callable[[Sequence[Sequence[int]]], MixedGroup]


def attached(*topics: str, **config: Any) -> AIOKafkaConsumer:
    return attach(AIOKafkaConsumer(*topics, **config))


@pytest.mark.parametrize("kind", [RANGE, STICKY, COOPERATIVE], ids=["range", "sticky", "cooperative"])
def test_three_members_read_at_home_with_nothing_but_a_strategy(make_group: MakeGroup, kind: Mapping[str, Any]) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in LOCAL:
        group.aio(name, kind["aio"](rack=name[0]))
    assert group.ids() == LOCAL
    group.all_read_once(3)
    group.end("b1")
    rest = group.ids()
    assert rest["a1"] > LOCAL["a1"]
    assert rest["c1"] > LOCAL["c1"]


@pytest.mark.parametrize(("fetches_from", "warning"), [({}, "is not set"), ({"client_rack": "b"}, "is 'b'")])
def test_a_plain_consumer_that_fetches_from_another_rack_is_warned_about_once(
    make_group: MakeGroup, fetches_from: Mapping[str, str], warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = make_group(TWO_RACKS_EACH)
    config = group.config(partition_assignment_strategy=[RackAwareStickyAssignor(rack="a")], **fetches_from)
    group.add("a1", AioMember(lambda: AIOKafkaConsumer(group.topic, **config)))
    group.ids()
    # It joins again, and is not compared again.
    group.aio("b1", RackAwareStickyAssignor(rack="b"))
    group.ids()
    (warned,) = (each for each in caplog.messages if "the assignor's rack is" in each)
    assert f"'a' but client_rack {warning}" in warned


@pytest.mark.parametrize("make", [RackAwareConsumer, attached])
def test_every_byte_comes_from_the_own_rack_through_followers(make_group: MakeGroup, make: Any) -> None:
    group = make_group(TWO_RACKS_EACH)
    members = [group.aio(name, RackAwareStickyAssignor, make=make) for name in LOCAL]
    owned = group.ids()
    assert [len(ids) for ids in owned.values()] == [2, 2, 2]
    group.all_read_once(5)
    for name, member in zip(LOCAL, members, strict=True):
        read = member.locality()
        assert read.rack == name[0]
        assert read.cross() == read.unknown() == (0, 0)
        assert read.local().records == 10
        assert read.local_share() == 1


def with_an_assignor(*topics: str, **config: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(*topics, partition_assignment_strategy=[RackAwareStickyAssignor], **config)


@pytest.mark.parametrize("make", [RackAwareConsumer, attached, with_an_assignor, AIOKafkaConsumer])
def test_a_follower_that_is_back_is_read_from(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, make: Any
) -> None:
    topic, access = make_topic(replicas=[[2, 1]]), rack_cluster.client_config()

    async def read_after_the_follower_was_not_listed() -> None:
        config = {**access, **CONSUMER, "metadata_max_age_ms": 300_000, "group_id": unique_name()}
        consumer = make(topic, **config, client_rack="a")
        await consumer.start()
        try:
            await asyncio.to_thread(produce_records, access, topic, 1, records=1, size=10)
            await asyncio.wait_for(consumer.getone(), GUARD_S)
            # As if the metadata were from a time at which the broker was down.
            del consumer._client.cluster._brokers[1]
            await asyncio.to_thread(produce_records, access, topic, 1, records=1, size=10)
            if make is AIOKafkaConsumer:
                for _ in range(20):
                    assert not await consumer.getmany(timeout_ms=100)
                await consumer._client.force_metadata_update()
            await asyncio.wait_for(consumer.getone(), GUARD_S)
        finally:
            await consumer.stop()

    asyncio.run(read_after_the_follower_was_not_listed())


def test_a_class_is_made_an_instance_for_each_consumer(make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in LOCAL:
        monkeypatch.setenv("RACKASSIGN_RACK", name[0])
        group.aio(name, RackAwareRangeAssignor)
        group.ids()
    assert group.ids() == LOCAL
    assignors = [member.do(assignors_of)[0] for member in group.members.values() if isinstance(member, AioMember)]
    assert [assignor.rack for assignor in assignors] == ["a", "b", "c"]
    # What runs already can be attached too, and goes on as it was.
    late = group.members["c1"]
    assert isinstance(late, AioMember)
    late.do(attach_late)
    # The fetch that was under way is not counted, the next one is.
    group.all_read_once(2)
    group.all_read_once(2)
    assert late.locality().local_share() == 1
    assert group.ids() == LOCAL
    assert late.do(assignors_of) == (assignors[2],)


async def attach_late(consumer: AIOKafkaConsumer) -> None:
    assert attach(consumer) is consumer


async def assignors_of(consumer: AIOKafkaConsumer) -> Sequence[Any]:
    assignors: Sequence[Any] = consumer._coordinator._assignors
    return assignors


@pytest.mark.parametrize("leader", ["aio", "python"])
@pytest.mark.parametrize("kind", [RANGE, STICKY], ids=["range", "sticky"])
def test_a_mixed_group_reads_at_home_whichever_client_leads(
    make_group: MakeGroup, kind: Mapping[str, Any], leader: str
) -> None:
    group = make_group(ONE_RACK_EACH)
    other = "python" if leader == "aio" else "aio"
    group.join("a1", leader, kind)
    assert group.ids() == {"a1": ALL}
    group.join("b1", other, kind)
    group.ids()
    group.join("c1", "aio", kind)
    assert group.ids() == LOCAL
    group.all_read_once(3)
    # Now the other one leads, or both.
    group.end("a1")
    rest = group.ids()
    assert rest["b1"] > LOCAL["b1"]
    group.join("a1", leader, kind)
    assert group.ids() == LOCAL


@pytest.mark.parametrize(
    ("stock", "ours"),
    [(RangePartitionAssignor, RackAwareRangeAssignor), (StickyPartitionAssignor, RackAwareStickyAssignor)],
    ids=["range", "sticky"],
)
def test_a_group_of_aiokafka_is_moved_over_one_member_at_a_time(make_group: MakeGroup, stock: Any, ours: Any) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in LOCAL:
        group.aio(name, stock)
    group.ids()
    for name in LOCAL:
        group.end(name)
        group.ids()
        group.aio(name, ours(rack=name[0]))
        group.ids()
    assert group.ids() == LOCAL
    group.all_read_once(2)


@pytest.mark.long
def test_and_from_its_default_strategy_twice_one_member_at_a_time(make_group: MakeGroup) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in LOCAL:
        group.aio(name, RoundRobinPartitionAssignor)
    group.ids()
    for others in ([RoundRobinPartitionAssignor], []):
        for name in LOCAL:
            group.end(name)
            group.ids()
            group.aio(name, RackAwareStickyAssignor(rack=name[0]), *others)
            group.ids()
        assert group.ids() == LOCAL
    group.all_read_once(2)


def check_two_phases(group: MixedGroup, services: Mapping[str, ThreadedConsumer]) -> None:
    """Nothing is given to a cooperative member while another has it that has not been told to give it up."""
    rounds: dict[int, dict[str, Owned]] = {}
    for name, service in services.items():
        for generation, owned in service.given:
            rounds.setdefault(generation, {})[name] = owned
    held: dict[TopicPartition, str] = {}
    for _, given in sorted(rounds.items()):
        for name, owned in given.items():
            assert all(held.get(tp, name) == name for tp in owned), (group.topic, rounds)
        held = {tp: name for tp, name in held.items() if name not in given}
        held |= {tp: name for name, owned in given.items() for tp in owned}


def test_aiokafka_leads_cooperative_members_through_both_rounds(make_group: MakeGroup, late: Callable[[], int]) -> None:
    group = make_group(TWO_RACKS_EACH * 2)
    leader = group.aio("c1", RackAwareCooperativeStickyAssignor(rack="c"))
    group.ids()
    services = {}
    for name in ("a1", "b1", "a2"):
        services[name] = group.python(name, rackassign.RackAwareCooperativeStickyAssignor(rack=name[0]))
        before, late_before = group.generation(), late()
        owned = group.ids()
        assert leader.leads()
        # One more than two: aiokafka's member does not tell whether it was late itself.
        assert group.generation() - before <= 3 + late() - late_before
    assert sorted(map(len, owned.values())) == [3, 3, 3, 3]
    check_two_phases(group, services)
    kept = {name: services[name].assignment() for name in services}
    group.end("a2")
    after = group.ids()
    assert leader.leads()
    for name in ("a1", "b1"):
        assert {tp.partition for tp in kept[name]} <= after[name]
    group.all_read_once(2)


def test_aiokafka_follows_in_a_cooperative_group_and_takes_over(make_group: MakeGroup) -> None:
    group = make_group(ONE_RACK_EACH)
    group.join("a1", "python", COOPERATIVE)
    assert group.ids() == {"a1": ALL}
    group.join("b1", "aio", COOPERATIVE)
    group.ids()
    group.join("c1", "python", COOPERATIVE)
    assert group.ids() == LOCAL
    group.end("a1")
    group.ids()
    group.end("c1")
    assert group.ids() == {"b1": ALL}
    group.join("c1", "python", COOPERATIVE)
    group.join("a1", "python", COOPERATIVE)
    assert group.ids() == LOCAL
    group.all_read_once(3)


def broken(group: MixedGroup, data: bytes) -> ThreadedConsumer:
    config = group.config(partition_assignment_strategy=[MalformedMetadataAssignor(data)])
    return ThreadedConsumer(lambda: rackassign.attach(KafkaConsumer(group.topic, **config)))


def test_a_leader_goes_on_beside_broken_members(make_group: MakeGroup, caplog: pytest.LogCaptureFixture) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in LOCAL:
        group.aio(name, RackAwareRangeAssignor(rack=name[0]))
        group.ids()
    for data in MALFORMED_SUBSCRIPTIONS.values():
        before = group.generation()
        caplog.clear()
        with broken(group, data) as bad:

            def goes_on() -> bool:
                bad.poll()
                for member in group.members.values():
                    member.poll()
                state = bad.state
                return state.resting and state.generation > before and group.generation() == state.generation  # noqa: B023

            wait_until(goes_on, "a generation with the broken member in it")
            assert not bad.assignment()
            wait_until(lambda: numbers(group) == LOCAL, "the others at home")
        warned = [
            r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and "subscri" in r.getMessage()
        ]
        assert len(warned) == 1
        assert group.ids() == LOCAL


def numbers(group: MixedGroup) -> dict[str, set[int]]:
    return {name: {tp.partition for tp in member.assignment()} for name, member in group.members.items()}


def test_without_us_a_broken_member_ends_the_leader(make_group: MakeGroup) -> None:
    group = make_group(ONE_RACK_EACH)
    leader = group.aio("a1", RangePartitionAssignor)
    group.ids()
    with broken(group, MALFORMED_SUBSCRIPTIONS["no bytes at all"]) as bad:

        def failed() -> bool:
            bad.poll()
            return leader.failed

        wait_until(failed, "an error out of the leader's getmany()")
    # So that the group is left without it.
    assert isinstance(leader.take_error(), KafkaError)


@pytest.fixture
def asked(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Tell what rebalances the watch has asked for, in its own words."""
    caplog.set_level(logging.INFO, WATCHER)
    return lambda: [record.getMessage() for record in caplog.records if record.name == WATCHER]


@pytest.mark.long
def test_replicas_that_move_are_followed_with_one_rebalance_and_a_bounced_broker_with_none(
    rack_cluster: Cluster, make_group: MakeGroup, asked: Callable[[], list[str]]
) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in LOCAL:
        group.aio(name, RackAwareStickyAssignor(rack=name[0], rack_monitor=LASTING), metadata_max_age_ms=300)
    assert group.ids() == LOCAL
    generation = group.generation()
    moved = {0: [2], 1: [3], 2: [1], 3: [2], 4: [3], 5: [1]}
    changes = {KafkaPythonPartition(group.topic, p): ids for p, ids in moved.items()}
    assert set(group.admin.alter_partition_reassignments(changes).values()) == {None}
    wait_until(lambda: group.ids() == {"a1": {2, 5}, "b1": {0, 3}, "c1": {1, 4}}, "all local again")
    assert len(asked()) == 1
    assert "replica racks of 6 partitions have changed: a rebalance makes 6 local" in asked()[0]
    assert group.generation() == generation + 1

    settled, generation = group.ids(), group.generation()
    rack_cluster.stop(3)
    wait_until(lambda: all(3 not in listed(member) for member in group.members.values()), "a broker missed")
    rack_cluster.start(3)
    wait_until(lambda: all(3 in listed(member) for member in group.members.values()), "a broker back")
    group.all_read_once(2)
    assert numbers(group) == settled
    assert group.generation() == generation
    assert len(asked()) == 1


def listed(member: AioMember | ThreadedConsumer) -> set[int]:
    assert isinstance(member, AioMember)

    async def look(consumer: AIOKafkaConsumer) -> set[int]:
        return {broker.nodeId for broker in consumer._client.cluster.brokers()}

    return member.do(look)


def test_one_that_is_dropped_leaves_its_group_without_a_commit(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()
    produce_records(rack_cluster.client_config(), topic, 6, records=10, size=10)
    # Not removed by the coordinator: that would take longer than any test does.
    patience = {"session_timeout_ms": 600_000, "max_poll_interval_ms": 600_000, "auto_commit_interval_ms": 600_000}
    config = {"bootstrap_servers": rack_cluster.bootstrap, "group_id": group, "auto_offset_reset": "earliest"}

    async def fail() -> None:
        consumer = RackAwareConsumer(topic, client_rack="a", **config, **patience)
        await consumer.start()
        async for _ in consumer:
            raise LookupError

    async def drop() -> None:
        # pytest would keep the traceback, and so the consumer.
        with suppress(LookupError):
            await fail()
        gc.collect()

    async def take_over() -> None:
        with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaConsumer"):
            await drop()
        async with RackAwareConsumer(topic, client_rack="b", **config) as other:
            while len(other.assignment()) < 6:
                await other.getmany(timeout_ms=100)
            assert not any([await other.committed(tp) for tp in other.assignment()])

    asyncio.run(asyncio.wait_for(take_over(), TIMEOUT_S))


@pytest.mark.parametrize(
    "strategy", [RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor]
)
def test_static_members_that_return_in_another_rack_request_a_plan(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, strategy: Any
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()
    config = {"bootstrap_servers": rack_cluster.bootstrap, "group_id": group, "session_timeout_ms": 600_000}

    def static(name: str, rack: str) -> AIOKafkaConsumer:
        more = {"group_instance_id": f"static-{name}", "partition_assignment_strategy": [strategy]}
        return RackAwareConsumer(topic, client_rack=rack, **config, **more)

    async def at_home(*members: AIOKafkaConsumer) -> None:
        while [{tp.partition for tp in member.assignment()} for member in members] != [*LOCAL.values()]:
            for member in members:
                await member.getmany(timeout_ms=50)

    async def exchange() -> None:
        # One of them leads, and returns, too.
        async with static("a", "a") as one, static("b", "b") as two, static("c", "c") as three:
            await at_home(one, two, three)
        async with static("a", "b") as one, static("b", "c") as two, static("c", "a") as three:
            await at_home(three, one, two)

    asyncio.run(asyncio.wait_for(exchange(), TIMEOUT_S))


def test_a_static_leader_that_has_returned_sees_new_partitions(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()
    config = {"bootstrap_servers": rack_cluster.bootstrap, "group_id": group, "metadata_max_age_ms": 500}

    def static(name: str, rack: str) -> AIOKafkaConsumer:
        return RackAwareConsumer(topic, client_rack=rack, group_instance_id=name, **config)

    async def owned(number: int, *members: AIOKafkaConsumer) -> None:
        while sum(len(member.assignment()) for member in members) != number:
            for member in members:
                await member.getmany(timeout_ms=50)

    async def added() -> None:
        leader = static("leads", "a")
        await leader.start()
        await owned(6, leader)
        async with static("follows", "b") as follower:
            await owned(6, leader, follower)
            await leader.stop()
            async with static("leads", "a") as returned:
                await owned(6, returned, follower)
                with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin:
                    admin.create_partitions({topic: {"count": 7, "assignments": [[1]]}})
                await owned(7, returned, follower)

    asyncio.run(asyncio.wait_for(added(), TIMEOUT_S))
