"""What a member has for all of its tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rackassign.clients.kafka_python import StandbyAwareAssignor
from rackassign.stateful.changelog.client import ChangelogClient
from rackassign.stateful.files.directory import StateDirectory
from rackassign.stateful.statistics import StateCounts
from rackassign.stateful.tasks.inputs import Inputs
from rackassign.stateful.tasks.membership_check import MembershipCheck
from rackassign.stateful.tasks.naming import Tasks
from rackassign.stateful.tasks.transaction_commits import TransactionCommits
from rackassign.stateful.transactions.output import Output
from rackassign.util.log_once import WarnOnce


@dataclass(frozen=True, slots=True)
class MemberParts:
    """What a member has, for whatever task.

    Args:
        tasks: The tasks of the group.
        shelf: The local files.
        logs: The changelogs.
        inputs: The input partitions.
        check: Its membership.
        assignor: Its assignor.
        once: Logs a warning once.
        counts: Its counters.
        transactions: Its transactions; None without them.
        new_output: Returns what a task writes to; None without transactions.
    """

    tasks: Tasks
    shelf: StateDirectory
    logs: ChangelogClient
    inputs: Inputs
    check: MembershipCheck
    assignor: StandbyAwareAssignor
    once: WarnOnce
    counts: StateCounts
    transactions: TransactionCommits | None = None
    new_output: Callable[[], Output | None] = lambda: None
