"""Slots are counted once the executors of a new application have registered."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.spark.slots import await_executors, total_slots

STANDALONE = "spark://host:7077"


def session(master: str = STANDALONE, age_s: float = 0.0) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, startTime=(time.time() - age_s) * 1000))


class Slots:
    """Slots that come one after the other, each time that somebody waits."""

    def __init__(self, *counts: int | None) -> None:
        self._counts = list(counts)
        self.waited = 0

    def count(self, _: Any) -> int | None:
        return self._counts[0]

    def sleep(self, _: float) -> None:
        self.waited += 1
        if len(self._counts) > 1:
            self._counts.pop(0)


def test_executors_of_a_new_application_are_awaited_until_no_more_come() -> None:
    slots = Slots(0, 0, 1, *[1] * 15, 8, 24)
    await_executors(session(), slots.count, slots.sleep)
    assert slots.count(None) == 24
    assert 19 + 20 <= slots.waited <= 19 + 21


@pytest.mark.parametrize(
    ("spark", "slots"),
    [
        (session(age_s=31), Slots(0)),
        (session("local[4]"), Slots(4)),
        (session(), Slots(None)),
        (object(), Slots(3)),
    ],
)
def test_otherwise_nothing_is_awaited(spark: Any, slots: Slots) -> None:
    await_executors(spark, slots.count, slots.sleep)
    assert slots.waited == 0


def test_without_any_executor_the_wait_ends_with_the_start_of_the_application() -> None:
    slots = Slots(0)

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        slots.sleep(seconds)

    await_executors(session(age_s=29.95), slots.count, sleep)
    assert 0 < slots.waited < 20


def test_slots_that_are_not_reported_are_unknown() -> None:
    assert total_slots(session()) is None
