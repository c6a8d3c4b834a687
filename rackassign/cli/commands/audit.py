"""`rackassign audit`: what is wrong with how replicas lie."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.shared_options import STATE, Topics
from rackassign.cli.terminal import Output, check_output, plain_console, plain_line
from rackassign.text import counted, join_first

if TYPE_CHECKING:
    from rackassign.placement.audit import Audit, Finding, Load

_NAMED = 5


def audit(
    *,
    bootstrap: Bootstrap,
    expected_rf: Annotated[
        int,
        typer.Option(
            "--expected-replication-factor", min=0, help="Replicas that each partition should have; 0 accepts any."
        ),
    ] = 0,
    topic: Topics = None,
    state: Annotated[str, typer.Option("--state-file", help="File of known brokers; may be missing.")] = STATE,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Check replica placement. Exit 1: problems found. Exit 3: brokers disagree."""
    check_output(output, "table", "json")
    # Imports a client, which other commands do without.
    from rackassign.admin.describe import cluster_id  # noqa: PLC0415
    from rackassign.placement import state_file  # noqa: PLC0415
    from rackassign.placement.audit import audit as judged  # noqa: PLC0415
    from rackassign.placement.cluster_state import describe_cluster_state, with_rates  # noqa: PLC0415

    known = state_file.read(Path(state))
    with admin_client(bootstrap, client_config) as admin:
        known = known.for_cluster(cluster_id(admin))
        found = with_rates(admin, describe_cluster_state(admin, topic))
    seen = judged(found.with_known_racks(known.brokers), want_rf=expected_rf or None, plans=known.plans)
    if output == "json":
        sys.stdout.write(json.dumps(_as_json(seen)) + "\n")
    else:
        _show(seen, plain_console())
    if not seen.is_consistent:
        return ExitCode.NO_ANSWER
    return ExitCode.NO if seen.findings else ExitCode.DONE


def _as_json(seen: Audit) -> dict[str, Any]:
    return {
        "topics": seen.topics,
        "partitions": seen.partitions,
        "findings": [_finding(finding) for finding in seen.findings],
        "brokers": [{"id": broker, **load._asdict()} for broker, load in seen.by_broker.items()],
        "racks": [{"rack": rack, **load._asdict()} for rack, load in seen.by_rack.items()],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    partitions: dict[str, list[int]] = {}
    for tp in finding.partitions:
        partitions.setdefault(tp.topic, []).append(tp.partition)
    return {**asdict(finding), "partitions": partitions}


def _show(seen: Audit, console: Console) -> None:
    if seen.findings:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in ("what", "where", "what to do"):
            table.add_column(column, overflow="fold")
        for finding in seen.findings:
            table.add_row(
                plain_line(finding.problem), plain_line(_where(finding)), plain_line(finding.advice), end_section=True
            )
        console.print(table)
    console.print(_loads("rack", {"none" if rack is None else rack: load for rack, load in seen.by_rack.items()}))
    console.print(_loads("broker", {str(broker): load for broker, load in seen.by_broker.items()}))
    count = len(seen.findings)
    verdict = "nothing is wrong" if not count else f"{counted(count, 'thing')} found"
    if not seen.topics:
        verdict += "; there is no topic, or none that may be described"
    console.print(
        f"{counted(seen.topics, 'topic')}, {counted(seen.partitions, 'partition')}: {verdict}", soft_wrap=True
    )


def _where(finding: Finding) -> str:
    names = [f"{tp.topic}-{tp.partition}" for tp in finding.partitions] or list(finding.topics)
    names = names or [f"broker {broker}" for broker in finding.brokers]
    return join_first(names, _NAMED)


def _loads(kind: str, loads: dict[str, Load]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(kind, overflow="fold")
    for column in ("leaders", "of all", "replicas", "of all"):
        table.add_column(column, justify="right")
    for name, load in loads.items():
        shares = (f"{100 * share:.1f} %" for share in (load.leader_share, load.replica_share))
        leaders, replicas = shares
        table.add_row(plain_line(name), str(load.leaders), leaders, str(load.replicas), replicas)
    return table
