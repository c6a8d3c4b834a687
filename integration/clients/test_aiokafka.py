"""The assignors inside aiokafka on real brokers: alone, beside kafka-python's members, and beside broken ones."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as HostPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange

import rackassign
from rackassign.clients.aiokafka import (
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
    RackChangePolicy,
    attach,
)
from rackassign.clients.common.fetch_metrics import FetchLocality
from rackassign.clients.kafka_python.measured_read import produce_records
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.wire import Subscription, encode_subscription
from tests.helpers.kafka.assignment_recorder import Owned, settle
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.threaded_consumer import ThreadedConsumer
from tests.helpers.kafka.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

pytestmark = [pytest.mark.brokers, pytest.mark.local]

T = TypeVar("T")
Name = Callable[[], str]

ONE_RACK_EACH = [[1], [2], [3]] * 2
TWO_RACKS_EACH = [[1, 2], [2, 3], [3, 1]] * 2
AT_HOME = {"a1": {0, 3}, "b1": {1, 4}, "c1": {2, 5}}
ALL = set(range(6))

RANGE = {"aio": RackAwareRangeAssignor, "python": rackassign.RackAwareRangeAssignor}
COOPERATIVE = {
    "aio": RackAwareCooperativeStickyAssignor,
    "python": rackassign.RackAwareCooperativeStickyAssignor,
}
STICKY = {"aio": RackAwareStickyAssignor, "python": rackassign.RackAwareStickyAssignor}

SOON = RackChangePolicy(min_change_duration_s=1.0, min_interval_s=5.0)

WATCHER = "rackassign.clients.aiokafka.watcher"


class AioMember:
    """An `AIOKafkaConsumer` on a loop in a thread of its own, which reads as long as the `with` block lasts.

    Args:
        make: Makes the consumer, on that loop.
    """

    def __init__(self, make: Callable[[], AIOKafkaConsumer]) -> None:
        self.read: Counter[tuple[int, int]] = Counter()
        self._make = make
        self._consumer: AIOKafkaConsumer | None = None
        self.error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aiokafka", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a consumer that does not stop"
        self.poll()

    @property
    def id(self) -> str:
        return "" if self._consumer is None else str(self._consumer._coordinator.member_id)

    @property
    def generation(self) -> int:
        return -1 if self._consumer is None else int(self._consumer._coordinator.generation)

    def poll(self) -> None:
        """Raise what has ended it, if anything; to read is its own affair."""
        if self.error is not None:
            raise self.error

    def assignment(self) -> Owned:
        held = () if self._consumer is None else self._consumer.assignment()
        return frozenset(TopicPartition(tp.topic, tp.partition) for tp in held)

    def leads(self) -> bool:
        """Tell whether the group's last generation was decided here."""
        return self._consumer is not None and self._consumer._coordinator._assignors[0]._history.last is not None

    def do(self, task: Callable[[AIOKafkaConsumer], Awaitable[T]]) -> T:
        """Run this on its loop and return what it returns."""

        async def run() -> T:
            return await task(self._consumer)

        wait_until(lambda: self._consumer is not None, "a consumer that has started")
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def locality(self) -> FetchLocality:
        read: FetchLocality = self._consumer.locality()  # type: ignore[union-attr]
        return read

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - raised again by poll(), on the test's thread
            self.error = error

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        consumer = self._make()
        try:
            await consumer.start()
            self._consumer = consumer
            while not self._ended.is_set():
                polled = await consumer.getmany(timeout_ms=100)
                self.read.update((tp.partition, record.offset) for tp, records in polled.items() for record in records)
        finally:
            await consumer.stop()


