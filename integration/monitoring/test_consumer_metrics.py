"""Metrics of consumers in one process on real brokers: sums of a group that do not sink, and series that go."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kafka import KafkaConsumer

from rackassign import RackAwareConsumer, RackAwareCooperativeStickyAssignor, attach
from rackassign.clients import aiokafka, confluent
from rackassign.monitoring.prometheus import ConsumerMetrics
from rackassign.testing import Cluster
from rackassign.testing.demo import produce_records
from rackassign.testing.harness import AiokafkaMember, ConfluentMember, KafkaPythonMember, ThreadedMember, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.exposition import Series, exposed, registry_of
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.metered_members import properties

pytestmark = [pytest.mark.brokers, pytest.mark.local]

REPLICAS = [[1, 2], [2, 3], [3, 1], [2, 1]]
"""Of three partitions there is a replica in rack a, the rack of every consumer."""

SIZE = 1000

Make = Callable[[str, str, str, str], ThreadedMember]
"""Makes a member, by the address of a broker, the topic, the group and its rack."""

AIO = {key: CONSUMER[key] for key in CONSUMER if key != "max_poll_interval_ms"}


def kafka_python(bootstrap: str, topic: str, group: str, rack: str) -> ThreadedMember:
    access = {"bootstrap_servers": bootstrap, "group_id": group, "client_rack": rack}
    return KafkaPythonMember(lambda: RackAwareConsumer(topic, **access, **CONSUMER))


def attached(bootstrap: str, topic: str, group: str, rack: str) -> ThreadedMember:
    def make() -> KafkaConsumer:
        chosen = [RackAwareCooperativeStickyAssignor(rack=rack)]
        access = {"bootstrap_servers": bootstrap, "group_id": group, "client_rack": rack}
        return attach(KafkaConsumer(topic, **access, **CONSUMER, partition_assignment_strategy=chosen))

    return KafkaPythonMember(make)


def with_aiokafka(bootstrap: str, topic: str, group: str, rack: str) -> ThreadedMember:
    access: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "client_rack": rack}
    return AiokafkaMember(lambda: aiokafka.RackAwareConsumer(topic, **access, **AIO))


def with_confluent(bootstrap: str, topic: str, group: str, rack: str) -> ThreadedMember:
    def make() -> confluent.RackAwareConsumer:
        chosen = {"client.rack": rack, "statistics.interval.ms": 100}
        consumer = confluent.RackAwareConsumer({**properties(bootstrap, group, "member"), **chosen})
        consumer.subscribe([topic])
        return consumer

    return ConfluentMember(make)


def consumer_of(member: ThreadedMember) -> Any:
    def created() -> bool:
        member.poll()
        return member.consumer is not None

    wait_until(created, "a consumer")
    return member.consumer


def summed(found: dict[Series, float], name: str, group: str, locality: str | None = None) -> float:
    """Return the sum over the series of a group."""
    return sum(
        value
        for (sample, labels), value in found.items()
        if sample == name and ("group", group) in labels and (locality is None or ("locality", locality) in labels)
    )


@pytest.fixture
def formatted_logs() -> Iterator[None]:
    """Format each log message at once, whichever logger it comes from.

    pytest keeps the records of a test. A request that was cancelled while its consumer closed is logged with its
    exception by three loggers of kafka-python; the exception has the frames, and these have the consumer.
    """
    usual = logging.getLogRecordFactory()

    def formatted(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = usual(*args, **kwargs)
        record.msg, record.args = record.getMessage(), ()
        if record.exc_info:
            record.exc_text, record.exc_info = logging.Formatter().formatException(record.exc_info), None
        return record

    logging.setLogRecordFactory(formatted)
    yield
    logging.setLogRecordFactory(usual)


@pytest.mark.usefixtures("formatted_logs")
@pytest.mark.parametrize("make", [kafka_python, attached, with_aiokafka, with_confluent])
def test_two_groups_in_a_process_and_their_consumers_close(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], make: Make
) -> None:
    topic, pair, single = make_topic(replicas=REPLICAS), unique_name(), unique_name()
    metrics = ConsumerMetrics()
    registry = registry_of(metrics)

    def read(group: str) -> float:
        return summed(exposed(registry), "rackassign_read_bytes_total", group)

    def owned(group: str, locality: str | None = None) -> float:
        return summed(exposed(registry), "rackassign_partitions", group, locality)

    with ExitStack() as opened:
        first, second, other = (
            opened.enter_context(make(rack_cluster.bootstrap, topic, group, "a")) for group in (pair, pair, single)
        )
        for member in (first, second, other):
            metrics.add(consumer_of(member))
        wait_until(lambda: bool(first.assignment() and second.assignment()), "two members with partitions")
        produce_records(rack_cluster.client_config(), topic, len(REPLICAS), records=5, size=SIZE)
        # Each group reads all of it, and batches are at least as large as the values in them.
        enough = 5 * len(REPLICAS) * SIZE
        wait_until(lambda: min(read(pair), read(single)) >= enough, "all records in the sum of each group")
        wait_until(lambda: owned(pair) == owned(single) == len(REPLICAS), "every partition of each group once")
        wait_until(lambda: owned(single, "local") == 3, "the replicas of rack a as those to read from")
        before = read(pair)
        # The sum is that of both members: none of them has read everything.
        assert all(_bytes(member) < before for member in (first, second))

        released = weakref.ref(first.consumer)
        first.__exit__()
        assert read(pair) >= before
        first.consumer = None
        wait_until(lambda: owned(pair) == len(REPLICAS), "the partitions of the closed consumer, taken over")
        wait_until(lambda: gc.collect() >= 0 and released() is None, "a closed consumer, released")
        produce_records(rack_cluster.client_config(), topic, len(REPLICAS), records=1, size=SIZE)
        wait_until(lambda: read(pair) >= before + len(REPLICAS) * SIZE, "what the other one reads, added")

        second.__exit__()
        assert (read(pair), owned(pair)) == (0, 0)
        assert not any(("group", pair) in labels for _, labels in exposed(registry))
        assert read(single) >= enough
        assert owned(single) == len(REPLICAS)


@pytest.mark.parametrize("make", [kafka_python, attached, with_aiokafka, with_confluent])
def test_what_a_consumer_in_a_rack_without_brokers_reads_is_unknown(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], make: Make
) -> None:
    topic, group = make_topic(replicas=REPLICAS), unique_name()
    produce_records(rack_cluster.client_config(), topic, len(REPLICAS), records=1, size=SIZE)
    metrics = ConsumerMetrics()
    with make(rack_cluster.bootstrap, topic, group, "A") as member:
        metrics.add(consumer_of(member))

        def found(name: str, locality: str | None = None) -> float:
            member.poll()
            return summed(exposed(registry_of(metrics)), f"rackassign_{name}", group, locality)

        wait_until(lambda: found("read_bytes_total") >= len(REPLICAS) * SIZE, "all records")
        assert found("read_bytes_total", "cross") == 0
        wait_until(lambda: found("partitions", "unknown") == len(REPLICAS), "the partitions, of unknown rack")


def _bytes(member: ThreadedMember) -> int:
    return sum(amount.bytes for amount in member.consumer.locality().by_rack().values())
