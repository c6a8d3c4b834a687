"""Producers of all clients that write to leaders in their rack, on real brokers, also after leaders have moved."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Message
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.structs import TopicPartition

from rackassign import RackAwareProducer
from rackassign.admin.alter import ReassignmentAdmin
from rackassign.clients import aiokafka, confluent
from rackassign.clients.confluent import _producer
from rackassign.model import TopicPartition as OwnTopicPartition
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic
from tests.helpers.java.producer_peer import producer_peer
from tests.helpers.kernel_traffic import ConnectionBytes
from tests.helpers.threads import meanwhile

pytestmark = pytest.mark.brokers

RACK_OF = {1: "a", 2: "b", 3: "c"}

Send = Callable[..., list[int]]
"""Sends values to a topic, with `key=` or `partition=` if given; returns the partitions once all are stored."""

Open = Callable[..., AbstractContextManager[Send]]
"""Opens a producer with a rack and a size of batches in bytes, `transactional=` with a transactional ID."""

REFRESH_MS = 500


@contextmanager
def kafka_python(cluster: Cluster, rack: str, size: int, transactional: str | None = None) -> Iterator[Send]:
    configs: dict[str, Any] = {
        "client_rack": rack,
        "batch_size": size,
        "metadata_max_age_ms": REFRESH_MS,
        "acks": "all",
        "enable_idempotence": True,
    }
    with closing(RackAwareProducer(**cluster.client_config(), **configs, transactional_id=transactional)) as producer:
        if transactional is not None:
            producer.init_transactions()

        def send(topic: str, values: Sequence[bytes], **more: Any) -> list[int]:
            if transactional is not None:
                producer.begin_transaction()
            sent = [producer.send(topic, value, **more) for value in values]
            if transactional is not None:
                producer.commit_transaction()
            return [each.get(TIMEOUT_S).partition for each in sent]

        yield send


@contextmanager
def librdkafka(cluster: Cluster, rack: str, size: int, transactional: str | None = None) -> Iterator[Send]:
    config: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "client.rack": rack,
        # A choice is kept for a time, which may be longer than the test.
        "batch.size": size,
        "sticky.partitioning.linger.ms": 0,
        "topic.metadata.refresh.interval.ms": REFRESH_MS,
        "acks": "all",
        "enable.idempotence": True,
    }
    if transactional is not None:
        config["transactional.id"] = transactional
    producer = confluent.RackAwareProducer(config)
    watch = vars(producer)["_watch"]
    if transactional is not None:
        producer.init_transactions()

    def send(topic: str, values: Sequence[bytes], **more: Any) -> list[int]:
        stored: list[int] = []
        watch.add(topic)
        wait_until(lambda: topic in watch.leaders.topics, "leaders")

        def report(error: object, message: Message) -> None:
            assert error is None
            stored.append(message.partition() or 0)

        if transactional is not None:
            producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, on_delivery=report, **more)
        assert producer.flush(TIMEOUT_S) == 0
        if transactional is not None:
            producer.commit_transaction()
        assert len(stored) == len(values)
        return stored

    yield send


@contextmanager
def asynchronous(cluster: Cluster, rack: str, size: int, transactional: str | None = None) -> Iterator[Send]:
    configs: dict[str, Any] = {
        "client_rack": rack,
        "max_batch_size": size,
        "metadata_max_age_ms": REFRESH_MS,
        "acks": "all",
        "enable_idempotence": True,
    }
    loop = asyncio.new_event_loop()

    async def start() -> aiokafka.RackAwareProducer:
        producer = aiokafka.RackAwareProducer(
            bootstrap_servers=cluster.bootstrap, **configs, transactional_id=transactional
        )
        await producer.start()
        return producer

    async def send_all(topic: str, values: Sequence[bytes], **more: Any) -> list[int]:
        async with producer.transaction() if transactional is not None else nullcontext():
            sent = [await producer.send(topic, value, **more) for value in values]
            return [(await each).partition for each in sent]

    producer = loop.run_until_complete(start())
    try:
        yield lambda topic, values, **more: loop.run_until_complete(send_all(topic, values, **more))
    finally:
        loop.run_until_complete(producer.stop())
        loop.close()


CLIENTS: list[Open] = [kafka_python, asynchronous, librdkafka]


def read(cluster: Cluster, topic: str, partitions: int) -> list[list[bytes]]:
    """Return the values in each partition, in their order; only committed ones."""
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[list[bytes]] = [[] for _ in tps]
    with closing(KafkaConsumer(**cluster.client_config(), isolation_level="read_committed")) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for tp, records in consumer.poll(timeout_ms=100).items():
                found[tp.partition] += [record.value for record in records]
    return found


def numbered(first: int, number: int) -> list[bytes]:
    """Return values of 100 bytes that sort as they were sent."""
    return [b"%09d" % each + b"x" * 91 for each in range(first, first + number)]


@pytest.mark.parametrize("opened", CLIENTS)
@pytest.mark.parametrize(
    "replicas", [[[1], [2], [3]], [[1, 2], [2, 3], [3, 1]], [[1, 2, 3], [2, 3, 1], [3, 1, 2]]], ids=["1", "2", "3"]
)
def test_records_without_a_key_are_written_in_the_rack(
    rack_cluster: Cluster, make_topic: MakeTopic, opened: Open, replicas: list[list[int]]
) -> None:
    topic = make_topic(replicas=replicas * 2)
    connections = ConnectionBytes(sent=True)
    before = connections.look()
    with opened(rack_cluster, "b", 500) as send:
        stored = send(topic, numbered(0, 500))
        after = connections.look()
        sent = {broker.rack: after.get(broker.port, 0) - before.get(broker.port, 0) for broker in rack_cluster.brokers}
        # Broker 2 leads these, and both are used.
        assert set(stored) == {1, 4}
        # The other brokers get requests for metadata.
        assert sent["b"] > 50_000 > 10 * (sent["a"] + sent["c"])
        assert set(send(topic, numbered(500, 20), partition=3)) == {3}
        assert len(set(send(topic, numbered(520, 1), key=b"k"))) == 1
    written = read(rack_cluster, topic, 6)
    assert sorted(value for partition in written for value in partition) == numbered(0, 521)
    assert all(one < other for partition in written for one, other in pairwise(partition))


@pytest.mark.long
@pytest.mark.local
def test_shares_of_partitions_equal_those_of_javas_producer(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    uneven, elsewhere = make_topic(replicas=[[1], [2], [2], [3], [1], [2]]), make_topic(replicas=[[1], [2]] * 3)
    config = {"bootstrap.servers": rack_cluster.bootstrap, "batch.size": "500", "partitioner.rack.aware": "true"}
    # Otherwise a partition gets less while its broker is slow.
    config["partitioner.adaptive.partitioning.enable"] = "false"
    layouts = [
        (uneven, "b", {1, 2, 5}),
        (uneven, "c", {3}),
        (elsewhere, "c", set(range(6))),
        (uneven, "d", set(range(6))),
    ]
    with producer_peer() as peer:
        for topic, rack, expected in layouts:
            java = peer.write(topic, 4000, 100, {**config, "client.rack": rack})
            with kafka_python(rack_cluster, rack, 500) as send:
                ours = Counter(send(topic, numbered(0, 4000)))
            assert java.keys() == ours.keys() == expected
            # Shares of 800 batches, of which Java may fill twice the bytes: 0.1 is four standard deviations or more.
            for stored in (java, ours):
                assert all(abs(count / 4000 - 1 / len(expected)) < 0.1 for count in stored.values())


@pytest.mark.parametrize("opened", CLIENTS)
def test_records_with_keys_go_where_they_went(rack_cluster: Cluster, make_topic: MakeTopic, opened: Open) -> None:
    topic, keys = make_topic(6), [b"%d" % number for number in range(30)]
    with opened(rack_cluster, "a", 500) as send, opened(rack_cluster, "c", 500) as elsewhere:
        first = [send(topic, [b""], key=key) for key in keys]
        assert first == [elsewhere(topic, [b""], key=key) for key in keys]
    assert len({tuple(each) for each in first}) == 6


@pytest.mark.parametrize("opened", CLIENTS)
def test_transactions_are_written_in_the_rack(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], opened: Open
) -> None:
    topic = make_topic(3)
    with opened(rack_cluster, "c", 500, transactional=unique_name()) as send:
        for first in range(0, 90, 30):
            assert set(send(topic, numbered(first, 30))) == {2}
    assert read(rack_cluster, topic, 3) == [[], [], numbered(0, 90)]


def test_librdkafka_writes_in_the_rack_from_the_first_record_and_after_partitions_are_added(
    rack_cluster: Cluster, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is.
    monkeypatch.setattr(_producer, "_FIRST_RECORD_S", TIMEOUT_S)
    # With librdkafka's own intervals, it learns of partitions 5 minutes late.
    topic, stored = make_topic(replicas=[[1], [2], [3]]), Counter[int]()
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin:
        config = {"bootstrap.servers": rack_cluster.bootstrap, "client.rack": "b", "sticky.partitioning.linger.ms": 0}
        producer = confluent.RackAwareProducer(config)
        vars(producer)["_watch"]._refresh_s = 0.1

        def send(number: int) -> set[int]:
            stored.clear()
            for value in numbered(0, number):
                producer.produce(topic, value, on_delivery=lambda _, sent: stored.update([sent.partition() or 0]))
            assert producer.flush(TIMEOUT_S) == 0
            return set(stored)

        assert send(300) == {1}
        admin.create_partitions({topic: {"count": 6, "assignments": [[1], [2], [2]]}})
        used: list[set[int]] = []

        def are_used() -> bool:
            used.append(send(50))
            return {4, 5} <= used[-1]

        wait_until(are_used, "records in the new partitions")
        # While the thread has seen them and librdkafka has not, none goes to another rack.
        assert set().union(*used) == {1, 4, 5}


class Writer:
    """Writes 20 records after the other to a topic with the name of its client, on a thread, while the block lasts."""

    def __init__(self, cluster: Cluster, opened: Open, *, transactional: bool) -> None:
        self.topic = f"{opened.__name__}-{transactional}"
        self._transactional = self.topic if transactional else None
        self.sent = 0
        self._used: list[set[int]] = []
        self._cluster, self._opened = cluster, opened
        self._error: BaseException | None = None

    def write(self, over: threading.Event) -> None:
        try:
            with self._opened(self._cluster, "a", 500, self._transactional) as send:
                while not over.is_set():
                    stored = send(self.topic, numbered(self.sent, 20))
                    self.sent += 20
                    self._used.append(set(stored))
        except BaseException as error:
            self._error = error
            raise

    def uses(self, partitions: set[int]) -> bool:
        """Return whether the last 200 records are in these partitions, and in all of them."""
        if self._error is not None:
            raise self._error
        return set().union(*self._used[-10:]) == partitions


@pytest.mark.release
@pytest.mark.local
def test_leaders_that_move_or_die_are_followed_and_nothing_is_lost(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(["a", "b", "c", "a"])
    writers = [Writer(cluster, opened, transactional=False) for opened in CLIENTS]
    # A transaction of kafka-python 3.0.12 may stand still after a broker was killed, whatever the partitioner.
    writers += [Writer(cluster, opened, transactional=True) for opened in CLIENTS if opened is not kafka_python]
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as client, ExitStack() as writing:
        admin = ReassignmentAdmin(client)
        for writer in writers:
            create_topic(cluster.bootstrap, writer.topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [4, 2, 3]])
            writing.enter_context(meanwhile(writer.write))

        def wait_for(partitions: set[int], electing: Sequence[int] = ()) -> None:
            """Wait until records go to these; until then elect the preferred leaders of others again and again."""

            def are_used() -> bool:
                # Refused until a broker's replica is in sync again.
                admin.elect_preferred_leaders(OwnTopicPartition(each.topic, p) for each in writers for p in electing)
                return all(writer.uses(partitions) for writer in writers)

            wait_until(are_used, f"records in {partitions} and nowhere else")

        def prefer(replicas: Sequence[int]) -> None:
            """Change the order of the replicas of partition 0."""
            admin.alter_reassignments(dict.fromkeys((OwnTopicPartition(each.topic, 0) for each in writers), replicas))
            wait_until(lambda: not admin.list_reassignments(), "the end of reassignments")

        wait_for({0, 3})
        prefer([2, 1, 3])
        wait_for({3}, electing=[0])
        prefer([1, 2, 3])
        wait_for({0, 3}, electing=[0])
        cluster.kill(4)
        wait_for({0})
        cluster.kill(1)
        # There is no leader in the rack.
        wait_for({0, 1, 2, 3})
        cluster.start_rack("a")
        wait_for({0, 3}, electing=[0, 3])
    for writer in writers:
        written = read(cluster, writer.topic, 4)
        assert sorted(value for partition in written for value in partition) == numbered(0, writer.sent)
        assert all(one < other for partition in written for one, other in pairwise(partition))
