"""`rackassign top`: the report of `inspect` again and again, as a table that keys sort and hold."""

from __future__ import annotations

import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.segment import Segment, Segments
from rich.text import Text

from rackassign.cli import ExitCode
from rackassign.cli.commands.inspect import actions, overview, totals
from rackassign.cli.connection import Bootstrap, ClientConfig, Reconnection, admin_client
from rackassign.cli.shared_options import (
    All,
    CloudOption,
    Groups,
    Interval,
    PriceOption,
    RackMapFile,
    Sort,
    check_interval,
    read_rack_map,
    sort_key,
    wanted_groups,
    warnings,
)
from rackassign.cli.terminal import examples, plain_line, terminate_as_interrupt
from rackassign.monitoring import SORT_KEYS, ClusterReport, GroupCollector, Price, SortKey, collect_repeatedly
from rackassign.monitoring.collector import period_s
from rackassign.text import counted, strip_control_chars

if TYPE_CHECKING:
    from rackassign.monitoring import RackMap
    from rackassign.util.callbacks import Progress


app = typer.Typer(rich_markup_mode=None)


INTERVAL_S = 5.0


_LOOK_S = 0.25
"""Longest time until a report or the age of the last one is shown."""


_LATE = 3
"""A report of so many intervals ago is shown with its age: a request to a broker that is gone takes long to fail."""


_END_S = 1.0
"""How long the end of a request in progress is waited for."""


Surveys: TypeAlias = "queue.Queue[ClusterReport | str | BaseException | None]"
"""Reports, or why there is none; an error that ends the command, None at the end.

There is one at most: if the reader of the output pauses, as `less` does, no reports are made meanwhile. Otherwise they
would be kept, and be shown later as if they were current.
"""


@app.command(
    epilog=examples(
        "top --bootstrap-server localhost:9092 --all-groups",
        "top --bootstrap-server localhost:9092 --group billing --interval 10",
    )
)
def top(
    *,
    bootstrap: Bootstrap,
    group: Groups = None,
    all_: All = False,
    rack_map: RackMapFile = "",
    price: PriceOption = None,
    cloud: CloudOption = None,
    interval: Interval = INTERVAL_S,
    sort: Sort = "money",
    iterations: Annotated[
        int, typer.Option("--iterations", min=0, help="Number of refreshes; 0 runs until stopped.")
    ] = 0,
    client_config: ClientConfig = "",
) -> int:
    """Show cross-rack reads of consumer groups live until stopped. Keys: q to quit, s to sort, p to pause."""
    names = wanted_groups(group, all_=all_)
    check_interval(interval)
    racks = read_rack_map(rack_map)
    by = sort_key(sort)

    shown = _Shown(racks, Price.from_options(price, cloud), Console(highlight=False), by, period_s(interval))

    def survey(report_progress: Callable[[Progress], None]) -> Iterator[ClusterReport | str]:
        with admin_client(bootstrap, client_config) as admin:
            collector = GroupCollector(admin, racks)
            with Reconnection(bootstrap, client_config, collector.use) as reconnect:
                yield from collect_repeatedly(
                    collector,
                    names,
                    interval_s=interval,
                    looks=iterations,
                    reconnect=reconnect,
                    report_progress=report_progress,
                )

    try:
        with terminate_as_interrupt(), _in_thread(survey) as (surveys, step):
            if shown.console.is_terminal:
                with pressed_keys() as keys:
                    _show_live(surveys, step, keys, shown)
            else:
                _print_each(surveys, shown)
    except KeyboardInterrupt:
        # That is how it is meant to end.
        pass
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Shown:
    """What reports are shown with."""

    racks: RackMap
    price: Price
    console: Console
    by: SortKey
    period_s: float


class _StoppedError(Exception):
    """The command ends in the middle of a report."""


