"""`rackassign inspect`: what crosses racks, its cost and what would change it; the tables that `top` shows as well."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from math import floor
from typing import Annotated, NamedTuple

import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from rackassign.cli import ExitCode
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.shared_options import (
    INTERVAL_S,
    All,
    CloudOption,
    Groups,
    Interval,
    PriceOption,
    RackMapFile,
    Sort,
    check_interval,
    read_rack_map,
    read_share,
    sort_key,
    wanted_groups,
    warnings,
)
from rackassign.cli.terminal import (
    HtmlFile,
    Output,
    check_output,
    check_writable,
    examples,
    plain_line,
    progress_display,
    warn,
    write_text,
)
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.locality import Locality
from rackassign.monitoring import (
    ClusterReport,
    GroupAnalysis,
    GroupCollector,
    Price,
    as_json,
    cluster_advice,
    describe_cross,
    describe_gain,
    describe_rates,
    describe_savings,
    describe_uncounted,
    rack_map_to_fill,
)
from rackassign.monitoring.html_page import page
from rackassign.monitoring.report import (
    UNKNOWN,
    describe_unknown,
    format_bytes,
    format_count,
    format_known,
    format_percent,
    hidden_topics,
)
from rackassign.monitoring.written_bytes import (
    WrittenBytes,
    WrittenTraffic,
    read_written_bytes,
    written_traffic,
    written_warnings,
)
from rackassign.text import clamp_middle, counted, join_first, strip_control_chars

app = typer.Typer(rich_markup_mode=None)


_WHOLE = 100


_WIDE = 10_000
"""Columns of a table that is not to be fitted into the terminal."""


@app.command(
    epilog=examples(
        "inspect --bootstrap-server localhost:9092 --all-groups",
        "inspect --bootstrap-server localhost:9092 --group billing --fail-under 95% --html report.html",
    )
)
def inspect(
    *,
    bootstrap: Bootstrap,
    group: Groups = None,
    all_: All = False,
    rack_map: RackMapFile = "",
    price: PriceOption = None,
    cloud: CloudOption = None,
    interval: Interval = INTERVAL_S,
    fail_under: Annotated[
        str | None,
        typer.Option("--fail-under", help="Exit 1 if a group has a smaller share of local partitions, such as 95%."),
    ] = None,
    producers: Annotated[
        list[str] | None,
        typer.Option(
            "--producers",
            help="File or URL with the metrics of producers (ProducerMetrics); repeatable. Shows what is written, too.",
        ),
    ] = None,
    html: HtmlFile = "",
    sort: Sort = "",
    wide: Annotated[bool, typer.Option("--wide", help="Show all columns, and whole names.")] = False,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Report cross-rack reads of consumer groups, their cost and the changes that gain most."""
    check_output(output, "table", "json")
    least = None if fail_under is None else read_share(fail_under, "fail-under")
    check_interval(interval)
    if producers and not interval:
        raise ConfigError("producers: what they write must be measured, so --interval cannot be 0")
    names = wanted_groups(group, all_=all_)
    racks = read_rack_map(rack_map)
    # Programs want the order that does not change from one report to the next.
    by = sort_key(sort or ("name" if output == "json" else "money"))
    check_writable("html", html)

    cost = Price.from_options(price, cloud)
    topics = read_written_bytes(producers or ()).topics()
    looks: list[WrittenBytes] = []
    lost = ""

    def look_at_producers() -> None:
        nonlocal lost
        try:
            looks.append(read_written_bytes(producers or ()))
        except ConfigError as error:
            # They could be read before, and the groups are still measured.
            lost = str(error)

    with admin_client(bootstrap, client_config) as admin, progress_display() as progress:
        survey = GroupCollector(admin, racks).report(
            names,
            interval_s=interval,
            report_progress=progress.on_progress,
            topics=topics,
            on_sample=look_at_producers,
        )
    written = written_traffic(survey, *looks) if producers and len(looks) == 2 else None  # noqa: PLR2004 - both ends
    survey = survey.sorted_by(by)
    for line in (*warnings(survey, racks), *written_warnings(written, survey)):
        warn(line)
    if html:
        write_text("html", html, page(survey, cost, producers=written))
    if output == "json":
        sys.stdout.write(json.dumps(as_json(survey, cost, producers=written)) + "\n")
    else:
        _show(survey, cost, Console(highlight=False, width=_WIDE if wide else None), written, wide=wide)
    if names is not None and len(survey.inspections) < len(names):
        raise KafkaUnavailableError(
            f"{len(names) - len(survey.inspections)} of {len(names)} groups are not to be seen now"
        )
    if lost:
        raise KafkaUnavailableError(f"what producers write could not be measured: {lost}")
    for inspected in survey.inspections:
        if least is not None and inspected.in_each_rack:
            warn(
                f"{inspected.snapshot.live.name}: {counted(inspected.in_each_rack, 'partition')} of readers without a"
                " rack count as local: client.rack alone makes them local; check that each consumer sets it"
            )
    below = [inspected for inspected in survey.inspections if _below(inspected, least)]
    for inspected in below:
        warn(_shortfall(inspected, fail_under or ""))
    if below:
        return ExitCode.NO
    unseen = any(odd.unseen for odd in survey.skipped) or any(map(hidden_topics, survey.inspections))
    if least is not None and unseen:
        raise KafkaUnavailableError("not all groups and topics could be described, so --fail-under cannot be evaluated")
    return ExitCode.DONE


