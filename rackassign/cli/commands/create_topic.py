"""`rackassign create`: a topic, or more partitions of one, while brokers may be away (KIP-409)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.render.layout import waiting
from rackassign.cli.shared_options import (
    MOST_REPLICAS,
    STATE,
    AllowPlaceholders,
    IgnoreRacks,
    PlacerConfig,
    PlacerConfigFile,
    StateFile,
    closed_afterwards,
    pairs_of,
    settings_of,
)
from rackassign.cli.terminal import Output, check_output, plain_console, plain_line, warn
from rackassign.errors import ConfigError
from rackassign.text import counted

if TYPE_CHECKING:
    from rackassign.placement.create_topic import CreateResult

RF = 3

_MOST_PARTITIONS = 100_000
"""More than a request can create: 10,000 with KRaft."""


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
    # Imports a client and the solver, which other commands do without.
    from rackassign.placement import create_topic as making  # noqa: PLC0415
    from rackassign.placement import state_file  # noqa: PLC0415
    from rackassign.placement.create_topic import NotEnoughBrokersError, check_policy  # noqa: PLC0415
    from rackassign.placement.placer import load_validated_placer  # noqa: PLC0415

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
        sys.stdout.write(json.dumps(_as_json(new, made=not dry_run)) + "\n")
    else:
        show_new(new, plain_console(), made=not dry_run)
    return ExitCode.DONE


def _as_json(new: CreateResult, *, made: bool) -> dict[str, Any]:
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