@contextmanager
def _in_thread(
    survey: Callable[[Callable[[Progress], None]], Iterator[ClusterReport | str]],
) -> Iterator[tuple[Surveys, Callable[[], str]]]:
    """Make reports in a thread, so that keys work meanwhile; yield the reports, and what the thread does now."""
    surveys: Surveys = queue.Queue(maxsize=1)
    stop = threading.Event()
    step = "Connecting"

    def report_progress(progress: Progress) -> None:
        nonlocal step
        step = f"{progress.step} ({progress.done} of {progress.total})" if progress.total else progress.step
        if stop.is_set():
            raise _StoppedError

    def put(each: ClusterReport | str | BaseException | None) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                surveys.put(each, timeout=_LOOK_S)
                return

    def work() -> None:
        try:
            for each in survey(report_progress):
                put(each)
        except _StoppedError:
            return
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            put(error)
        put(None)

    thread = threading.Thread(target=work, name="rackassign-top", daemon=True)
    thread.start()
    try:
        yield surveys, lambda: step
    finally:
        stop.set()
        thread.join(_END_S)


def _received(surveys: Surveys, wait_s: float | None) -> ClusterReport | str | None:
    """Return the next report, or why there is none; None at the end."""
    each = surveys.get(timeout=wait_s)
    if isinstance(each, BaseException):
        raise each
    return each


def _show_live(surveys: Surveys, step: Callable[[], str], keys: Keys | None, shown: _Shown) -> None:
    """Show the last report, and its age if the next one failed, until a key or the last report ends it."""
    state, last, taken, problem = TableState(shown.by), None, 0.0, ""
    drawn: object = None
    with Live(console=shown.console, screen=True, auto_refresh=False) as live:
        while not state.stopped:
            try:
                # While it is paused no report is taken, and so none is made. Before the first there is nothing to hold,
                # and an error that ends the command would not be seen.
                each = problem if state.paused and last is not None else _received(surveys, 0 if keys else _LOOK_S)
                if each is None:
                    return
                if isinstance(each, str):
                    problem = each
                else:
                    last, taken, problem = each, time.monotonic(), ""
            except queue.Empty:
                pass
            if last is None:
                live.update(Text(strip_control_chars(f"{problem or step()}")), refresh=True)
            else:
                age_s = time.monotonic() - taken
                age = f"paused; this is the state of {age_s:.0f} s ago" if state.paused else ""
                age = age or _describe_age(problem, age_s, _expected_s(last, shown.period_s))
                # Drawing takes some percent of a processor if it is done at each look.
                now = (id(last), state, age, shown.console.size)
                if now != drawn:
                    drawn, odd = now, tuple(warnings(last, shown.racks))
                    live.update(
                        picture(last, state.sort, shown.price, shown.console, status=age, warnings=odd), refresh=True
                    )
            for key in keys(_LOOK_S) if keys else "":
                state = state.press(key)


def _expected_s(last: ClusterReport, period_s: float) -> float:
    """Return the seconds after which the next report is expected.

    A report without any measured partition has no time between samples, and takes as long as any other.
    """
    return max(period_s, last.measured.seconds, last.duration_s)


def _describe_age(problem: str, age_s: float, expected_s: float) -> str:
    """Return why the last report is not current; empty if it is."""
    if not problem and age_s <= _LATE * max(expected_s, INTERVAL_S):
        return ""
    return f"{problem or 'no report since then'}; this is the state of {age_s:.0f} s ago"


def _print_each(surveys: Surveys, shown: _Shown) -> None:
    """Print each report in full, for logs and pipes."""
    console, price = shown.console, shown.price
    while (survey := _received(surveys, None)) is not None:
        if isinstance(survey, str):
            console.print(plain_line(survey), soft_wrap=True)
            continue
        ordered = survey.sorted_by(shown.by)
        console.print(plain_line(totals(ordered, price)), soft_wrap=True)
        if ordered.inspections:
            console.print(overview(ordered, price, width=console.width))
        to_do = actions(ordered, price, width=console.width)
        if to_do is not None:
            console.print(to_do)
        for line in warnings(ordered, shown.racks):
            console.print(plain_line(line), soft_wrap=True)


_ACTIONS = 3
"""Recommended changes that are shown if there is room."""


_LEAST_ROWS = 5
"""Rows of groups that recommended changes leave room for."""


_HEADING = 5
"""Lines of a table without rows, at most."""


_NOTES = 2
"""Warnings that are shown; others are counted."""


_FOOT = 2
"""Lines at the end: how many groups there are, and the keys."""


Lines = list[list[Segment]]


