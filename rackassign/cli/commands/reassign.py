"""`rackassign reassign` and `balance-leaders`: plans that move replicas or leaders, resumed and rolled back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackassign.cli import ExitCode
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.layouts import (
    outcome_as_json,
    planned_as_json,
    prediction_as_json,
    prepared_as_json,
    share,
    show_metrics,
    show_outcome,
    show_prediction,
    show_prepared,
    show_rest,
)
from rackassign.cli.layouts import waiting as pending_replicas
from rackassign.cli.shared_options import (
    STATE,
    AllowPlaceholders,
    CloudOption,
    IgnoreRacks,
    PriceOption,
    ReplicationFactor,
    StateFile,
    Topics,
    read_json,
    read_share,
)
from rackassign.cli.terminal import (
    Output,
    check_output,
    examples,
    plain_console,
    plain_line,
    progress_display,
    stop_requested,
    warn,
)
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.monitoring.report import Price, format_bytes, format_percent, selector_warnings
from rackassign.monitoring.written_bytes import WrittenBytes, read_written_bytes
from rackassign.placement import PlacementConstraints, state_file
from rackassign.placement.leader_traffic import CrossRackBytes
from rackassign.reassignment import ExecutionLimits, ReassignmentRequest, journal, operations
from rackassign.reassignment.journal import read_reassignment, write_reassignment
from rackassign.reassignment.operations import (
    PARTITION_STATES,
    ReassignmentRunner,
    execute,
    look,
    prepare,
    prepare_from_lists,
    prepare_leaders,
    store,
)
from rackassign.reassignment.plan import UnevenError
from rackassign.solver.placement import LEADER_GOALS
from rackassign.text import counted, join_first, join_ids, parse_digits, short_repr

if TYPE_CHECKING:
    from rackassign.model import TopicPartition
    from rackassign.reassignment import Journal, PreparedReassignment, Progress
    from rackassign.reassignment.executor import Direction
    from rackassign.reassignment.operations import PartitionState, PlanStatus, ReassignmentOutcome


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
NearProducers = Annotated[
    list[str] | None,
    typer.Option(
        "--near-producers",
        help="File or URL with the metrics of producers; replicas lead where most is written. Repeatable.",
    ),
]
MaxSkew = Annotated[
    int,
    typer.Option(
        "--max-skew",
        min=0,
        help="Number of leaders by which a broker may differ from its even share, or more if it does now;"
        " with --near-producers.",
    ),
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
    near_producers: NearProducers = None,
    max_skew: MaxSkew = 0,
    price_per_gb: PriceOption = None,
    cloud: CloudOption = None,
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
    reassignment = read_json(reassignment_json_file, read_reassignment) if reassignment_json_file else None
    if reassignment is not None and (request != ReassignmentRequest(force=force) or near_producers or max_skew):
        raise ConfigError(
            "--reassignment-json-file cannot be combined with --topic, --replication-factor, --remove-broker,"
            " --rebalance, --near-group, --near-producers, --max-skew, --constraints, --disable-rack-aware and"
            " --allow-placeholders"
        )
    if ignore_racks and near_producers:
        raise ConfigError("--near-producers needs racks; leave out --disable-rack-aware")
    written_bytes, price = _read_producers(near_producers, max_skew), Price.from_options(price_per_gb, cloud)
    with journal.file_lock(file):
        journal.require_finished(file)
        try:
            with admin_client(bootstrap, client_config) as admin:
                prepared = (
                    prepare(
                        admin,
                        request,
                        known,
                        written=written_bytes,
                        max_skew=max_skew,
                        free_replication=price.free_replication,
                    )
                    if reassignment is None
                    else prepare_from_lists(admin, reassignment, force=force)
                )
        except UnevenError as error:
            warn(f"{error}; nothing is written")
            return ExitCode.NO
        backup, written = store(prepared, file, Path(state), known), prepared.has_changes
    if reassignment is None:
        _warn_of_unlisted(sorted(set(prepared.unlisted) - request.removed_brokers))
    _warn_of_clients(prepared)
    if output == "json":
        sys.stdout.write(json.dumps({**prepared_as_json(prepared, price), "plan": plan if written else None}) + "\n")
        return ExitCode.DONE
    console = plain_console()
    show_prepared(prepared, console, price)
    if written:
        named = of_plan(plan)
        console.print(
            f"written to {plan}: `reassign apply{named}` does it, `reassign rollback{named}` undoes it", soft_wrap=True
        )
    if backup is not None:
        console.print(f"the plan that was there before is kept in {backup}", soft_wrap=True)
    return ExitCode.DONE


def _read_producers(sources: Sequence[str] | None, max_skew: int) -> WrittenBytes | None:
    """Return what producers have written; None without --near-producers."""
    if max_skew and not sources:
        raise ConfigError("--max-skew bounds the leaders that --near-producers moves; it needs that option")
    return read_written_bytes(sources) if sources else None


def _warn_of_clients(prepared: PreparedReassignment) -> None:
    for trouble in selector_warnings(prepared.readers.cluster) if prepared.readers is not None else ():
        warn(trouble)
    for problem in prepared.clients.problems if prepared.clients is not None else ():
        warn(f"near-producers: {problem}")


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
    # An invalid plan file is reported before anything else is done.
    with (
        journal.open_exclusive(plan) as journaled,
        admin_client(bootstrap, client_config) as admin,
        stop_requested(TAKING_BACK) as stop,
    ):
        runner = ReassignmentRunner(
            admin, plan, state, limits=limits, stop=stop, display=lambda: _display(plan), report_problem=warn
        )
        yield runner, journaled, stop


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


_NAMED_PARTITIONS = 5

_WORDS: Mapping[PartitionState, str] = {
    "as-planned": "as planned",
    "as-before": "as before the plan",
    "on-its-way": "between the two: being reassigned, or left in the middle",
    "changed-by-others": "with replicas that the plan does not know: changed by another tool or user",
    "gone": "no longer there",
}


@app.command(
    epilog=examples(
        "reassign status --bootstrap-server localhost:9092",
    )
)
def status(
    *,
    bootstrap: Bootstrap,
    plan: PlanFile = PLAN,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Report the progress of a plan from the current state of the cluster. Exit 1: it is not finished."""
    check_output(output, "table", "json")

    journaled = journal.read(Path(plan))
    with admin_client(bootstrap, client_config) as admin:
        seen = look(admin, journaled)
    _show_status(journaled, seen, output)
    if output == "table" and journaled.open:
        plain_console().print(f"not over: {_advice(seen, plan)}", soft_wrap=True)
    return ExitCode.NO if journaled.open else ExitCode.DONE


