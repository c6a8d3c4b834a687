"""`rackassign top`: reports are made no faster than they are shown, and how long each is current.

The table of `rackassign top`: what fits, in which order, and what keys do.
"""

from __future__ import annotations

import io
import os
import pty
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from queue import Queue
from threading import Event
from types import SimpleNamespace

import pytest
from rich.console import Console

from rackassign.cli.commands import top
from rackassign.cli.commands.top import TableState, picture, pressed_keys
from rackassign.errors import KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.monitoring import ClusterReport, Price, RackMap, ReadRates, SortKey, Throughput
from rackassign.testing.harness import wait_until
from rackassign.util.callbacks import Progress
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates


def test_while_the_reader_of_the_output_pauses_reports_are_not_kept() -> None:
    begun: list[int] = []
    read_on = Event()

    def survey(_: Callable[[Progress], None]) -> Iterator[str]:
        for number in range(1000):
            begun.append(number)
            yield f"report {number}"
        read_on.set()

    with top._in_thread(survey) as (surveys, _):
        wait_until(lambda: not surveys.empty(), "a report")
        # One that waits to be read, and one that is ready.
        assert not read_on.wait(0.3)
        assert len(begun) <= 2
        assert [top._received(surveys, 60.0) for _ in range(1000)] == [f"report {number}" for number in range(1000)]
        assert top._received(surveys, 60.0) is None


def test_a_command_that_ends_does_not_wait_for_a_reader() -> None:
    ended = Event()

    def survey(report_progress: Callable[[Progress], None]) -> Iterator[str]:
        try:
            while True:
                yield "report"
                # As in the middle of a report: a command that was stopped ends at the next step.
                report_progress(Progress("Describing groups"))
        finally:
            ended.set()

    with top._in_thread(survey) as (surveys, _):
        wait_until(lambda: not surveys.empty(), "a report")
    assert ended.wait(60.0)


@pytest.mark.parametrize(("age_s", "current"), [(170.0, True), (190.0, False)])
def test_a_report_without_a_measured_partition_is_current_until_three_intervals_have_passed(
    monkeypatch: pytest.MonkeyPatch, age_s: float, *, current: bool
) -> None:
    there = cluster({"t": [[1]]}, brokers("ab"))
    report = ClusterReport(there, (inspected(group(member("m", "b", {"t": [0]})), there),), (), Throughput())
    surveys: top.Surveys = Queue()
    surveys.put(report)
    times = iter([0.0, age_s])
    monkeypatch.setattr(top, "time", SimpleNamespace(monotonic=lambda: next(times)))
    console = Console(file=StringIO(), force_terminal=True, width=160, height=24)
    shown = top._Shown(RackMap(), Price(), console, "money", 60.0)
    top._show_live(surveys, lambda: "", lambda _: "q", shown)
    assert isinstance(console.file, StringIO)
    assert ("no report since then" in console.file.getvalue()) is not current


GROUPS = 200
THERE = cluster({"t": [[1]]}, brokers("ab"))


@cache
def groups_report(count: int = GROUPS) -> ClusterReport:
    """Return groups that read across racks, the last one most."""
    found = []
    for i in range(count):
        reads = ReadRates({TopicPartition("t", 0): 1000.0 * (i + 1)})
        found.append(inspected(group(member("m", "b", {"t": [0]}), name=f"group-{i:03}"), THERE, reads))
    return ClusterReport(THERE, tuple(found), (), rates({("t", 0): 1.0}))


def table_lines(
    survey: ClusterReport, sort: SortKey = "money", *, height: int = 24, width: int = 80, status: str = ""
) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, legacy_windows=False)
    console.print(picture(survey, sort, Price(), console, status=status, warnings=("one", "two", "three")), end="")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue().splitlines()
    assert len(text) <= height
    assert max(map(len, text)) <= width
    return text


def groups_in(text: list[str]) -> list[int]:
    """Return the groups of the table's rows; recommended changes are in another table."""
    table = text[: next((i for i, line in enumerate(text) if "what would gain" in line), len(text))]
    return [int(line.split()[0][-3:]) for line in table if line.strip().startswith("group-")]


@pytest.mark.parametrize("height", [12, 24, 60])
def test_what_costs_most_is_on_top_and_what_does_not_fit_is_counted(height: int) -> None:
    text = table_lines(groups_report(), height=height)
    rows = groups_in(text)
    assert rows == list(range(GROUPS - 1, GROUPS - 1 - len(rows), -1))
    assert f"{GROUPS} groups by money, {GROUPS - len(rows)} more: rackassign inspect" in text[-2]
    assert text[-1].startswith("q: quit")
    assert len(rows) > (0 if height == 12 else height // 4)


def test_keys_sort_pause_and_end() -> None:
    state = TableState()
    for key in "ssss\x1b[A/":
        state = state.press(key)
    assert state == TableState("name")
    assert groups_in(table_lines(groups_report(), state.sort))[0] == 0
    assert state.press("p").paused
    assert not state.press("p").press("p").paused
    assert state.press("q").stopped


def test_while_it_is_paused_no_report_is_taken() -> None:
    surveys: top.Surveys = Queue()
    first, second = groups_report(1), groups_report(2)
    surveys.put(first)
    surveys.put(second)
    typed = iter(["p", "", "", "p", "q"])
    console = Console(file=StringIO(), force_terminal=True, width=160, height=24)
    shown = top._Shown(RackMap(), Price(), console, "money", 60.0)
    top._show_live(surveys, lambda: "", lambda _: next(typed), shown)
    assert isinstance(console.file, StringIO)
    before, _, after = console.file.getvalue().partition("paused")
    assert ("1 group by" in before, "2 groups by" in before, "2 groups by" in after) == (True, False, True)


def test_a_pause_before_the_first_report_does_not_hide_why_there_is_none() -> None:
    surveys: top.Surveys = Queue()

    def keys(_: float) -> str:
        if surveys.empty():
            surveys.put(KafkaUnavailableError("Kafka does not respond"))
            return "p"
        return "q"

    console = Console(file=StringIO(), force_terminal=True, width=160, height=24)
    shown = top._Shown(RackMap(), Price(), console, "money", 60.0)
    with pytest.raises(KafkaUnavailableError):
        top._show_live(surveys, lambda: "", keys, shown)


def test_an_old_report_is_shown_with_its_age() -> None:
    text = table_lines(groups_report(3), status="Kafka at k:1 does not respond; this is the state of 35 s ago")
    assert any("this is the state of 35 s ago" in line for line in text)
    assert groups_in(text) == [2, 1, 0]


def test_nothing_at_all_is_shown_as_such() -> None:
    assert "no groups" in table_lines(replace(groups_report(0)))[-2]


@pytest.mark.parametrize("size", [(5, 40), (2, 20), (10, 30)])
def test_small_terminals_get_what_fits(size: tuple[int, int]) -> None:
    height, width = size
    console = Console(file=io.StringIO(), width=width, height=height, legacy_windows=False)
    console.print(picture(groups_report(), "money", Price(), console), end="")
    assert isinstance(console.file, io.StringIO)
    assert len(console.file.getvalue().splitlines()) <= height


def test_a_terminal_is_read_key_by_key_and_then_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with os.fdopen(theirs, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pressed_keys() as keys:
            assert keys is not None
            assert keys(0.0) == ""
            os.write(ours, b"s\xff")
            assert keys(60.0) == "s"
        assert termios.tcgetattr(theirs) == before
    os.close(ours)


def test_there_are_no_keys_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open(encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pressed_keys() as keys:
            assert keys is None


def test_there_are_no_keys_where_stdin_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pressed_keys() as keys:
        assert keys is None
