"""Execution of a plan, or its rollback.

At every moment, whatever fails, the journal has the original lists and the throttle configurations that were set
before. A run that is started again therefore continues from what the cluster reports. Every step can be repeated
without further effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal

from kafka.errors import KafkaError

from rackassign.admin.authorization import AuthorizationError
from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.reassignment.batches import BatchExecutor, ExecutionLimits, ExecutionResult, ProgressCallback
from rackassign.reassignment.cluster import ReassignmentCluster
from rackassign.reassignment.journal import Journal, Phase
from rackassign.reassignment.partition_state import Replicas
from rackassign.reassignment.throttle import (
    SavedConfigs,
    is_restored,
    list_replicas,
    restore_configs,
    save_configs,
    throttle,
)
from rackassign.util.text import describe_error

Direction = Literal["apply", "rollback"]

_APPLIED_S = 10.0
_LOOK_EVERY_S = 0.1


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
        _await_lists(cluster, {tp: goals[tp] for tp in outcome.done})
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
        """Write the journal."""
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
        # The next one may be for other topics. The journal has this one until that is stored, or until no broker
        # reports the throttle: a run that was killed in between would take it for what was set before.
        restore_configs(cluster, restored)
    if rate is None or not copying:
        _forget(cluster, notes, restored)
        yield lambda _: None
        return
    before, ongoing = save_configs(cluster, copying, restored), cluster.ongoing_partitions()
    by_others = any(value for values in before.topics.values() for value in values.values())
    if (before.brokers or by_others) and ongoing - copying.keys():
        _forget(cluster, notes, restored)
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


def _forget(cluster: ReassignmentCluster, notes: _StoredJournal, restored: SavedConfigs | None) -> None:
    """Remove restored configurations from the journal once no broker reports the throttle."""
    if restored is not None:
        await_restored(cluster, restored)
        notes.take(replace(notes.journal, throttled=None))


def await_restored(cluster: ReassignmentCluster, restored: SavedConfigs) -> None:
    """Wait until no broker reports the throttle in whose place configurations were restored.

    Brokers apply later what the controller has accepted, and an audit would report the throttle. The next execution
    would restore it at its end. Either may ask any broker.
    """
    _await_everywhere(cluster, lambda broker: is_restored(cluster, restored, broker))


def _await_lists(cluster: ReassignmentCluster, done: Mapping[TopicPartition, Replicas]) -> None:
    """Wait until all brokers report the lists of partitions that are done: the next command may ask any broker."""
    if done:
        _await_everywhere(cluster, lambda broker: cluster.replica_lists(done, broker) == done)


def _await_everywhere(cluster: ReassignmentCluster, is_applied: Callable[[int], bool]) -> None:
    """Wait until all brokers that are serving have applied a change.

    After some seconds that is left to them: another process may have changed the same. Brokers that do not respond are
    left out.
    """
    until = cluster.now() + _APPLIED_S

    def lags(broker: int) -> bool:
        with suppress(KafkaError, RackassignError):
            return cluster.now() < until and not is_applied(broker)
        return False

    # The controller has made the change, whether brokers respond or not.
    with suppress(KafkaError, RackassignError):
        lagging = cluster.serving_brokers()
        while lagging := frozenset(filter(lags, lagging)):
            cluster.sleep(_LOOK_EVERY_S)
