"""The handler of a signal raises in the middle of a `poll()`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.serializer import Deserializer

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import patched_consumer

pytestmark = [pytest.mark.brokers, pytest.mark.local]

RECORDS = 40
COMMITTING: dict[str, Any] = {
    "max_poll_records": 10,
    "enable_auto_commit": True,
    # Only as it closes.
    "auto_commit_interval_ms": 3_600_000,
}


class Interrupts:
    """Raises `KeyboardInterrupt` once, when it is due; other calls pass."""

    def __init__(self) -> None:
        self.due = False

    def __call__(self) -> None:
        if self.due:
            self.due = False
            raise KeyboardInterrupt


@pytest.fixture
def topic(rack_cluster: Cluster, make_topic: MakeTopic) -> str:
    topic = make_topic(2)
    with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=number % 2)
    return topic


def poll_numbers(consumer: KafkaConsumer) -> list[int]:
    """Poll once; return what the records have as their values."""
    return [int(record.value) for batch in consumer.poll(timeout_ms=200).values() for record in batch]


def read_some(consumer: KafkaConsumer, seen: list[int], least: int) -> None:
    def enough() -> bool:
        seen.extend(poll_numbers(consumer))
        return len(seen) >= least

    wait_until(enough, "records")


def interrupt(consumer: KafkaConsumer, interrupts: Interrupts, seen: list[int]) -> None:
    """Poll until a poll is interrupted."""
    interrupts.due = True

    def interrupted() -> bool:
        try:
            seen.extend(poll_numbers(consumer))
        except KeyboardInterrupt:
            return True
        return False

    wait_until(interrupted, "an interrupt")


def test_what_an_interrupted_poll_has_taken_is_read_again(
    rack_cluster: Cluster, topic: str, unique_name: Callable[[], str]
) -> None:
    """The signal comes before the next fetches are sent, after the positions are advanced."""
    group, interrupts, seen = unique_name(), Interrupts(), list[int]()
    with closing(patched_consumer(rack_cluster, group, topic, **COMMITTING)) as consumer:
        read_some(consumer, seen, 10)
        taken = consumer._fetcher.fetched_records

        def fetched_records(*given: Any, **named: Any) -> Any:
            found = taken(*given, **named)
            if found[0]:
                interrupts()
            return found

        consumer._fetcher.fetched_records = fetched_records
        interrupt(consumer, interrupts, seen)
        consumer._fetcher.fetched_records = taken
    # It has committed what it takes for delivered.
    with closing(patched_consumer(rack_cluster, group, topic, **COMMITTING)) as successor:
        places = [KafkaPythonPartition(topic, number) for number in range(2)]

        def at_the_end() -> bool:
            seen.extend(poll_numbers(successor))
            return set(places) == successor.assignment() and all(
                (successor.position(place, timeout_ms=200) or 0) == RECORDS // 2 for place in places
            )

        wait_until(at_the_end, "the end of the topic")
    assert sorted(seen) == list(range(RECORDS))


def test_a_consumer_whose_decoding_was_interrupted_goes_on(
    rack_cluster: Cluster, topic: str, unique_name: Callable[[], str]
) -> None:
    """Without the patch the next poll never ends, so this is not tried without it."""
    interrupts, seen = Interrupts(), list[int]()

    class Decoder(Deserializer):  # type: ignore[misc] # kafka-python is untyped
        def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:
            del topic, headers
            if int(data) % 10 == 7:
                interrupts()
            return data

    config = {**COMMITTING, "value_deserializer": Decoder()}
    with closing(patched_consumer(rack_cluster, unique_name(), topic, **config)) as consumer:
        read_some(consumer, seen, 10)
        interrupt(consumer, interrupts, seen)
        read_some(consumer, seen, RECORDS)
    assert sorted(seen) == list(range(RECORDS))