class Mixed:
    """A group of members by name, each in the rack that its name begins with, of one of two clients."""

    def __init__(self, cluster: Cluster, group: str, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._group = group
        self.topic = topic
        self._partitions = partitions
        self.members: dict[str, AioMember | ThreadedConsumer] = {}
        self._open: dict[str, ExitStack] = {}

    def __enter__(self) -> Self:
        self.admin = KafkaAdminClient(bootstrap_servers=self._cluster.bootstrap)
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self.admin), ExitStack() as all_of_them:
            for opened in self._open.values():
                all_of_them.push(opened)

    def config(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap_servers": self._cluster.bootstrap, "group_id": self._group, **CONSUMER, **more}

    def aio(self, name: str, *strategies: Any, make: Any = AIOKafkaConsumer, **more: Any) -> AioMember:
        config = self.config(client_rack=name[0], partition_assignment_strategy=strategies, **more)
        member = AioMember(lambda: make(self.topic, **config))
        self._enter(name, member)
        return member

    def python(self, name: str, strategy: Any) -> ThreadedConsumer:
        config = self.config(client_rack=name[0], partition_assignment_strategy=[strategy])
        member = ThreadedConsumer(lambda: rackassign.RackAwareConsumer(self.topic, **config))
        self._enter(name, member)
        return member

    def join(self, name: str, client: str, strategies: Mapping[str, Any]) -> None:
        strategy = strategies[client](rack=name[0])
        if client == "aio":
            self.aio(name, strategy)
        else:
            self.python(name, strategy)

    def _enter(self, name: str, member: AioMember | ThreadedConsumer) -> None:
        opened = self._open[name] = ExitStack()
        opened.enter_context(member)
        self.members[name] = member

    def end(self, name: str) -> None:
        del self.members[name]
        self._open.pop(name).close()

    def settle(self) -> dict[str, set[int]]:
        """Wait until each has what the leader decided, and nothing is without an owner; return who has what."""
        settled = settle(self.admin, self._group, list(self.members.values()), {self.topic: self._partitions})
        return {name: {place.partition for place in settled[member.id]} for name, member in self.members.items()}

    def generation(self) -> int:
        return max(m.generation for m in self.members.values() if isinstance(m, AioMember))

    def all_read_once(self, records: int) -> None:
        """Write so many records to each partition, and see that each is read by one member, once."""
        before = self._read()
        produce_records(self._cluster.client_config(), self.topic, self._partitions, records=records, size=500)
        wanted = records * self._partitions
        wait_until(lambda: sum((self._read() - before).values()) >= wanted, "every record read")
        assert set((self._read() - before).values()) == {1}

    def _read(self) -> Counter[tuple[int, int]]:
        total: Counter[tuple[int, int]] = Counter()
        for member in self.members.values():
            member.poll()
            total.update(member.read.copy() if isinstance(member, AioMember) else Counter(member.processed.copy()))
        return total


@pytest.fixture
def make_group(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name) -> Iterator[Callable[..., Mixed]]:
    with ExitStack() as opened:

        def make(replicas: Sequence[Sequence[int]]) -> Mixed:
            topic = make_topic(replicas=replicas)
            return opened.enter_context(Mixed(rack_cluster, unique_name(), topic, len(replicas)))

        yield make


MakeGroup = Callable[[Sequence[Sequence[int]]], Mixed]


def attached(*topics: str, **config: Any) -> AIOKafkaConsumer:
    return attach(AIOKafkaConsumer(*topics, **config))


@pytest.mark.parametrize("kind", [RANGE, STICKY, COOPERATIVE], ids=["range", "sticky", "cooperative"])
def test_three_members_read_at_home_with_nothing_but_a_strategy(make_group: MakeGroup, kind: Mapping[str, Any]) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in AT_HOME:
        group.aio(name, kind["aio"](rack=name[0]))
    assert group.settle() == AT_HOME
    group.all_read_once(3)
    group.end("b1")
    rest = group.settle()
    assert rest["a1"] > AT_HOME["a1"]
    assert rest["c1"] > AT_HOME["c1"]


@pytest.mark.parametrize("make", [RackAwareConsumer, attached])
def test_every_byte_comes_from_the_own_rack_through_followers(make_group: MakeGroup, make: Any) -> None:
    group = make_group(TWO_RACKS_EACH)
    members = [group.aio(name, RackAwareStickyAssignor, make=make) for name in AT_HOME]
    owned = group.settle()
    assert [len(places) for places in owned.values()] == [2, 2, 2]
    group.all_read_once(5)
    for name, member in zip(AT_HOME, members, strict=True):
        read = member.locality()
        assert read.rack == name[0]
        assert read.cross() == read.unknown() == (0, 0)
        assert read.local().records == 10
        assert read.local_share() == 1


def test_a_class_is_made_an_instance_for_each_consumer(make_group: MakeGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in AT_HOME:
        monkeypatch.setenv("RACKASSIGN_RACK", name[0])
        group.aio(name, RackAwareRangeAssignor)
        group.settle()
    assert group.settle() == AT_HOME
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
    assert group.settle() == AT_HOME
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
    assert group.settle() == {"a1": ALL}
    group.join("b1", other, kind)
    group.settle()
    group.join("c1", "aio", kind)
    assert group.settle() == AT_HOME
    group.all_read_once(3)
    # Now the other one leads, or both.
    group.end("a1")
    rest = group.settle()
    assert rest["b1"] > AT_HOME["b1"]
    group.join("a1", leader, kind)
    assert group.settle() == AT_HOME


@pytest.mark.parametrize(
    ("stock", "ours"),
    [(RangePartitionAssignor, RackAwareRangeAssignor), (StickyPartitionAssignor, RackAwareStickyAssignor)],
    ids=["range", "sticky"],
)
def test_a_group_of_aiokafka_is_moved_over_one_member_at_a_time(make_group: MakeGroup, stock: Any, ours: Any) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in AT_HOME:
        group.aio(name, stock)
    group.settle()
    for name in AT_HOME:
        group.end(name)
        group.settle()
        group.aio(name, ours(rack=name[0]))
        group.settle()
    assert group.settle() == AT_HOME
    group.all_read_once(2)


def test_and_from_its_default_strategy_twice_one_member_at_a_time(make_group: MakeGroup) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in AT_HOME:
        group.aio(name, RoundRobinPartitionAssignor)
    group.settle()
    for others in ([RoundRobinPartitionAssignor], []):
        for name in AT_HOME:
            group.end(name)
            group.settle()
            group.aio(name, RackAwareStickyAssignor(rack=name[0]), *others)
            group.settle()
        assert group.settle() == AT_HOME
    group.all_read_once(2)


def check_two_phases(group: Mixed, services: Mapping[str, ThreadedConsumer]) -> None:
    """Nothing is given to a cooperative member while another has it that has not been told to give it up."""
    rounds: dict[int, dict[str, Owned]] = {}
    for name, service in services.items():
        for generation, owned in service.given:
            rounds.setdefault(generation, {})[name] = owned
    held: dict[TopicPartition, str] = {}
    for _, given in sorted(rounds.items()):
        for name, owned in given.items():
            assert all(held.get(place, name) == name for place in owned), (group.topic, rounds)
        held = {place: name for place, name in held.items() if name not in given}
        held |= {place: name for name, owned in given.items() for place in owned}


def test_aiokafka_leads_cooperative_members_through_both_rounds(make_group: MakeGroup) -> None:
    group = make_group(TWO_RACKS_EACH * 2)
    leader = group.aio("c1", RackAwareCooperativeStickyAssignor(rack="c"))
    group.settle()
    services = {}
    for name in ("a1", "b1", "a2"):
        services[name] = group.python(name, rackassign.RackAwareCooperativeStickyAssignor(rack=name[0]))
        before = group.generation()
        owned = group.settle()
        assert leader.leads()
        assert group.generation() - before <= 2
    assert sorted(map(len, owned.values())) == [3, 3, 3, 3]
    check_two_phases(group, services)
    kept = {name: services[name].assignment() for name in services}
    group.end("a2")
    after = group.settle()
    assert leader.leads()
    for name in ("a1", "b1"):
        assert {place.partition for place in kept[name]} <= after[name]
    group.all_read_once(2)


def test_aiokafka_follows_in_a_cooperative_group_and_takes_over(make_group: MakeGroup) -> None:
    group = make_group(ONE_RACK_EACH)
    group.join("a1", "python", COOPERATIVE)
    assert group.settle() == {"a1": ALL}
    group.join("b1", "aio", COOPERATIVE)
    group.settle()
    group.join("c1", "python", COOPERATIVE)
    assert group.settle() == AT_HOME
    group.end("a1")
    group.settle()
    group.end("c1")
    assert group.settle() == {"b1": ALL}
    group.join("c1", "python", COOPERATIVE)
    group.join("a1", "python", COOPERATIVE)
    assert group.settle() == AT_HOME
    group.all_read_once(3)


WHOLE = encode_subscription(Subscription(("t",), b"", {}, 1, "rack"))
BROKEN = {
    "truncated": WHOLE[:-2],
    "empty": b"",
    "topic not UTF-8": WHOLE.replace(b"\0\1t", b"\0\1\xff"),
    "illegal topic name": encode_subscription(Subscription(("bad topic/!",))),
}


class Broken(PythonRange):  # type: ignore[misc] # kafka-python is untyped
    """Sends whatever bytes it is given."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def metadata(self, topics: object) -> bytes:
        del topics
        return self._data


def broken(group: Mixed, data: bytes) -> ThreadedConsumer:
    config = group.config(partition_assignment_strategy=[Broken(data)])
    return ThreadedConsumer(lambda: rackassign.attach(KafkaConsumer(group.topic, **config)))


def test_a_leader_goes_on_beside_broken_members(make_group: MakeGroup, caplog: pytest.LogCaptureFixture) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in AT_HOME:
        group.aio(name, RackAwareRangeAssignor(rack=name[0]))
        group.settle()
    for data in BROKEN.values():
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
            wait_until(lambda: numbers(group) == AT_HOME, "the others at home")
        warned = [
            r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and "subscri" in r.getMessage()
        ]
        assert len(warned) == 1
        assert group.settle() == AT_HOME


def numbers(group: Mixed) -> dict[str, set[int]]:
    return {name: {place.partition for place in member.assignment()} for name, member in group.members.items()}


def test_without_us_a_broken_member_ends_the_leader(make_group: MakeGroup) -> None:
    group = make_group(ONE_RACK_EACH)
    leader = group.aio("a1", RangePartitionAssignor)
    group.settle()
    with broken(group, BROKEN["empty"]) as bad:

        def failed() -> bool:
            bad.poll()
            return leader.error is not None

        wait_until(failed, "an error out of the leader's getmany()")
    # So that the group is left without it.
    error, leader.error = leader.error, None
    assert isinstance(error, KafkaError)


@pytest.fixture
def asked(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Tell what rebalances the watch has asked for, in its own words."""
    caplog.set_level(logging.INFO, WATCHER)
    return lambda: [record.getMessage() for record in caplog.records if record.name == WATCHER]


def test_replicas_that_move_are_followed_with_one_rebalance_and_a_bounced_broker_with_none(
    rack_cluster: Cluster, make_group: MakeGroup, asked: Callable[[], list[str]]
) -> None:
    group = make_group(ONE_RACK_EACH)
    for name in AT_HOME:
        group.aio(name, RackAwareStickyAssignor(rack=name[0], rack_monitor=SOON), metadata_max_age_ms=300)
    assert group.settle() == AT_HOME
    generation = group.generation()
    moved = {0: [2], 1: [3], 2: [1], 3: [2], 4: [3], 5: [1]}
    changes = {HostPartition(group.topic, p): ids for p, ids in moved.items()}
    assert set(group.admin.alter_partition_reassignments(changes).values()) == {None}
    wait_until(lambda: group.settle() == {"a1": {2, 5}, "b1": {0, 3}, "c1": {1, 4}}, "all local again")
    assert len(asked()) == 1
    assert "replica racks of 6 partitions have changed: a rebalance makes 6 local" in asked()[0]
    assert group.generation() == generation + 1

    settled, generation = group.settle(), group.generation()
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
