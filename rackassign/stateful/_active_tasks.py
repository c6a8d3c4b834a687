"""The active tasks of a member: taken when they are assigned, restored, processed, committed, and released.

A task is what is processed by one member at a time, and moves as a whole. Before any of them is processed the member
makes sure that it is still in its group (`MembershipCheck`), and that its local files are of the changelogs that exist.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from rackassign.clients.kafka_python import StandbyAwareAssignor
from rackassign.clients.kafka_python.internals import membership_of
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful._active_task import ActiveTask
from rackassign.stateful._changelog_client import ChangelogClient, ChangelogMissingError
from rackassign.stateful._inputs import Inputs, in_order
from rackassign.stateful._local_state import ElapsedTime
from rackassign.stateful._processing import Processed, TaskRun, Work
from rackassign.stateful._sqlite_file import StoreError
from rackassign.stateful._state_directory import StateDirectory
from rackassign.stateful._statistics import Role, StateCounts, TaskStatistics
from rackassign.stateful._transactions import TransactionCommits
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)

_SESSION_S = 45.0
"""Kafka's session.timeout.ms."""

_ANSWER_MS = 5000


class MembershipCheck:
    """The membership of a consumer, which may have been lost while this process was stopped.

    A member that resumes after more than its session timeout has probably lost its partitions, and its client needs a
    request to find out. Until the coordinator confirms its generation, or it has another one, it processes nothing.
    """

    def __init__(self, consumer: Any, once: WarnOnce) -> None:  # noqa: ANN401 - kafka-python is untyped
        self._consumer = consumer
        self._membership = membership_of(consumer)
        self._once = once
        session_s = None if self._membership is None else self._membership.session_timeout_s()
        self._session_s = _SESSION_S if session_s is None else session_s
        # A machine may have been suspended: Linux' monotonic clock stops then, and the session ends all the same.
        self._asked = ElapsedTime()
        self._suspected: int | None = None

    @property
    def is_suspect(self) -> bool:
        """Whether the last call of `present` returned False."""
        return self._suspected is not None

    def member(self) -> str:
        """Return the member ID; empty while the member joins its group."""
        return self._consumer.group_metadata().member_id or ""

    def present(self, generation: int) -> bool:
        """Return whether this member may process the partitions of its last assignment."""
        if self._asked.lap() > self._session_s:
            self._suspected = generation
        if self._suspected == generation and not self.confirmed(generation):
            return False
        self._suspected = None
        return True

    def suspect(self, generation: int) -> None:
        """Have the coordinator confirm a generation before anything else is processed."""
        self._suspected = generation

    def confirmed(self, generation: int) -> bool:
        """Return whether the coordinator confirms that this is the current generation, and that of this member."""
        if self._membership is None:
            self._once.warn("unconfirmed", "kafka-python differs: after a long pause the membership is not checked")
            return True
        return self._membership.confirm(_ANSWER_MS) and self._membership.generation() == generation


class UserFunctionError(Exception):
    """Carries what a function of the user has raised out of a call in which everything else is done."""

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error


OnRestore = Callable[[TopicPartition, int, int], None]
"""Called during a restore with the partition, the number of records read and the number of all records."""


COMMIT_BYTES = 4 << 20
"""Records of a transaction that is committed before the interval is over."""

_AGAIN_S = 1.0
"""Seconds until the next look for changelogs after one that has failed: each needs connections of its own."""

_ASK_AGAIN_S = 5.0
"""Seconds until the end of a changelog is asked again after it was not known."""

_PAUSE_S = 0.1


