"""`rackassign snapshot`: live groups of any client, as scenarios, or with all topics as a file for `bill`."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from rackassign.cli import ExitCode
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.shared_options import (
    All,
    Groups,
    RackMapFile,
    check_interval,
    read_rack_map,
    wanted_groups,
)
from rackassign.cli.terminal import (
    check_output,
    examples,
    progress_display,
    warn,
)
from rackassign.errors import ConfigError, KafkaUnavailableError, MissingExtraError
from rackassign.monitoring import GroupCollector
from rackassign.monitoring.report import describe_unknown
from rackassign.scenario import write_group

app = typer.Typer(rich_markup_mode=None)


@app.command(
    epilog=examples(
        "snapshot --bootstrap-server localhost:9092 --group billing > group.json",
        "snapshot --bootstrap-server localhost:9092 --all-groups --parquet snapshots/ --interval 60",
    )
)
def snapshot(
    *,
    bootstrap: Bootstrap,
    group: Groups = None,
    all_: All = False,
    rack_map: RackMapFile = "",
    parquet: Annotated[str, typer.Option(help="Folder for a Parquet file, which `bill` reads, instead of JSON.")] = "",
    interval: Annotated[
        float, typer.Option(min=0, help="Seconds over which produced bytes are measured, for --parquet.")
    ] = 0.0,
    client_config: ClientConfig = "",
    output: Annotated[
        str, typer.Option(help="Output format: json or jsonl.", show_default="json, or jsonl for several groups")
    ] = "",
) -> int:
    """Export live consumer groups as scenarios for `rackassign plan`."""
    names = wanted_groups(group, all_=all_)
    if output and parquet:
        raise ConfigError("--output is for scenarios: --parquet writes none")
    output = output or ("json" if names is not None and len(names) == 1 else "jsonl")
    check_output(output, "json", "jsonl")
    racks = read_rack_map(rack_map)
    check_interval(interval)
    if interval and not parquet:
        raise ConfigError("--interval is for --parquet: scenarios have no rates")
    if parquet and find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "bill")
    file = _file(parquet) if parquet else None

    with admin_client(bootstrap, client_config) as admin, progress_display() as progress:
        shots, measured = GroupCollector(admin, racks).measure(
            names,
            interval_s=interval,
            report_progress=progress.on_progress,
            # Of all groups all topics count, also those that none of them reads.
            topics=admin.list_topics() if parquet and names is None else (),
        )
    for odd in shots.skipped:
        warn(f"{odd.name}: {odd.problem}" if odd.name else odd.problem)
    for topic, why in shots.cluster.missing.items():
        warn(f"topic {topic} is not described: {why}")
    for shot in shots.snapshots:
        if who := describe_unknown(shot):
            warn(f"{shot.live.name}: rack not known of {who}")
        if file is not None:
            continue
        written = write_group(shot.group)
        text = json.dumps(written, indent=2) if output == "json" else json.dumps(written, separators=(",", ":"))
        sys.stdout.write(f"{text}\n")
    if file is not None:
        from rackassign.bill.snapshots import write_snapshot  # noqa: PLC0415 - imports pyarrow

        write_snapshot(file, datetime.now(timezone.utc), shots, measured)
        sys.stdout.write(f"{file}\n")
    if names is not None and len(shots.snapshots) < len(names):
        raise KafkaUnavailableError(
            f"{len(names) - len(shots.snapshots)} of {len(names)} groups are not to be seen now"
        )
    return ExitCode.DONE


def _file(folder: str) -> Path:
    """Return a new file in the folder, which is made; its name is the time, in order of which files are then."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}") from None
    return Path(folder) / f"groups-{datetime.now(timezone.utc):%Y%m%dT%H%M%S.%fZ}.parquet"
