"""The handler of a signal may raise anywhere in a call: each record still counts once, and is written once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rackassign.stateful
from rackassign.stateful import Output, State, StatefulConsumer
from tests.helpers.examples import further
from tests.helpers.interrupts import LineInterrupt
from tests.helpers.stateful_world import Played, Stage, count

PACKAGE = Path(rackassign.stateful.__file__).parent
LEAST_LINES, MOST_LINES = 200, 5000
"""Bounds of what such calls execute."""


class ExpiredError(Exception):
    """What the handler of an alarm raises."""


def writing(record: Any, state: State, output: Output) -> None:
    count(record, state)
    output.send(state.get(b"n"))


def interrupts(one: Played, line: int, kind: type[BaseException], *, commits: bool) -> LineInterrupt:
    """Have a member interrupted at a line of its next two calls."""
    stop = LineInterrupt(PACKAGE, line, kind)

    def calls(member: StatefulConsumer) -> None:
        with stop.within():
            member.poll(0)
            if commits:
                member.commit()
            else:
                member.poll(0)

    one.todo.append(calls)
    return stop


@pytest.mark.parametrize(
    ("kind", "commits"), [(KeyboardInterrupt, False), (ExpiredError, True)], ids=["two polls", "a poll and a commit"]
)
@pytest.mark.parametrize("step", [83, *further(3)])
def test_a_call_that_is_interrupted_anywhere_costs_nothing(
    stage: Stage, kind: type[BaseException], step: int, *, commits: bool
) -> None:
    stage.remake("out")
    one = stage.start("1", process=writing, output="out", max_poll_records=2)
    line, fed = 1, 0
    place: str | None = ""
    while place is not None:
        stage.feed(3)
        fed += 3
        stop = interrupts(one, line, kind, commits=commits)
        # A file that was interrupted while records were applied is tried again after a second.
        stage.run(2.5)
        place = stop.place
        assert one.counted() == fed, place
        assert stage.values("out")[fed:] == [], place
        line += step
        assert line < MOST_LINES
    assert line > LEAST_LINES
    # One that is closed after it.
    stage.feed(3)
    interrupts(one, line // 2, kind, commits=commits)
    one.todo.append(lambda _: setattr(one, "stopping", True))
    stage.run(3.0)
    two = stage.start("2", process=writing, output="out")
    stage.run(3.0)
    assert two.counted() == fed + 3
    assert sorted(stage.values("out"), key=int) == [b"%d" % (number + 1) for number in range(fed + 3)]
    # One that comes while `process` runs is its error, or the cause of one.
    assert all(ExpiredError.__name__ in str(each) for each in one.raised)
