"""What the demo shows: fetched bytes by rack, and a consumer group to look at.

A topic is read once with one consumer in each rack (`consume_topic`). Nothing is computed from a plan: bytes are
counted in the fetch responses, on the side that receives them. The integration tests share this code.

The group has a topic, a producer of bounded rate, and one member in each rack. The members assign partitions as
kafka-python's `range` does, without regard to racks, and report their racks, as members of librdkafka and Java do. So
part of what they read crosses racks, and `inspect` shows how much of it is avoidable. Brokers may be killed and started
meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.base import MemberState
from kafka.errors import KafkaError
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from rackassign.admin.groups import GroupAdmin
from rackassign.clients.kafka_python import FetchMeter, attach
from rackassign.errors import ClusterError
from rackassign.model import TopicPartition
from rackassign.testing._topics import admin_client, create_topic
from rackassign.testing.harness import ThreadedMember, settle, wait_until

MakeAssignor = Callable[[str], AbstractPartitionAssignor]
"""Creates the assignor of the consumer in a rack."""

ClientConfig = Mapping[str, Any]
"""Connection arguments of a kafka-python client: addresses of the brokers and security settings."""

_POLL_MS = 50

# Sorts after all other client IDs, whatever their racks are called.
_JOINER = "~"

# Members learn of a rebalance soon; all other settings are kafka-python's defaults.
_CONSUMER: Mapping[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 300,
    # A partition fits into one response, so no batch is truncated at the end of one and sent again.
    "max_partition_fetch_bytes": 32 * 2**20,
}


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """Result of a group with one consumer in each rack."""

    strategy: str
    assignment: Mapping[str, frozenset[TopicPartition]]
    # Records, and bytes of record batches, by the reader's rack, the broker's ID and the partition.
    records: Mapping[tuple[str, TopicPartition], int]
    fetched: Mapping[tuple[str, int, TopicPartition], int]
    # Number of partitions that left their reader when a further member joined; None if none joined.
    moved: int | None = None

    def by_racks(self, rack_of_broker: Mapping[int, str]) -> dict[tuple[str, str], int]:
        """Return the fetched bytes by the reader's rack and the broker's rack."""
        totals: dict[tuple[str, str], int] = {}
        for (reader, broker, _), size in self.fetched.items():
            pair = (reader, rack_of_broker[broker])
            totals[pair] = totals.get(pair, 0) + size
        return totals


def produce_records(client_config: ClientConfig, topic: str, partitions: int, *, records: int, size: int) -> None:
    """Write so many random records of a size to each partition."""
    producer = KafkaProducer(**client_config, acks="all", linger_ms=20, batch_size=2**18)
    with closing(producer):
        for _ in range(records):
            for partition in range(partitions):
                producer.send(topic, os.urandom(size), partition=partition)
        producer.flush()


def produce_without_keys(
    producers: Mapping[str, Callable[[], KafkaProducer]], topic: str, *, records: int, size: int
) -> dict[tuple[str, int], int]:
    """Write random records without a key, from one producer in each rack; return acknowledged bytes."""
    written: dict[tuple[str, int], int] = {}
    for rack, make in producers.items():
        with closing(make()) as producer:
            sent = [producer.send(topic, os.urandom(size)) for _ in range(records)]
            producer.flush()
            for future in sent:
                place = rack, future.get().partition
                written[place] = written.get(place, 0) + size
    return written


def consume_topic(
    clients: Mapping[str, ClientConfig],
    topic: str,
    make_assignor: MakeAssignor,
    *,
    joining: str | None = None,
    at_once: bool = False,
    timeout_s: float = 600,
) -> ConsumeResult:
    """Read all of a topic with a new group that has one consumer in each rack."""
    # The consumers differ only in their rack. Nothing is fetched before the group is stable, so every record is read by
    # the one consumer that the final assignment names.
    # `joining`: the rack in which a further consumer joins when all is read.
    # `at_once`: all consumers get their first partitions in the same generation; until then groups are made again. The
    # result of a sticky assignor depends on the partitions that members had before.
    deadline = time.monotonic() + timeout_s
    with ExitStack() as open_consumers:
        meters = {rack: FetchMeter() for rack in clients}

        def start(group: str, rack: str, name: str, opened: ExitStack) -> tuple[KafkaConsumer, _Paused]:
            consumer = KafkaConsumer(
                **clients[rack],
                group_id=group,
                # Members are ordered by their IDs, which begin with this.
                client_id=f"rack-{name}",
                client_rack=rack,
                partition_assignment_strategy=[make_assignor(rack)],
                **_CONSUMER,
            )
            opened.callback(consumer.close)
            attach(consumer, meter=meters.get(name))
            listener = _Paused(consumer)
            consumer.subscribe([topic], listener=listener)
            return consumer, listener

        group, readers = _form_group(open_consumers, start, list(clients), topic, deadline, at_once=at_once)
        assignment = _owned(readers)
        records = _drain(readers, deadline)
        moved = None
        if joining is not None:
            joined, _ = start(group, joining, _JOINER, open_consumers)
            _settle(readers | {_JOINER: joined}, topic, deadline)
            now = _owned(readers)
            moved = sum(len(owned - now[rack]) for rack, owned in assignment.items())
    fetched = {
        (rack, broker, partition): size
        for rack, meter in meters.items()
        for (broker, partition), size in meter.bytes_by_partition().items()
    }
    return ConsumeResult(make_assignor(next(iter(clients))).name, assignment, records, fetched, moved)


def _form_group(
    opened: ExitStack, start: _Start, racks: Sequence[str], topic: str, deadline: float, *, at_once: bool
) -> tuple[str, dict[str, KafkaConsumer]]:
    """Start a group and wait until it is stable; return its name and its consumers by rack."""
    while True:
        group = f"{topic}-{os.urandom(4).hex()}"
        attempt = opened.enter_context(ExitStack())
        started = {rack: start(group, rack, rack, attempt) for rack in racks}
        readers = {rack: consumer for rack, (consumer, _) in started.items()}
        _settle(readers, topic, deadline)
        generations = set[int]().union(*(listener.generations for _, listener in started.values()))
        if not at_once or len(generations) == 1:
            return group, readers
        attempt.close()


class _Paused(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    """Pauses assigned partitions before anything is fetched from them."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.generations: set[int] = set()
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: list[KafkaPythonPartition]) -> None:
        self._consumer.pause(*assigned)
        if assigned:
            self.generations.add(self._consumer.group_metadata().generation_id)


