"""The handler of a signal may raise anywhere in `poll()`: each record still counts once, and is written once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rackassign.stateful
from rackassign.stateful import Output, State, StatefulConsumer
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.fakes.transactions import Coordinator, committed_values
from tests.helpers.interrupts import LineInterrupt
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import counted, drain, give, member

PACKAGE = Path(rackassign.stateful.__file__).parent
FIRST, MORE = 5, 3
MOST_LINES = 5000
"""More than three polls execute."""

Make = Callable[[Path], StatefulConsumer]


def counting(folder: Path) -> StatefulConsumer:
    return member(folder, max_poll_records=2)


def writing(folder: Path) -> StatefulConsumer:
    def process(record: Record, state: State, output: Output) -> None:
        count = int(state.get(b"n") or 0) + 1
        state.put(b"n", b"%d" % count)
        output.send(b"%d" % count, record.key, topic="out")

    more: dict[str, Any] = {"process": process, "output": "out", "transactional_id": folder.name}
    return member(folder, max_poll_records=2, **more)


def interrupted(make: Make, line: int, *, goes_on: bool) -> str | None:
    """Interrupt a member, have it go on or close, and check it and its successor; return what was interrupted."""
    with pytest.MonkeyPatch.context() as patch, memory_directory() as folder:
        kafka = Kafka().installed(patch)
        kafka.make("t")
        kafka.make("out")
        coordinator = Coordinator(kafka).installed(patch)
        stop = LineInterrupt(PACKAGE, line)
        one = make(Path(folder) / "one")
        give(one, 0)
        kafka.feed(0, FIRST)
        one.poll(0)
        with stop.within():
            one.poll(0)
            one.poll(0)
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
        assert coordinator.open == {}, stop.place
        return stop.place


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "closes"])
@pytest.mark.parametrize("make", [counting, writing])
@pytest.mark.parametrize("step", [31, pytest.param(4, marks=pytest.mark.long)])
def test_a_poll_that_is_interrupted_anywhere_costs_nothing(make: Make, step: int, *, goes_on: bool) -> None:
    lines = 1
    while interrupted(make, lines, goes_on=goes_on) is not None:
        lines += step
        assert lines < MOST_LINES
    assert lines > 10 * step


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "closes"])
def test_so_does_one_that_is_interrupted_as_it_begins_or_ends(*, goes_on: bool) -> None:
    for line in range(1, 25):
        assert interrupted(counting, line, goes_on=goes_on) is not None
