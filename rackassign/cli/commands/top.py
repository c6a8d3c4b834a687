"""`rackassign top`: the report of `inspect` again and again, as a table that keys sort, filter and scroll."""

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
    from rackassign.monitoring import ClusterReport, RackMap, SortKey
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
    """Show cross-rack reads of consumer groups live until stopped. Keys: q, arrows, s to sort, / to filter."""
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
    seen = Picture("", 0, 1)
    with Live(console=shown.console, screen=True, auto_refresh=False) as live:
        while not state.stopped:
            try:
                each = _received(surveys, 0 if keys else _LOOK_S)
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
                age = _describe_age(problem, time.monotonic() - taken, _expected_s(last, shown.period_s))
                # Drawing takes some percent of a processor if it is done at each look.
                now = (id(last), state, age, shown.console.size)
                if now != drawn:
                    drawn, odd = now, tuple(warnings(last, shown.racks))
                    seen = picture(last, state, shown.price, shown.console, status=age, warnings=odd)
                    live.update(seen.screen, refresh=True)
            for key in keys(_LOOK_S) if keys else ():
                state = state.press(key, seen.groups, seen.page)


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
"""Lines at the end: which rows are shown, and the keys."""


_LONGEST_FILTER = 60


Lines = list[list[Segment]]


@dataclass(frozen=True, slots=True)
class TableState:
    """What keys have changed."""

    sort: SortKey = "money"
    first: int = 0
    # Part of the names of the groups that are shown; empty for all groups.
    filter: str = ""
    typing: bool = False
    stopped: bool = False

    def press(self, key: str, groups: int, page: int) -> TableState:
        """Return the state after a key."""
        if self.typing:
            return self._type(key)
        steps = {"up": -1, "down": 1, "page up": -page, "page down": page, "home": -groups, "end": groups}
        if key in steps:
            return replace(self, first=max(0, min(self.first + steps[key], groups - page)))
        if key == "s":
            return replace(self, sort=SORT_KEYS[(SORT_KEYS.index(self.sort) + 1) % len(SORT_KEYS)], first=0)
        if key == "/":
            return replace(self, typing=True)
        if key == "escape":
            return replace(self, filter="", first=0)
        return replace(self, stopped=True) if key == "q" else self

    def _type(self, key: str) -> TableState:
        if key in {"enter", "escape"}:
            return replace(self, typing=False, filter="" if key == "escape" else self.filter)
        if key == "backspace":
            return replace(self, filter=self.filter[:-1], first=0)
        if len(key) > 1:
            return self
        return replace(self, filter=(self.filter + key)[:_LONGEST_FILTER], first=0)

    def select(self, survey: ClusterReport) -> ClusterReport:
        """Return the report with the groups that the filter leaves, in order."""
        wanted = self.filter.casefold()
        left = tuple(f for f in survey.inspections if wanted in f.snapshot.live.name.casefold())
        return replace(survey, inspections=left).sorted_by(self.sort)


@dataclass(frozen=True, slots=True)
class Picture:
    """What is shown."""

    screen: RenderableType
    groups: int
    page: int


def picture(
    survey: ClusterReport,
    state: TableState,
    price: Price,
    console: Console,
    *,
    status: str = "",
    warnings: tuple[str, ...] = (),
) -> Picture:
    """Return what fits into a terminal."""
    # `status`: why the report is not current; empty if it is.
    height = console.height
    shown = state.select(survey)
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
    first = max(0, min(state.first, groups - 1))
    rows, page = _rows(console, shown, price, first, room - len(advice))
    foot = [
        *_lines(console, Text(_position(state, first, page, groups, len(survey.inspections)))),
        *_lines(console, Text(_help(state), style="dim", no_wrap=True, overflow="ellipsis")),
    ]
    lines = [*[*head, *rows, *advice, *notes][: height - _FOOT], *foot]
    return Picture(_joined(lines[:height]), groups, max(1, page))


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


def _rows(console: Console, shown: ClusterReport, price: Price, first: int, room: int) -> tuple[Lines, int]:
    """Return the table from a group on, and the number of its rows: as many as fit."""
    count = min(len(shown.inspections) - first, max(1, room))
    while True:
        part = replace(shown, inspections=shown.inspections[first : first + count])
        # Widths are those of the rows that are shown; a row with a range may have several lines.
        lines = _lines(console, overview(part, price, width=console.width))
        if len(lines) <= room or count <= 1:
            return lines, count
        count = max(1, count - max(1, (len(lines) - room) // 3))


def _position(state: TableState, first: int, page: int, groups: int, all_: int) -> str:
    if not groups:
        where = f"no group of {all_} has {state.filter!r} in its name" if state.filter else "no groups"
    else:
        where = f"{first + 1} to {first + page} of {counted(groups, 'group')} by {state.sort}"
        rest = groups - page
        if rest:
            where += f", {rest} more: arrow keys"
        if state.filter:
            where += f"; {all_ - groups} of {all_} hidden by /{state.filter}"
    return strip_control_chars(where)


def _help(state: TableState) -> str:
    if state.typing:
        return strip_control_chars(f"/{state.filter}_   enter: keep   esc: show all groups")
    return "q: quit   arrows, page up, page down: scroll   s: sort   /: filter"


def _lines(console: Console, part: RenderableType) -> Lines:
    return console.render_lines(part, console.options.update(height=None), pad=False)


def _joined(lines: Lines) -> Segments:
    segments: list[Segment] = []
    for i, line in enumerate(lines):
        segments += ([Segment.line()] if i else []) + line
    return Segments(segments)


_SEQUENCES = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[5~": "page up",
    "[6~": "page down",
    "[H": "home",
    "OH": "home",
    "[1~": "home",
    "[F": "end",
    "OF": "end",
    "[4~": "end",
}
"""Escape sequences of terminals, without the escape character."""


_CONTROLS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"}


_AT_ONCE = 256


Keys = Callable[[float], list[str]]
"""Waits up to some seconds for keys, and returns them: a character, or a name such as `up` or `escape`."""


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

    def read(wait_s: float) -> list[str]:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        return decode_keys(os.read(descriptor, _AT_ONCE).decode("utf-8", "replace")) if ready else []

    try:
        yield read
    finally:
        # A terminal that was closed has nothing to restore.
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def decode_keys(text: str) -> list[str]:
    """Return the keys that a terminal has sent; an unknown sequence is ignored."""
    keys: list[str] = []
    while text:
        if text[0] != "\x1b":
            key = _CONTROLS.get(text[0], text[0])
            if len(key) > 1 or key.isprintable():
                keys.append(key)
            text = text[1:]
            continue
        text = text[1:]
        length = _length(text)
        if not length:
            keys.append("escape")
        elif text[:length] in _SEQUENCES:
            keys.append(_SEQUENCES[text[:length]])
        text = text[length:]
    return keys


def _length(text: str) -> int:
    """Return the length of the sequence behind an escape character; 0 if there is none."""
    if text[:1] == "O":
        return min(2, len(text))
    if text[:1] != "[":
        return 0
    # A control sequence ends with a character from @ to ~ (ECMA-48).
    return next((i + 1 for i, c in enumerate(text) if i and "@" <= c <= "~"), len(text))
