"""Tables and JSON of replica lists, and of what reassignments do to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rackassign.cli.terminal import plain_line
from rackassign.monitoring.report import Price, format_bytes, format_percent, format_usd
from rackassign.placement.layout import LayoutMetrics
from rackassign.placement.leader_traffic import CrossRackBytes
from rackassign.text import counted, join_first, join_ids

if TYPE_CHECKING:
    from rackassign.locality import Locality
    from rackassign.model import TopicPartition
    from rackassign.placement.layout import Layout
    from rackassign.placement.local_reads import GroupLocality
    from rackassign.reassignment import ExecutionResult, PreparedReassignment, ReassignmentPlan, ReplicaMove


_BAR = 10
"""Characters of the longest bar."""

_ROWS: tuple[tuple[str, str], ...] = (
    ("replicas of a broker, most / mean", "replicas_per_broker"),
    ("leaders of a broker, most / mean", "leaders_per_broker"),
    ("leaders of a broker within a topic, most / mean", "leaders_per_topic"),
    ("leaders of a broker after the loss of another, most / mean", "leaders_after_loss"),
    ("replicas of a rack, most / mean", "replicas_per_rack"),
    ("leaders of a rack, most / mean", "leaders_per_rack"),
    ("partitions that share a rack", "sharing"),
    ("partitions in one rack only", "gone_with_rack"),
    ("replicas without a broker", "missing"),
    ("replicas moved", "moved"),
)


def waiting(replicas: int) -> str:
    """Return how many replicas have no broker."""
    return f"{counted(replicas, 'replica')} {'waits' if replicas == 1 else 'wait'} for a broker"


def figures(quality: dict[str, LayoutMetrics]) -> Table:
    """Return the figures of layouts side by side, by their names."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    for name in quality:
        table.add_column(plain_line(name), justify="right")
    for words, field in _ROWS:
        values = [getattr(each, field) for each in quality.values()]
        table.add_row(words, *map(_figure, values))
    return table


