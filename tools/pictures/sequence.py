"""Who sends what to whom, from top to bottom: sequence diagrams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tools.pictures.svg import document, text

COLUMN, ROW, TOP, MARGIN = 250, 50, 64, 20
_BOX_WIDTH, _BOX_HEIGHT, _HEAD = 190, 30, 8
_LETTER = 7.2
"""Width of a letter, for the boxes around notes."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message.

    Args:
        source: Number of the column that sends it.
        target: Number of the column that gets it.
        label: What it is.
        kind: `local` and `cross` are the colors of reads within a rack and across racks.
    """

    source: int
    target: int
    label: str
    kind: Literal["plain", "local", "cross"] = "plain"


@dataclass(frozen=True, slots=True)
class Note:
    """What happens in one column.

    Args:
        column: Its number.
        label: What happens.
    """

    column: int
    label: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence diagram.

    Args:
        described: What it shows, for readers who do not see it.
        columns: Names of those who take part.
        steps: Messages and notes, from top to bottom.
    """

    described: str
    columns: tuple[str, ...]
    steps: tuple[Arrow | Note, ...]

    def __post_init__(self) -> None:
        for step in self.steps:
            numbers = (step.column,) if isinstance(step, Note) else (step.source, step.target)
            if not all(0 <= number < len(self.columns) for number in numbers):
                raise ValueError(f"no such column: {step}")
            if isinstance(step, Arrow) and step.source == step.target:
                raise ValueError(f"an arrow to itself: {step}")

    def svg(self) -> str:
        """Return the picture."""
        width = COLUMN * len(self.columns) + 2 * MARGIN
        height = TOP + ROW * len(self.steps) + MARGIN
        return document(self.described, width, height, self._elements(height))

    def _elements(self, height: int) -> Iterator[str]:
        for number, name in enumerate(self.columns):
            x = _middle(number)
            yield f'  <line class="zone" x1="{x}" y1="{MARGIN}" x2="{x}" y2="{height - MARGIN}"/>'
            yield _box(x, MARGIN + _BOX_HEIGHT / 2, _BOX_WIDTH)
            yield text(x, MARGIN + 20, name, kind="title")
        for number, step in enumerate(self.steps):
            y = TOP + ROW * number + 34
            yield from _note(step, y) if isinstance(step, Note) else _arrow(step, y)


def _middle(column: int) -> int:
    return MARGIN + COLUMN * column + COLUMN // 2


def _box(x: float, y: float, width: float) -> str:
    left, top = x - width / 2, y - _BOX_HEIGHT / 2
    return f'  <rect class="box" x="{left:g}" y="{top:g}" width="{width:g}" height="{_BOX_HEIGHT}" rx="4"/>'


def _note(note: Note, y: int) -> Iterator[str]:
    yield _box(_middle(note.column), y - 5, len(note.label) * _LETTER + 16)
    yield text(_middle(note.column), y, note.label)


def _arrow(arrow: Arrow, y: int) -> Iterator[str]:
    start, end = _middle(arrow.source), _middle(arrow.target)
    back = -_HEAD if end > start else _HEAD
    line, head = ("arrow", "head") if arrow.kind == "plain" else (arrow.kind, f"head-{arrow.kind}")
    yield f'  <line class="{line}" x1="{start}" y1="{y}" x2="{end + back}" y2="{y}"/>'
    yield f'  <path class="{head}" d="M{end} {y} l{back} -5 v10 z"/>'
    yield text((start + end) / 2, y - 8, arrow.label)
