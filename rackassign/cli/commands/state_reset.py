"""`rackassign state reset`: delete the changelogs and the committed offsets of a group, so that it begins again."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client, client_config
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.terminal import Output, check_output, plain_console, plain_line, warn
from rackassign.errors import ConfigError
from rackassign.text import counted

if TYPE_CHECKING:
    from rackassign.stateful.reset import ResetPlan

_THEN = (
    "At their next start, members build the state from the beginning of the input (with"
    " auto_offset_reset=earliest, the default). They discard their local files themselves, since the new changelog has"
    " another topic ID."
)


def reset(
    *,
    bootstrap: Bootstrap,
    group: Annotated[str, typer.Option(help="Consumer group ID of StatefulConsumer members, all of them stopped.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Input topic; repeatable. By default all of which the group has committed offsets."),
    ] = None,
    changelog: Annotated[
        list[str] | None,
        typer.Option(help="Changelog of the group; repeatable. GROUP-TOPIC-changelog by default."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Delete; otherwise only what would be deleted is shown.")
    ] = False,
    config_file: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Delete the changelogs and committed offsets of a group, so that its state is built again from the input."""
    check_output(output, "table", "json")
    if not group:
        raise ConfigError("group: expected the name of a group")
    # Imports a client, which other commands do without.
    from rackassign.stateful.reset import (  # noqa: PLC0415
        KafkaResetCluster,
        ResetRequest,
        execute_reset,
        plan_reset,
    )

    request = ResetRequest(group, tuple(topic or ()), tuple(changelog or ()))
    with admin_client(bootstrap, config_file) as admin:
        cluster = KafkaResetCluster(admin, client_config(bootstrap, config_file))
        plan = plan_reset(cluster, request)
        for problem in plan.warnings:
            warn(problem)
        if execute:
            execute_reset(cluster, plan)
    if output == "json":
        sys.stdout.write(json.dumps(_as_json(plan, executed=execute)) + "\n")
    else:
        _show(plan, executed=execute)
    return ExitCode.DONE


def _show(plan: ResetPlan, *, executed: bool) -> None:
    console = plain_console()
    table = Table()
    for column in ("deleted" if executed else "to delete", "partitions", "records at most"):
        table.add_column(column, overflow="fold", justify="left" if "delete" in column else "right")
    for each in plan.changelogs:
        table.add_row(plain_line(f"changelog {each.name}"), str(each.partitions), f"{each.records:,}")
    for name, ids in _by_topic(plan).items():
        table.add_row(plain_line(f"committed offsets of {name}"), str(len(ids)), "-")
    console.print(table)
    what = f"{counted(len(plan.changelogs), 'changelog')} and {counted(len(plan.offsets), 'committed offset')}"
    done = f"deleted {what}. {_THEN}" if executed else f"--execute deletes {what}. {_THEN}"
    console.print(plain_line(f"{plan.group}: {done}"), soft_wrap=True)


def _by_topic(plan: ResetPlan) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, partition in sorted(plan.offsets):
        found.setdefault(name, []).append(partition)
    return found


def _as_json(plan: ResetPlan, *, executed: bool) -> dict[str, Any]:
    return {
        "group": plan.group,
        "executed": executed,
        "changelogs": [
            {"topic": each.name, "partitions": each.partitions, "records_at_most": each.records}
            for each in plan.changelogs
        ],
        "committed_offsets": _by_topic(plan),
        "warnings": list(plan.warnings),
    }
