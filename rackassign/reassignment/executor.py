"""Carrying a repair out, or back.

What holds at every moment, whatever fails: the journal knows the lists as they were and what was throttled before, so
whoever runs it again goes on from what the cluster tells. What is done twice is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal

from kafka.errors import KafkaError

from rackassign.admin.authorization import AuthorizationError
from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.reassignment.batches import BatchExecutor, ExecutionLimits, ExecutionResult, Told
from rackassign.reassignment.cluster import ReassignmentCluster
from rackassign.reassignment.journal import Journal, Phase
from rackassign.reassignment.throttle import SavedConfigs, restore_configs, save_configs, throttle

Direction = Literal["apply", "rollback"]


class ThrottleNotRemovedError(KafkaUnavailableError):
    """The throttle could not be taken away; the next run does it."""


Keep = Callable[[Journal], None]


def execute_plan(
    hands: ReassignmentCluster,
    journal: Journal,
    direction: Direction,
    *,
    keep: Keep,
    pace: ExecutionLimits,
    told: Told = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Journal, ExecutionResult]:
    """Bring all partitions of a journal to where it says, or back.

    Args:
        hands: Change the cluster.
        journal: What is to be done; may have been begun before, or be done already.
        direction: Which of the lists of each move is wanted.
        keep: Writes the journal down; raises if it cannot.
        pace: How much at a time.
        told: Told how far it is, many times.
        stop: Asked many times whether to end: what is on its way is taken back then.

    Returns:
        The journal as it was written last, and what became of it. A rollback is over once nothing is left that could
        be taken back.

    Raises:
        ConfigError: It is to be throttled, and somebody else's reassignments are.
        NotAllowedError: A permission is missing; as the journal was before, if nothing was done.
        ThrottleLeftError: The cluster is gone at the end.
        KafkaError: As the client does; the journal can be carried out again.
    """
    goals = {
        place: move.after if direction == "apply" else move.before for place, move in sorted(journal.moves.items())
    }
    notes = _Notes(replace(journal, phase="begun"), keep)
    waves = BatchExecutor(hands, journal.moves, goals, pace, told, stop)
    try:
        with _throttled(hands, notes, pace.rate):
            outcome = waves.all()
    except (AuthorizationError, ConfigError):
        if not waves.sent:
            notes.take(replace(notes.journal, phase=journal.phase))
        raise
    over: Phase = "applied" if direction == "apply" else "rolled-back"
    # What somebody else has changed can never be taken back: a rollback that has taken back the rest is over.
    left = set(outcome.failed) - (outcome.final if direction == "rollback" else frozenset())
    notes.take(replace(notes.journal, phase="begun" if left else over))
    return notes.journal, outcome


class _Notes:
    """The journal as it was written last."""

    def __init__(self, journal: Journal, keep: Keep) -> None:
        self._keep = keep
        self.take(journal)

    def take(self, journal: Journal) -> None:
        """Write it down."""
        self._keep(journal)
        self.journal = journal


@contextmanager
def _throttled(hands: ReassignmentCluster, notes: _Notes, rate: int | None) -> Iterator[None]:
    """Limit what is copied in the block; a throttle that an earlier run has left is taken away in any case."""
    copying = {place: move for place, move in notes.journal.moves.items() if move.copies()}
    left = notes.journal.throttled
    if left is None and (rate is None or not copying):
        yield
        return
    before = left
    if before is None:
        before = save_configs(hands, copying)
        if before.brokers and hands.ongoing_partitions() - copying.keys():
            # It may be another repair's, and putting it back at the end would leave it behind for ever.
            raise ConfigError(
                "somebody else's reassignments run, throttled: wait for their end, or leave --throttle out"
            )
        notes.take(replace(notes.journal, throttled=before))
    try:
        if rate is None:
            restore_configs(hands, before)
        else:
            throttle(hands, {p: move for p, move in copying.items() if p.topic in before.topics}, before, rate)
    except (KafkaError, RackassignError):
        if left is None:
            _undone(hands, notes, before)
        raise
    try:
        yield
    finally:
        _lift(hands, notes, before)


def _undone(hands: ReassignmentCluster, notes: _Notes, before: SavedConfigs) -> None:
    """Take back a throttle that could not be set in full, now or, if that fails as well, by the next run."""
    with suppress(KafkaError, RackassignError):
        # What may not be set was not set.
        with suppress(AuthorizationError):
            restore_configs(hands, before)
        notes.take(replace(notes.journal, throttled=None))


def _lift(hands: ReassignmentCluster, notes: _Notes, before: SavedConfigs) -> None:
    try:
        restore_configs(hands, before)
    except (KafkaError, RackassignError) as error:
        raise ThrottleNotRemovedError(
            f"the throttle is left: run `reassign apply` or `reassign rollback` again ({type(error).__name__}: {error})"
        ) from error
    notes.take(replace(notes.journal, throttled=None))
