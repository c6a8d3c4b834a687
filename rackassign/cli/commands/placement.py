"""`rackassign audit`, `create-topic` and `simulate-placement`: where the replicas of topics are, or would be.

`create-topic` creates a topic, or partitions of one, also while brokers are away (KIP-409).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rackassign import scenario
from rackassign.admin.describe import cluster_id
from rackassign.cli import ExitCode
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.layouts import figures, picture, waiting
from rackassign.cli.shared_options import (
    MOST_REPLICAS,
    STATE,
    AllowPlaceholders,
    IgnoreRacks,
    PlacerConfig,
    PlacerConfigFile,
    ReplicationFactor,
    StateFile,
    Topics,
    closed_afterwards,
    pairs_of,
    read_text,
    settings_of,
)
from rackassign.cli.terminal import Output, check_output, examples, plain_console, plain_line, warn
from rackassign.errors import ConfigError
from rackassign.placement import create_topic as making
from rackassign.placement import state_file
from rackassign.placement.audit import audit as judged
from rackassign.placement.cluster_state import describe_cluster_state, with_rates
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.create_topic import NotEnoughBrokersError, check_policy
from rackassign.placement.layout import Layout, LayoutMetrics
from rackassign.placement.optimal_placer import rebalance
from rackassign.placement.placer import load_validated_placer
from rackassign.text import counted, join_first, short_repr

if TYPE_CHECKING:
    from rackassign.placement.audit import Audit, Finding, Load
    from rackassign.placement.create_topic import CreateResult


app = typer.Typer(rich_markup_mode=None)


_NAMED = 5


@app.command(
    epilog=examples(
        "audit --bootstrap-server localhost:9092",
        "audit --bootstrap-server localhost:9092 --topic orders --expected-replication-factor 3",
    )
)
def audit(
    *,
    bootstrap: Bootstrap,
    expected_rf: Annotated[
        int,
        typer.Option(
            "--expected-replication-factor", min=0, help="Replicas that each partition should have; 0 accepts any."
        ),
    ] = 0,
    topic: Topics = None,
    state: Annotated[str, typer.Option("--state-file", help="File of known brokers; may be missing.")] = STATE,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Check replica placement. Exit 1: problems found. Exit 3: brokers disagree."""
    check_output(output, "table", "json")

    known = state_file.read(Path(state))
    with admin_client(bootstrap, client_config) as admin:
        known = known.for_cluster(cluster_id(admin))
        found = with_rates(admin, describe_cluster_state(admin, topic))
    judgement = judged(
        found.with_known_racks(known.brokers), want_rf=expected_rf or None, plans=known.plans, all_topics=not topic
    )
    if output == "json":
        sys.stdout.write(json.dumps(_audit_as_json(judgement)) + "\n")
    else:
        _show_audit(judgement, plain_console())
    if not judgement.is_consistent:
        return ExitCode.NO_ANSWER
    return ExitCode.NO if judgement.findings else ExitCode.DONE


