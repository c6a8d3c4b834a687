"""`rackassign place`: where placers would put the replicas of a layout, side by side, without a cluster."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rackassign import scenario
from rackassign.cli.files import text_of
from rackassign.cli.layouts import figures, picture
from rackassign.cli.output import check_output, plain
from rackassign.errors import ConfigError

if TYPE_CHECKING:
    from rackassign.placement.layout import Layout

DONE = 0
NOW = "now"
COMPARED = ("kafka", "striped", "optimal")


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

    layout = Layout.read(scenario.parse(sys.stdin.read() if file == "-" else text_of(file)))
    names = list(dict.fromkeys((placer, *(COMPARED if compare else ()))))
    layouts = {name: _placed(name, layout, rf) for name in names}
    quality = {NOW: Quality.of(layout)} | {name: Quality.of(made, layout) for name, made in layouts.items()}
    if output == "json":
        written = {
            name: {"topics": made.written()["topics"], **asdict(quality[name])} for name, made in layouts.items()
        }
        sys.stdout.write(json.dumps({"now": asdict(quality[NOW]), "placers": written}) + "\n")
    else:
        console = plain()
        console.print(figures(quality))
        console.print(picture({NOW: layout, **layouts}))
    return DONE


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
