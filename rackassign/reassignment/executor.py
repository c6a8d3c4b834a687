"""Execution of a plan or its rollback, in batches of partitions.

A batch that cannot complete, for example because a broker that was to get a replica died, is taken back partition by
partition to the replica lists that it began with. Partitions not started when a run ends are not touched.

At every moment, whatever fails, the journal has the original lists and the throttle configurations that were set
before. A run that is started again therefore continues from what the cluster reports. Every step can be repeated
without further effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from kafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError, UnknownBrokerIdError

from rackassign.admin.admin_client import AuthorizationError
from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.reassignment.journal import Journal, Phase
from rackassign.reassignment.kafka_cluster import CopyProgress, ReassignmentCluster
from rackassign.reassignment.partition_execution import (
    Action,
    ExecutionState,
    PartitionExecution,
    PartitionStatus,
    ReplicaMove,
    Replicas,
)
from rackassign.reassignment.throttle import (
    SavedConfigs,
    is_restored,
    list_replicas,
    restore_configs,
    save_configs,
    throttle,
)
from rackassign.text import describe_error

_LOOK_EVERY_S = 0.25
_COUNTED_EVERY_S = 1.0
_NOTHING_COPIED_S = 30.0
"""Least time without a byte copied. Kafka's throttle pauses a replica for up to the window of its quota, 11 seconds."""

_FINAL = frozenset({"InvalidReplicationAssignmentError"})
"""Refusals that a retry does not change, for example of a list with a broker that is no longer registered."""


@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """Limits of an execution: partitions at a time, bandwidth and waiting times.

    Args:
        batch_size: Partitions that are reassigned at the same time, 1 or more.
        rate: Bytes per second that each broker sends, and receives, for the reassignment; None for no limit.
        stall_timeout_s: Seconds without progress after which a partition is given up. Where brokers report the sizes of
            logs, no progress also means that nothing is copied in the whole batch, for 30 seconds at least.
        timeout_s: Seconds after which all unfinished partitions are given up; None for no limit.
    """

    batch_size: int = 50
    rate: int | None = None
    stall_timeout_s: float = 30.0
    timeout_s: float | None = None


class Progress(NamedTuple):
    """Progress of an execution.

    Args:
        settled: Partitions that are done or given up.
        partitions: Number of all partitions.
        copied: Copy progress of the batches so far.
    """

    settled: int
    partitions: int
    copied: CopyProgress


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """Result of an execution.

    Args:
        done: Partitions that have their planned list.
        failed: The other partitions, with the reason. They have the list that they had when this run began, unless the
            reason states otherwise.
        deleted: Partitions that do not exist, with the reason. Nothing is left to do for them.
        sent: Number of partitions whose replicas this run has changed.
        leader_not_elected: Partitions whose preferred leader is not the leader, with the reason.
        final: Partitions that failed for good: they were changed by another process, or the cluster refuses the list.
    """

    done: tuple[TopicPartition, ...]
    failed: Mapping[TopicPartition, str]
    sent: int
    deleted: Mapping[TopicPartition, str] = field(default_factory=dict)
    leader_not_elected: Mapping[TopicPartition, str] = field(default_factory=dict)
    final: frozenset[TopicPartition] = frozenset()


ProgressCallback = Callable[[Progress], None]


