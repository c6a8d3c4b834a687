"""Sizes of records are computed from the responses to a few fetches, and nothing else is waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from rackassign.errors import KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.spark import _record_sampling as record_sampling
from rackassign.spark._fetch_size import ONE_BATCH, UNKNOWN, RecordStats
from rackassign.spark._record_sampling import sample
from rackassign.spark._splits import OffsetRange

FETCH = 256 * 2**10


@dataclass(frozen=True)
class Message:
    """A record of 100 bytes, or an event."""

    at: int
    problem: KafkaError | None = None

    def __len__(self) -> int:
        return 90

    def key(self) -> bytes:
        return b"ab"

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.problem


END = KafkaError(KafkaError._PARTITION_EOF)


class Consumer:
    """A consumer whose responses come one by one: each when the one before was taken."""

    def __init__(self, responses: Sequence[Sequence[Message]]) -> None:
        self._coming = deque(responses)
        self._queued: deque[Message] = deque()

    def assign(self, places: list[Any]) -> None:
        pass

    def close(self) -> None:
        pass

    def consume(self, most: int, wait_s: float) -> list[Message]:
        if wait_s and not self._queued and self._coming:
            self._queued.extend(self._coming.popleft())
        return [self._queued.popleft() for _ in range(min(most, len(self._queued)))]


def responses(batch: int, count: int, *, step: int = 1) -> list[list[Message]]:
    """Responses with so many records each."""
    return [[Message((number * batch + each) * step) for each in range(batch)] for number in range(count)]


def sampled(
    monkeypatch: pytest.MonkeyPatch,
    one_by_one: Sequence[Sequence[Message]],
    several: Sequence[Sequence[Message]] = (),
    end: int = 10_000,
) -> RecordStats:
    def made(properties: dict[str, Any]) -> Consumer:
        assert not properties.keys() & {"statistics.interval.ms", "stats_cb"}
        limit = properties["fetch.message.max.bytes"]
        return Consumer({ONE_BATCH: one_by_one, FETCH: several}[limit])

    monkeypatch.setattr(record_sampling, "new_consumer", made)
    monkeypatch.setattr(record_sampling, "_MAX_S", 0.2)
    return sample({}, OffsetRange(TopicPartition("t", 0), 0, end))


PLAIN = 100 + 61 / 20
"""Bytes of a record in batches of 20, if nothing compresses them."""


@pytest.mark.parametrize(
    ("several", "record"),
    [
        # The limit is as good as what the records say.
        ([[Message(number) for number in range(2500)]], PLAIN),
        # Ten times as many records fit.
        ([[Message(number) for number in range(26_000)]], FETCH / 26_010),
        # The log ends before the limit.
        ([[Message(number) for number in range(400)]], PLAIN),
        # A batch alone may be larger than the limit.
        ([[Message(number) for number in range(20)]], PLAIN),
    ],
)
def test_the_size_of_a_record_is_that_on_the_wire(
    monkeypatch: pytest.MonkeyPatch, several: list[list[Message]], record: float
) -> None:
    found = sampled(monkeypatch, responses(20, 8), several)
    assert found.record == pytest.approx(record)
    assert found.batch == pytest.approx(20 * record)


def test_records_that_are_gone_are_counted_as_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sampled(monkeypatch, responses(20, 8, step=10), [[Message(number * 10) for number in range(400)]])
    assert found.record == pytest.approx(PLAIN / 10, rel=0.01)


@pytest.mark.parametrize(
    ("one_by_one", "end", "batch"),
    [
        ([[Message(0)], [Message(1, END)]], 5, 161),
        ([[Message(0)]], 1, 161),
        ([[Message(0), Message(1, END)]], 5, 161),
    ],
)
def test_a_range_with_few_batches_is_read_once(
    monkeypatch: pytest.MonkeyPatch, one_by_one: list[list[Message]], end: int, batch: int
) -> None:
    assert sampled(monkeypatch, one_by_one, end=end).batch == batch


def test_a_range_without_records_has_no_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampled(monkeypatch, [[Message(4, END)]]) == UNKNOWN


@pytest.mark.parametrize(
    ("coming", "told"),
    [
        ([], "no records received within 0.2 s"),
        ([[Message(0, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))]], "uthorization"),
    ],
)
def test_what_does_not_come_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch, coming: list[list[Message]], told: str
) -> None:
    with pytest.raises(KafkaUnavailableError, match=told):
        sampled(monkeypatch, coming)
