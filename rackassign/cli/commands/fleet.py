"""`rackassign fleet`: all groups of a cluster, from snapshots, under every strategy and change."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rackassign.cli import ExitCode
from rackassign.cli.shared_options import (
    CloudOption,
    PriceOption,
)
from rackassign.cli.terminal import (
    HtmlFile,
    ProgressDisplay,
    check_output,
    check_writable,
    examples,
    plain_console,
    plain_line,
    plain_lines,
    progress_display,
    write_text,
)
from rackassign.fleet import WHAT_IFS, FleetAudit, audit_groups, storage
from rackassign.fleet.aggregate import Figures, Fleet, GroupSums, Totals, aggregate, total
from rackassign.fleet.evaluation import AS_IS, NOW
from rackassign.fleet.page import page
from rackassign.monitoring import Price

if TYPE_CHECKING:
    import pyarrow as pa


app = typer.Typer(rich_markup_mode=None)


ALL = "all"


@app.command(
    epilog=examples(
        "fleet snapshots/",
        "fleet snapshots/ --what-if all --recommend --html fleet.html",
    )
)
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
        summary = aggregate(storage.read_results(folder))
        if html:
            write_text("html", html, page(folder, cost))
    if output == "table":
        show_fleet(summary, cost, plain_console())
    elif output == "json":
        _write(fleet_as_json(summary, cost))
    else:
        for line in fleet_as_lines(summary, cost):
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


FLEET_AUDIT_FORMAT = "rackassign-fleet-audit/1"


_MOST_GROUPS = 25


_MAX_SHOWN = 10


def show_fleet(fleet: Fleet, price: Price, console: Console) -> None:
    """Print the groups by which most could be saved, what changes would do to all, and what to do."""
    figures = Figures(price, fleet.measured)
    if fleet.groups:
        console.print(_groups(fleet, figures))
    if len(fleet.what_ifs) > 1:
        console.print(_changes(fleet, figures))
    changes = [group for group in fleet.groups if group.required_changes]
    if changes:
        console.print(_required_changes(changes))
    console.print(plain_lines(_totals(fleet, figures).split("\n")), soft_wrap=True)


def _table(**more: Any) -> Table:  # noqa: ANN401 - what rich takes
    return Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left", caption_justify="left", **more)


def _groups(fleet: Fleet, figures: Figures) -> Table:
    """One row for each group, that fits into eighty columns."""
    tried = len(fleet.what_ifs) > 1
    table = _table(title=f"{figures.unit} across racks, and how much less it could be")
    table.add_column("group", overflow="fold", min_width=8)
    for column in ("now", "less", "moves"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("with", *(("and",) if tried else ())):
        table.add_column(column, no_wrap=True)
    for group in fleet.groups[:_MOST_GROUPS]:
        strategy, changed = group.strategy(group.change), group.at_best(group.change)
        ways = ["-" if strategy == NOW else strategy, "-" if group.change == AS_IS else group.change]
        row = [group.name, *_figures(group.now, changed, figures), *ways[: 1 + tried]]
        table.add_row(*map(plain_line, row))
    rest = fleet.groups[_MOST_GROUPS:]
    if rest:
        table.add_section()
        changed = total(rest, lambda g: g.at_best(g.change))
        table.add_row(f"{len(rest):,} more", *_figures(total(rest, lambda g: g.now), changed, figures))
    return table


def _figures(now: Totals, changed: Totals, figures: Figures) -> tuple[str, str, str]:
    return figures.at_most(now), figures.less(now, changed), f"{changed.moved:,}"


def _changes(fleet: Fleet, figures: Figures) -> Table:
    table = _table(title="each change for all, each group with the strategy that is best for it then")
    for column in ("what if", figures.unit, "less", "moves", "best for"):
        table.add_column(column, justify="left" if column == "what if" else "right")
    now = total(fleet.groups, lambda g: g.now)
    for name in fleet.what_ifs:
        of = _with(fleet.groups, name)
        count = sum(group.change == name for group in fleet.groups)
        table.add_row(name, figures.crossing(of), figures.less(now, of), f"{of.moved:,}", f"{count:,}")
    return table


def _with(groups: Iterable[GroupSums], what_if: str) -> Totals:
    return total(groups, lambda group: group.at_best(what_if))


def _required_changes(groups: Sequence[GroupSums]) -> Table:
    more = len(groups) - _MAX_SHOWN
    table = _table(caption=f"{more:,} groups more are in --output json" if more > 0 else None)
    for column in ("group", "what it takes"):
        table.add_column(column, overflow="fold")
    for group in groups[:_MAX_SHOWN]:
        table.add_row(plain_line(group.name), plain_lines(group.required_changes or ()))
    return table


def _totals(fleet: Fleet, figures: Figures) -> str:
    count = "1 group that reads" if len(fleet.groups) == 1 else f"{len(fleet.groups):,} groups that read"
    if not fleet.groups:
        return count
    now, best = total(fleet.groups, lambda g: g.now), total(fleet.groups, GroupSums.at_best)
    line = f"{count}: {figures.crossing(now)} {figures.unit} across racks, "
    line += f"{figures.crossing(best)} with the best strategy of each"
    if len(fleet.what_ifs) > 1:
        changed = total(fleet.groups, lambda g: g.at_best(g.change))
        line += f", {figures.crossing(changed)} with the best change of each as well"
    if figures.measured:
        line += f"; at {figures.price.usd_per_gb:g} USD/GB ({figures.price.source})"
    else:
        line += "; bytes were not measured"
    if fleet.stale:
        many = len(fleet.stale) > 1
        line += f"\n{len(fleet.stale):,} {'are' if many else 'is'} not in the last snapshot, and as "
        line += f"{'they were' if many else 'it was'} seen before"
    return line


def fleet_as_json(fleet: Fleet, price: Price) -> dict[str, Any]:
    """Return a fleet for programs; money and bytes are null where they were not measured."""
    return {
        "format": FLEET_AUDIT_FORMAT,
        "price": {"usd_per_gb": price.usd_per_gb, "source": price.source},
        "snapshots": [
            {"taken": day.taken.isoformat(), "groups": day.groups, "now": _sum(day.now, price)} for day in fleet.history
        ],
        "now": _sum(total(fleet.groups, lambda g: g.now), price),
        "what_ifs": {name: _sum(_with(fleet.groups, name), price) for name in fleet.what_ifs},
        "groups": list(fleet_as_lines(fleet, price)),
    }


def fleet_as_lines(fleet: Fleet, price: Price) -> Iterator[dict[str, Any]]:
    """Yield the groups for programs, those by which most could be saved first."""
    for group in fleet.groups:
        yield {
            "group": group.name,
            "taken": group.taken.isoformat(),
            "best_strategy": None if group.strategy() == NOW else group.strategy(),
            "best_what_if": group.change,
            "now": _sum(group.now, price),
            "what_ifs": {
                name: {strategy: _sum(of, price) for strategy, of in ways.items()}
                for name, ways in group.outcomes.items()
            },
            "take": None if group.required_changes is None else list(group.required_changes),
        }


def _sum(of: Totals, price: Price) -> dict[str, Any]:
    measured = of.unmeasured < of.partitions.total
    bytes_s = {kind: round(rate, 1) for kind, rate in asdict(of.bytes_s).items()}
    usd = {"cross": of.bytes_s.cross, "unknown_at_most": of.bytes_s.unknown}
    return {
        "partitions": {kind: int(count) for kind, count in asdict(of.partitions).items()},
        "unmeasured": of.unmeasured,
        "moved": of.moved,
        "bytes_per_second": bytes_s if measured else None,
        "usd_per_month": {name: round(price.monthly(rate), 2) for name, rate in usd.items()} if measured else None,
    }