def _figure(value: Any) -> str:  # noqa: ANN401 - a number or nothing
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def picture(layouts: dict[str, Layout]) -> Table:
    """Draw brokers, rack by rack, with what they hold: a bar of replicas, the part that leads dark."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="█ leads, ░ follows", caption_justify="left")
    table.add_column("rack")
    table.add_column("broker", justify="right")
    for name in layouts:
        table.add_column(plain_line(name))
    held = {name: _held(layout) for name, layout in layouts.items()}
    most = max((count for replicas, _ in held.values() for count in replicas.values()), default=1)
    brokers = sorted(next(iter(layouts.values())).brokers, key=lambda b: (b.rack is None, b.rack or "", b.id))
    shown = ""
    for broker in brokers:
        rack = broker.rack or "none"
        bars = (_bar(replicas[broker.id], leaders[broker.id], most) for replicas, leaders in held.values())
        table.add_row("" if rack == shown else plain_line(rack), str(broker.id), *bars)
        shown = rack
    return table


def _held(layout: Layout) -> tuple[Counter[int], Counter[int]]:
    lists = [replicas for rows in layout.topics.values() for replicas in rows]
    return Counter(b for replicas in lists for b in replicas), Counter(replicas[0] for replicas in lists if replicas)


def _bar(replicas: int, leaders: int, most: int) -> str:
    whole, dark = round(_BAR * replicas / most), round(_BAR * leaders / most)
    return f"{'█' * dark}{'░' * (whole - dark)} {replicas}"


_SHOWN = 20
_THROTTLE = 50_000_000
"""Throttle for which the duration is shown, in bytes per second for each broker; it is given with `apply`."""

_NAMED = 5
_LARGEST_TOPICS = 10


def prepared_as_json(prepared: PreparedReassignment, price: Price) -> dict[str, Any]:
    """Return a prepared reassignment."""
    near = prepared.readers
    return {
        **planned_as_json(prepared.planned),
        "bytes": prepared.bytes,
        "group": None
        if near is None
        else {
            "name": near.inspection.snapshot.live.name,
            "coverage": dict(near.coverage),
            "unknown_members": near.unknown,
            "now": asdict(near.inspection.partitions),
            "possible_now": asdict(near.inspection.best.partitions),
            "possible_after": asdict(near.with_layout(prepared.planned.after)),
        },
        **prediction_as_json(prepared, price),
    }


def prediction_as_json(prepared: PreparedReassignment, price: Price) -> dict[str, Any]:
    """Return the bytes across racks now and with the plan, and the leaders of each broker; nothing without metrics."""
    if prepared.clients is None:
        return {}
    topics, leaders = prepared.predicted(), _leaders(prepared.planned)
    return {
        "producers": {
            "total": asdict(sum(topics.values(), CrossRackBytes())),
            "topics": {topic: asdict(found) for topic, found in topics.items()},
            "leaders": {str(broker): {"now": now, "after": after} for broker, (now, after) in leaders.items()},
            "skews": {
                str(skew): {"saved": saved, "usd": price.of(saved)} for skew, saved in prepared.planned.skews.items()
            },
        }
    }


def _leaders(planned: ReassignmentPlan) -> dict[int, tuple[int, int]]:
    """Return how many partitions each broker leads, before and after, by the first replica of each list."""
    before, after = (_held(layout)[1] for layout in (planned.before, planned.after))
    return {broker: (before[broker], after[broker]) for broker in sorted(planned.before.racks())}


def planned_as_json(planned: ReassignmentPlan) -> dict[str, Any]:
    """Return what would change."""
    return {
        "moves": _by_topic({p: {"before": list(m.before), "after": list(m.after)} for p, m in planned.moves.items()}),
        "waiting": _by_topic({tp: list(row) for tp, row in planned.waiting.items()}),
        "left_out": _by_topic(planned.skipped),
        "over": [f"{topic}-{partition}" for topic, partition in sorted(planned.obsolete_placeholders)],
        "copies": planned.copies,
        "least_copies": planned.lower_bound,
        "notes": [*planned.notes, *planned.warnings],
        "before": asdict(LayoutMetrics.among(planned.before, planned.topics)),
        "after": asdict(LayoutMetrics.among(planned.after, planned.topics, planned.before)),
    }


def outcome_as_json(outcome: ExecutionResult) -> dict[str, Any]:
    """Return the result of a reassignment."""
    return {
        "done": len(outcome.done),
        "changed": outcome.sent,
        "failed": _by_topic(outcome.failed),
        "gone": _by_topic(outcome.deleted),
        "changed_by_others": _by_topic({tp: outcome.failed[tp] for tp in outcome.final}),
        "not_led": _by_topic(outcome.leader_not_elected),
    }


def _by_topic(rows: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in sorted(rows.items(), key=lambda row: row[0]):
        found.setdefault(topic, {})[str(partition)] = value
    return found


def show_prepared(prepared: PreparedReassignment, console: Console, price: Price) -> None:
    """Print a prepared reassignment."""
    planned = prepared.planned
    if most := max((prepared.received or {}).values(), default=0):
        each = [f"{broker} {format_bytes(size)}" for broker, size in (prepared.received or {}).items()]
        console.print(
            f"to copy by broker: {join_first(each, _SHOWN)}; with --throttle {_THROTTLE // 10**6}M this takes"
            f" {counted(-(-most // (60 * _THROTTLE)), 'minute')} or more",
            soft_wrap=True,
        )
    show_planned(planned, console)
    copied = "" if prepared.bytes is None else f", {format_bytes(prepared.bytes)} as logs are now"
    if planned.moves:
        console.print(
            f"{counted(len(planned.moves), 'partition')} to change, {counted(planned.copies, 'replica')} to copy"
            f"{copied}; the fewest possible are {planned.lower_bound}",
            soft_wrap=True,
        )
    else:
        topics = len(planned.topics)
        count = sum(len(planned.before.topics[topic]) for topic in planned.topics)
        now = " now" if planned.waiting or planned.skipped else ""
        console.print(
            f"{counted(topics, 'topic')}, {counted(count, 'partition')}: nothing to reassign{now}", soft_wrap=True
        )
    if prepared.readers is not None:
        _show_gain(prepared.readers, prepared.readers.with_layout(planned.after), console)
    show_prediction(prepared, console, price)


def show_prediction(prepared: PreparedReassignment, console: Console, price: Price) -> None:
    """Print the bytes across racks now and with the plan, by topic, and the leaders of each broker."""
    if prepared.clients is None:
        return
    topics, readers = prepared.predicted(), prepared.clients.readers
    total = sum(topics.values(), CrossRackBytes())
    if not total.written:
        console.print("the metrics count no bytes of these topics", soft_wrap=True)
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("topic", overflow="fold")
    reads = ["reads across racks", "predicted"] if readers is not None else []
    # As long as replicas do not share a rack, as much is copied across racks with any leader.
    copies = total.copied_now != total.copied_after
    more = ["replicated across racks", "predicted"] if copies else []
    for column in ("written", "across racks", "predicted", *reads, *more):
        table.add_column(column, justify="right")
    shown = [*list(topics.items())[:_LARGEST_TOPICS], *([("total", total)] if len(topics) > 1 else [])]
    for name, found in shown:
        read = (found.read_now, found.read_after) if readers is not None else ()
        copied = (found.copied_now, found.copied_after) if copies else ()
        table.add_row(plain_line(name), *map(format_bytes, (found.written, found.now, found.after, *read, *copied)))
    console.print(table)
    racks = prepared.planned.before.racks()
    leaders = [
        f"{broker} ({racks[broker] or 'no rack'}) {now}" + (f" to {after}" if after != now else "")
        for broker, (now, after) in _leaders(prepared.planned).items()
    ]
    console.print(plain_line(f"leaders by broker: {join_first(leaders, _SHOWN)}"), soft_wrap=True)
    now = total.now + total.read_now + (total.copied_now if copies else 0)
    after = now - total.saved
    if after < now:
        ends = f"{format_bytes(after)} would cross racks instead of {format_bytes(now)}"
    elif after > now:
        ends = f"{format_bytes(after - now)} more would cross racks: what else is requested comes first"
    else:
        ends = "no other leaders within these bounds have fewer bytes across racks"
    console.print(ends, soft_wrap=True)
    for skew, saved in prepared.planned.skews.items():
        console.print(
            f"--max-skew {skew}: {format_bytes(saved)} less across racks, {format_usd(price.of(saved))} USD of the"
            " measured bytes",
            soft_wrap=True,
        )


def show_planned(planned: ReassignmentPlan, console: Console) -> None:
    """Print the replica lists that would change, what is skipped, and the metrics of the layout."""
    if planned.moves:
        console.print(_moves(planned.moves))
        show_metrics(planned, console)
    show_rest(planned, console)


def show_metrics(planned: ReassignmentPlan, console: Console) -> None:
    """Print the metrics of the layout before and after, and what they count if only some topics are planned."""
    before = LayoutMetrics.among(planned.before, planned.topics)
    after = LayoutMetrics.among(planned.after, planned.topics, planned.before)
    console.print(figures({"now": before, "then": after}))
    if len(planned.topics) < len(planned.before.topics):
        console.print(
            "(loads of brokers and racks are those of all topics of the cluster; what is within a topic, and numbers of"
            " partitions and replicas, are those of the named topics)",
            soft_wrap=True,
        )


def show_rest(planned: ReassignmentPlan, console: Console) -> None:
    """Print what is skipped or pending, and what is not proven optimal."""
    _reasons("left out", planned.skipped, console)
    if planned.waiting:
        count = sum(broker < 0 for row in planned.waiting.values() for broker in row)
        console.print(f"{waiting(count)} that can take {'it' if count == 1 else 'them'}", soft_wrap=True)
    if planned.obsolete_placeholders:
        waits = "waits" if len(planned.obsolete_placeholders) == 1 else "wait"
        console.print(
            f"{counted(len(planned.obsolete_placeholders), 'partition')} {waits} for a broker no longer", soft_wrap=True
        )
    for note in planned.notes:
        console.print(plain_line(f"not proven optimal: {note}"), soft_wrap=True)
    for warning in planned.warnings:
        console.print(plain_line(f"warning: {warning}"), soft_wrap=True)


def show_outcome(outcome: ExecutionResult, verb: str, console: Console) -> None:
    """Print the result of a reassignment."""
    console.print(
        f"{counted(len(outcome.done), 'partition')} {verb}, {outcome.sent} of them changed now"
        + (f"; {len(outcome.failed)} not" if outcome.failed else ""),
        soft_wrap=True,
    )
    _reasons("nothing left to do", outcome.deleted, console)
    _reasons("not done", outcome.failed, console)
    _reasons("not led by the preferred replica", outcome.leader_not_elected, console)


def _moves(moves: Mapping[TopicPartition, ReplicaMove]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("partition", "replicas now", "then"):
        table.add_column(column, overflow="fold")
    for tp, move in list(moves.items())[:_SHOWN]:
        table.add_row(plain_line(f"{tp.topic}-{tp.partition}"), join_ids(move.before), join_ids(move.after))
    if len(moves) > _SHOWN:
        table.add_row(f".. and {len(moves) - _SHOWN} more", "", "")
    return table


def _reasons(what: str, rows: Mapping[TopicPartition, str], console: Console) -> None:
    """Print a line for each reason, with some of the partitions it is the reason for."""
    for why in sorted(set(rows.values())):
        tps = [f"{tp.topic}-{tp.partition}" for tp, reason in rows.items() if reason == why]
        console.print(plain_line(f"{what}: {join_first(tps, _NAMED)}: {why}"), soft_wrap=True)


def _show_gain(near: GroupLocality, after: Locality, console: Console) -> None:
    name = near.inspection.snapshot.live.name
    racks = ", ".join(f"{rack} {count}" for rack, count in near.coverage.items())
    possible = near.inspection.best.partitions
    unknown = f", {near.unknown} of unknown rack" if near.unknown else ""
    console.print(plain_line(f"group {name}: members by rack: {racks}{unknown}"), soft_wrap=True)
    console.print(
        f"read locally: now {share(near.inspection.partitions)}, with the best assignment {share(possible)};"
        f" after the reassignment {share(after)}",
        soft_wrap=True,
    )


def share(partitions: Locality) -> str:
    """Return the share of partitions that are known to be read locally."""
    return format_percent(partitions.local, partitions.total)
