"""The handler of a signal may raise anywhere in a call: each record still counts once, and is written once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rackassign.stateful
from rackassign.stateful import Output, State, StatefulConsumer
from tests.helpers.examples import further
from tests.helpers.fakes.kafka import Kafka, Record, committed_values
from tests.helpers.interrupts import LineInterrupt
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import counted, drain, give, member

PACKAGE = Path(rackassign.stateful.__file__).parent
FIRST, MORE = 5, 3
LEAST_LINES, MOST_LINES = 200, 5000
"""Bounds of what such calls execute."""

Make = Callable[[Path], StatefulConsumer]


class ExpiredError(Exception):
    """What the handler of an alarm raises."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    # A file that was interrupted while records were applied is tried again after this time.
    monkeypatch.setattr("rackassign.stateful._state_directory._RETRY_S", 0.0)


def counting(folder: Path) -> StatefulConsumer:
    return member(folder, max_poll_records=2)


def writing(folder: Path) -> StatefulConsumer:
    def process(record: Record, state: State, output: Output) -> None:
        count = int(state.get(b"n") or 0) + 1
        state.put(b"n", b"%d" % count)
        output.send(b"%d" % count, record.key, topic="out")

    more: dict[str, Any] = {"process": process, "output": "out", "transactional_id": folder.name}
    return member(folder, max_poll_records=2, **more)


def polls(one: StatefulConsumer) -> None:
    one.poll(0)
    one.poll(0)


def commits(one: StatefulConsumer) -> None:
    one.poll(0)
    one.commit()


def interrupted(
    make: Make, calls: Callable[[StatefulConsumer], None], kind: type[BaseException], line: int, *, goes_on: bool
) -> str | None:
    """Interrupt a member, have it go on or close, and check it and its successor; return what was interrupted."""
    with pytest.MonkeyPatch.context() as patch, memory_directory() as folder:
        kafka = Kafka().installed(patch)
        kafka.make("t")
        kafka.make("out")
        stop = LineInterrupt(PACKAGE, line, kind)
        one = make(Path(folder) / "one")
        give(one, 0)
        kafka.feed(0, FIRST)
        one.poll(0)
        with stop.within():
            calls(one)
        fed = FIRST
        if goes_on:
            kafka.feed(0, MORE)
            fed += MORE
            drain(one)
            assert counted(one) == fed, stop.place
        one.close()
        with make(Path(folder) / "two") as two:
            give(two, 0)
            drain(two)
            assert counted(two) == fed, stop.place
        if make is writing:
            assert committed_values(kafka, "out") == [b"%d" % (number + 1) for number in range(fed)], stop.place
        assert kafka.coordinator.open == {}, stop.place
        return stop.place


KINDS = pytest.mark.parametrize("kind", [KeyboardInterrupt, ExpiredError])
GOES_ON = pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "closes"])


@GOES_ON
@KINDS
@pytest.mark.parametrize("calls", [polls, commits])
@pytest.mark.parametrize("make", [counting, writing])
@pytest.mark.parametrize("step", [97, *further(5)])
def test_a_call_that_is_interrupted_anywhere_costs_nothing(
    make: Make, calls: Callable[[StatefulConsumer], None], kind: type[BaseException], step: int, *, goes_on: bool
) -> None:
    line = 1
    while interrupted(make, calls, kind, line, goes_on=goes_on) is not None:
        line += step
        assert line < MOST_LINES
    assert line > LEAST_LINES


@GOES_ON
@KINDS
def test_so_does_one_that_is_interrupted_as_it_begins(kind: type[BaseException], *, goes_on: bool) -> None:
    for line in range(1, 25):
        assert interrupted(counting, polls, kind, line, goes_on=goes_on) is not None
