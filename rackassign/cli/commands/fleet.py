"""`rackassign fleet` and `rackassign snapshot`: all groups of a cluster, stored, under every strategy and change.

A snapshot has live groups of any client, as scenarios.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.shared_options import (
    All,
    CloudOption,
    Groups,
    PriceOption,
    RackMapFile,
    check_interval,
    read_rack_map,
    wanted_groups,
)
from rackassign.cli.terminal import (
    HtmlFile,
    ProgressDisplay,
    check_output,
    check_writable,
    plain_console,
    progress_display,
    warn,
    write_text,
)
from rackassign.errors import ConfigError, KafkaUnavailableError, MissingExtraError
from rackassign.scenario import write_group

if TYPE_CHECKING:
    import pyarrow as pa


ALL = "all"


def fleet(
    snapshots: Annotated[str, typer.Argument(help="Folder that `snapshot --parquet` wrote, or one file of it.")],
    *,
    output_dir: Annotated[str, typer.Option("--output-dir", help="New folder for the results as Parquet.")] = "",
    html: HtmlFile = "",
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            help="Change to evaluate; repeatable: racks-reported, racks-assumed, any-replica, members-balanced,"
            " add-replica, add-rack, or all.",
        ),
    ] = None,
    recommend: Annotated[
        bool, typer.Option("--recommend", help="Compute recommendations for each group; takes several times as long.")
    ] = False,
    price: PriceOption = None,
    cloud: CloudOption = None,
    output: Annotated[
        str, typer.Option(help="Output format: table, json, or jsonl with a line for each group.")
    ] = "table",
) -> int:
    """Audit the cross-rack reads of all groups of a cluster from snapshots."""
    check_output(output, "table", "json", "jsonl")
    check_writable("html", html)
    if find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "spark")
    # These import pyarrow, which comes with an extra.
    from rackassign.cli.render.fleet import as_json, as_lines, show  # noqa: PLC0415
    from rackassign.fleet import AS_IS, WHAT_IFS, FleetAudit, audit_groups, storage  # noqa: PLC0415
    from rackassign.fleet.aggregate import aggregate  # noqa: PLC0415
    from rackassign.monitoring import Price  # noqa: PLC0415

    cost = Price.from_options(price, cloud)
    wanted = what_if or []
    # A name beside "all" is checked as well: it may be a typo.
    known = (*WHAT_IFS,) if ALL in wanted else (AS_IS,)
    named = dict.fromkeys((*known, *(name for name in wanted if name != ALL)))
    how = FleetAudit(cost, tuple(named), recommend)
    source = Path(snapshots)
    total = storage.count(source)
    with ExitStack() as kept:
        folder = Path(output_dir or kept.enter_context(TemporaryDirectory(prefix="rackassign-")))
        with progress_display() as progress:
            storage.write_results(folder, audit_groups(_counted(storage.read_snapshots(source), total, progress), how))
        found = aggregate(storage.read_results(folder))
        if html:
            from rackassign.fleet.page import page  # noqa: PLC0415 - imports a template engine

            write_text("html", html, page(folder, cost))
    if output == "table":
        show(found, cost, plain_console())
    elif output == "json":
        _write(as_json(found, cost))
    else:
        for line in as_lines(found, cost):
            _write(line)
    return ExitCode.DONE


def _counted(batches: Iterable[pa.RecordBatch], total: int, progress: ProgressDisplay) -> Iterator[pa.RecordBatch]:
    """Yield the batches and advance the progress display after each."""
    done = 0
    for batch in batches:
        progress.count("Judging groups", done, total)
        yield batch
        done += batch.num_rows


def _write(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")


def snapshot(
    *,
    bootstrap: Bootstrap,
    group: Groups = None,
    all_: All = False,
    rack_map: RackMapFile = "",
    parquet: Annotated[str, typer.Option(help="Folder for a Parquet file, which `fleet` reads, instead of JSON.")] = "",
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
        raise MissingExtraError("pyarrow", "spark")
    file = _file(parquet) if parquet else None
    from rackassign.monitoring import GroupCollector  # noqa: PLC0415 - imports a client
    from rackassign.monitoring.report import describe_unknown  # noqa: PLC0415 - the same

    with admin_client(bootstrap, client_config) as admin, progress_display() as progress:
        shots, measured = GroupCollector(admin, racks).measure(
            names, interval_s=interval, report_progress=progress.on_progress
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
        from rackassign.fleet.storage import write_snapshot  # noqa: PLC0415 - imports pyarrow

        write_snapshot(file, datetime.now(timezone.utc), shots, measured.written)
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