class BatchExecutor:
    """One execution of all partitions."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        cluster: ReassignmentCluster,
        moves: Mapping[TopicPartition, ReplicaMove],
        goals: Mapping[TopicPartition, Replicas],
        limits: ExecutionLimits,
        report_progress: ProgressCallback,
        stop: Callable[[], bool],
        *,
        elect_unchanged: bool = True,
    ) -> None:
        # Leaders are elected also of partitions that have their list from the beginning.
        self._elect_unchanged = elect_unchanged
        self._cluster, self._limits, self._report_progress, self._stop = cluster, limits, report_progress, stop
        self._executions = {tp: PartitionExecution(moves[tp], goal) for tp, goal in goals.items()}
        self._until = None if limits.timeout_s is None else cluster.now() + limits.timeout_s
        self._clocks = _StallClocks(limits.stall_timeout_s)
        self._not_elected: dict[TopicPartition, str] = {}
        self._copied, self._counted_at = CopyProgress(0, 0), float("-inf")
        self._copied_before = CopyProgress(0, 0)
        """By batches that are over."""
        self._arriving, self._arriving_at = self._copied, float("-inf")
        """On the replicas that are awaited."""
        self._awaited: tuple[int, Mapping[TopicPartition, PartitionStatus | None]] = 0, {}
        self._awaited_since = float("-inf")

    @property
    def has_changed_replicas(self) -> bool:
        return any(execution.changed for execution in self._executions.values())

    def run(self, before_batch: Callable[[Sequence[TopicPartition]], None] = lambda _: None) -> ExecutionResult:
        tps = list(self._executions)
        # Describe all partitions first: without the permission for all of them, nothing is done.
        self._cluster.describe(tps)
        for begin in range(0, len(tps), self._limits.batch_size):
            reason = self._stop_reason()
            if reason:
                self._leave(tps[begin:], reason)
                break
            batch = tps[begin : begin + self._limits.batch_size]
            before_batch(batch)
            self._execute(batch)
            self._elect_leaders(batch)
        return self._result()

    def _result(self) -> ExecutionResult:
        executions = sorted(self._executions.items())
        done = [tp for tp, execution in executions if execution.state is ExecutionState.DONE]
        deleted = [tp for tp, execution in executions if execution.state is ExecutionState.DELETED]
        missing = self._cluster.missing(deleted) if deleted else {}
        return ExecutionResult(
            tuple(done),
            {tp: execution.reason for tp, execution in executions if execution.reason is not None},
            sum(self._executions[tp].changed for tp in done),
            {tp: missing.get(tp, "it did not exist for a while") for tp in deleted},
            dict(self._not_elected),
            frozenset(tp for tp, execution in executions if execution.final),
        )

    def _leave(self, tps: Sequence[TopicPartition], reason: str) -> None:
        """Leave partitions alone, except for those that an earlier execution has begun: these are reverted."""
        seen = self._cluster.describe(tps)
        self._execute([tp for tp in tps if tp in seen and seen[tp].target in self._executions[tp].move.known()])
        for tp in tps:
            self._executions[tp].give_up(reason)

    def _execute(self, batch: Sequence[TopicPartition]) -> None:
        """Describe partitions and act until each is over: it has its goal, does not exist, or cannot reach any list."""
        ongoing = {tp: self._executions[tp] for tp in batch}
        while ongoing:
            statuses, offline = self._cluster.describe(list(ongoing)), self._cluster.offline_brokers()
            for tp, execution in ongoing.items():
                execution.observe(statuses.get(tp))
            actions = {tp: execution.next_action(offline) for tp, execution in ongoing.items()}
            reason = self._stop_reason()
            if reason:
                for tp, action in actions.items():
                    # One that is done stays done: reverting it would be more work than leaving it.
                    if action.do != "done":
                        ongoing[tp].give_up(reason)
                # The goals of those given up are others now.
                actions = {tp: execution.next_action(offline) for tp, execution in ongoing.items()}
            self._send({tp: action for tp, action in actions.items() if not ongoing[tp].over})
            stuck = {_clock(tp, action): action.awaits for tp, action in actions.items() if action.do == "stuck"}
            self._clocks.update(stuck, offline, self._cluster.now())
            unseen = [tp for tp, action in actions.items() if action.cause == "gone" and self._is_expired(tp, action)]
            existing = self._cluster.not_deleted(unseen) if unseen else {}
            for tp, action in actions.items():
                self._conclude(tp, action, existing.get(tp))
            self._conclude_stalled({tp: statuses.get(tp) for tp, action in actions.items() if action.do == "wait"})
            ongoing = {tp: execution for tp, execution in ongoing.items() if not execution.over}
            self._report(batch, last=not ongoing)
            if ongoing:
                self._cluster.sleep(_LOOK_EVERY_S)

    def _stop_reason(self) -> str:
        """Return the reason to begin nothing more, empty for none."""
        if self._stop():
            return "stopped"
        return "time limit reached" if self._until is not None and self._cluster.now() > self._until else ""

    def _send(self, actions: Mapping[TopicPartition, Action]) -> None:
        """Send the lists, and the cancellations, that partitions need next."""
        lists = {
            tp: self._executions[tp].goal if action.do == "send" else None
            for tp, action in actions.items()
            if action.do in {"send", "cancel"}
        }
        if not lists:
            return
        for tp in lists:
            self._executions[tp].begin()
        refused = self._cluster.alter_reassignments(lists)
        for tp, row in lists.items():
            execution = self._executions[tp]
            if row is None:
                # The reassignment to be cancelled may have completed in the meantime.
                continue
            if tp not in refused or execution.has_goal():
                execution.accept()
            else:
                execution.refuse(refused[tp], final=refused[tp] in _FINAL)

    def _is_expired(self, tp: TopicPartition, action: Action) -> bool:
        """Return whether a partition that is not over has been stuck for too long."""
        return not self._executions[tp].over and self._clocks.expired(_clock(tp, action))

    def _conclude(self, tp: TopicPartition, action: Action, not_deleted: str | None) -> None:
        """Conclude a partition for which nothing more can be done; give it up if it has been stuck for too long."""
        # Why it may exist although it was not described for too long; None if it is deleted.
        execution = self._executions[tp]
        if execution.over:
            return
        if action.do == "done":
            execution.complete()
        elif action.do == "foreign":
            execution.fail(action.why)
        elif action.do == "stuck" and self._clocks.expired(_clock(tp, action)):
            if action.cause == "gone" and not_deleted is not None:
                execution.fail(not_deleted)
            elif action.cause == "gone":
                execution.delete()
            elif action.cause == "unknown":
                # Its replicas are of another process, in whose way no request of this one is to be.
                execution.fail(action.why, final=True)
            elif execution.reason is not None:
                execution.fail(action.why)
            else:
                execution.give_up(action.why)

    def _conclude_stalled(self, waiting: Mapping[TopicPartition, PartitionStatus | None]) -> None:
        """Give partitions up if nothing has happened to any of them for too long.

        Copies of one batch share the bandwidth, so that a single one may be waiting for the others. What counts is on
        the awaited replicas: old ones may be awaited as well, and producers write to all others meanwhile.
        """
        now = self._cluster.now()
        if waiting and now - self._arriving_at > _COUNTED_EVERY_S:
            in_sync = {tp: frozenset() if status is None else status.in_sync for tp, status in waiting.items()}
            lagging = {tp: set(self._executions[tp].goal) - in_sync[tp] for tp in waiting}
            self._arriving = self._cluster.copy_progress({tp: brokers for tp, brokers in lagging.items() if brokers})
            self._arriving_at = now
        awaited = self._arriving.done, waiting
        if not waiting or awaited != self._awaited or not self._arriving.complete:
            self._awaited, self._awaited_since = awaited, now
        limit_s = max(self._limits.stall_timeout_s, _NOTHING_COPIED_S)
        if now - self._awaited_since < limit_s:
            return
        for tp, status in waiting.items():
            self._executions[tp].stall(status, limit_s)

    def _elect_leaders(self, batch: Sequence[TopicPartition]) -> None:
        """Elect the first replica of each list and wait until it leads, as long as further ones do.

        For partitions that were reverted, this is done only if the first replica was the leader before.
        """
        first = {tp: self._executions[tp].goal[0] for tp in batch if self._is_led_by_first(self._executions[tp])}
        since, asked, limit_s = self._cluster.now(), False, self._limits.stall_timeout_s
        while first:
            statuses, down = self._cluster.describe(first), self._cluster.offline_brokers()
            waiting = {p: broker for p, broker in first.items() if p in statuses and statuses[p].leader != broker}
            since = self._cluster.now() if len(waiting) < len(first) else since
            first = waiting
            able = {p for p, broker in first.items() if broker in statuses[p].in_sync and broker not in down}
            self._not_elected |= {p: f"broker {first[p]} is down or not in sync" for p in first if p not in able}
            first = {tp: broker for tp, broker in first.items() if tp in able}
            if first and not asked:
                refused = self._cluster.elect_preferred_leaders(first)
                self._not_elected |= refused
                first = {tp: broker for tp, broker in first.items() if tp not in refused}
                asked = True
            elif self._stop() or self._cluster.now() - since > limit_s:
                self._not_elected |= dict.fromkeys(first, f"not elected within {limit_s:g} s")
                return
            if first:
                self._cluster.sleep(_LOOK_EVERY_S)

    def _is_led_by_first(self, execution: PartitionExecution) -> bool:
        """Return whether the first replica of a partition's list is to be its leader."""
        if execution.state is ExecutionState.REVERTED and execution.start is not None:
            return execution.start.leader == execution.goal[0]
        return execution.state is ExecutionState.DONE and (execution.changed or self._elect_unchanged)

    def _report(self, batch: Sequence[TopicPartition], *, last: bool) -> None:
        if last or self._cluster.now() - self._counted_at > _COUNTED_EVERY_S:
            executions = {tp: self._executions[tp] for tp in batch}
            adding = {
                tp: set(execution.planned) - set(execution.start.replicas)
                for tp, execution in executions.items()
                if execution.start is not None and execution.reason is None
            }
            self._copied = self._cluster.copy_progress({tp: new for tp, new in adding.items() if new})
            self._counted_at = self._cluster.now()
        settled = sum(execution.settled for execution in self._executions.values())
        before, now = self._copied_before, self._copied
        copied = CopyProgress(before.done + now.done, before.total + now.total, now.complete)
        self._report_progress(Progress(settled, len(self._executions), copied))
        if last:
            self._copied_before, self._copied = copied, CopyProgress(0, 0)


