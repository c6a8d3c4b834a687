"""`rackassign reassign plan`, `apply`, `rollback` and `export`: options and output of reassignments."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.render.layout import waiting as pending_replicas
from rackassign.cli.render.reassignment import outcome_as_json, prepared_as_json, share, show_outcome, show_prepared
from rackassign.cli.shared_options import (
    STATE,
    AllowPlaceholders,
    IgnoreRacks,
    ReplicationFactor,
    StateFile,
    Topics,
    read_json,
)
from rackassign.cli.terminal import (
    Output,
    check_output,
    examples,
    plain_console,
    progress_display,
    stop_requested,
    warn,
)
from rackassign.errors import ConfigError
from rackassign.text import counted, join_ids, parse_digits, short_repr

if TYPE_CHECKING:
    from rackassign.reassignment import ExecutionLimits, Journal, Progress
    from rackassign.reassignment.executor import Direction
    from rackassign.reassignment.operations import ReassignmentOutcome, ReassignmentRunner

PLAN = "rackassign-reassignment.json"
TAKING_BACK = "what is on its way is being taken back, which leaves nothing half done"

app = typer.Typer(
    help="Reassign partitions: add missing replicas, spread them over racks, remove brokers.",
    rich_markup_mode=None,
)

PlanFile = Annotated[str, typer.Option("--plan-file", help="File of the plan and of the original replica lists.")]
BatchSize = Annotated[
    int, typer.Option("--batch-size", min=1, help="Number of partitions that are reassigned at the same time.")
]
Throttle = Annotated[
    str, typer.Option(help="Replication throttle of each broker in bytes per second, as in 50M; empty for no throttle.")
]
StallTimeout = Annotated[
    float, typer.Option("--stall-timeout", min=0, help="Seconds without progress after which a partition is given up.")
]
Timeout = Annotated[
    float, typer.Option(min=0, help="Seconds after which the remaining partitions are given up; 0 for no limit.")
]


@app.command(
    epilog=examples(
        "reassign plan --bootstrap-server localhost:9092 --topic orders --replication-factor 3",
        "reassign plan --bootstrap-server localhost:9092 --remove-broker 4",
    )
)
def plan(
    *,
    bootstrap: Bootstrap,
    topic: Topics = None,
    rf: ReplicationFactor = 0,
    remove_broker: Annotated[
        list[int] | None,
        typer.Option("--remove-broker", help="Broker to decommission; all its replicas are moved off. Repeatable."),
    ] = None,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Balance the replicas of brokers as well, which moves more.")
    ] = False,
    near_group: Annotated[
        str, typer.Option("--near-group", help="Consumer group ID; replicas are placed in the racks of its members.")
    ] = "",
    constraints: Annotated[
        str, typer.Option("--constraints", help="JSON file of placement constraints: leader_racks, max_per_rack, ...")
    ] = "",
    reassignment_json_file: Annotated[
        str,
        typer.Option("--reassignment-json-file", help="JSON file of kafka-reassign-partitions with the replica lists."),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Write the plan even if it leaves brokers much less balanced than now.")
    ] = False,
    allow_placeholders: AllowPlaceholders = False,
    ignore_racks: IgnoreRacks = False,
    plan: PlanFile = PLAN,
    state: StateFile = STATE,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Compute a reassignment with the fewest copies and write it to a file. Exit 1: the result is too unbalanced."""
    check_output(output, "table", "json")
    # Imports a client and the solver, which other commands do without.
    from rackassign.monitoring.report import selector_warnings  # noqa: PLC0415
    from rackassign.placement import state_file  # noqa: PLC0415
    from rackassign.reassignment import ReassignmentRequest, journal  # noqa: PLC0415
    from rackassign.reassignment.journal import read_reassignment  # noqa: PLC0415
    from rackassign.reassignment.operations import prepare, prepare_from_lists, store  # noqa: PLC0415
    from rackassign.reassignment.plan import UnevenError  # noqa: PLC0415

    file, known = Path(plan), state_file.read(Path(state))
    request = ReassignmentRequest(
        tuple(sorted(set(topic))) if topic else None,
        rf or None,
        frozenset(remove_broker or ()),
        rebalance,
        near_group,
        read_json(constraints, lambda parsed: parsed) if constraints else {},
        force,
        ignore_racks,
        allow_placeholders,
    )
    given = read_json(reassignment_json_file, read_reassignment) if reassignment_json_file else None
    if given is not None and request != ReassignmentRequest(force=force):
        raise ConfigError(
            "--reassignment-json-file cannot be combined with --topic, --replication-factor, --remove-broker,"
            " --rebalance, --near-group, --constraints, --disable-rack-aware and --allow-placeholders"
        )
    with journal.file_lock(file):
        journal.require_finished(file)
        try:
            with admin_client(bootstrap, client_config) as admin:
                prepared = (
                    prepare(admin, request, known) if given is None else prepare_from_lists(admin, given, force=force)
                )
        except UnevenError as error:
            warn(f"{error}; nothing is written")
            return ExitCode.NO
        backup, written = store(prepared, file, Path(state), known), prepared.has_changes
    if given is None:
        _warn_of_unlisted(sorted(set(prepared.unlisted) - request.removed_brokers))
    for trouble in selector_warnings(prepared.readers.cluster) if prepared.readers is not None else ():
        warn(trouble)
    if output == "json":
        sys.stdout.write(json.dumps({**prepared_as_json(prepared), "plan": plan if written else None}) + "\n")
        return ExitCode.DONE
    console = plain_console()
    show_prepared(prepared, console)
    if written:
        named = of_plan(plan)
        console.print(
            f"written to {plan}: `reassign apply{named}` does it, `reassign rollback{named}` undoes it", soft_wrap=True
        )
    if backup is not None:
        console.print(f"the plan that was there before is kept in {backup}", soft_wrap=True)
    return ExitCode.DONE


