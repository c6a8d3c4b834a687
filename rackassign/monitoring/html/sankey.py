"""The picture of what is read from which rack to which: where its boxes and ribbons lie.

Racks that are read from stand on the left, racks that read on the right; a ribbon between two is as thick as what goes
that way. Numbers only: what is drawn and how is the page's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rackassign.monitoring.traffic import Kind

WIDTH, HEIGHT = 360.0, 240.0
_BOX = 12.0
_GAP = 14.0

Rack = str | None
"""None stands for what is not known."""


class SankeyNode(NamedTuple):
    """A rack on one side: its left edge, its upper edge, and how high it is."""

    rack: Rack
    x: float
    y: float
    height: float
    amount: float


class SankeyLink(NamedTuple):
    """What goes from one rack to another: an SVG path, and what it stands for."""

    source: Rack
    home: Rack
    path: str
    kind: Kind
    amount: float


@dataclass(frozen=True, slots=True)
class SankeyLayout:
    """Boxes on both sides, and the ribbons between them, in units of a `WIDTH` x `HEIGHT` canvas."""

    left: tuple[SankeyNode, ...]
    right: tuple[SankeyNode, ...]
    ribbons: tuple[SankeyLink, ...]


def sankey_layout(pairs: Mapping[tuple[Rack, Rack], float]) -> SankeyLayout:
    """Lay out what is read, by the rack it comes from and the rack it goes to."""
    flowing = {pair: amount for pair, amount in pairs.items() if amount > 0}
    total = sum(flowing.values())
    sides = [_sums(flowing, side) for side in (0, 1)]
    most = max(map(len, sides))
    # At least half of the height is for what flows, however many racks there are.
    gap = min(_GAP, HEIGHT / (2 * max(most, 1)))
    scale = (HEIGHT - gap * max(most - 1, 0)) / total if total else 0.0
    left, right = _boxes(sides[0], 0.0, scale, gap), _boxes(sides[1], WIDTH - _BOX, scale, gap)
    starts = {box.rack: box.y for box in left}
    ends = {box.rack: box.y for box in right}
    ribbons: list[SankeyLink] = []
    for source, home in sorted(flowing, key=lambda pair: (_order(pair[0]), _order(pair[1]))):
        thick = flowing[source, home] * scale
        path = _ribbon(starts[source], ends[home], thick)
        starts[source] += thick
        ends[home] += thick
        kind: Kind = "unknown" if None in {source, home} else "local" if source == home else "cross"
        ribbons.append(SankeyLink(source, home, path, kind, flowing[source, home]))
    return SankeyLayout(left, right, tuple(ribbons))


def _order(rack: Rack) -> tuple[bool, str]:
    return rack is None, rack or ""


def _sums(flowing: Mapping[tuple[Rack, Rack], float], side: int) -> dict[Rack, float]:
    sums: dict[Rack, float] = {}
    for pair in sorted(flowing, key=lambda pair: _order(pair[side])):
        sums[pair[side]] = sums.get(pair[side], 0.0) + flowing[pair]
    return sums


def _boxes(sums: Mapping[Rack, float], x: float, scale: float, gap: float) -> tuple[SankeyNode, ...]:
    boxes: list[SankeyNode] = []
    y = 0.0
    for rack, amount in sums.items():
        boxes.append(SankeyNode(rack, x, round(y, 2), round(amount * scale, 2), amount))
        y += amount * scale + gap
    return tuple(boxes)


def _ribbon(start: float, end: float, thick: float) -> str:
    """Return the outline of a band that leaves one side level and arrives at the other level."""
    a, b, middle = _BOX, WIDTH - _BOX, WIDTH / 2
    upper = f"M{a} {start:.2f}C{middle} {start:.2f} {middle} {end:.2f} {b} {end:.2f}"
    lower = f"L{b} {end + thick:.2f}C{middle} {end + thick:.2f} {middle} {start + thick:.2f} {a} {start + thick:.2f}Z"
    return upper + lower
