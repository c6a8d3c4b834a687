"""Received bytes of tasks: which broker and which range they are counted for."""

from __future__ import annotations

import json
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.spark.splits import OffsetRange, Split
from rackassign.spark.task_metrics import Meter, write_report
from tests.helpers.librdkafka_statistics import broker, statistics_json


def test_what_was_received_is_told_by_broker(tmp_path: Path) -> None:
    meter = Meter()
    for name, received in (("one", 5), ("two", 7), ("one", 6)):
        meter(statistics_json((), {"k:1/bootstrap": broker(-1, 99), "k:1/1": broker(1, received)}, client=name))
    assert meter.received() == Counter({1: 13})
    split = Split(OffsetRange(TopicPartition("t", 3), 5, 9), ("a",), 10, 1)
    write_report(str(tmp_path / "new"), split, "a", 4, meter.received())
    (file,) = (tmp_path / "new").iterdir()
    assert json.loads(file.read_text("utf-8")) == {
        "topic": "t",
        "partition": 3,
        "start": 5,
        "end": 9,
        "rack": "a",
        "replica_racks": ["a"],
        "useful": 4,
        "received": {"1": 13},
    }


def test_a_folder_that_cannot_be_written_to_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    split = Split(OffsetRange(TopicPartition("t", 3), 5, 9), ("a",), 10, 1)
    with pytest.raises(ConfigError, match=r"metricsPath: cannot write to .*file"):
        write_report(str(tmp_path / "file"), split, "a", 4, Counter())


def test_connections_of_one_broker_are_summed() -> None:
    meter = Meter()
    meter(statistics_json((), {"k:1/1": broker(1, 5), "GroupCoordinator": broker(1, 2)}))
    assert meter.received() == Counter({1: 7})


class Consumer:
    """A consumer whose statistics wait in a queue until it is polled.

    Args:
        meter: Is called with them.
        queued: Statistics that were made before the first poll.
        coming: Those of the following intervals.
    """

    def __init__(self, meter: Meter, queued: list[str], coming: list[str]) -> None:
        self._meter = meter
        self._queued = deque(queued)
        self._coming = deque(coming)

    def poll(self, timeout: float) -> None:
        """Pass on what is queued, or wait for the next."""
        while self._queued:
            self._meter(self._queued.popleft())
        if timeout and self._coming:
            self._meter(self._coming.popleft())


def received_when_settled(queued: list[str], coming: list[str]) -> Counter[int]:
    meter = Meter()
    consumer: Any = Consumer(meter, queued, coming)
    meter.settle(consumer)
    return meter.received()


def of_broker(received: int, in_flight: int = 0) -> str:
    return statistics_json((), {"k:1/1": broker(1, received, in_flight=in_flight)})


def test_statistics_that_were_queued_before_the_end_of_a_range_are_not_its_last() -> None:
    assert received_when_settled([of_broker(1)] * 5, [of_broker(7)] * 3) == Counter({1: 7})


def test_a_fetch_in_flight_counts_for_the_range_that_sent_it() -> None:
    coming = [of_broker(7, in_flight=1)] * 4 + [of_broker(9)] * 2
    assert received_when_settled([of_broker(1)], coming) == Counter({1: 9})


def test_what_a_bootstrap_address_has_not_answered_is_not_awaited() -> None:
    text = statistics_json((), {"k:1/bootstrap": broker(-1, 0, in_flight=1), "k:1/1": broker(1, 7)})
    assert received_when_settled([], [text] * 2 + [of_broker(9)]) == Counter({1: 7})
