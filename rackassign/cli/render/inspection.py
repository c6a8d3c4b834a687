"""Inspections as tables for people. Imports a client, which other commands do without."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rackassign.cli.output import plain_text
from rackassign.locality import Locality
from rackassign.monitoring import ClusterReport, GroupAnalysis, Price, TrafficMatrix, describe_action
from rackassign.monitoring.analysis import RecommendedChange
from rackassign.monitoring.format import (
    UNKNOWN,
    format_bytes,
    format_known,
    format_percent,
    format_range,
    format_usd,
    mark_lower_bound,
)
from rackassign.util.text import counted, strip_control_chars

_MOST_ACTIONS = 10
"""Rows of actions that are shown of many groups; all are in the other outputs."""

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


def overview(survey: ClusterReport, price: Price) -> Table:
    """One row for each group, that fits into eighty columns."""
    measured = bool(survey.measured.seconds)
    table = _table()
    table.add_column("group", overflow="fold", min_width=8)
    for column in ("members", "local", "cross", "unknown", *_TRAFFIC[: 2 * measured], "could be local", "moves"):
        # Amounts can be ranges, which are folded at their spaces.
        table.add_column(column, justify="right", no_wrap=" " not in column and column not in _TRAFFIC)
    for inspected in survey.inspections:
        live = inspected.snapshot.live
        row = [live.name, str(len(live.members)), *_shares(inspected.partitions)]
        if measured:
            row += _traffic(inspected.flows, price)
        table.add_row(*map(plain_text, (*row, *_could(inspected))))
    return table


def _traffic(flows: TrafficMatrix, price: Price) -> tuple[str, str]:
    most = flows.cross + flows.unknown
    size = format_range(flows.cross, most, format_bytes)
    usd = format_range(price.monthly(flows.cross), price.monthly(most), format_usd)
    return mark_lower_bound(size, flows.unmeasured), mark_lower_bound(usd, flows.unmeasured)


def _could(inspected: GroupAnalysis) -> tuple[str, str]:
    if not inspected.reaches:
        return "-", "-"
    reach = inspected.reach("cooperative-sticky")
    counts = reach.partitions
    return format_known(counts.local, counts.unknown, counts.total), str(reach.moved)


def detail(inspected: GroupAnalysis, survey: ClusterReport, price: Price) -> RenderableType:
    """Render one group in full."""
    parts: list[RenderableType] = [_modes(inspected)]
    if survey.measured.seconds:
        parts.append(_rack_pairs(inspected))
    if inspected.reaches:
        parts.append(_strategies(inspected, survey, price))
    if inspected.out_of_sync:
        text = f"{inspected.out_of_sync} partitions would be local if their near replica were in sync"
        parts.append(Text(text))
    if inspected.unassigned:
        parts.append(Text(f"{inspected.unassigned} partitions of subscribed topics have no reader"))
    if inspected.snapshot.unknown:
        who = ", ".join(sorted(f"{member.client_id} on {member.host}" for member in inspected.snapshot.unknown))
        parts.append(Text(strip_control_chars(f"rack not known of {who}")))
    return Stack(*parts)


def _modes(inspected: GroupAnalysis) -> Text:
    shares = ", ".join(
        f"{format_known(counts.local, counts.unknown, counts.total)} if"
        f" {'any replica serves' if mode == 'any-replica' else 'leaders do'}"
        for mode, counts in inspected.by_mode.items()
    )
    live = inspected.snapshot.live
    who = "the broker's assignor" if live.kind == "consumer" else "strategy"
    return Text(
        strip_control_chars(f"{who} {live.strategy or 'none'}; local: {shares}; {_HOLDS[inspected.read_policy]}")
    )


def _rack_pairs(inspected: GroupAnalysis) -> Table:
    pairs = inspected.flows.pairs
    racks = sorted({rack for pair in pairs for rack in pair}, key=lambda rack: (rack is None, rack or ""))
    table = _table(title="read a second, from (row) and to (column) each rack")
    table.add_column("")
    for rack in racks:
        table.add_column(plain_text(_rack(rack)), justify="right")
    for source in racks:
        cells = [format_bytes(pairs[source, home]) if pairs.get((source, home)) else "" for home in racks]
        table.add_row(plain_text(_rack(source)), *cells)
    return table


def _rack(rack: str | None) -> str:
    return "unknown" if rack is None else rack


def _strategies(inspected: GroupAnalysis, survey: ClusterReport, price: Price) -> Table:
    measured = bool(survey.measured.seconds)
    table = _table(title="with rackassign, if every member reports its rack")
    for column in ("", "local", "cross", "unknown", "moves", *_TRAFFIC[: 2 * measured]):
        table.add_column(column, justify="right" if column else "left")
    rows = [("now", inspected.partitions, "", inspected.flows)]
    rows += [(r.strategy, r.partitions, str(r.moved), r.flows) for r in inspected.reaches]
    for name, counts, moved, flows in rows:
        traffic = _traffic(flows, price) if measured else ()
        table.add_row(name, *_shares(counts), moved, *traffic)
    return table


def actions(survey: ClusterReport, price: Price) -> Table | None:
    """Return what to do, what gains most first; None if there is nothing."""
    measured = bool(survey.measured.seconds)
    rows = [(action, inspected) for inspected in survey.inspections for action in inspected.actions]
    # What may gain most comes where its upper bound belongs.
    rows.sort(
        key=lambda row: (
            -max(row[0].gain_bytes_s, row[0].gain_bytes_s_at_most),
            -max(row[0].gain, row[0].gain_at_most),
        )
    )
    if not rows:
        return None
    table = _table(
        caption=f"{len(rows) - _MOST_ACTIONS} more are in --output json" if len(rows) > _MOST_ACTIONS else None
    )
    table.add_column("group", overflow="fold")
    table.add_column("what would gain most", overflow="fold")
    for column in ("partitions", *(("bytes/s", "USD a month") if measured else ())):
        table.add_column(column, justify="right", no_wrap=" " not in column)
    for action, inspected in rows[:_MOST_ACTIONS]:
        what = describe_action(action, inspected)
        gain = _gain(action, price, measured=measured)
        table.add_row(plain_text(inspected.snapshot.live.name), plain_text(what), *gain)
    return table


def _gain(action: RecommendedChange, price: Price, *, measured: bool) -> tuple[str, ...]:
    """Return the gain in partitions, bytes and money; of an uncertain change how much it is at most."""
    if action.uncertain:
        size = action.gain_bytes_s_at_most
        partitions = format_range(0, action.gain_at_most, "{:.0f}".format) if action.gain_at_most else UNKNOWN
        traffic = format_range(0, size, format_bytes), format_range(0, price.monthly(size), format_usd)
    else:
        size, partitions = action.gain_bytes_s, str(action.gain)
        traffic = format_bytes(size), format_usd(price.monthly(size))
    return (partitions, *traffic) if measured else (partitions,)


def totals(survey: ClusterReport, price: Price) -> str:
    """Return the totals of all groups."""
    groups = counted(len(survey.inspections), "group")
    if not survey.measured.seconds:
        return f"{groups}; bytes were not measured"
    cross = sum(inspected.flows.cross for inspected in survey.inspections)
    unknown = sum(inspected.flows.unknown for inspected in survey.inspections)
    more = "at least " if any(inspected.flows.unmeasured for inspected in survey.inspections) else ""
    line = f"{groups}: {more}{format_bytes(cross)}/s across racks, {format_usd(price.monthly(cross))} USD a month"
    if unknown:
        most = format_usd(price.monthly(unknown))
        line += f", and {format_bytes(unknown)}/s of which it is not known ({most} USD at most)"
    seconds = survey.measured.seconds
    return f"{line}; written in {seconds:.1f} s, at {price.usd_per_gb:g} USD/GB ({price.source})"


def _shares(counts: Locality) -> list[str]:
    total = counts.total
    known = [format_known(count, counts.unknown, total) for count in (counts.local, counts.cross)]
    return [*known, format_percent(counts.unknown, total)]
