"""The table of `rackassign top`: what fits, in which order, and what keys do."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from rackassign.cli.commands.top import TableState, picture
from rackassign.model import TopicPartition
from rackassign.monitoring import ClusterReport, Price, ReadRates
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates

GROUPS = 200
THERE = cluster({"t": [[1]]}, brokers("ab"))


@cache
def report(count: int = GROUPS) -> ClusterReport:
    """Return groups that read across racks, the last one most."""
    found = []
    for i in range(count):
        reads = ReadRates({TopicPartition("t", 0): 1000.0 * (i + 1)})
        found.append(inspected(group(member("m", "b", {"t": [0]}), name=f"group-{i:03}"), THERE, reads))
    return ClusterReport(THERE, tuple(found), (), rates({("t", 0): 1.0}))


def lines(
    survey: ClusterReport, state: TableState | None = None, *, height: int = 24, width: int = 80, status: str = ""
) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, legacy_windows=False)
    seen = picture(survey, state or TableState(), Price(), console, status=status, warnings=("one", "two", "three"))
    console.print(seen.screen, end="")
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
    text = lines(report(), height=height)
    rows = groups_in(text)
    assert rows == list(range(GROUPS - 1, GROUPS - 1 - len(rows), -1))
    assert f"1 to {len(rows)} of {GROUPS} groups by money, {GROUPS - len(rows)} more: arrow keys" in text[-2]
    assert text[-1].startswith("q: quit")
    assert len(rows) > (0 if height == 12 else height // 4)


def test_all_rows_are_reached_and_none_is_cut() -> None:
    survey, state, seen = report(), TableState(), set[int]()
    while 0 not in seen:
        rows = groups_in(lines(survey, state))
        assert set(rows) - seen
        seen.update(rows)
        state = state.press("page down", GROUPS, len(rows))
    assert seen == set(range(GROUPS))
    assert groups_in(lines(survey, state.press("end", GROUPS, len(rows))))[-1] == 0
    assert groups_in(lines(survey, state.press("home", GROUPS, len(rows))))[0] == GROUPS - 1
    assert groups_in(lines(survey, TableState().press("down", GROUPS, 5)))[0] == GROUPS - 2
    assert TableState().press("up", GROUPS, 5).first == 0


def test_s_sorts_and_a_slash_filters() -> None:
    state = TableState()
    for key in ("s", "s", "s", "s"):
        state = state.press(key, GROUPS, 10)
    assert state.sort == "name"
    assert groups_in(lines(report(), state))[0] == 0
    for key in ("/", "-", "0", "1", "q"):
        state = state.press(key, GROUPS, 10)
    assert not state.stopped
    assert "no group of 200 has '-01q' in its name" in lines(report(), state)[-2]
    assert "/-01q_" in lines(report(), state)[-1]
    state = state.press("backspace", 0, 1).press("enter", 0, 1)
    text = lines(report(), state)
    assert groups_in(text) == list(range(10, 10 + len(groups_in(text))))
    assert "190 of 200 hidden by /-01" in text[-2]
    assert state.press("escape", 10, 10).filter == ""
    assert state.press("q", 10, 10).stopped


def test_an_old_report_is_shown_with_its_age() -> None:
    text = lines(report(3), status="Kafka at k:1 does not respond; this is the state of 35 s ago")
    assert any("this is the state of 35 s ago" in line for line in text)
    assert groups_in(text) == [2, 1, 0]


def test_nothing_at_all_is_shown_as_such() -> None:
    assert "no groups" in lines(replace(report(0)))[-2]


@pytest.mark.parametrize("size", [(5, 40), (2, 20), (10, 30)])
def test_small_terminals_get_what_fits(size: tuple[int, int]) -> None:
    height, width = size
    console = Console(file=io.StringIO(), width=width, height=height, legacy_windows=False)
    console.print(picture(report(), TableState(), Price(), console).screen, end="")
    assert isinstance(console.file, io.StringIO)
    assert len(console.file.getvalue().splitlines()) <= height
