"""The layout of the diagram of reads between racks: the positions of its boxes and ribbons.

Racks that are read from are on the left, racks that read on the right. A ribbon is as thick as the traffic between its
two racks. This module only computes numbers; the page's template draws them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rackassign.locality import Kind, read_locality

WIDTH, HEIGHT = 360.0, 240.0

LABEL_HEIGHT = 13.0
"""Height of a ribbon's label; a thinner ribbon shows it only when it is pointed at or focused."""

_LABEL_AT = 0.14
"""Position of a label on its ribbon, from 0 to 1: near its source, where ribbons do not cross each other yet."""

_BOX = 12.0
_GAP = 14.0

Rack = str | None
"""Name of a rack; None if unknown."""


class SankeyNode(NamedTuple):
    """A rack on one side: its left edge, its upper edge, and its height."""

    rack: Rack
    x: float
    y: float
    height: float
    amount: float


class SankeyLink(NamedTuple):
    """Traffic from one rack to another: an SVG path, its value, and where its label is centered."""

    source: Rack
    home: Rack
    path: str
    kind: Kind
    amount: float
    label_x: float
    label_y: float
    thickness: float


@dataclass(frozen=True, slots=True)
class SankeyLayout:
    """Boxes on both sides, and the ribbons between them, in units of a `WIDTH` x `HEIGHT` canvas."""

    left: tuple[SankeyNode, ...]
    right: tuple[SankeyNode, ...]
    ribbons: tuple[SankeyLink, ...]


def sankey_layout(pairs: Mapping[tuple[Rack, Rack], float]) -> SankeyLayout:
    """Compute the layout of reads, by source rack and reader's rack."""
    flowing = {pair: amount for pair, amount in pairs.items() if amount > 0}
    total = sum(flowing.values())
    sides = [_sums(flowing, side) for side in (0, 1)]
    most = max(map(len, sides))
    # At least half of the height is used for traffic, however many racks there are.
    gap = min(_GAP, HEIGHT / (2 * max(most, 1)))
    scale = (HEIGHT - gap * max(most - 1, 0)) / total if total else 0.0
    left, right = _boxes(sides[0], 0.0, scale, gap), _boxes(sides[1], WIDTH - _BOX, scale, gap)
    starts = {box.rack: box.y for box in left}
    ends = {box.rack: box.y for box in right}
    ribbons: list[SankeyLink] = []
    for source, home in sorted(flowing, key=lambda pair: (_order(pair[0]), _order(pair[1]))):
        thick = flowing[source, home] * scale
        path = _ribbon(starts[source], ends[home], thick)
        label_x, label_y = _label(starts[source], ends[home], thick)
        starts[source] += thick
        ends[home] += thick
        kind = read_locality(source, home)
        ribbons.append(SankeyLink(source, home, path, kind, flowing[source, home], label_x, label_y, thick))
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
    """Return the outline of a band that is horizontal at both ends."""
    a, b, middle = _BOX, WIDTH - _BOX, WIDTH / 2
    upper = f"M{a} {start:.2f}C{middle} {start:.2f} {middle} {end:.2f} {b} {end:.2f}"
    lower = f"L{b} {end + thick:.2f}C{middle} {end + thick:.2f} {middle} {start + thick:.2f} {a} {start + thick:.2f}Z"
    return upper + lower


def _label(start: float, end: float, thick: float) -> tuple[float, float]:
    """Return a point in the middle of a band, on the curve of `_ribbon`."""
    t = _LABEL_AT
    a, b, middle = _BOX, WIDTH - _BOX, WIDTH / 2
    x = a * (1 - t) ** 3 + 3 * middle * t * (1 - t) + b * t**3
    y = start + (end - start) * (3 * t**2 - 2 * t**3) + thick / 2
    return round(x, 2), round(y, 2)