def _show(survey: ClusterReport, price: Price, console: Console, written: WrittenTraffic | None, *, wide: bool) -> None:
    if survey.inspections:
        console.print(overview(survey, price, width=console.width, wide=wide))
    if len(survey.inspections) == 1:
        console.print(detail(survey.inspections[0], survey, price))
    to_do = actions(survey, price, width=console.width)
    if to_do is not None:
        console.print(to_do)
    if (empty := rack_map_to_fill(cluster_advice(survey))) is not None:
        console.print("a rack map to fill in, for --rack-map:", json.dumps(empty), soft_wrap=True)
    if written is not None:
        console.print(_written(written, price, most=len(written.topics) if wide else _MOST_TOPICS))
    console.print(plain_line(totals(survey, price)), soft_wrap=True)
    if written is not None:
        size, usd = describe_cross(written.written, price)
        console.print(f"producers: {size}/s across racks, {usd} USD a month", soft_wrap=True)
    console.print(describe_uncounted(survey, price), soft_wrap=True)


def _below(inspected: GroupAnalysis, least: float | None) -> bool:
    # A client may send its rack with fetches and not with joins, so what is local in any rack does not fail a gate.
    share = inspected.local_share_at_most
    return least is not None and share is not None and share < least


def _shortfall(inspected: GroupAnalysis, least: str) -> str:
    """Return how far a group is below `--fail-under`, with the partitions that may be local or not."""
    counts = inspected.partitions
    local, unknown = counts.local + inspected.in_each_rack, counts.unknown - inspected.in_each_rack
    share = _WHOLE * local / counts.total
    if round(share, 1) >= float(least.removesuffix("%")):
        # A share that is too small must not look like the limit.
        share = floor(10 * share) / 10 or share
    line = f"{inspected.snapshot.live.name}: {format_percent(share, _WHOLE)} of its partitions are local"
    if unknown:
        line += f", and of {format_percent(unknown, counts.total)} it is unknown"
    return f"{line}; --fail-under is {least.removesuffix('%')} %"


_MOST_ACTIONS = 10
"""Rows of actions that are shown of many groups; all are in the other outputs."""


_MOST_TOPICS = 10
"""Rows of topics that are shown of what is written; all are in the JSON output."""


_MOST_LAGS = 10
"""Partitions whose lag is shown in a table; all are in the JSON output."""


_GAP, _EDGES = 2, 3
"""Characters between two columns of a table, and at its edges."""


_SPACIOUS = 110
"""Columns of a terminal in which recommended changes are shown with bytes as well as with money."""


_SHORTEST_NAME = 12
"""Characters of a group's name that are shown in any terminal."""


_TRAFFIC = ("cross/s", "USD a month")


_HOLDS = {
    "any-replica": "readers are sent to near replicas (all brokers have a replica selector)",
    "leader": "readers are sent to leaders (no broker has a replica selector)",
    "unknown": "no broker reports a replica selector, so reads are assumed to go to leaders",
    "mixed": "some brokers send readers to near replicas, others keep them (not all have a replica selector)",
}


def _table(*, title: str | None = None, caption: str | None = None) -> Table:
    return Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )


class _Column(NamedTuple):
    """A column of the overview."""

    title: str
    cell: Callable[[GroupAnalysis], str]
    # Whether it is also shown without `--wide`.
    always: bool = True


def _columns(survey: ClusterReport, price: Price) -> tuple[_Column, ...]:
    """Return the columns behind the group, what matters most first."""
    measured = bool(survey.measured.seconds)
    traffic = (
        _Column("USD a month", lambda found: describe_cross(found.flows, price)[1]),
        _Column("could save", lambda found: _savings(found, price)),
        _Column("cross/s", lambda found: describe_cross(found.flows, price)[0]),
        _Column(
            "lag",
            lambda found: UNKNOWN if found.rates.total_lag is None else format_count(found.rates.total_lag),
        ),
    )
    return (
        *(traffic if measured else ()),
        _Column("local", lambda found: _shares(found.partitions)[0]),
        _Column("could be local", lambda found: _could(found)[0]),
        _Column("cross", lambda found: _shares(found.partitions)[1], always=not measured),
        _Column("unknown", lambda found: _shares(found.partitions)[2], always=not measured),
        _Column("moves", lambda found: _could(found)[1], always=not measured),
        _Column("members", lambda found: str(len(found.snapshot.live.members)), always=not measured),
        _Column("strategy", lambda found: found.snapshot.live.strategy or "-", always=False),
        _Column("measured by", lambda found: found.rates.measured_by or "-", always=False),
    )


