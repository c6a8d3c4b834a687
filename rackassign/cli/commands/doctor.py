"""`rackassign doctor` and `detect-rack`: what keeps a group, or this machine, from being rack-aware."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rackassign.cli import ExitCode
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.shared_options import check_interval
from rackassign.cli.terminal import Output, check_output, examples, plain_line, plain_lines, warn, write_note
from rackassign.errors import ConfigError
from rackassign.monitoring import examine
from rackassign.monitoring.report import format_percent
from rackassign.rack_sources import detect_all
from rackassign.text import counted, join_first, strip_control_chars

if TYPE_CHECKING:
    from rackassign.monitoring import Examination, MemberDescription, RecoveryResult

app = typer.Typer(rich_markup_mode=None)


WATCH_S = 10.0

_NAMED = 5
"""Number of topics that are named; others are counted."""


@app.command(
    epilog=examples(
        "doctor --bootstrap-server localhost:9092 --group billing",
        "doctor --bootstrap-server localhost:9092 --group billing --fix",
    )
)
def doctor(
    *,
    bootstrap: Bootstrap,
    group: Annotated[str, typer.Option(help="Consumer group ID.")],
    fix: Annotated[
        bool, typer.Option("--fix", help="Recover a group that is stuck inside the broker by removing members.")
    ] = False,
    client_config: ClientConfig = "",
    observe_seconds: Annotated[
        float,
        typer.Option(
            "--observe-seconds", min=0, help="Seconds to observe a group that is not stable or may not stay so."
        ),
    ] = WATCH_S,
    output: Output = "table",
) -> int:
    """Find what keeps a group from being rack-aware, or from working. Exit 1: problems found."""
    check_output(output, "table", "json")
    if not group:
        raise ConfigError("group: expected the name of a group")
    check_interval(observe_seconds, "observe-seconds")

    def announce() -> None:
        write_note(f"Watching {group} for {observe_seconds:g} s at most")

    with _removed_members() as report_removed, admin_client(bootstrap, client_config) as admin:
        examined = examine(
            admin, group, observe_s=observe_seconds, fix=fix, watching=announce, report_removed=report_removed
        )
    if output == "json":
        sys.stdout.write(json.dumps(_as_json(examined)) + "\n")
    else:
        _show(examined, Console(highlight=False, soft_wrap=True))
    return ExitCode.NO if examined.findings else ExitCode.DONE


@contextmanager
def _removed_members() -> Iterator[Callable[[MemberDescription], None]]:
    """Yield the callback for removed members; print them if the block fails, since no report is printed then."""
    removed: list[MemberDescription] = []
    try:
        yield removed.append
    except BaseException:
        for member in removed:
            warn(f"removed {_shown(member)}")
        raise


def _as_json(examined: Examination) -> dict[str, Any]:
    """Return an examination for programs."""
    group, step, recovery = examined.group, examined.migration, examined.recovery
    return {
        "group": group.name,
        "type": group.kind,
        "state": group.state,
        "strategy": group.strategy or None,
        "members": [_named(m) | {"rack": m.rack} for m in group.members],
        "migration": {"now": step.now, "next": step.next or None, "unseen": step.unseen or None},
        "findings": [
            {
                "kind": f.kind,
                "problem": f.problem,
                "advice": f.advice,
                "members": [_named(m) for m in f.members],
                "brokers": list(f.brokers),
            }
            for f in examined.findings
        ],
        "partitions": asdict(examined.locality),
        "in_each_rack": examined.in_each_rack,
        "removed": [_named(m) for m in recovery.removed],
        "culprit": recovery.culprit and _named(recovery.culprit),
    }


def _show(examined: Examination, console: Console) -> None:
    """Print an examination for people."""
    for line in _recovered(examined.recovery):
        console.print(plain_line(line))
    if examined.findings:
        table = Table()
        for column in ("what", "who", "what to do"):
            table.add_column(column, overflow="fold")
        for finding in examined.findings:
            who = [f"broker {number}" for number in finding.brokers] + [_shown(m) for m in finding.members]
            table.add_row(
                plain_line(finding.problem),
                plain_lines(who),
                plain_line(finding.advice),
                end_section=True,
            )
        console.print(table, soft_wrap=False)
    console.print(plain_line(_summary(examined)))
    console.print(plain_line(_reads(examined)))
    if examined.findings and examined.migration.next:
        console.print(plain_line(f"next: {examined.migration.next}"))


def _summary(examined: Examination) -> str:
    members, step = examined.group.members, examined.migration
    racks = ", ".join(sorted({m.rack for m in members if m.rack})) or "none"
    verdict = f"{len(examined.findings)} found" if examined.findings else "healthy"
    name = strip_control_chars(examined.group.name)
    return f"{name}: {verdict}: {counted(len(members), 'member')}, racks {racks}; {step.now}"


def _reads(examined: Examination) -> str:
    """Return what is read locally now: a group without problems may still pay for much of what it reads."""
    counts, name = examined.locality, strip_control_chars(examined.group.name)
    missing = join_first([f"{topic} ({why})" for topic, why in sorted(examined.missing.items())], _NAMED)
    unseen = f"; not counted: {missing}" if missing else ""
    if not counts.total:
        return f"no partition is read now{unseen}"
    line = f"{format_percent(counts.local, counts.total)} of its partitions are read in the rack of their reader"
    if counts.unknown:
        line += f", and of {format_percent(counts.unknown, counts.total)} it is unknown"
    if examined.in_each_rack:
        who = "all of these" if examined.in_each_rack == counts.unknown else f"{examined.in_each_rack} of these"
        line += f": client.rack alone makes {who} local; check that each consumer sets it"
    if counts.local + examined.in_each_rack == counts.total:
        return line + unseen
    return f"{line}{unseen}; `rackassign inspect --group {name}` shows what that costs and what would change it"


def _recovered(recovery: RecoveryResult) -> list[str]:
    if not recovery.removed:
        return []
    lines = [f"removed {_shown(member)}" for member in recovery.removed]
    if recovery.culprit is None:
        return [*lines, "the group did not go on: several members are broken, or one joins again at once; stop it"]
    return [*lines, f"the group went on without {_shown(recovery.culprit)}: fix that client before it joins again"]


def _named(member: MemberDescription) -> dict[str, Any]:
    return {
        "id": member.id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
    }


def _shown(member: MemberDescription) -> str:
    return f"{member.client_id} on {member.host} ({member.id})"


@app.command(
    "detect-rack",
    epilog=examples(
        "detect-rack",
        "detect-rack --zone-name --output json",
    ),
)
def detect_rack_command(
    *,
    zone_name: Annotated[
        bool, typer.Option("--zone-name", help="Report the zone name instead of the zone ID (EC2).")
    ] = False,
    output: Output = "table",
) -> int:
    """Detect the rack of this machine and its source. Exit 1: no source knows it."""
    check_output(output, "table", "json")
    findings = detect_all(zone="name" if zone_name else "id")
    chosen = next((finding for finding in findings if finding.rack is not None), None)
    if output == "json":
        sources = [{"source": f.source, "rack": f.rack, "note": f.note} for f in findings]
        answer = {"rack": chosen and chosen.rack, "source": chosen and chosen.source, "sources": sources}
        sys.stdout.write(json.dumps(answer) + "\n")
    else:
        table = Table()
        for column in ("source", "rack", "note"):
            table.add_column(column, overflow="fold")
        for finding in findings:
            style = "bold" if finding is chosen else None
            table.add_row(finding.source, plain_line(finding.rack or "-"), plain_line(finding.note), style=style)
        console = Console(highlight=False)
        console.print(table)
        console.print(plain_line(f"rack {chosen.rack}, from {chosen.source}" if chosen else "no rack found"))
    return ExitCode.DONE if chosen else ExitCode.NO
