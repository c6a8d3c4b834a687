"""`rackassign balance-leaders`: balance partition leaders without copying data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from rackassign.cli.commands.reassign import TAKING_BACK, explain_interruption
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.render.reassignment import outcome_as_json, planned_as_json, show_metrics, show_outcome, show_rest
from rackassign.cli.shared_options import Topics
from rackassign.cli.terminal import Output, check_output, plain_console, progress_display, stop_requested
from rackassign.errors import ConfigError
from rackassign.text import counted, short_repr

PLAN = "rackassign-leaders.json"

_BATCH_SIZE = 200


def balance_leaders(
    *,
    bootstrap: Bootstrap,
    topic: Topics = None,
    balance_by: Annotated[
        str, typer.Option("--balance-by", help="Unit whose leader counts are balanced first: broker, rack or mixed.")
    ] = "broker",
    leader_rack: Annotated[
        list[str] | None, typer.Option(help="Rack that leaders are restricted to; repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan without changing anything.")] = False,
    plan: Annotated[
        str, typer.Option("--plan-file", help="File for the original replica lists, for `reassign rollback`.")
    ] = PLAN,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Balance partition leaders without copying data. Exit 1: some leaders could not be elected."""
    check_output(output, "table", "json")
    # Imports a client and the solver, which other commands do without.
    from rackassign.placement import PlacementConstraints  # noqa: PLC0415
    from rackassign.reassignment import ExecutionLimits, journal  # noqa: PLC0415
    from rackassign.reassignment.operations import execute, prepare_leaders  # noqa: PLC0415
    from rackassign.solver.placement import LEADER_GOALS  # noqa: PLC0415

    if balance_by not in LEADER_GOALS:
        raise ConfigError(f"balance-by: expected {', '.join(LEADER_GOALS)}, got {short_repr(balance_by)}")
    file = Path(plan)
    if not dry_run:
        journal.require_finished(file)
    rules = PlacementConstraints.of({"leaders": balance_by, "leader_racks": leader_rack or []})
    with admin_client(bootstrap, client_config) as admin:
        prepared = prepare_leaders(admin, rules, tuple(sorted(set(topic))) if topic else None)
        planned, outcome, stopped = prepared.planned, None, False
        if planned.moves and not dry_run:
            with journal.file_lock(file), progress_display() as display, stop_requested(TAKING_BACK) as stop:
                journal.begin(file, prepared.journal)
                with explain_interruption(file):
                    _, outcome = execute(
                        admin,
                        prepared.journal,
                        "apply",
                        keep=lambda kept: journal.write(file, kept),
                        limits=ExecutionLimits(_BATCH_SIZE),
                        report_progress=lambda at: display.count("Electing leaders", at.settled, at.partitions),
                        stop=stop,
                    )
                stopped = stop()
    if output == "json":
        result = {} if outcome is None else outcome_as_json(outcome)
        sys.stdout.write(json.dumps({**planned_as_json(planned), **result}) + "\n")
    else:
        console = plain_console()
        show_metrics(planned, console)
        changed = sum(move.before != move.after for move in planned.moves.values())
        console.print(
            f"{counted(changed, 'list')} in another order, {counted(len(planned.moves), 'partition')} to elect,"
            " nothing to copy",
            soft_wrap=True,
        )
        show_rest(planned, console)
        if outcome is not None:
            show_outcome(outcome, "as planned", console)
    if stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.NO if outcome is not None and (outcome.failed or outcome.leader_not_elected) else ExitCode.DONE
