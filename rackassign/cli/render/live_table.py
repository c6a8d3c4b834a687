"""The table of `rackassign top`: the part of it that fits into the terminal, and how keys change that part.

What is shown depends on the report, the state that keys have changed, and the size of the terminal, and on nothing
else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from rackassign.cli.render.inspection import actions, overview, totals
from rackassign.monitoring import SORT_KEYS, ClusterReport, Price, SortKey
from rackassign.text import counted, strip_control_chars

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
    """What keys have changed.

    Args:
        sort: Order of the groups.
        first: Index of the first group that is shown.
        filter: Part of the names of the groups that are shown; empty for all groups.
        typing: Whether keys change the filter.
        stopped: Whether to end.
    """

    sort: SortKey = "money"
    first: int = 0
    filter: str = ""
    typing: bool = False
    stopped: bool = False

    def press(self, key: str, groups: int, page: int) -> TableState:
        """Return the state after a key.

        Args:
            key: The key.
            groups: Number of groups that the filter leaves.
            page: Number of groups that are shown at once.
        """
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
    """What is shown.

    Args:
        screen: The lines.
        groups: Number of groups that the filter leaves.
        page: Number of groups that are shown.
    """

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
    """Return what fits into a terminal.

    Args:
        survey: The last report.
        state: What keys have changed.
        price: Price of cross-rack traffic.
        console: The terminal.
        status: Why the report is not current; empty if it is.
        warnings: What was not seen.
    """
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
