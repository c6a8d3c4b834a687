"""Tables and JSON of reassignments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rackassign.cli.render.layout import figures, waiting
from rackassign.cli.terminal import plain_line
from rackassign.text import counted, join_first, join_ids

if TYPE_CHECKING:
    from rackassign.locality import Locality
    from rackassign.model import TopicPartition
    from rackassign.placement.local_reads import GroupLocality
    from rackassign.reassignment import ExecutionResult, PreparedReassignment, ReassignmentPlan, ReplicaMove

_SHOWN = 20
_NAMED = 5


def prepared_as_json(prepared: PreparedReassignment) -> dict[str, Any]:
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
            "possible_now": asdict(near.inspection.reach("cooperative-sticky").partitions),
            "possible_after": asdict(near.with_layout(prepared.planned.after)),
        },
    }


def planned_as_json(planned: ReassignmentPlan) -> dict[str, Any]:
    """Return what would change."""
    # Takes the solver along, which commands that fail early do without.
    from rackassign.placement.layout import LayoutMetrics  # noqa: PLC0415

    return {
        "moves": _by_topic({p: {"before": list(m.before), "after": list(m.after)} for p, m in planned.moves.items()}),
        "waiting": _by_topic({tp: list(row) for tp, row in planned.waiting.items()}),
        "left_out": _by_topic(planned.skipped),
        "over": [f"{topic}-{partition}" for topic, partition in sorted(planned.obsolete_placeholders)],
        "copies": planned.copies,
        "least_copies": planned.lower_bound,
        "notes": list(planned.notes),
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


def show_prepared(prepared: PreparedReassignment, console: Console) -> None:
    """Print a prepared reassignment."""
    from rackassign.monitoring.report import format_bytes  # noqa: PLC0415 - as above

    planned = prepared.planned
    show_planned(planned, console)
    copied = "" if prepared.bytes is None else f", {format_bytes(prepared.bytes)} as logs are now"
    if planned.moves:
        console.print(
            f"{counted(len(planned.moves), 'partition')} to change, {counted(planned.copies, 'replica')} to copy"
            f"{copied}; nothing does with fewer than {planned.lower_bound}",
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


def show_planned(planned: ReassignmentPlan, console: Console) -> None:
    """Print the replica lists that would change, what is skipped, and the metrics of the layout."""
    if planned.moves:
        console.print(_moves(planned.moves))
        show_metrics(planned, console)
    show_rest(planned, console)


def show_metrics(planned: ReassignmentPlan, console: Console) -> None:
    """Print the metrics of the layout before and after, and what they count if only some topics are planned."""
    from rackassign.placement.layout import LayoutMetrics  # noqa: PLC0415 - as above

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
    possible = near.inspection.reach("cooperative-sticky").partitions
    unknown = f", {near.unknown} of unknown rack" if near.unknown else ""
    console.print(plain_line(f"group {name}: members by rack: {racks}{unknown}"), soft_wrap=True)
    console.print(
        f"read locally: now {share(near.inspection.partitions)}, with the best assignment {share(possible)};"
        f" after the reassignment {share(after)}",
        soft_wrap=True,
    )


def share(partitions: Locality) -> str:
    """Return the share of partitions that are known to be read locally."""
    from rackassign.monitoring.report import format_percent  # noqa: PLC0415 - as above

    return format_percent(partitions.local, partitions.total)
