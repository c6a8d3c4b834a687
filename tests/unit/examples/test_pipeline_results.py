"""Sending results from executors: each record is delivered, or the task fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pytest

from examples.pipeline.results import send


@dataclass(frozen=True, slots=True)
class Record:
    """A row with a key and a value."""

    key: str
    value: str


RECORDS = [Record(f"key {number}", f"value {number}") for number in range(5)]


class Producer:
    """A producer whose queue holds two records, and which refuses some of them in the end.

    Args:
        settings: Its properties.
    """

    refused: tuple[str, ...] = ()
    made: Producer | None = None

    def __init__(self, settings: dict[str, Any]) -> None:
        Producer.made = self
        self.settings = settings
        self.delivered: list[tuple[str, str, str]] = []
        self._queue: list[tuple[tuple[str, str, str], Callable[[Any, Any], None]]] = []

    def produce(self, topic: str, value: str, key: str, on_delivery: Callable[[Any, Any], None]) -> None:
        if len(self._queue) == 2:
            raise BufferError
        self._queue.append(((topic, key, value), on_delivery))

    def poll(self, _: float) -> None:
        record, on_delivery = self._queue.pop(0)
        if record[1] in self.refused:
            on_delivery(confluent_kafka.KafkaError(confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE), None)
        else:
            self.delivered.append(record)
            on_delivery(None, None)

    def flush(self) -> None:
        while self._queue:
            self.poll(0)


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> type[Producer]:
    monkeypatch.setattr(confluent_kafka, "Producer", Producer)
    monkeypatch.setattr(Producer, "made", None)
    monkeypatch.setattr(Producer, "refused", ())
    return Producer


def test_all_records_are_delivered_in_order_by_an_idempotent_producer(producer: type[Producer]) -> None:
    records: Any = RECORDS
    send("k:1", "results", records)
    assert producer.made is not None
    assert producer.made.settings == {"bootstrap.servers": "k:1", "enable.idempotence": True}
    assert producer.made.delivered == [("results", record.key, record.value) for record in RECORDS]


@pytest.mark.parametrize("refused", ["key 0", "key 4"])
def test_a_record_that_is_not_delivered_fails_the_task(producer: type[Producer], refused: str) -> None:
    producer.refused = (refused,)
    records: Any = RECORDS
    with pytest.raises(confluent_kafka.KafkaException, match="MSG_SIZE_TOO_LARGE"):
        send("k:1", "results", records)
