"""Tables and pictures of layouts, for the commands that place replicas."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from rackassign.cli.terminal import plain_line
from rackassign.text import counted

if TYPE_CHECKING:
    from rackassign.placement.layout import Layout, LayoutMetrics

_BAR = 10
"""Characters of the longest bar."""

_ROWS: tuple[tuple[str, str], ...] = (
    ("replicas of a broker, most / mean", "replicas_per_broker"),
    ("leaders of a broker, most / mean", "leaders_per_broker"),
    ("the same within a topic", "leaders_per_topic"),
    ("the same after the loss of a broker", "leaders_after_loss"),
    ("replicas of a rack, most / mean", "replicas_per_rack"),
    ("leaders of a rack, most / mean", "leaders_per_rack"),
    ("partitions that share a rack", "sharing"),
    ("partitions in one rack only", "gone_with_rack"),
    ("replicas without a broker", "missing"),
    ("replicas moved", "moved"),
)


def waiting(replicas: int) -> str:
    """Return how many replicas have no broker."""
    return f"{counted(replicas, 'replica')} {'waits' if replicas == 1 else 'wait'} for a broker"


def figures(quality: dict[str, LayoutMetrics]) -> Table:
    """Return the figures of layouts side by side, by their names."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    for name in quality:
        table.add_column(plain_line(name), justify="right")
    for words, field in _ROWS:
        values = [getattr(each, field) for each in quality.values()]
        table.add_row(words, *map(_figure, values))
    return table


def _figure(value: Any) -> str:  # noqa: ANN401 - a number or nothing
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def picture(layouts: dict[str, Layout]) -> Table:
    """Draw brokers, rack by rack, with what they hold: a bar of replicas, the part that leads dark."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="█ leads, ░ follows", caption_justify="left")
    table.add_column("rack")
    table.add_column("broker", justify="right")
    for name in layouts:
        table.add_column(plain_line(name))
    held = {name: _held(layout) for name, layout in layouts.items()}
    most = max((count for replicas, _ in held.values() for count in replicas.values()), default=1)
    brokers = sorted(next(iter(layouts.values())).brokers, key=lambda b: (b.rack is None, b.rack or "", b.id))
    shown = ""
    for broker in brokers:
        rack = broker.rack or "none"
        bars = (_bar(replicas[broker.id], leaders[broker.id], most) for replicas, leaders in held.values())
        table.add_row("" if rack == shown else plain_line(rack), str(broker.id), *bars)
        shown = rack
    return table


def _held(layout: Layout) -> tuple[Counter[int], Counter[int]]:
    lists = [replicas for rows in layout.topics.values() for replicas in rows]
    return Counter(b for replicas in lists for b in replicas), Counter(replicas[0] for replicas in lists if replicas)


def _bar(replicas: int, leaders: int, most: int) -> str:
    whole, dark = round(_BAR * replicas / most), round(_BAR * leaders / most)
    return f"{'█' * dark}{'░' * (whole - dark)} {replicas}"