def overview(survey: ClusterReport, price: Price, *, width: int, wide: bool = False) -> Table:
    """One row for each group."""
    # `width`: columns of the terminal; names are clamped so that the rows fit.
    columns = [column for column in _columns(survey, price) if wide or column.always]
    rows = [[column.cell(inspection) for column in columns] for inspection in survey.inspections]
    names = [strip_control_chars(inspection.snapshot.live.name) for inspection in survey.inspections]
    filled = [(column.title, *(row[i] for row in rows)) for i, column in enumerate(columns)]
    widths = [max(map(len, cells)) for cells in filled]
    room = width - _EDGES - _GAP * len(columns)
    longest = max(map(cell_len, ("group", *names)))
    if not wide and sum(widths) + longest > room:
        # Rich would narrow the widest columns, and so break amounts from their units.
        widths = [max(len(word) for cell in cells for word in _words(cell)) for cells in filled]
        longest = max(_SHORTEST_NAME, room - sum(widths))
        names = [clamp_middle(name, longest) for name in names]
    table = _table()
    # A letter may take two columns.
    table.add_column("group", no_wrap=True, max_width=longest)
    for column, size in zip(columns, widths, strict=True):
        table.add_column(column.title, justify="right", width=size)
    for name, row in zip(names, rows, strict=True):
        table.add_row(*map(plain_line, (name, *row)))
    return table


def _words(cell: str) -> Iterator[str]:
    """Return what a cell can be folded into: an amount keeps its unit."""
    kept = cell.replace(" to ", "\n")
    return iter(kept.split("\n") if any(map(str.isdigit, cell)) else cell.split(" "))


def _savings(inspected: GroupAnalysis, price: Price) -> str:
    if not inspected.reaches:
        return "-"
    return describe_savings(inspected.savings_bytes_s, price, inspected.flows.unmeasured)


def _could(inspected: GroupAnalysis) -> tuple[str, str]:
    if not inspected.reaches:
        return "-", "-"
    reach = inspected.best
    counts = reach.partitions
    return format_known(counts.local, counts.unknown, counts.total), str(reach.moved)


def detail(inspected: GroupAnalysis, survey: ClusterReport, price: Price) -> RenderableType:
    """Render one group in full."""
    parts: list[RenderableType] = [_modes(inspected)]
    if inspected.flows.total:
        parts.append(_rack_pairs(inspected))
    if inspected.reaches:
        parts.append(_strategies(inspected, survey, price))
    if inspected.rates.lag:
        parts += _lags(inspected)
    if inspected.out_of_sync:
        text = f"{inspected.out_of_sync} partitions would be local if their near replica were in sync"
        parts.append(Text(text))
    if inspected.unassigned:
        parts.append(Text(f"{inspected.unassigned} partitions of subscribed topics have no reader"))
    if who := describe_unknown(inspected.snapshot):
        parts.append(Text(strip_control_chars(f"rack not known of {who}")))
    return Stack(*parts)


def _lags(inspected: GroupAnalysis) -> Iterator[RenderableType]:
    """Yield the lag of the partitions that lag most, and what was measured of a group that lags."""
    lag = inspected.rates.lag
    worst = sorted((tp for tp in lag if lag[tp]), key=lambda tp: (-lag[tp], tp))
    text = f"lag {counted(sum(lag.values()), 'record')}"
    if worst:
        text += ": " + join_first([f"{tp.topic}-{tp.partition} {lag[tp]:,}" for tp in worst], _MOST_LAGS)
    yield Text(strip_control_chars(text))
    by_rack = [f"{rack or 'unknown'} {records:,}" for rack, records in inspected.lag_by_rack.items()]
    yield Text(strip_control_chars(f"lag by rack of the reader: {', '.join(by_rack)}"))
    if how := describe_rates(inspected):
        yield Text(how)


def _modes(inspected: GroupAnalysis) -> Text:
    shares = ", ".join(
        f"{format_known(counts.local, counts.unknown, counts.total)} if"
        f" {'any replica serves' if mode == 'any-replica' else 'leaders do'}"
        for mode, counts in inspected.by_mode.items()
    )
    live = inspected.snapshot.live
    who = f"strategy {live.strategy or 'none'}"
    if live.kind == "consumer":
        who = f"the broker's assignor {live.strategy or 'none'}, epoch {live.epoch}"
        if late := len(live.behind):
            who += f", which {counted(late, 'member')} {'has' if late == 1 else 'have'} yet to reach"
    return Text(strip_control_chars(f"{who}; local: {shares}; {_HOLDS[inspected.read_policy]}"))


