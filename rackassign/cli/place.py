"""`rackassign place`: where placers would put the replicas of a layout, side by side, without a cluster."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rackassign import scenario
from rackassign.cli.output import check_output, safe
from rackassign.errors import ConfigError, InputError

if TYPE_CHECKING:
    from rackassign.placement.layout import Layout
    from rackassign.placement.quality import Quality

DONE = 0
NOW = "now"
COMPARED = ("kafka", "striped", "optimal")

_BAR = 10
"""Characters of the longest bar."""


def place(
    file: Annotated[str, typer.Argument(help="Layout as JSON: brokers and topics of a scenario; - is stdin.")] = "-",
    *,
    placer: Annotated[str, typer.Option(help="A name, or module:Class.")] = "optimal",
    compare: Annotated[bool, typer.Option("--compare", help=f"Beside it {', '.join(COMPARED)}.")] = False,
    rf: Annotated[int, typer.Option("--rf", min=0, help="Replicas of each partition; 0: as many as there are.")] = 0,
    output: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> int:
    """Place the replicas of a layout anew, and say how good that is."""
    check_output(output, "table", "json")
    # Together with the solver it takes longer to import than other commands.
    from rackassign.placement.layout import Layout  # noqa: PLC0415
    from rackassign.placement.quality import Quality  # noqa: PLC0415

    layout = Layout.read(scenario.parse(_text(file)))
    names = list(dict.fromkeys((placer, *(COMPARED if compare else ()))))
    layouts = {name: _placed(name, layout, rf) for name in names}
    quality = {NOW: Quality.of(layout)} | {name: Quality.of(made, layout) for name, made in layouts.items()}
    if output == "json":
        written = {
            name: {"topics": made.written()["topics"], **asdict(quality[name])} for name, made in layouts.items()
        }
        sys.stdout.write(json.dumps({"now": asdict(quality[NOW]), "placers": written}) + "\n")
    else:
        console = Console(highlight=False)
        console.print(_figures(quality))
        console.print(_picture({NOW: layout, **layouts}))
    return DONE


def _text(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise InputError("", f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError("", f"{file} is not UTF-8") from None


def _placed(name: str, layout: Layout, rf: int) -> Layout:
    """Return the layout as a placer would have it; `optimal` moves as little as it can, others begin anew."""
    from rackassign.placement.optimal import rebalance  # noqa: PLC0415 - as above
    from rackassign.placement.placer import load_placer  # noqa: PLC0415

    if name == "optimal":
        return layout.with_topics(rebalance(layout, replication_factor=rf or None).topics)
    placer = load_placer(name)
    made: dict[str, list[list[int]]] = {}
    try:
        for topic, lists in sorted(layout.topics.items()):
            factors = {rf or len(replicas) for replicas in lists}
            if len(factors) > 1:
                raise ConfigError(f"topic {topic}: its partitions differ in their replicas, which {name} cannot place")
            if lists:
                made[topic] = placer.place(0, len(lists), factors.pop(), layout.brokers)
    finally:
        placer.close()
    return layout.with_topics(made)


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


def _figures(quality: dict[str, Quality]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    for name in quality:
        table.add_column(safe(name), justify="right")
    for words, field in _ROWS:
        values = [getattr(each, field) for each in quality.values()]
        table.add_row(words, *map(_figure, values))
    return table


def _figure(value: Any) -> str:  # noqa: ANN401 - a number or nothing
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _picture(layouts: dict[str, Layout]) -> Table:
    """Draw brokers, rack by rack, with what they hold: a bar of replicas, the part that leads dark."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="█ leads, ░ follows", caption_justify="left")
    table.add_column("rack")
    table.add_column("broker", justify="right")
    for name in layouts:
        table.add_column(safe(name))
    held = {name: _held(layout) for name, layout in layouts.items()}
    most = max((count for replicas, _ in held.values() for count in replicas.values()), default=1)
    brokers = sorted(next(iter(layouts.values())).brokers, key=lambda b: (b.rack is None, b.rack or "", b.id))
    shown = ""
    for broker in brokers:
        rack = broker.rack or "none"
        bars = (_bar(replicas[broker.id], leaders[broker.id], most) for replicas, leaders in held.values())
        table.add_row("" if rack == shown else safe(rack), str(broker.id), *bars)
        shown = rack
    return table


def _held(layout: Layout) -> tuple[Counter[int], Counter[int]]:
    lists = [replicas for rows in layout.topics.values() for replicas in rows]
    return Counter(b for replicas in lists for b in replicas), Counter(replicas[0] for replicas in lists if replicas)


def _bar(replicas: int, leaders: int, most: int) -> str:
    whole, dark = round(_BAR * replicas / most), round(_BAR * leaders / most)
    return f"{'█' * dark}{'░' * (whole - dark)} {replicas}"
