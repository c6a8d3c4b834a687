"""Consumers of the tests on real brokers: how they are configured, closed, and waited for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from rackassign import RackAwareRangeAssignor, attach
from rackassign.clients.kafka_python._assignors import RackAwareAssignor
from rackassign.clients.kafka_python.patches.group import KEEP_COMPLETED_JOIN
from rackassign.clients.kafka_python.patches.patch import install
from rackassign.testing import Cluster
from rackassign.text import WarnOnce
from tests.helpers.machine_speed import scaled_ms

CONSUMER: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    # Not scaled: a heartbeat that is due early does no harm, and with it members learn of a rebalance.
    "heartbeat_interval_ms": 300,
    # Long, and not scaled: a member that is not scheduled for some seconds stays in its group, and a leader has a third
    # of the session for a plan. A member that leaves is known to have left at once, so that no test waits for them.
    # Not longer: with sessions of minutes groups of four clients had not formed after five minutes on a busy machine.
    "session_timeout_ms": 60_000,
    "max_poll_interval_ms": 300_000,
    "metadata_max_age_ms": 1000,
}
"""For every test in which no member has to be put out of its group for its silence."""

EXPIRING: dict[str, Any] = {
    **CONSUMER,
    "session_timeout_ms": scaled_ms(6000),
    "max_poll_interval_ms": scaled_ms(20_000),
}
"""For tests that wait until a member that was killed or suspended, or does not poll, is put out of its group."""

PROPERTIES = {
    "auto.offset.reset": CONSUMER["auto_offset_reset"],
    "enable.auto.commit": "false",
    "heartbeat.interval.ms": str(CONSUMER["heartbeat_interval_ms"]),
    "session.timeout.ms": str(CONSUMER["session_timeout_ms"]),
}
"""The same for members of Java and librdkafka."""


@contextmanager
def consumers(*makers: Callable[[], KafkaConsumer]) -> Iterator[list[KafkaConsumer]]:
    """Make consumers and close them whatever happens."""
    with ExitStack() as opened:
        made: list[KafkaConsumer] = []
        for make in makers:
            consumer = make()
            opened.callback(consumer.close, timeout_ms=scaled_ms(5000))
            made.append(consumer)
        yield made


def patched_consumer(
    cluster: Cluster,
    group: str,
    topic: str,
    *disable: str,
    assignor: Callable[..., RackAwareAssignor] = RackAwareRangeAssignor,
    **config: Any,
) -> KafkaConsumer:
    """Return a member in rack a with all patches but the named ones."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        client_rack="a",
        partition_assignment_strategy=[assignor(rack="a")],
        **{**CONSUMER, **config},
    )
    return attach(consumer, disable_patches=disable)


def plain_consumer(*topics: str, client: type[KafkaConsumer] = KafkaConsumer, **config: Any) -> KafkaConsumer:
    """Return a consumer of kafka-python with one patch, and otherwise as it is.

    Without this patch one start in 40 or so ends with a member that stays out of its group for good: a join for new
    metadata was over between two of its polls, and it never reads the result.
    """
    consumer = client(*topics, **config)
    install(consumer, [KEEP_COMPLETED_JOIN], WarnOnce(logging.getLogger(__name__)))
    return consumer


def covers(members: Sequence[KafkaConsumer], topic: str, partitions: int) -> bool:
    """Return whether each partition of the topic has exactly one owner among the members."""
    owned = [tp for member in members for tp in member.assignment() if tp.topic == topic]
    return sorted(owned) == [KafkaPythonPartition(topic, p) for p in range(partitions)]


def settled(members: Sequence[KafkaConsumer], topic: str, partitions: int) -> Callable[[], bool]:
    """Poll all members once at every look; true once they own the topic between them, in one generation."""

    def look() -> bool:
        for member in members:
            member.poll(timeout_ms=50)
        return together(members, topic, partitions)

    return look


def together(members: Sequence[KafkaConsumer], topic: str, partitions: int) -> bool:
    """Return whether the members are stable in one generation and own the topic between them."""
    states = {(m.group_metadata().generation_id, m.group_metadata().state) for m in members}
    return len(states) == 1 and states.pop()[1] == "<stable>" and covers(members, topic, partitions)


@contextmanager
def polled(members: Sequence[KafkaConsumer]) -> Iterator[None]:
    """Poll each member in a thread of its own."""
    over = threading.Event()

    def poll(member: KafkaConsumer) -> None:
        while not over.is_set():
            member.poll(timeout_ms=200)

    with ThreadPoolExecutor(len(members)) as pool:
        polling = [pool.submit(poll, member) for member in members]
        try:
            yield
        finally:
            over.set()
    for each in polling:
        each.result()


def numbers(consumer: KafkaConsumer) -> list[int]:
    """Return the partition ids a consumer owns."""
    return sorted(tp.partition for tp in consumer.assignment())
