"""`rackassign top`: reports are made no faster than they are shown, and how long each is current."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from queue import Queue
from threading import Event
from types import SimpleNamespace

import pytest
from rich.console import Console

from rackassign.cli.commands import top
from rackassign.monitoring import ClusterReport, Price, RackMap, Throughput
from rackassign.testing.harness import wait_until
from rackassign.util.callbacks import Progress
from tests.helpers.builders import brokers, cluster, group, inspected, member


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
    top._show_live(surveys, lambda: "", lambda _: ["q"], shown)
    assert isinstance(console.file, StringIO)
    assert ("no report since then" in console.file.getvalue()) is not current