def of_plan(plan: str) -> str:
    """Return the option with which another command takes the same plan file; empty for the default one."""
    return "" if plan == PLAN else f" --plan-file {plan}"


def _warn_of_unlisted(brokers: list[int]) -> None:
    if not brokers:
        return
    one = len(brokers) == 1
    warn(
        f"{'broker' if one else 'brokers'} {join_ids(brokers)} {'is' if one else 'are'} not listed, and the plan"
        f" replaces {'its' if one else 'their'} replicas:"
        f" before Kafka 4.0 {'it' if one else 'they'} may only be offline"
    )


@app.command(
    epilog=examples(
        "reassign apply --bootstrap-server localhost:9092 --throttle 50M",
    )
)
def apply(
    *,
    bootstrap: Bootstrap,
    plan: PlanFile = PLAN,
    state: StateFile = STATE,
    batch_size: BatchSize = 50,
    throttle: Throttle = "",
    stall_timeout: StallTimeout = 30.0,
    timeout: Timeout = 0.0,
    wait_for_brokers: Annotated[
        float,
        typer.Option(
            "--wait-for-brokers", min=0, help="Seconds to keep running and place pending replicas when a broker joins."
        ),
    ] = 0.0,
    verify_timeout: Annotated[
        float, typer.Option("--verify-timeout", min=0, help="Seconds for the group of --near-group to rebalance.")
    ] = 30.0,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Apply or resume a reassignment plan. Exit 1: some partitions could not be reassigned."""
    check_output(output, "table", "json")
    limits = _limits(batch_size, throttle, stall_timeout, timeout)
    with _opened(bootstrap, client_config, Path(plan), Path(state), limits) as (runner, found, stop):
        outcome = runner.apply(found, wait_for_brokers=wait_for_brokers, verify_timeout=verify_timeout)
    return _end(outcome, plan, output, stopped=stop())


@app.command(
    epilog=examples(
        "reassign rollback --bootstrap-server localhost:9092",
    )
)
def rollback(
    *,
    bootstrap: Bootstrap,
    plan: PlanFile = PLAN,
    state: StateFile = STATE,
    batch_size: BatchSize = 50,
    throttle: Throttle = "",
    stall_timeout: StallTimeout = 30.0,
    timeout: Timeout = 0.0,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Restore the original replica lists of a plan. Exit 1: some partitions could not be restored."""
    check_output(output, "table", "json")
    limits = _limits(batch_size, throttle, stall_timeout, timeout)
    with _opened(bootstrap, client_config, Path(plan), Path(state), limits) as (runner, found, stop):
        outcome = runner.rollback(found)
    return _end(outcome, plan, output, stopped=stop())


@app.command(
    epilog=examples(
        "reassign export > reassignment.json",
        "reassign export --original",
    )
)
def export(
    *,
    plan: PlanFile = PLAN,
    original: Annotated[
        bool, typer.Option("--original", help="Print the original replica lists instead of the new ones.")
    ] = False,
) -> int:
    """Print a plan as the JSON that `kafka-reassign-partitions --execute` takes."""
    # Imports a client and the solver, which other commands do without.
    from rackassign.reassignment import journal  # noqa: PLC0415
    from rackassign.reassignment.journal import write_reassignment  # noqa: PLC0415

    moves = journal.read(Path(plan)).moves
    lists = {tp: move.before if original else move.after for tp, move in moves.items()}
    sys.stdout.write(write_reassignment(lists) + "\n")
    return ExitCode.DONE


@contextmanager
def explain_interruption(plan: Path) -> Iterator[None]:
    """Print what an interrupted run leaves behind and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        warn(
            "ended in the middle: partitions may be between their old list and the new one, or still be reassigned"
            f" (`reassign status --plan-file {plan}` shows which); `reassign apply --plan-file {plan}` goes on,"
            f" `reassign rollback --plan-file {plan}` goes back"
        )
        raise


@contextmanager
def _display(plan: Path) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of one execution; yield the callback for it."""
    with progress_display() as display, explain_interruption(plan):

        def show(progress: Progress) -> None:
            copied = progress.copied
            display.copied("Reassigning", progress.settled, progress.partitions, copied.done, copied.total)

        yield show


@contextmanager
def _opened(
    bootstrap: str, client_config: str, plan: Path, state: Path, limits: ExecutionLimits
) -> Iterator[tuple[ReassignmentRunner, Journal, Callable[[], bool]]]:
    """Yield a runner for a plan, the plan, and whether the run is to stop; lock the plan meanwhile."""
    # Imports a client and the solver, which other commands do without.
    from rackassign.reassignment import journal  # noqa: PLC0415
    from rackassign.reassignment.operations import ReassignmentRunner  # noqa: PLC0415

    # An invalid plan file is reported before anything else is done.
    with (
        journal.open_exclusive(plan) as found,
        admin_client(bootstrap, client_config) as admin,
        stop_requested(TAKING_BACK) as stop,
    ):
        runner = ReassignmentRunner(
            admin, plan, state, limits=limits, stop=stop, display=lambda: _display(plan), report_problem=warn
        )
        yield runner, found, stop


def _end(outcome: ReassignmentOutcome, plan: str, output: str, *, stopped: bool) -> int:
    """Print what has become of a plan and return the exit code."""
    result, waiting, local = outcome.result, outcome.pending_replicas, outcome.locality
    if output == "json":
        written = {
            **outcome_as_json(result),
            "phase": outcome.journal.phase,
            "waiting_replicas": waiting,
            "group_partitions": None
            if local is None
            else {name: getattr(local, name) for name in ("local", "cross", "unknown")},
        }
        sys.stdout.write(json.dumps(written) + "\n")
    else:
        console = plain_console()
        show_outcome(result, "as planned" if outcome.direction == "apply" else "as they were", console)
        if waiting:
            console.print(f"{pending_replicas(waiting)}; see --wait-for-brokers", soft_wrap=True)
        if local is not None:
            console.print(f"the group reads {share(local)} of its partitions locally", soft_wrap=True)
        if result.final:
            warn(
                f"{counted(len(result.final), 'partition')} can no longer be reassigned as planned, and"
                f" {'is' if len(result.final) == 1 else 'are'} left alone: {ends(outcome.direction, plan)}"
            )
    if stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.NO if result.failed or waiting else ExitCode.DONE


def ends(direction: Direction, plan: str) -> str:
    """Return how a plan ends of which some partitions can no longer be reassigned."""
    if direction == "rollback":
        return "all partitions that can be restored have been once no other is listed as not done"
    named = of_plan(plan)
    return (
        f"`reassign rollback{named}` takes back the rest, and `reassign abandon{named}` leaves all as it is;"
        " either ends the plan"
    )


def _limits(batch_size: int, throttle: str, stall_timeout: float, timeout: float) -> ExecutionLimits:
    from rackassign.reassignment import ExecutionLimits  # noqa: PLC0415 - as above

    return ExecutionLimits(batch_size, rate(throttle), stall_timeout, timeout or None)


_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}


def rate(text: str) -> int | None:
    """Return a throttle in bytes per second; None for no throttle.

    Raises:
        ConfigError: It is not a number, or it is 0, so that nothing would be copied.
    """
    if not text:
        return None
    number, unit = (text[:-1], text[-1].lower()) if text[-1].isalpha() else (text, "")
    found = parse_digits(number)
    if not found or unit not in _UNITS:
        raise ConfigError(f"throttle: expected bytes a second, as 50M, got {short_repr(text)}")
    return found * _UNITS[unit]