_Start = Callable[[str, str, str, ExitStack], tuple[KafkaConsumer, _Paused]]
"""Starts a consumer: its group, its rack, the end of its client ID, and what closes it."""


def _owned(readers: Mapping[str, KafkaConsumer]) -> dict[str, frozenset[TopicPartition]]:
    return {rack: frozenset(map(_plain, consumer.assignment())) for rack, consumer in readers.items()}


def _settle(readers: Mapping[str, KafkaConsumer], topic: str, deadline: float) -> None:
    """Poll until all consumers are stable in one generation and own the whole topic together."""
    while True:
        _check_time(deadline, f"the group did not become stable on {topic}")
        for consumer in readers.values():
            consumer.poll(timeout_ms=_POLL_MS)
        members = [consumer.group_metadata() for consumer in readers.values()]
        together = len({member.generation_id for member in members}) == 1
        stable = all(member.state == MemberState.STABLE for member in members)
        owned = [partition for consumer in readers.values() for partition in consumer.assignment()]
        partitions = next(iter(readers.values())).partitions_for_topic(topic) or set()
        if together and stable and len(owned) == len(set(owned)) == len(partitions) > 0:
            return


def _drain(readers: Mapping[str, KafkaConsumer], deadline: float) -> dict[tuple[str, TopicPartition], int]:
    """Read all partitions to their ends; return the number of records of each partition by reader."""
    ends: dict[KafkaPythonPartition, int] = {}
    for consumer in readers.values():
        ends |= consumer.end_offsets(list(consumer.assignment()))
        consumer.resume(*consumer.assignment())
    counts: dict[tuple[str, TopicPartition], int] = {}
    left = sum(ends.values())
    while left > 0:
        _check_time(deadline, "the topic was not read")
        for rack, consumer in readers.items():
            for partition, batch in consumer.poll(timeout_ms=_POLL_MS, max_records=10_000).items():
                key = (rack, _plain(partition))
                counts[key] = counts.get(key, 0) + len(batch)
                left -= len(batch)
    return counts


