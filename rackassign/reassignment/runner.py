"""Apply and roll back the plan of a plan file, wait for brokers that are missing, and verify what a group gained.

The plan file is locked by the caller for as long as a runner uses it::

    with journal.open_exclusive(plan_file) as plan:
        outcome = ReassignmentRunner(admin, plan_file, state_file).apply(plan, wait_for_brokers=600)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.locality import Locality
from rackassign.placement import state_file as state_files
from rackassign.placement.group_locality import describe_readers
from rackassign.reassignment import journal as journals
from rackassign.reassignment.batches import ExecutionLimits, ExecutionResult, ProgressCallback
from rackassign.reassignment.executor import Direction
from rackassign.reassignment.journal import Journal
from rackassign.reassignment.service import check_cluster, execute, prepare_remaining, rolled_back_state, updated_state
from rackassign.util.text import describe_error

_LOOK_EVERY_S = 5.0
_MEASURE_EVERY_S = 1.0
_STOP_EVERY_S = 0.2

ProgressDisplay = Callable[[], AbstractContextManager[ProgressCallback]]
"""Open a display for one execution; what it yields is called with the progress."""


@contextmanager
def no_display() -> Iterator[ProgressCallback]:
    """Ignore the progress."""
    yield lambda _: None


@dataclass(frozen=True, slots=True)
class ReassignmentOutcome:
    """What has become of a plan.

    Args:
        direction: Whether it was applied or rolled back.
        journal: The plan as it was written last.
        result: Result of the last execution.
        locality: Partitions that the group of `--near-group` reads locally; None if it was not measured.
    """

    direction: Direction
    journal: Journal
    result: ExecutionResult
    locality: Locality | None = None

    @property
    def pending_replicas(self) -> int:
        """Number of planned replicas for which no broker is available yet; 0 after a rollback."""
        if self.direction == "rollback":
            return 0
        return sum(broker < 0 for row in self.journal.waiting.values() for broker in row)


class ReassignmentRunner:
    """Executes plans on a cluster; plan file and state file are written as it proceeds.

    Args:
        admin: Client of the cluster.
        plan_file: The plan file.
        state_file: The file of known brokers and placeholders.
        limits: Limits of each execution.
        stop: Called many times, return whether to stop; reassignments in progress are then reverted.
        display: Opens the display of one execution's progress.
        report_problem: Called with one line for each problem that does not end the run.

    Raises:
        ConfigError: The state file cannot be read.
    """

    def __init__(
        self,
        admin: KafkaAdminClient,
        plan_file: Path,
        state_file: Path,
        *,
        limits: ExecutionLimits | None = None,
        stop: Callable[[], bool] = lambda: False,
        display: ProgressDisplay = no_display,
        report_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._admin, self._plan_file, self._state_file = admin, plan_file, state_file
        self._limits, self._stop = limits or ExecutionLimits(), stop
        self._display, self._report_problem = display, report_problem
        # An unreadable state file is reported before anything is changed.
        state_files.read(state_file)

    def apply(
        self, journal: Journal, *, wait_for_brokers: float = 0.0, verify_timeout: float = 30.0
    ) -> ReassignmentOutcome:
        """Apply or resume a plan.

        Args:
            journal: The plan.
            wait_for_brokers: Seconds to keep running and place pending replicas when a broker joins.
            verify_timeout: Seconds for the group of the plan's request to rebalance, before its locality is measured.

        Raises:
            ConfigError: The plan is for another cluster or was abandoned, or a file cannot be read or written.
            ThrottleNotRemovedError: As for `execute_plan`.
            KafkaError: Raised by the client; the plan can be applied again.
        """
        journal, result = self._execute(journal, "apply")
        if wait_for_brokers:
            journal, result = self._wait_for_brokers(journal, result, wait_for_brokers)
        group = journal.request.group if journal.request is not None else ""
        locality = self._verify(group, verify_timeout) if group and not self._stop() else None
        return ReassignmentOutcome("apply", journal, result, locality)

    def rollback(self, journal: Journal) -> ReassignmentOutcome:
        """Restore the original replica lists of a plan; errors are those of `apply`."""
        return ReassignmentOutcome("rollback", *self._execute(journal, "rollback"))

    def _execute(self, journal: Journal, direction: Direction) -> tuple[Journal, ExecutionResult]:
        check_cluster(self._admin, journal)
        if direction == "apply":
            # A state file of another cluster is reported before anything is changed.
            state_files.read(self._state_file).for_cluster(journal.cluster)
        with self._display() as report_progress:
            journal, result = execute(
                self._admin,
                journal,
                direction,
                keep=lambda written: journals.write(self._plan_file, written),
                limits=self._limits,
                report_progress=report_progress,
                stop=self._stop,
            )
        if direction == "apply":
            state_files.update(self._state_file, lambda known: updated_state(self._admin, known, journal, result))
        elif (known := state_files.read(self._state_file)) != rolled_back_state(known, journal, result):
            state_files.update(self._state_file, lambda known: rolled_back_state(known, journal, result))
        return journal, result

    def _wait_for_brokers(
        self, journal: Journal, result: ExecutionResult, seconds: float
    ) -> tuple[Journal, ExecutionResult]:
        """Plan and execute again and again for some time: what is pending or failed may have become possible.

        An execution that was interrupted by an error is always resumed, at the latest when the time is over.

        Raises:
            ConfigError: As for `apply`.
            ThrottleNotRemovedError: As for `apply`.
            KafkaError: Raised by the client.
        """
        until, interrupted = time.monotonic() + seconds, False
        while (journal.waiting or result.failed or interrupted) and not self._stop() and time.monotonic() < until:
            self._sleep(min(_LOOK_EVERY_S, until - time.monotonic()))
            try:
                more = prepare_remaining(self._admin, journal, state_files.read(self._state_file))
                more = journal if more is None and interrupted else more
                if more is not None and not self._stop():
                    interrupted = True
                    journal, result = self._execute(more, "apply")
                    interrupted = False
            except (KafkaError, RackassignError) as error:
                # The brokers that are waited for may be those that do not respond.
                away = isinstance(error, (KafkaError, KafkaUnavailableError))
                self._report_problem(f"{'cluster not available: ' if away else ''}{describe_error(error)}")
                # The interrupted execution has written what it has begun, and which throttle it has left.
                journal = journals.read(self._plan_file)
        return self._execute(journal, "apply") if interrupted else (journal, result)

    def _verify(self, group: str, seconds: float) -> Locality | None:
        """Return the locality of a group once it is the best possible or time is up; None if it is unavailable."""
        until = time.monotonic() + seconds
        while True:
            try:
                near = describe_readers(self._admin, group)
            except (KafkaError, RackassignError) as error:
                self._report_problem(f"not measured: {error}")
                return None
            now = near.inspection.partitions
            best = near.inspection.reach("cooperative-sticky").partitions
            if now.local >= best.local or time.monotonic() > until or self._stop():
                return now
            self._sleep(_MEASURE_EVERY_S)

    def _sleep(self, seconds: float) -> None:
        """Sleep, but not longer than until the run is to stop."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stop():
            time.sleep(min(_STOP_EVERY_S, seconds))
