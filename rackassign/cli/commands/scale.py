"""`rackassign scale`: how many members a group should have in each rack, and which numbers of members are useful."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from rackassign import broker_plugin, scenario
from rackassign.cli import ExitCode
from rackassign.cli.connection import ClientConfig, admin_client
from rackassign.cli.shared_options import (
    INTERVAL_S,
    CloudOption,
    Interval,
    PriceOption,
    RackMapFile,
    check_interval,
    read_json,
    read_rack_map,
    warnings,
)
from rackassign.cli.terminal import Output, check_output, examples, plain_console, plain_line, progress_display, warn
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.locality import validate_locality_mode
from rackassign.model import LOCALITY_MODES, Group, LocalityMode
from rackassign.monitoring import GroupAnalysis, GroupCollector, Price, describe_cross
from rackassign.monitoring.analysis import counting_replicas
from rackassign.monitoring.report import describe_unknown, format_known
from rackassign.monitoring.scaling import MemberCount, ReplicaRacks, Scaling, scale_group
from rackassign.text import counted, strip_control_chars

app = typer.Typer(rich_markup_mode=None)

_OWN = {"sticky", "cooperative-sticky", broker_plugin.NAME}


@app.command(
    epilog=examples(
        "scale --bootstrap-server localhost:9092 --group billing",
        "scale billing.json --locality leader --output json",
    )
)
def scale(
    file: Annotated[str, typer.Argument(help="Scenario as JSON, in place of a group of a cluster; - is stdin.")] = "",
    *,
    bootstrap: Annotated[str, typer.Option("--bootstrap-server", help="Brokers to connect to, as HOST:PORT.")] = "",
    group: Annotated[str, typer.Option("--group", help="Consumer group ID.")] = "",
    locality: Annotated[
        str, typer.Option(help=f"Replicas that count as local in a scenario: {', '.join(LOCALITY_MODES)}.")
    ] = "any-replica",
    rack_map: RackMapFile = "",
    price: PriceOption = None,
    cloud: CloudOption = None,
    interval: Interval = INTERVAL_S,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Compute how many members of a group in each rack read most partitions locally, and which are useful."""
    check_output(output, "table", "json")
    check_interval(interval)
    cost, mode = Price.from_options(price, cloud), validate_locality_mode(locality)
    if bool(file) == bool(group) or bool(bootstrap) != bool(group):
        raise ConfigError("give either a FILE with a scenario, or --bootstrap-server and --group")
    if file:
        inspected, measured = None, False
        found = read_json(file, scenario.read_group, dash=True)
        scaled = scale_group(found, mode, counting_replicas(found.topology, mode))
    else:
        racks = read_rack_map(rack_map)
        with admin_client(bootstrap, client_config) as admin, progress_display() as progress:
            survey = GroupCollector(admin, racks).report(
                [group], interval_s=interval, report_progress=progress.on_progress
            )
        for line in warnings(survey, racks):
            warn(line)
        if not survey.inspections:
            raise KafkaUnavailableError(f"{group} is not to be seen now")
        inspected, measured = survey.inspections[0], bool(survey.measured.seconds)
        found, serving = inspected.snapshot.without_foreign_racks().group, survey.cluster
        mode = "any-replica" if inspected.snapshot.live.kind == "consumer" else serving.mode
        scaled = scale_group(found, mode, serving.selectable_replicas(found.topology), inspected.rates.bytes_s)
    if output == "json":
        sys.stdout.write(json.dumps(_as_json(scaled, cost, measured=measured)) + "\n")
        return ExitCode.DONE
    console = plain_console()
    for line in _anywhere(scaled, found, mode):
        console.print(plain_line(strip_control_chars(line)), soft_wrap=True)
    console.print(_table(scaled, cost, measured=measured))
    for line in (*_steps(scaled), *_assumed(inspected)):
        console.print(plain_line(strip_control_chars(line)), soft_wrap=True)
    return ExitCode.DONE


def _anywhere(scaled: Scaling, group: Group, mode: LocalityMode) -> Iterator[str]:
    """Yield whether it does not matter in which racks members are, or need not matter."""
    racks = ", ".join(scaled.now.by_rack)
    if scaled.anywhere:
        yield (
            f"any number of members in any of {racks} reads locally: each partition has a replica in each of them, and"
            " client.rack alone is enough"
        )
    elif mode == "leader" and ReplicaRacks.of(group, "any-replica").everywhere:
        yield f"with a replica selector on all brokers any number of members in any of {racks} would read locally"


def _table(scaled: Scaling, price: Price, *, measured: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = ("members", *scaled.now.by_rack, "partitions of each", "local", *(("USD a month",) if measured else ()))
    for column in columns:
        table.add_column(plain_line(strip_control_chars(column)), justify="right")
    for name, row in (("now", scaled.now), *((str(row.members), row) for row in scaled.counts)):
        each = "-".join(map(str, dict.fromkeys(row.partitions)))
        local = format_known(row.locality.local, row.locality.unknown, row.locality.total)
        usd = (describe_cross(row.flows, price)[1],) if measured else ()
        table.add_row(name, *map(str, row.by_rack.values()), each, local, *usd)
    return table


def _steps(scaled: Scaling) -> Iterator[str]:
    def who(row: MemberCount) -> str:
        racks = ", ".join(f"{rack} {count}" for rack, count in row.by_rack.items())
        return f"{counted(row.members, 'member')} ({racks}), at most {counted(row.partitions[1], 'partition')} each"

    if scaled.up is None:
        yield "no step up: a further member would have no partition to read"
    else:
        yield f"next step up: {who(scaled.up)}, instead of {scaled.now.partitions[1]} now"
    if scaled.down.members < scaled.now.members:
        yield f"step down: {who(scaled.down)}, as now"


def _assumed(inspected: GroupAnalysis | None) -> Iterator[str]:
    """Yield what has to be true of a live group for the figures, and is not."""
    if inspected is None:
        return
    live = inspected.snapshot.live
    if live.kind == "consumer" and live.strategy != broker_plugin.NAME:
        yield f"this holds if the broker plug-in assigns; the assignor of the broker is {live.strategy} now"
    elif live.strategy not in _OWN:
        yield f"this holds with rackassign's cooperative-sticky or sticky; the strategy is {live.strategy} now"
    if who := describe_unknown(inspected.snapshot):
        yield f"rack not known of {who}"


def _as_json(scaled: Scaling, price: Price, *, measured: bool) -> dict[str, Any]:
    def row(found: MemberCount) -> dict[str, Any]:
        return {
            "members": found.members,
            "by_rack": dict(found.by_rack),
            "partitions": list(found.partitions),
            "local": found.locality.local,
            "cross": found.locality.cross,
            "unknown": found.locality.unknown,
            "cross_usd_per_month": round(price.monthly(found.flows.cross), 2)
            if measured and not found.flows.unmeasured
            else None,
        }

    return {
        "anywhere": scaled.anywhere,
        "now": row(scaled.now),
        "counts": list(map(row, scaled.counts)),
        "step_up": None if scaled.up is None else row(scaled.up),
        "step_down": row(scaled.down),
    }