def _rack_pairs(inspected: GroupAnalysis) -> Table:
    pairs = inspected.flows.pairs
    racks = sorted({rack for pair in pairs for rack in pair}, key=lambda rack: (rack is None, rack or ""))
    table = _table(title="read a second, from (row) and to (column) each rack")
    table.add_column("")
    for rack in racks:
        table.add_column(plain_line(_rack(rack)), justify="right")
    for source in racks:
        cells = [format_bytes(pairs[source, home]) if pairs.get((source, home)) else "" for home in racks]
        table.add_row(plain_line(_rack(source)), *cells)
    return table


def _rack(rack: str | None) -> str:
    return "unknown" if rack is None else rack


def _strategies(inspected: GroupAnalysis, survey: ClusterReport, price: Price) -> Table:
    measured = bool(survey.measured.seconds)
    by_broker = inspected.snapshot.live.kind == "consumer"
    what = "with each assignor of the broker" if by_broker else "with rackassign"
    table = _table(title=f"{what}, if every member reports its rack")
    for column in ("", "local", "cross", "unknown", "moves", *_TRAFFIC[: 2 * measured]):
        table.add_column(column, justify="right" if column else "left")
    rows = [("now", inspected.partitions, "", inspected.flows)]
    rows += [(r.strategy, r.partitions, str(r.moved), r.flows) for r in inspected.reaches]
    for name, counts, moved, flows in rows:
        traffic = describe_cross(flows, price) if measured else ()
        table.add_row(name, *_shares(counts), moved, *traffic)
    return table


def _written(written: WrittenTraffic, price: Price, *, most: int) -> Table:
    """Return what is written beside what is read, by topic."""
    more = len(written.topics) - most
    table = _table(
        title="written, and read by these groups", caption=f"{more} more are in --output json" if more > 0 else None
    )
    table.add_column("topic")
    for column in ("log/s", "explained", "written cross/s", "USD a month", "read cross/s", "USD a month"):
        table.add_column(column, justify="right")
    for each in written.topics[:most]:
        share = written.explained(each)
        table.add_row(
            plain_line(strip_control_chars(each.topic)),
            UNKNOWN if each.log_bytes_s is None else format_bytes(each.log_bytes_s),
            UNKNOWN if share is None else format_percent(share, 1),
            *describe_cross(each.written, price),
            *describe_cross(each.read, price),
        )
    return table


def actions(survey: ClusterReport, price: Price, *, width: int, most: int = _MOST_ACTIONS) -> Table | None:
    """Return what to do, what gains most first; None if there is nothing."""
    advice = cluster_advice(survey, free_replication=price.free_replication)
    if not advice:
        return None
    measured = bool(survey.measured.seconds)
    more = f"; {len(advice) - most} more are in --output json" if len(advice) > most else ""
    table = _table(caption=f"each change alone, from now{more}")
    table.add_column("group", overflow="fold")
    table.add_column("what would gain most", overflow="fold")
    amounts = (("USD a month", "bytes/s") if width >= _SPACIOUS else ("USD a month",)) if measured else ()
    for column in (*amounts, "partitions"):
        table.add_column(column, justify="right", no_wrap=" " not in column)
    for row in advice[:most]:
        size, usd, partitions = describe_gain(row.change, price)
        name = clamp_middle(row.who, max(_SHORTEST_NAME, width // 4))
        table.add_row(plain_line(name), plain_line(row.what), *(usd, size)[: len(amounts)], partitions)
    return table


def totals(survey: ClusterReport, price: Price) -> str:
    """Return the totals of all groups."""
    groups = counted(len(survey.inspections), "group")
    if not survey.measured.seconds:
        return f"{groups}; bytes were not measured"
    flows, savings = survey.flows, survey.savings_bytes_s
    size, usd = describe_cross(flows, price)
    line = f"{groups}: {size}/s across racks, {usd} USD a month"
    if flows.unknown:
        line += f" (the rack is unknown of {format_bytes(flows.unknown)}/s)"
    if savings[1]:
        line += f"; rackassign would save {describe_savings(savings, price, flows.unmeasured)} of it"
    seconds = survey.measured.seconds
    return f"{line}; measured over {seconds:.1f} s, at {price.usd_per_gb:g} USD/GB ({price.source})"


def _shares(counts: Locality) -> list[str]:
    total = counts.total
    known = [format_known(count, counts.unknown, total) for count in (counts.local, counts.cross)]
    return [*known, format_percent(counts.unknown, total)]