_Clock = tuple[str, str, int]


class _StallClocks:
    """Since when partitions are stuck, by the cause."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s, self._now = timeout_s, 0.0
        self._since: dict[_Clock, float] = {}
        self._offline: dict[_Clock, frozenset[int]] = {}
        """The awaited brokers that were offline while a clock was running."""

    def update(self, stuck: Mapping[_Clock, frozenset[int]], offline: frozenset[int], now: float) -> None:
        """Start clocks of causes, and remove those of other causes unless they have expired.

        An expired clock is kept so that the next batch does not wait for the same cause again. It is removed once the
        brokers are back: if they are restarted later, that is another cause.
        """
        self._now = now
        kept = {
            clock: since
            for clock, since in self._since.items()
            if clock in stuck or (self.expired(clock) and not self._is_over(clock, offline))
        }
        self._since = dict.fromkeys(stuck, now) | kept
        none = frozenset[int]()
        self._offline = {
            clock: self._offline.get(clock, none) | (stuck.get(clock, none) & offline) for clock in self._since
        }

    def _is_over(self, clock: _Clock, offline: frozenset[int]) -> bool:
        """Return whether all brokers of a clock that were offline are serving again."""
        return bool(self._offline[clock]) and not self._offline[clock] & offline

    def expired(self, clock: _Clock) -> bool:
        return self._now - self._since[clock] >= self._timeout_s


def _clock(tp: TopicPartition, action: Action) -> _Clock:
    """Return the key of the clock, which all share that wait for a broker or a deleted topic: they wait once."""
    alone = action.cause in {"unknown", "leaderless"}
    return action.cause, tp.topic if alone or action.cause == "gone" else "", tp.partition if alone else -1


Direction = Literal["apply", "rollback"]

_APPLIED_S = 10.0
_RESTORED_EVERY_S = 0.1


class ThrottleNotRemovedError(KafkaUnavailableError):
    """The throttle could not be removed; the next run does it."""


Keep = Callable[[Journal], None]


def execute_plan(
    cluster: ReassignmentCluster,
    journal: Journal,
    direction: Direction,
    *,
    keep: Keep,
    limits: ExecutionLimits,
    report_progress: ProgressCallback = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Journal, ExecutionResult]:
    """Bring all partitions of a journal to their planned lists, or back to the original ones.

    Args:
        cluster: Cluster that is changed.
        journal: The plan; it may have been begun before, or be done already.
        direction: Whether each partition gets its planned or its original list.
        keep: Write the journal; raises if it cannot.
        limits: Limits of the execution.
        report_progress: Called with the progress, many times.
        stop: Called many times, return whether to stop; reassignments in progress are then taken back.

    Returns:
        The journal as it was written last, and the result. A rollback is over once nothing is left that could be taken
        back.

    Raises:
        ConfigError: A throttle is requested, and throttled reassignments of another process are in progress.
        AuthorizationError: A permission is missing; the journal is unchanged if nothing was done.
        ThrottleNotRemovedError: The cluster cannot be reached at the end.
        KafkaError: Raised by the client; the journal can be executed again.
    """
    goals = {tp: move.after if direction == "apply" else move.before for tp, move in sorted(journal.moves.items())}
    notes = _StoredJournal(replace(journal, phase="begun"), keep)
    # A plan that was never begun has moved no leader. Its lists may have been exported and applied by another tool.
    begun = direction == "apply" or journal.phase != "planned"
    batches = BatchExecutor(cluster, journal.moves, goals, limits, report_progress, stop, elect_unchanged=begun)
    try:
        with _throttled(cluster, notes, limits.rate) as throttle_batch:
            outcome = batches.run(throttle_batch)
        done = {tp: goals[tp] for tp in outcome.done}
        if done:
            # The next command may ask any broker.
            _await_everywhere(cluster, lambda broker: cluster.replica_lists(done, broker) == done)
    except (AuthorizationError, ConfigError):
        if not batches.has_changed_replicas:
            notes.take(replace(notes.journal, phase=journal.phase))
        raise
    over: Phase = "applied" if direction == "apply" else "rolled-back"
    # What another process has changed can never be taken back. A rollback that has taken back the rest is over.
    left = set(outcome.failed) - (outcome.final if direction == "rollback" else frozenset())
    notes.take(replace(notes.journal, phase="begun" if left else over))
    return notes.journal, outcome


class _StoredJournal:
    """The journal as it was written last."""

    def __init__(self, journal: Journal, keep: Keep) -> None:
        self._keep = keep
        self.take(journal)

    def take(self, journal: Journal) -> None:
        self._keep(journal)
        self.journal = journal


@contextmanager
def _throttled(
    cluster: ReassignmentCluster, notes: _StoredJournal, rate: int | None
) -> Iterator[Callable[[Collection[TopicPartition]], None]]:
    """Throttle replication in the block; remove a throttle that an earlier run has left in any case.

    What is yielded is called before each batch: not all partitions of a large topic can be throttled at once.
    """
    copying = {tp: move for tp, move in notes.journal.moves.items() if move.copies()}
    restored = notes.journal.throttled
    if restored is not None:
        # The next one may be for other topics, and a broker that still reports this one would be taken for one that
        # has heard of the next one. The journal has it until then: the run may be killed.
        restore_configs(cluster, restored)
        _forget(cluster, notes, restored)
    if rate is None or not copying:
        yield lambda _: None
        return
    before, ongoing = save_configs(cluster, copying, restored), cluster.ongoing_partitions()
    by_others = any(value for values in before.topics.values() for value in values.values())
    if (before.brokers or by_others) and ongoing - copying.keys():
        # The throttle may belong to another tool. Restoring it at the end would leave it behind for ever.
        raise ConfigError(
            "throttled reassignments of another process are in progress: wait for their end, or leave out --throttle"
        )
    notes.take(replace(notes.journal, throttled=before))
    try:
        listed = throttle(cluster, copying, before, rate, ongoing)
    except (KafkaError, RackassignError):
        _undone(cluster, notes, before)
        raise

    def throttle_batch(batch: Collection[TopicPartition]) -> None:
        nonlocal listed
        if not copying.keys() & batch <= listed:
            listed = list_replicas(cluster, copying, before, copying.keys() & batch, ongoing)

    try:
        await_throttled(cluster, before)
        yield throttle_batch
    finally:
        _lift(cluster, notes, before)


def _undone(cluster: ReassignmentCluster, notes: _StoredJournal, before: SavedConfigs) -> None:
    """Remove a throttle that could not be set in full: now or, if that fails as well, in the next run."""
    with suppress(KafkaError, RackassignError):
        # A configuration that may not be set was not set.
        with suppress(AuthorizationError):
            restore_configs(cluster, before)
        _forget(cluster, notes, before)


def _lift(cluster: ReassignmentCluster, notes: _StoredJournal, before: SavedConfigs) -> None:
    try:
        restore_configs(cluster, before)
    except (KafkaError, RackassignError) as error:
        raise ThrottleNotRemovedError(
            "the throttle is still set; run `reassign apply` or `reassign rollback` again to remove it"
            f" ({describe_error(error)})"
        ) from error
    _forget(cluster, notes, before)


def _forget(cluster: ReassignmentCluster, notes: _StoredJournal, restored: SavedConfigs) -> None:
    """Remove restored configurations from the journal once no broker reports the throttle."""
    await_restored(cluster, restored)
    notes.take(replace(notes.journal, throttled=None))


def await_restored(cluster: ReassignmentCluster, restored: SavedConfigs) -> None:
    """Wait until no broker reports the throttle in whose place configurations were restored.

    Brokers apply later what the controller has accepted, and an audit would report the throttle. The next execution
    would restore it at its end. Either may ask any broker.
    """
    _await_everywhere(cluster, lambda broker: is_restored(cluster, restored, broker))


def await_throttled(cluster: ReassignmentCluster, before: SavedConfigs) -> None:
    """Wait until all brokers report a throttle: nothing is copied before.

    One that has not heard of it would be taken for one that has heard of its removal, and report it later.
    """
    _await_everywhere(cluster, lambda broker: not is_restored(cluster, before, broker))


def _await_everywhere(cluster: ReassignmentCluster, is_applied: Callable[[int], bool]) -> None:
    """Wait until all brokers that are serving have applied a change.

    After some seconds that is left to them: another process may have changed the same. Brokers that do not respond are
    left out.
    """
    until = cluster.now() + _APPLIED_S
    unreached: set[int] = set()

    def lags(broker: int) -> bool:
        try:
            return cluster.now() < until and not is_applied(broker)
        except (NodeNotReadyError, UnknownBrokerIdError):
            # The client did not ask it: it was away when the client tried last, and serves again.
            return True
        except KafkaConnectionError:
            # A connection that was lost is opened again. A broker that is away fails a second time.
            first = broker not in unreached
            unreached.add(broker)
            return first
        except (KafkaError, RackassignError):
            return False

    # The controller has made the change, whether brokers respond or not.
    with suppress(KafkaError, RackassignError):
        lagging = cluster.serving_brokers()
        while lagging := frozenset(filter(lags, lagging & cluster.serving_brokers())):
            cluster.sleep(_RESTORED_EVERY_S)
