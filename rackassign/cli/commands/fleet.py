"""`rackassign fleet`: all groups of a cluster from their snapshots, under every strategy and change."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.group_options import CloudOption, PriceOption
from rackassign.cli.output import HtmlFile, check_output, check_writable, plain_console, write_text
from rackassign.cli.progress import ProgressDisplay, progress_display
from rackassign.errors import MissingExtraError

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
            from rackassign.fleet.html import page  # noqa: PLC0415 - imports a template engine

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