@dataclass(frozen=True, slots=True)
class TableState:
    """What keys have changed."""

    sort: SortKey = "money"
    paused: bool = False
    stopped: bool = False

    def press(self, key: str) -> TableState:
        """Return the state after a key."""
        if key == "s":
            return replace(self, sort=SORT_KEYS[(SORT_KEYS.index(self.sort) + 1) % len(SORT_KEYS)])
        if key == "p":
            return replace(self, paused=not self.paused)
        return replace(self, stopped=True) if key == "q" else self


def picture(
    survey: ClusterReport,
    sort: SortKey,
    price: Price,
    console: Console,
    *,
    status: str = "",
    warnings: tuple[str, ...] = (),
) -> Segments:
    """Return what fits into a terminal."""
    # `status`: why the report is not current; empty if it is.
    height = console.height
    shown = survey.sorted_by(sort)
    groups = len(shown.inspections)
    head = _lines(console, Text(strip_control_chars(totals(survey, price))))
    if status:
        head += _lines(console, Text(strip_control_chars(status), style="reverse"))
    notes = _notes(console, warnings)
    room = max(1, height - len(head) - len(notes) - _FOOT)
    advice = _advice(console, shown, price)
    # The groups come first: in a small terminal there is no advice.
    if len(advice) > room - min(groups, _LEAST_ROWS) - _HEADING:
        advice = []
    rows, count = _rows(console, shown, price, room - len(advice))
    rest = f", {groups - count} more: rackassign inspect" if groups > count else ""
    foot = [
        *_lines(console, Text(f"{counted(groups, 'group')} by {sort}{rest}" if groups else "no groups")),
        *_lines(console, Text("q: quit   s: sort   p: pause", style="dim", no_wrap=True, overflow="ellipsis")),
    ]
    lines = [*[*head, *rows, *advice, *notes][: height - _FOOT], *foot][:height]
    return Segments([part for i, line in enumerate(lines) for part in ([Segment.line()] if i else []) + line])


def _notes(console: Console, warnings: tuple[str, ...]) -> Lines:
    notes = [Text(strip_control_chars(line), no_wrap=True, overflow="ellipsis") for line in warnings[:_NOTES]]
    if len(warnings) > len(notes):
        notes.append(Text(f"{counted(len(warnings) - len(notes), 'warning')} more: rackassign inspect shows all"))
    return [line for note in notes for line in _lines(console, note)]


def _advice(console: Console, shown: ClusterReport, price: Price) -> Lines:
    table = actions(shown, price, width=console.width, most=_ACTIONS)
    if table is None:
        return []
    table.caption = None
    return _lines(console, table)


def _rows(console: Console, shown: ClusterReport, price: Price, room: int) -> tuple[Lines, int]:
    """Return the table with as many rows as fit, and their number."""
    count = min(len(shown.inspections), max(1, room))
    while True:
        part = replace(shown, inspections=shown.inspections[:count])
        # Widths are those of the rows that are shown; a row with a range may have several lines.
        lines = _lines(console, overview(part, price, width=console.width))
        if len(lines) <= room or count <= 1:
            return lines, count
        count = max(1, count - max(1, (len(lines) - room) // 3))


def _lines(console: Console, part: RenderableType) -> Lines:
    return console.render_lines(part, console.options.update(height=None), pad=False)


Keys = Callable[[float], str]
"""Waits up to some seconds for keys, and returns their characters."""

_AT_ONCE = 256


@contextmanager
def pressed_keys() -> Iterator[Keys | None]:
    """Yield a function that reads keys; None if stdin is no terminal. Ctrl-C interrupts as usual."""
    if sys.stdin is None:
        # It was closed before the interpreter started, as after `command <&-`.
        yield None
        return
    try:
        import termios  # noqa: PLC0415 - not on Windows
        import tty  # noqa: PLC0415 - the same

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError):
        # termios.error is an OSError only by its numbers, so it is caught below.
        yield None
        return
    except termios.error:
        yield None
        return
    tty.setcbreak(descriptor)

    def read(wait_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        return os.read(descriptor, _AT_ONCE).decode("ascii", "ignore") if ready else ""

    try:
        yield read
    finally:
        # A terminal that was closed has nothing to restore.
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
