"""A consumer group to look at: a topic, a producer of bounded rate, and one member in each rack.

The members assign partitions as kafka-python's `range` does, without regard to racks, and report their racks, as
members of librdkafka and Java do. So part of what they read crosses racks, and `inspect` shows how much of it is
avoidable. Brokers may be killed and started meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from rackassign.admin.groups import GroupAdmin
from rackassign.clients.kafka_python import attach
from rackassign.errors import ClusterError
from rackassign.testing.harness import ThreadedMember, settle, wait_until
from rackassign.testing.topics import admin_client, create_topic

TOPIC, GROUP = "orders", "billing"

RECORD_BYTES = 4_000
RECORDS_PER_S = 50.0
"""Together 200 kB/s."""

_TIMEOUT_S = 300.0
"""A guard against hanging, on a busy machine too."""

_CLOSE_TIMEOUT_MS = 3_000
_RETRY_S = 1.0
_POLL_MS = 500
_COMMIT_MS = 1_000

# A segment is the smallest unit of deletion, and 1 MiB the smallest segment that Kafka allows.
_TOPIC_CONFIG = {"retention.bytes": str(1 << 20), "segment.bytes": str(1 << 20)}


class _RackReportingRange(RangePartitionAssignor):  # type: ignore[misc] # kafka-python is untyped
    """kafka-python's range assignor, for a member that reports its rack (KIP-881, version 3)."""

    def __init__(self, rack: str) -> None:
        self._rack = rack

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return the subscription with the rack."""
        return ConsumerProtocolSubscription(3, sorted(topics), None, [], -1, self._rack)


class _Member(ThreadedMember):
    """A member that reads and keeps nothing; a consumer that fails is replaced.

    Args:
        client_config: Connection arguments of a kafka-python client.
        rack: Its rack.
    """

    def __init__(self, client_config: Mapping[str, Any], rack: str) -> None:
        super().__init__()
        self._client_config = client_config
        self._rack = rack

    @property
    def id(self) -> str:
        """Member ID; empty before it has joined."""
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
                consumer.poll(timeout_ms=_POLL_MS)
        finally:
            consumer.close(timeout_ms=_CLOSE_TIMEOUT_MS)


class _Producer:
    """A thread that writes to all partitions in turn; a producer that fails is replaced.

    Args:
        client_config: Connection arguments of a kafka-python client.
        partitions: Number of partitions of the topic.
    """

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
        """Stop and wait for the thread."""
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
    """Create the topic and run the group and its producer while the block lasts.

    The block begins once the group is stable and has committed an offset of each partition, so that `inspect` knows its
    lag.

    Args:
        client_config: Connection arguments of a kafka-python client.
        racks: Rack of each member.
        replicas: IDs of the brokers of each partition, with the leader first.

    Raises:
        ClusterError: The topic cannot be created, or the group does not become stable or commits nothing.
    """
    create_topic(client_config["bootstrap_servers"], TOPIC, replicas, config=_TOPIC_CONFIG)
    with ExitStack() as opened:
        members = [opened.enter_context(_Member(client_config, rack)) for rack in racks]
        producer = opened.enter_context(closing(_Producer(client_config, len(replicas))))
        # Called first: they end at the same time.
        opened.callback(_stop, [producer.stop, *(member.stop for member in members)])
        with admin_client(client_config, _TIMEOUT_S) as admin:
            _settle(admin, members, len(replicas))
        yield


def _settle(admin: KafkaAdminClient, members: Sequence[_Member], partitions: int) -> None:
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