class ActiveTasks:
    """The active tasks of a member, whatever happens to each."""

    def __init__(
        self,
        *,
        state_directory: StateDirectory,
        logs: ChangelogClient,
        inputs: Inputs,
        check: MembershipCheck,
        assignor: StandbyAwareAssignor,
        work: Work,
        commit_s: float,
        on_restore: OnRestore | None,
        transactions: TransactionCommits,
        once: WarnOnce,
        counts: StateCounts,
    ) -> None:
        self._shelf = state_directory
        self._logs = logs
        self._inputs = inputs
        self._check = check
        self._assignor = assignor
        self._once = once
        self._counts = counts
        self._transactions = transactions
        self._work = work
        self._commit_s = commit_s
        self._on_restore = on_restore
        self._active: dict[TopicPartition, ActiveTask] = {}
        self._generation, self._member = -1, ""
        # Whether this member was out of the group, and nothing has made sure of its changelogs since.
        self._was_absent = False
        self._look_at = self._ask_at = float("-inf")
        self._committed_at = float("-inf")
        # Tasks whose errors of `process` were raised, in this order: the last one comes after the others.
        self._raised: dict[TopicPartition, int] = {}
        self._wall_ms = min((each.interval_ms for each in work.punctuate if each.time == "wall"), default=None)

    def tasks(self) -> set[TopicPartition]:
        """Return the active tasks, whether their state is restored or not."""
        return set(self._active)

    def ready(self) -> set[TopicPartition]:
        return {task for task, active in self._active.items() if active.ready}

    def reading(self) -> set[TopicPartition]:
        return {task for task, active in self._active.items() if active.reads}

    @property
    def restoring(self) -> bool:
        """Whether the state of an active task is not restored yet."""
        return any(not active.ready for active in self._active.values())

    def run(self, task: TopicPartition) -> TaskRun | None:
        """Return the processing of a task; None if it is not active, or not restored yet."""
        active = self._active.get(task)
        return None if active is None else active.run

    def statistics(self, ends: Mapping[TopicPartition, int]) -> list[TaskStatistics]:
        """Return how far the tasks are; may be called in any thread."""
        found = []
        for task, active in sorted(dict(self._active).items()):
            restored, to_restore = active.progress()
            lag = max(0, ends.get(task, 0) - active.store.position)
            role: Role = "active" if active.ready else "restoring"
            found.append(TaskStatistics(task, role, lag, restored, to_restore))
        return found

    def wait_ms(self, timeout_ms: int) -> int:
        """Return how long to wait for records, so that nothing else is late."""
        if self.restoring:
            return 0
        if self._wall_ms is not None:
            timeout_ms = min(timeout_ms, self._wall_ms)
        if any(active.changed for active in self._active.values()):
            left_s = max(0.0, self._committed_at + self._commit_s - time.monotonic())
            return min(timeout_ms, math.ceil(left_s * 1000))
        return timeout_ms

    def assign(self, assigned: AbstractSet[TopicPartition]) -> None:
        """Take the tasks that are assigned to this member, and release those that are not any more."""
        generation = self._assignor.generation
        member = self._check.member()
        # A group that was deleted meanwhile may be in the generation of before. While a member joins it has no ID.
        joined = generation != self._generation or member not in {self._member, ""}
        # Otherwise this member was out of the group, and others may own its tasks. If it was removed and has rejoined
        # in the same rebalance, it has another ID.
        consecutive = generation == self._generation + 1 and member == self._member
        if consecutive and not self._active.keys() <= assigned:
            # What was processed of revoked tasks: their next owners get them with the next generation (KIP-429).
            self.commit()
        for task in set(self._active) - assigned:
            self.release(task)
        for task, active in list(self._active.items()):
            if active.store.failure is not None:
                self.store_failed(task, active.store.failure)
        if joined:
            self._was_absent |= not consecutive and self._generation >= 0
            self._generation, self._member = generation, member
            for task in list(self._active):
                if consecutive:
                    # If it was lost and reassigned within one poll, the client has another offset.
                    self._stop_reading(task)
                else:
                    # Another member may have owned it in a generation that this one has not seen.
                    self.release(task)
            if not consecutive:
                self._inputs.ask_again()
        for task in sorted(assigned - set(self._active)):
            self._inputs.forget(task)
            store = self._shelf.available(task) if self._logs.has(task) else None
            if store is not None:
                # Nothing is in it that a commit of before may have left there.
                store.discard_uncommitted()
                self._active[task] = ActiveTask(task, store, self._logs)

    def present(self) -> bool:
        """Return whether this member may process the tasks of its last assignment."""
        if not self._transactions.is_ready():
            # What was open before is not aborted yet, and would be in the way of restores.
            return False
        return self._check.present(self._generation)

    def advance(self) -> None:
        """Continue restores, and begin to read the input of tasks that are ready."""
        late = False
        for task, active in list(self._active.items()):
            if active.reads:
                continue
            if not active.ready:
                if active.asks and time.monotonic() < self._ask_at:
                    continue
                try:
                    active.continue_restore()
                except KafkaUnavailableError as error:
                    self._once.warn("again", "%s-%d: its state is not restored yet: %s", *task, error, about=task)
                    self._was_absent |= isinstance(error, ChangelogMissingError)
                    # It has taken seconds: other partitions go on, and are asked about first.
                    self._ask_at = time.monotonic() + _ASK_AGAIN_S
                    self._active[task] = self._active.pop(task)
                except StoreError as error:
                    self.store_failed(task, error)
                    continue
            restored = active.restored
            if active.ready and not late:
                late = not self._begin(task, active)
            if self._on_restore is not None and not restored:
                try:
                    self._on_restore(task, *active.progress())
                except Exception as error:
                    raise UserFunctionError(error) from error

    def _begin(self, task: TopicPartition, active: ActiveTask) -> bool:
        """Read the input of a task; return whether Kafka responded in time."""
        run = active.run or self._started(task, active)
        if run is None:
            return True
        begun = self._inputs.begin(task, run)
        if begun:
            active.reads = active.restored = True
        return begun is not None

    def _started(self, task: TopicPartition, active: ActiveTask) -> TaskRun | None:
        """Return the processing of a task that is ready; None if its local file has failed."""
        try:
            active.run = TaskRun(active.store, self._work, self._once, self._transactions.new_output())
        except StoreError as error:
            self.store_failed(task, error)
            return None
        return active.run

    def process(self, todo: dict[TopicPartition, Sequence[Any]], reading: AbstractSet[TopicPartition]) -> int:
        """Process records, and remove the partitions that are done; return the number of processed records."""
        # `reading`: the tasks that were being read when these records were received.
        done = 0
        failures: list[tuple[TopicPartition, Exception]] = []
        by_task = self._inputs.by_task(todo)
        for task in sorted(self._active, key=lambda task: (self._raised.get(task, 0), task)):
            if self._transaction_bytes() >= COMMIT_BYTES:
                self.commit()
            # A new task gets its state first, which determines the offset where to begin.
            run = self.run(task)
            if task not in reading or run is None:
                continue
            batches = by_task.get(task, {})
            processed = self._processed(run, batches)
            if isinstance(processed, StoreError):
                self.store_failed(task, processed)
                continue
            done += processed.records
            self._counts.records += processed.records
            for tp, batch in batches.items():
                if batch[-1].offset < run.next_offset(tp.topic):
                    del todo[tp]
            if processed.failure is not None:
                failures.append((task, processed.failure))
            if self._check.is_suspect:
                # Each of the other tasks would wait for another request.
                break
        self._commit_due()
        for task, other in failures[1:]:
            log.warning("%s-%d: process raised here as well; the record is processed again", *task, exc_info=other)
        if failures:
            task, first = failures[0]
            self._raised[task] = max(self._raised.values(), default=0) + 1
            raise UserFunctionError(first)
        return done

    def _processed(self, run: TaskRun, batches: Mapping[TopicPartition, Sequence[Any]]) -> Processed | StoreError:
        """Process the records of a task, and call the functions that are due."""

        def goes_on() -> bool:
            # What is left of the records is read again after the transaction, which has to end within its timeout.
            return self.present() and run.transaction_bytes < COMMIT_BYTES

        processed = run.process(in_order(list(batches.values())), goes_on) if batches else Processed(0, None)
        if isinstance(processed, StoreError) or processed.failure is not None or self._check.is_suspect:
            return processed
        called = run.call_due()
        return called if isinstance(called, StoreError) else Processed(processed.records, called.failure)

    def _commit_due(self) -> None:
        """Commit if the interval is over, or if much was processed."""
        now = time.monotonic()
        due = now - self._committed_at >= self._commit_s or self._transaction_bytes() >= COMMIT_BYTES
        if due and any(active.changed for active in self._active.values()):
            self._committed_at = now
            self.commit()

    def _transaction_bytes(self) -> int:
        return sum(active.run.transaction_bytes for active in self._active.values() if active.run is not None)

    def commit(self) -> None:
        """Commit what all tasks have processed in one transaction; if that fails, their states are restored again."""
        runs = {task: active for task, active in sorted(self._active.items()) if active.changed}
        if not runs:
            return
        committed = False
        try:
            committed = self._transactions.commit(runs, self._assignor.generation)
        finally:
            self._counts.commits += len(runs) * committed
            if not committed:
                # The coordinator may have refused the generation: others may own these tasks by now.
                self._check.suspect(self._generation)
            for task, active in runs.items():
                if active.store.failure is not None:
                    self.store_failed(task, active.store.failure)
                elif not committed:
                    self.release(task)

    def _stop_reading(self, task: TopicPartition) -> None:
        """Pause the input of a task, which continues later behind the records in its state."""
        self._active[task].reads = False
        self._inputs.stop(task)

    def interrupt(self, task: TopicPartition) -> None:
        """Pause a task whose records were not all processed."""
        if task in self._active:
            self._stop_reading(task)

    def release(self, task: TopicPartition) -> None:
        """Discard what is not in the file; the next owner, maybe this member, restores the state."""
        self._active.pop(task).store.discard_uncommitted()
        self._inputs.forget(task)

    def release_all(self) -> None:
        for task in list(self._active):
            self.release(task)

    def store_failed(self, task: TopicPartition, error: StoreError) -> None:
        """Restore a task once its local file can be used again."""
        if task in self._active:
            self.release(task)
        self._shelf.failed(task, error)

    def changelogs_are_known(self) -> bool:
        """Return whether local files may be used; discard those of changelogs that are other topics by now."""
        # A group can be reset only while it has no members. A member that was cut off is none, and returns with the
        # state and the epoch of before: it would take the records of the new changelog for those of a former owner.
        if not self._was_absent:
            return True
        if time.monotonic() < self._look_at:
            # Tasks are assigned and not restored, so that polls do not wait for records.
            time.sleep(_PAUSE_S)
            return False
        try:
            self._logs.refresh_topic_ids()
        except (ConfigError, KafkaUnavailableError) as error:
            self._look_at = time.monotonic() + _AGAIN_S
            self._once.warn("absent", "nothing is processed yet after an absence: %s", error, about=str(error))
            return False
        if self._logs.ids != self._shelf.ids:
            self.release_all()
            self._shelf.discard_others(self._logs.ids)
        self._was_absent = False
        return True
