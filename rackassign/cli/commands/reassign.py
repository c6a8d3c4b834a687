"""`rackassign repair`: other replicas for partitions that exist, planned first, and undone if that is wanted."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackassign.cli.commands.create_topic import STATE
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.inputs import read_json
from rackassign.cli.output import check_output, plain_console, warn
from rackassign.cli.placement_options import IgnoreRacks
from rackassign.cli.progress import progress_display
from rackassign.cli.render.layout import counted
from rackassign.cli.render.layout import waiting as told_waiting
from rackassign.cli.render.reassignment import outcome_as_json, prepared_as_json, share, show_outcome, show_prepared
from rackassign.cli.signals import stop_requested
from rackassign.errors import ConfigError, RackassignError
from rackassign.util.text import short_repr

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

    from rackassign.reassignment import ExecutionLimits, ExecutionResult, Journal, Progress
    from rackassign.reassignment.executor import Direction

DONE, NO, INTERRUPTED = 0, 1, 130
PLAN = "rackassign-repair.json"
TAKING_BACK = "what is on its way is being taken back, which leaves nothing half done"

_LOOK_EVERY_S = 5.0

app = typer.Typer(
    help="Give partitions other replicas: complete them, spread them over racks, replace brokers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PlanFile = Annotated[str, typer.Option("--plan", help="File of the plan, and of the lists as they were.")]
StateFile = Annotated[str, typer.Option("--state", help="File of brokers that were seen, and of placeholders.")]
Wave = Annotated[int, typer.Option(min=1, help="Partitions that are reassigned at the same time.")]
Throttle = Annotated[
    str, typer.Option(help="Bytes a second that a broker sends, and receives, for it: 50M; empty for no limit.")
]
Patience = Annotated[float, typer.Option(min=0, help="Seconds after which a partition that is stuck is given up.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds after which what is not done is given up; 0 for no end.")]
Output = Annotated[str, typer.Option(help="table or json.")]


@app.command()
def plan(
    *,
    bootstrap: Bootstrap,
    topic: Annotated[list[str] | None, typer.Option(help="Only this one; may be given several times.")] = None,
    rf: Annotated[int, typer.Option("--rf", min=0, help="Replicas of each partition; 0: as many as there are.")] = 0,
    replace: Annotated[
        list[int] | None, typer.Option(help="A broker that is dead or is to go: it loses what it has.")
    ] = None,
    even: Annotated[bool, typer.Option("--even", help="Have brokers carry evenly, which moves more.")] = False,
    for_group: Annotated[str, typer.Option(help="A consumer group: replicas go to the racks of its members.")] = "",
    rules: Annotated[str, typer.Option(help="JSON file of further rules: leader_racks, max_per_rack, ..")] = "",
    import_: Annotated[str, typer.Option("--import", help="Take the lists of kafka-reassign-partitions.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Write the plan down also if it leaves brokers much less even than now.")
    ] = False,
    allow_placeholders: Annotated[
        bool, typer.Option("--allow-placeholders", help="More replicas than brokers were ever seen: the rest waits.")
    ] = False,
    ignore_racks: IgnoreRacks = False,
    plan: PlanFile = PLAN,
    state: StateFile = STATE,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Work out a repair with the fewest copies, and write it down; nothing is changed. Exit 1 if it is too uneven."""
    check_output(output, "table", "json")
    # Imports a client and the solver, which other commands do without.
    from rackassign.monitoring.serialize import selector_warnings  # noqa: PLC0415
    from rackassign.placement import state_file  # noqa: PLC0415
    from rackassign.reassignment import ReassignmentRequest, journal  # noqa: PLC0415
    from rackassign.reassignment.evenness import UnevenError  # noqa: PLC0415
    from rackassign.reassignment.kafka_json import read_reassignment  # noqa: PLC0415
    from rackassign.reassignment.service import prepare, prepare_from_lists  # noqa: PLC0415

    file, known = Path(plan), state_file.read(Path(state))
    wish = ReassignmentRequest(
        tuple(sorted(set(topic))) if topic else None,
        rf or None,
        frozenset(replace or ()),
        even,
        for_group,
        read_json(rules, lambda parsed: parsed) if rules else {},
        force,
        ignore_racks,
        allow_placeholders,
    )
    given = read_json(import_, read_reassignment) if import_ else None
    if given is not None and wish != ReassignmentRequest(force=force):
        raise ConfigError("--import says it all: leave out --topic, --rf, --replace, --even, --for-group and --rules")
    with journal.file_lock(file):
        journal.require_finished(file)
        try:
            with admin_client(bootstrap, client_config) as admin:
                prepared = (
                    prepare(admin, wish, known) if given is None else prepare_from_lists(admin, given, force=force)
                )
        except UnevenError as error:
            warn(f"{error}; nothing is written")
            return NO
        planned = prepared.planned
        written = bool(planned.moves or planned.waiting)
        if planned.obsolete_placeholders:
            # Where nothing is left to be done, nobody applies anything.
            state_file.write(
                Path(state),
                known.for_cluster(prepared.journal.cluster).with_placeholders(
                    dict.fromkeys(planned.obsolete_placeholders, ())
                ),
            )
        put_by = journal.begin(file, prepared.journal) if written else journal.archive(file)
    for trouble in selector_warnings(prepared.readers.cluster) if prepared.readers is not None else ():
        warn(trouble)
    if output == "json":
        sys.stdout.write(json.dumps({**prepared_as_json(prepared), "plan": plan if written else None}) + "\n")
        return DONE
    console = plain_console()
    show_prepared(prepared, console)
    if written:
        named = "" if plan == PLAN else f" --plan {plan}"
        console.print(
            f"written to {plan}: `repair apply{named}` does it, `repair rollback{named}` undoes it", soft_wrap=True
        )
    if put_by is not None:
        console.print(f"the plan that was there before is kept in {put_by}", soft_wrap=True)
    return DONE