def _audit_as_json(seen: Audit) -> dict[str, Any]:
    return {
        "topics": seen.topics,
        "partitions": seen.partitions,
        "findings": [_finding(finding) for finding in seen.findings],
        "brokers": [{"id": broker, **load._asdict()} for broker, load in seen.by_broker.items()],
        "racks": [{"rack": rack, **load._asdict()} for rack, load in seen.by_rack.items()],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    partitions: dict[str, list[int]] = {}
    for tp in finding.partitions:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    return {**asdict(finding), "partitions": partitions}


def _show_audit(seen: Audit, console: Console) -> None:
    if seen.findings:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in ("what", "where", "what to do"):
            table.add_column(column, overflow="fold")
        for finding in seen.findings:
            table.add_row(
                plain_line(finding.problem), plain_line(_where(finding)), plain_line(finding.advice), end_section=True
            )
        console.print(table)
    console.print(_loads("rack", {"none" if rack is None else rack: load for rack, load in seen.by_rack.items()}))
    console.print(_loads("broker", {str(broker): load for broker, load in seen.by_broker.items()}))
    count = len(seen.findings)
    verdict = "nothing is wrong" if not count else f"{counted(count, 'thing')} found"
    if not seen.topics:
        verdict += "; there is no topic, or none that may be described"
    console.print(
        f"{counted(seen.topics, 'topic')}, {counted(seen.partitions, 'partition')}: {verdict}", soft_wrap=True
    )


def _where(finding: Finding) -> str:
    names = [f"{tp.topic}-{tp.partition}" for tp in finding.partitions] or list(finding.topics)
    names = names or [f"broker {broker}" for broker in finding.brokers]
    return join_first(names, _NAMED)


def _loads(kind: str, loads: dict[str, Load]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(kind, overflow="fold")
    for column in ("leaders", "of all", "replicas", "of all"):
        table.add_column(column, justify="right")
    for name, load in loads.items():
        shares = (f"{100 * share:.1f} %" for share in (load.leader_share, load.replica_share))
        leaders, replicas = shares
        table.add_row(plain_line(name), str(load.leaders), leaders, str(load.replicas), replicas)
    return table


RF = 3


_MOST_PARTITIONS = 100_000
"""More than a request can create: 10,000 with KRaft."""


@app.command(
    epilog=examples(
        "create-topic orders --partitions 12 --bootstrap-server localhost:9092",
        "create-topic orders --add-partitions 6 --bootstrap-server localhost:9092 --policy enabled",
    )
)
def create_topic(
    name: Annotated[str, typer.Argument(help="Topic name.")],
    *,
    bootstrap: Bootstrap,
    partitions: Annotated[
        int, typer.Option(min=0, max=_MOST_PARTITIONS, help="Partitions of a new topic; 0 creates one.")
    ] = 0,
    rf: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            min=0,
            max=MOST_REPLICAS,
            help=f"Replicas of each partition; 0 takes {RF}, or the number that the topic has.",
        ),
    ] = 0,
    add_partitions: Annotated[
        int | None,
        typer.Option(
            "--add-partitions",
            min=1,
            max=_MOST_PARTITIONS,
            help="Number of partitions to add to an existing topic.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(help="Whether replicas may be on offline brokers: disabled, enabled, enabled_prefer_observed."),
    ] = "disabled",
    allow_placeholders: AllowPlaceholders = False,
    placer: Annotated[str, typer.Option(help="Placer: kafka, striped, optimal, or module:Class.")] = "optimal",
    placer_config: PlacerConfig = None,
    placer_config_file: PlacerConfigFile = "",
    ignore_racks: IgnoreRacks = False,
    config: Annotated[list[str] | None, typer.Option("--config", help="Topic config: KEY=VALUE; repeatable.")] = None,
    state: StateFile = STATE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate the request without creating anything.")] = False,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Create a topic, also while brokers are offline, if it stays writable. Exit 1: not created."""
    check_output(output, "table", "json")
    configs = pairs_of("config", config or ())
    if add_partitions and (partitions or configs or allow_placeholders):
        raise ConfigError(
            "--partitions, --config and --allow-placeholders are for a new topic: leave them out with --add-partitions"
        )

    file = Path(state)
    known = state_file.read(file)
    replicas = rf or (None if add_partitions else RF)
    wanted = making.TopicRequest(
        name,
        add_partitions or partitions or 1,
        replicas,
        check_policy(policy),
        configs,
        ignore_racks,
        allow_placeholders,
    )
    named = load_validated_placer(placer, settings_of(placer, placer_config, placer_config_file))
    make = making.add_partitions if add_partitions else making.create
    try:
        with closed_afterwards(named) as chosen, admin_client(bootstrap, client_config) as admin:
            new = make(admin, wanted, chosen, known, lambda change: state_file.update(file, change), dry=dry_run)
    except NotEnoughBrokersError as error:
        warn(str(error))
        return ExitCode.NO
    for note in new.notes:
        warn(f"not proven optimal: {note}")
    if output == "json":
        sys.stdout.write(json.dumps(_topic_as_json(new, made=not dry_run)) + "\n")
    else:
        show_new(new, plain_console(), made=not dry_run)
    return ExitCode.DONE


def _topic_as_json(new: CreateResult, *, made: bool) -> dict[str, Any]:
    placed = new.placed
    return {
        "topic": new.name,
        "created": made,
        "min_isr": new.min_isr,
        "partitions": {str(tp.partition): list(row) for tp, row in new.plans().items()},
        "under_replicated": placed.under_replicated(),
        "placeholders": placed.placeholders(),
        "offline_replicas": sorted(placed.offline),
        "notes": list(new.notes),
    }


def show_new(new: CreateResult, console: Console, *, made: bool) -> None:
    """Print a topic that was made, or would be."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("partition", "replicas", "missing"):
        table.add_column(column, overflow="fold")
    placed = new.placed
    for tp, row in new.plans().items():
        missing = [f"broker {broker} is away" for broker in row if broker in placed.offline]
        to_come = sum(broker < 0 for broker in row)
        missing += [f"{to_come} with no broker yet"] if to_come else []
        there = ", ".join(str(broker) for broker in row if broker >= 0)
        table.add_row(str(tp.partition), there, ", ".join(missing))
    console.print(table)
    verb = "made" if made else "would be made"
    line = f"{new.name}: {counted(len(placed.plan), 'partition')} {verb}"
    if placed.under_replicated():
        line += f", {placed.under_replicated()} of them with replicas missing"
    if placed.placeholders():
        line += f"; {waiting(placed.placeholders())}: `reassign plan` finds one when it is there"
    console.print(plain_line(line), soft_wrap=True)


NOW = "now"


COMPARED = ("kafka", "striped", "optimal")


@app.command(
    epilog=examples(
        "simulate-placement layout.json --compare",
        "simulate-placement - --replication-factor 3",
    )
)
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

    layout = Layout.read(scenario.parse(read_text(file, dash=True)))
    names = list(dict.fromkeys((placer, *(COMPARED if compare else ()))))
    base = _without_racks(layout) if ignore_racks else layout
    configs = settings_of(placer, placer_config, placer_config_file)
    # Settings are of the placer that was named, and not of those beside it.
    placements = {name: _placed(name, base, rf, dict(configs) if name == placer else {}) for name in names}
    layouts = {name: replace(made, brokers=layout.brokers) for name, (made, _) in placements.items()}
    for name, (_, notes) in placements.items():
        for note in notes:
            warn(f"{name}: not proven optimal: {note}")
    quality = {NOW: LayoutMetrics.of(layout)} | {name: LayoutMetrics.of(made, layout) for name, made in layouts.items()}
    if output == "json":
        written = {
            name: {"topics": made.to_json()["topics"], **asdict(quality[name]), "notes": list(placements[name][1])}
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
