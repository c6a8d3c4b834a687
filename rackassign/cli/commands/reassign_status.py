"""`rackassign reassign status` and `reassign abandon`: the progress of a plan, and how to give one up."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.cli.commands import reassign
from rackassign.cli.commands.reassign import PLAN, PlanFile
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.terminal import Output, check_output, examples, plain_console, plain_line
from rackassign.text import counted, join_first, join_ids

if TYPE_CHECKING:
    from rackassign.model import TopicPartition
    from rackassign.reassignment import Journal
    from rackassign.reassignment.operations import PartitionState, PlanStatus

_NAMED = 5

app = reassign.app

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
    # Imports a client and the solver, which other commands do without.
    from rackassign.reassignment import journal  # noqa: PLC0415
    from rackassign.reassignment.operations import look  # noqa: PLC0415

    found = journal.read(Path(plan))
    with admin_client(bootstrap, client_config) as admin:
        seen = look(admin, found)
    _show(found, seen, output)
    if output == "table" and found.open:
        plain_console().print(f"not over: {_advice(seen, plan)}", soft_wrap=True)
    return ExitCode.NO if found.open else ExitCode.DONE


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
    # Imports a client and the solver, which other commands do without.
    from rackassign.reassignment import journal, operations  # noqa: PLC0415

    file = Path(plan)
    with journal.open_exclusive(file) as found, admin_client(bootstrap, client_config) as admin:
        kept, seen = operations.abandon(admin, found, lambda written: journal.write(file, written))
    _show(kept, seen, output)
    if output == "table":
        plain_console().print(
            f"left as it is; {plan} still has the lists as they were:"
            f" `reassign export --original{reassign.of_plan(plan)}` prints them",
            soft_wrap=True,
        )
    return ExitCode.DONE


def _advice(seen: PlanStatus, plan: str) -> str:
    """Return how to end a plan: `apply` has nothing to do if all that is missing was changed by others."""
    named = reassign.of_plan(plan)
    if seen.of("changed-by-others") and not seen.of("as-before") and not seen.of("on-its-way") and not seen.throttled:
        return reassign.ends("apply", plan)
    return (
        f"`reassign apply{named}` goes on, `reassign rollback{named}` goes back,"
        f" `reassign abandon{named}` leaves all as it is"
    )


def _show(found: Journal, seen: PlanStatus, output: str) -> None:
    from rackassign.reassignment.operations import PARTITION_STATES  # noqa: PLC0415 - as above

    at = {state: seen.of(state) for state in PARTITION_STATES}
    if output == "json":
        written: dict[str, Any] = {state: _by_topic(partitions, seen) for state, partitions in at.items()}
        sys.stdout.write(json.dumps({"phase": found.phase, "throttled": seen.throttled, **written}) + "\n")
        return
    console = plain_console()
    console.print(f"{found.phase}: {counted(len(found.moves), 'partition')}", soft_wrap=True)
    for state, partitions in at.items():
        if partitions:
            names = join_first([_named(partition, state, seen) for partition in partitions], _NAMED)
            console.print(plain_line(f"{len(partitions)} {_WORDS[state]}: {names}"), soft_wrap=True)
    if seen.throttled:
        console.print("the throttle is still set", soft_wrap=True)


def _named(partition: TopicPartition, state: PartitionState, seen: PlanStatus) -> str:
    name = f"{partition.topic}-{partition.partition}"
    if state in {"on-its-way", "changed-by-others"}:
        return f"{name} ({join_ids(seen.lists[partition])})"
    return name


def _by_topic(partitions: Sequence[TopicPartition], seen: PlanStatus) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, {})[str(partition.partition)] = list(seen.lists.get(partition, ()))
    return found