@app.command()
def apply(
    *,
    bootstrap: Bootstrap,
    plan: PlanFile = PLAN,
    state: StateFile = STATE,
    wave: Wave = 50,
    throttle: Throttle = "",
    patience: Patience = 30.0,
    timeout: Timeout = 0.0,
    watch: Annotated[
        float, typer.Option(min=0, help="Seconds to go on looking: what waits for a broker is done when one comes.")
    ] = 0.0,
    settle: Annotated[float, typer.Option(min=0, help="Seconds a group of --for-group has to take it up.")] = 30.0,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Carry a plan out, or on if it was begun; exit 1 if something of it cannot be done."""
    check_output(output, "table", "json")
    # Imports a client and the solver, which other commands do without.
    from rackassign.reassignment import journal  # noqa: PLC0415

    pace = _pace(wave, throttle, patience, timeout)
    # What is wrong with the plan is said before anything else is begun.
    with (
        journal.open_exclusive(Path(plan)) as found,
        admin_client(bootstrap, client_config) as admin,
        stop_requested(TAKING_BACK) as stop,
    ):
        work = _Work(admin, Path(plan), Path(state), pace, stop)
        kept, outcome = work.carry(found, "apply")
        if watch:
            kept, outcome = work.watched(kept, outcome, watch)
        group = kept.request.group if kept.request is not None else ""
        measured = work.measured(group, settle) if group and not stop() else None
    return _end(outcome, kept, "apply", output, stopped=stop(), measured=measured)


@app.command()
def rollback(
    *,
    bootstrap: Bootstrap,
    plan: PlanFile = PLAN,
    state: StateFile = STATE,
    wave: Wave = 50,
    throttle: Throttle = "",
    patience: Patience = 30.0,
    timeout: Timeout = 0.0,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Make all lists as they were before the plan, order and all; exit 1 if something of it cannot be done."""
    check_output(output, "table", "json")
    # Imports a client and the solver, which other commands do without.
    from rackassign.reassignment import journal  # noqa: PLC0415

    pace = _pace(wave, throttle, patience, timeout)
    # What is wrong with the plan is said before anything else is begun.
    with (
        journal.open_exclusive(Path(plan)) as found,
        admin_client(bootstrap, client_config) as admin,
        stop_requested(TAKING_BACK) as stop,
    ):
        kept, outcome = _Work(admin, Path(plan), Path(state), pace, stop).carry(found, "rollback")
    return _end(outcome, kept, "rollback", output, stopped=stop())


@app.command()
def export(
    *,
    plan: PlanFile = PLAN,
    before: Annotated[bool, typer.Option("--before", help="The lists as they were, in place of the new ones.")] = False,
) -> int:
    """Print a plan as the JSON that `kafka-reassign-partitions --execute` takes."""
    # Imports a client and the solver, which other commands do without.
    from rackassign.reassignment import journal  # noqa: PLC0415
    from rackassign.reassignment.kafka_json import write_reassignment  # noqa: PLC0415

    moves = journal.read(Path(plan)).moves
    lists = {place: move.before if before else move.after for place, move in moves.items()}
    sys.stdout.write(write_reassignment(lists) + "\n")
    return DONE


@contextmanager
def told_if_interrupted(plan: Path) -> Iterator[None]:
    """Say what a run leaves that is ended in the middle, and what puts it right."""
    try:
        yield
    except KeyboardInterrupt:
        warn(
            "ended in the middle: partitions may be between their old list and the new one, or still be reassigned"
            f" (`repair status --plan {plan}` tells which); `repair apply --plan {plan}` goes on,"
            f" `repair rollback --plan {plan}` goes back"
        )
        raise


class _Work:
    """One run on a cluster: journal and registry are written down as it goes."""

    def __init__(
        self, admin: KafkaAdminClient, plan: Path, state: Path, pace: ExecutionLimits, stop: Callable[[], bool]
    ) -> None:
        from rackassign.placement import state_file  # noqa: PLC0415 - as above

        self._admin, self._plan, self._state, self._pace, self._stop = admin, plan, state, pace, stop
        # One that cannot be read is told before anything is begun.
        state_file.read(state)

    def carry(self, kept: Journal, direction: Direction) -> tuple[Journal, ExecutionResult]:
        """Carry a journal out or back, and show how far it is."""
        from rackassign.placement import state_file  # noqa: PLC0415 - as above
        from rackassign.reassignment import journal  # noqa: PLC0415
        from rackassign.reassignment.service import check_cluster, execute, updated_state  # noqa: PLC0415

        check_cluster(self._admin, kept)
        if direction == "apply":
            # One of another cluster is told before anything is begun.
            state_file.read(self._state).for_cluster(kept.cluster)
        with progress_display() as display:

            def told(progress: Progress) -> None:
                display.copied("Reassigning", progress.settled, progress.partitions, *progress.copied)

            with told_if_interrupted(self._plan):
                kept, outcome = execute(
                    self._admin,
                    kept,
                    direction,
                    keep=lambda written: journal.write(self._plan, written),
                    limits=self._pace,
                    report_progress=told,
                    stop=self._stop,
                )
        if direction == "apply":
            state_file.write(self._state, updated_state(self._admin, state_file.read(self._state), kept, outcome))
        return kept, outcome

    def watched(self, kept: Journal, outcome: ExecutionResult, seconds: float) -> tuple[Journal, ExecutionResult]:
        """Go on for some time: what is still to be done may become possible."""
        from kafka.errors import KafkaError  # noqa: PLC0415 - as above

        from rackassign.placement import state_file  # noqa: PLC0415
        from rackassign.reassignment.service import prepare_remaining  # noqa: PLC0415

        until = time.monotonic() + seconds
        while (kept.waiting or outcome.failed) and not self._stop() and time.monotonic() < until:
            self._rest(min(_LOOK_EVERY_S, until - time.monotonic()))
            try:
                more = prepare_remaining(self._admin, kept, state_file.read(self._state))
                if more is not None and not self._stop():
                    kept, outcome = self.carry(more, "apply")
            except (KafkaError, RackassignError) as error:
                warn(f"not seen now: {type(error).__name__}: {error}")
        return kept, outcome

    def measured(self, group: str, seconds: float) -> Any:  # noqa: ANN401 - a Locality; the class is imported late
        """Return what a group reads at home, once it does as well as it can or time is up; None if it is not seen."""
        from kafka.errors import KafkaError  # noqa: PLC0415 - as above

        from rackassign.placement.group_locality import describe_readers  # noqa: PLC0415

        until = time.monotonic() + seconds
        while True:
            try:
                near = describe_readers(self._admin, group)
            except (KafkaError, RackassignError) as error:
                warn(f"not measured: {error}")
                return None
            now = near.inspection.partitions
            best = near.inspection.reach("cooperative-sticky").partitions
            if now.local >= best.local or time.monotonic() > until or self._stop():
                return now
            self._rest(1.0)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stop():
            time.sleep(min(0.2, seconds))


def _end(
    outcome: ExecutionResult,
    kept: Journal,
    direction: Direction,
    output: str,
    *,
    stopped: bool,
    measured: Any = None,  # noqa: ANN401
) -> int:
    waiting = sum(broker < 0 for row in kept.waiting.values() for broker in row) if direction == "apply" else 0
    if output == "json":
        local = None if measured is None else {name: getattr(measured, name) for name in ("local", "cross", "unknown")}
        told = {**outcome_as_json(outcome), "phase": kept.phase, "waiting_replicas": waiting, "group_partitions": local}
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        console = plain_console()
        show_outcome(outcome, "as planned" if direction == "apply" else "as they were", console)
        if waiting:
            console.print(f"{told_waiting(waiting)}; see --watch", soft_wrap=True)
        if measured is not None:
            console.print(f"the group reads {share(measured)} of its partitions at home", soft_wrap=True)
        if outcome.final:
            warn(
                f"{counted(len(outcome.final), 'partition')} can no longer be had as the plan says, and"
                f" {'is' if len(outcome.final) == 1 else 'are'} left alone: {_ENDS[direction]}"
            )
    if stopped:
        return INTERRUPTED
    return NO if outcome.failed or waiting else DONE


_ENDS = {
    "apply": "`repair rollback` takes back the rest, and `repair abandon` leaves all as it is; either ends the plan",
    "rollback": "all that can be taken back is once no other is told as not done",
}


def _pace(wave: int, throttle: str, patience: float, timeout: float) -> ExecutionLimits:
    from rackassign.reassignment import ExecutionLimits  # noqa: PLC0415 - as above

    return ExecutionLimits(wave, rate(throttle), patience, timeout or None)


_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}


def rate(text: str) -> int | None:
    """Return bytes a second; None for none.

    Raises:
        ConfigError: It is no number, or nothing would be copied.
    """
    if not text:
        return None
    number, unit = (text[:-1], text[-1].lower()) if text[-1].isalpha() else (text, "")
    if not (number.isascii() and number.isdecimal() and unit in _UNITS and int(number)):
        raise ConfigError(f"throttle: expected bytes a second, as 50M, got {short_repr(text)}")
    return int(number) * _UNITS[unit]