def _check_time(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise ClusterError(f"{what} in time")


def _plain(partition: KafkaPythonPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


TOPIC, GROUP = "orders", "billing"

RECORD_BYTES = 4_000
RECORDS_PER_S = 50.0
"""Together 200 kB/s."""

_TIMEOUT_S = 300.0
"""A guard against hanging, on a busy machine too."""

_CLOSE_TIMEOUT_MS = 3_000
_RETRY_S = 1.0
_PAUSE_MS = 500
_COMMIT_MS = 1_000

# A segment is the smallest unit of deletion, and 1 MiB the smallest segment that Kafka allows.
_TOPIC_CONFIG = {"retention.bytes": str(1 << 20), "segment.bytes": str(1 << 20)}


class _RackReportingRange(RangePartitionAssignor):  # type: ignore[misc] # kafka-python is untyped
    """kafka-python's range assignor, for a member that reports its rack (KIP-881, version 3)."""

    def __init__(self, rack: str) -> None:
        self._rack = rack

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        return ConsumerProtocolSubscription(3, sorted(topics), None, [], -1, self._rack)


class _Member(ThreadedMember):
    """A member that reads and keeps nothing; a consumer that fails is replaced."""

    def __init__(self, client_config: Mapping[str, Any], rack: str) -> None:
        super().__init__()
        self._client_config = client_config
        self._rack = rack

    @property
    def id(self) -> str:
        return "" if self.consumer is None else str(self.consumer.group_metadata().member_id)

    def _run(self) -> None:
        _repeat(self._read, self._stopping)

    def _read(self) -> None:
        consumer = KafkaConsumer(
            TOPIC,
            **self._client_config,
            group_id=GROUP,
            # Members are ordered by their IDs, which begin with this.
            client_id=f"billing-{self._rack}",
            client_rack=self._rack,
            partition_assignment_strategy=[_RackReportingRange(self._rack)],
            auto_offset_reset="latest",
            auto_commit_interval_ms=_COMMIT_MS,
            metadata_max_age_ms=5_000,
        )
        # Without patches now and then a member misses the end of its join, and stays out of the group for good.
        attach(consumer)
        try:
            self.consumer = consumer
            while not self._stopping.is_set():
                consumer.poll(timeout_ms=_PAUSE_MS)
        finally:
            consumer.close(timeout_ms=_CLOSE_TIMEOUT_MS)


class _Producer:
    """A thread that writes to all partitions in turn; a producer that fails is replaced."""

    def __init__(self, client_config: Mapping[str, Any], partitions: int) -> None:
        self._client_config = client_config
        self._partitions = partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo producer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current record. Does not wait for it."""
        self._stopping.set()

    def close(self) -> None:
        self.stop()
        self._thread.join(_TIMEOUT_S)

    def _run(self) -> None:
        _repeat(self._write, self._stopping)

    def _write(self) -> None:
        producer = KafkaProducer(
            **self._client_config, client_id="demo-producer", acks=1, max_block_ms=5_000, metadata_max_age_ms=5_000
        )
        try:
            number = 0
            while not self._stopping.wait(1 / RECORDS_PER_S):
                producer.send(TOPIC, bytes(RECORD_BYTES), partition=number % self._partitions)
                number += 1
        finally:
            producer.close(timeout=_CLOSE_TIMEOUT_MS / 1000)


@contextmanager
def demo_group(
    client_config: Mapping[str, Any], racks: Sequence[str], replicas: Sequence[Sequence[int]]
) -> Iterator[None]:
    """Create the topic and run the group and its producer while the block lasts."""
    # The block begins once the group is stable and has committed offsets of all partitions: `inspect` knows its lag.
    create_topic(client_config["bootstrap_servers"], TOPIC, replicas, config=_TOPIC_CONFIG)
    with ExitStack() as opened:
        members = [opened.enter_context(_Member(client_config, rack)) for rack in racks]
        producer = opened.enter_context(closing(_Producer(client_config, len(replicas))))
        # Called first: they end at the same time.
        opened.callback(_stop, [producer.stop, *(member.stop for member in members)])
        with admin_client(client_config, _TIMEOUT_S) as admin:
            _wait_settled(admin, members, len(replicas))
        yield


def _wait_settled(admin: KafkaAdminClient, members: Sequence[_Member], partitions: int) -> None:
    try:
        settle(admin, GROUP, members, {TOPIC: partitions}, timeout_s=_TIMEOUT_S)
        wait_until(lambda: _commits(admin) == partitions, f"group {GROUP} to commit its offsets", timeout_s=_TIMEOUT_S)
    except TimeoutError as error:
        raise ClusterError(str(error)) from None


def _commits(admin: KafkaAdminClient) -> int:
    """Return of how many partitions the group has committed an offset; 0 while there is no coordinator."""
    try:
        return len(GroupAdmin(admin).committed_offsets(GROUP))
    except KafkaError:
        return 0


def _repeat(run: Callable[[], None], stopping: threading.Event) -> None:
    """Run a client until it is to stop, and replace it when it fails."""
    while not stopping.is_set():
        # Brokers are killed here on purpose; the next client finds those that are left.
        with suppress(KafkaError):
            run()
        stopping.wait(_RETRY_S)


def _stop(stops: Iterable[Callable[[], None]]) -> None:
    for stop in stops:
        stop()
