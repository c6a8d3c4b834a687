"""`rackassign simulate-placement`: where placers would put the replicas of a layout, without a cluster."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackassign import scenario
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.render.layout import figures, picture
from rackassign.cli.shared_options import (
    IgnoreRacks,
    PlacerConfig,
    PlacerConfigFile,
    ReplicationFactor,
    closed_afterwards,
    read_text,
    settings_of,
)
from rackassign.cli.terminal import Output, check_output, plain_console, warn
from rackassign.errors import ConfigError
from rackassign.text import short_repr

if TYPE_CHECKING:
    from rackassign.placement.layout import Layout

NOW = "now"
COMPARED = ("kafka", "striped", "optimal")


def simulate_placement(
    file: Annotated[str, typer.Argument(help="Layout as JSON (brokers and topics of a scenario); - is stdin.")] = "-",
    *,
    placer: Annotated[str, typer.Option(help="Placer: a name or module:Class.")] = "optimal",
    compare: Annotated[bool, typer.Option("--compare", help=f"Compare with {', '.join(COMPARED)}.")] = False,
    placer_config: PlacerConfig = None,
    placer_config_file: PlacerConfigFile = "",
    ignore_racks: IgnoreRacks = False,
    rf: ReplicationFactor = 0,
    output: Output = "table",
) -> int:
    """Simulate the placement of a layout's replicas and print its metrics."""
    check_output(output, "table", "json")
    # Together with the solver it takes longer to import than other commands.
    from rackassign.placement.layout import Layout, LayoutMetrics  # noqa: PLC0415

    layout = Layout.read(scenario.parse(read_text(file, dash=True)))
    names = list(dict.fromkeys((placer, *(COMPARED if compare else ()))))
    base = _without_racks(layout) if ignore_racks else layout
    configs = settings_of(placer, placer_config, placer_config_file)
    # Settings are of the placer that was named, and not of those beside it.
    found = {name: _placed(name, base, rf, dict(configs) if name == placer else {}) for name in names}
    layouts = {name: replace(made, brokers=layout.brokers) for name, (made, _) in found.items()}
    for name, (_, notes) in found.items():
        for note in notes:
            warn(f"{name}: not proven optimal: {note}")
    quality = {NOW: LayoutMetrics.of(layout)} | {name: LayoutMetrics.of(made, layout) for name, made in layouts.items()}
    if output == "json":
        written = {
            name: {"topics": made.to_json()["topics"], **asdict(quality[name]), "notes": list(found[name][1])}
            for name, made in layouts.items()
        }
        sys.stdout.write(json.dumps({"now": asdict(quality[NOW]), "placers": written}) + "\n")
    else:
        console = plain_console()
        console.print(figures(quality))
        console.print(picture({NOW: layout, **layouts}))
    return ExitCode.DONE


def _placed(name: str, layout: Layout, rf: int, configs: dict[str, Any]) -> tuple[Layout, tuple[str, ...]]:
    """Return the layout that a placer makes, and its notes; `optimal` moves few replicas, others place all of them."""
    from rackassign.placement.constraints import PlacementConstraints  # noqa: PLC0415
    from rackassign.placement.placer import load_validated_placer  # noqa: PLC0415 - as above
    from rackassign.placement.placers.optimal import rebalance  # noqa: PLC0415

    if name == "optimal":
        found = rebalance(layout, PlacementConstraints.of(configs), replication_factor=rf or None)
        return layout.with_topics(found.topics), found.notes
    made: dict[str, list[list[int]]] = {}
    notes: dict[str, None] = {}
    with closed_afterwards(load_validated_placer(name, configs)) as placer:
        for topic, lists in sorted(layout.topics.items()):
            factors = {rf or len(replicas) for replicas in lists}
            if len(factors) > 1:
                raise ConfigError(
                    f"topic {short_repr(topic)}: its partitions differ in their replicas, which {name} cannot place"
                )
            if lists:
                # Those before it are what brokers carry already.
                placer.observe(replace(layout, topics={name: tuple(map(tuple, rows)) for name, rows in made.items()}))
                made[topic] = placer.place(0, len(lists), factors.pop(), layout.brokers)
                notes.update(dict.fromkeys(placer.notes))
    return layout.with_topics(made), tuple(notes)


def _without_racks(layout: Layout) -> Layout:
    return replace(layout, brokers=tuple(replace(broker, rack=None) for broker in layout.brokers))