@app.command(
    epilog=examples(
        "reassign abandon --bootstrap-server localhost:9092",
    )
)
def abandon(
    *,
    bootstrap: Bootstrap,
    plan: PlanFile = PLAN,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Abandon a plan: leave all partitions as they are now and remove its throttle."""
    check_output(output, "table", "json")

    file = Path(plan)
    with journal.open_exclusive(file) as found, admin_client(bootstrap, client_config) as admin:
        kept, seen = operations.abandon(admin, found, lambda written: journal.write(file, written))
    _show_status(kept, seen, output)
    if output == "table":
        plain_console().print(
            f"left as it is; {plan} still has the lists as they were:"
            f" `reassign export --original{of_plan(plan)}` prints them",
            soft_wrap=True,
        )
    return ExitCode.DONE


def _advice(seen: PlanStatus, plan: str) -> str:
    """Return how to end a plan: `apply` has nothing to do if all that is missing was changed by others."""
    named = of_plan(plan)
    if seen.of("changed-by-others") and not seen.of("as-before") and not seen.of("on-its-way") and not seen.throttled:
        return ends("apply", plan)
    return (
        f"`reassign apply{named}` goes on, `reassign rollback{named}` goes back,"
        f" `reassign abandon{named}` leaves all as it is"
    )


def _show_status(found: Journal, seen: PlanStatus, output: str) -> None:

    at = {state: seen.of(state) for state in PARTITION_STATES}
    if output == "json":
        written: dict[str, Any] = {state: _by_topic(partitions, seen) for state, partitions in at.items()}
        sys.stdout.write(json.dumps({"phase": found.phase, "throttled": seen.throttled, **written}) + "\n")
        return
    console = plain_console()
    console.print(f"{found.phase}: {counted(len(found.moves), 'partition')}", soft_wrap=True)
    for state, partitions in at.items():
        if partitions:
            names = join_first([_described(partition, state, seen) for partition in partitions], _NAMED_PARTITIONS)
            console.print(plain_line(f"{len(partitions)} {_WORDS[state]}: {names}"), soft_wrap=True)
    if seen.throttled:
        console.print("the throttle is still set", soft_wrap=True)


def _described(partition: TopicPartition, state: PartitionState, seen: PlanStatus) -> str:
    name = f"{partition.topic}-{partition.partition}"
    if state in {"on-its-way", "changed-by-others"}:
        return f"{name} ({join_ids(seen.lists[partition])})"
    return name


def _by_topic(partitions: Sequence[TopicPartition], seen: PlanStatus) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, {})[str(partition.partition)] = list(seen.lists.get(partition, ()))
    return found


LEADERS_PLAN = "rackassign-leaders.json"

_ELECTED_TOGETHER = 200


leaders_app = typer.Typer(rich_markup_mode=None)


@leaders_app.command(
    epilog=examples(
        "balance-leaders --bootstrap-server localhost:9092 --dry-run",
        "balance-leaders --bootstrap-server localhost:9092 --balance-by rack",
        "balance-leaders --bootstrap-server localhost:9092 --near-producers http://app-1:9100/metrics",
    )
)
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
    near_producers: NearProducers = None,
    near_group: Annotated[
        str, typer.Option("--near-group", help="Consumer group ID whose reads count as well, with --near-producers.")
    ] = "",
    max_skew: MaxSkew = 0,
    price_per_gb: PriceOption = None,
    cloud: CloudOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan without changing anything.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit 1 if --near-producers could save more than --tolerance."),
    ] = False,
    tolerance: Annotated[
        str, typer.Option(help="Share of the written bytes that may cross racks needlessly, with --check.")
    ] = "1%",
    plan: Annotated[
        str, typer.Option("--plan-file", help="File for the original replica lists, for `reassign rollback`.")
    ] = LEADERS_PLAN,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Balance partition leaders without copying data. Exit 1: some leaders could not be elected, or are to be."""
    check_output(output, "table", "json")

    if balance_by not in LEADER_GOALS:
        raise ConfigError(f"balance-by: expected {', '.join(LEADER_GOALS)}, got {short_repr(balance_by)}")
    if near_producers and balance_by != "broker":
        raise ConfigError("--near-producers cannot be combined with --balance-by: --max-skew bounds leaders by broker")
    if near_group and not near_producers:
        raise ConfigError("--near-group counts the bytes of --near-producers; it needs that option")
    if check and not near_producers:
        raise ConfigError("--check compares the bytes of --near-producers; it needs that option")
    dry_run, most = dry_run or check, read_share(tolerance, "tolerance")
    file, written = Path(plan), _read_producers(near_producers, max_skew)
    price = Price.from_options(price_per_gb, cloud)
    if not dry_run:
        journal.require_finished(file)
    rules = PlacementConstraints.of({"leaders": balance_by, "leader_racks": leader_rack or []})
    with admin_client(bootstrap, client_config) as admin:
        topics = tuple(sorted(set(topic))) if topic else None
        prepared = prepare_leaders(
            admin,
            rules,
            topics,
            written=written,
            group=near_group,
            max_skew=max_skew,
            free_replication=price.free_replication,
        )
        _warn_of_clients(prepared)
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
                        limits=ExecutionLimits(_ELECTED_TOGETHER),
                        report_progress=lambda at: display.count("Electing leaders", at.settled, at.partitions),
                        stop=stop,
                    )
                stopped = stop()
    if check:
        return _check_saving(prepared, most, price, output)
    if output == "json":
        result = {} if outcome is None else outcome_as_json(outcome)
        sys.stdout.write(
            json.dumps({**planned_as_json(planned), **prediction_as_json(prepared, price), **result}) + "\n"
        )
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
        show_prediction(prepared, console, price)
        if outcome is not None:
            show_outcome(outcome, "as planned", console)
    if stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.NO if outcome is not None and (outcome.failed or outcome.leader_not_elected) else ExitCode.DONE


def _check_saving(prepared: PreparedReassignment, most: float, price: Price, output: str) -> int:
    """Print what other leaders would save, and return whether that is more than a share of the written bytes."""
    total = sum(prepared.predicted().values(), CrossRackBytes())
    if not total.written:
        raise KafkaUnavailableError("near-producers: the metrics count no bytes of these topics, so there is no answer")
    saved = max(0, total.saved)
    if output == "json":
        written = {**planned_as_json(prepared.planned), **prediction_as_json(prepared, price)}
        sys.stdout.write(json.dumps(written) + "\n")
    else:
        plain_console().print(
            f"other leaders would save {format_bytes(saved)} across racks, {format_percent(saved, total.written)} of"
            f" {format_bytes(total.written)} that were written; --tolerance is {format_percent(most, 1)}",
            soft_wrap=True,
        )
    return ExitCode.NO if saved > most * total.written else ExitCode.DONE
