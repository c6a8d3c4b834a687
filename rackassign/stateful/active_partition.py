"""The owner of a partition: it restores the state, fences former owners, and writes changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful.claims import Claim, continued
from rackassign.stateful.records import ChangelogRecord
from rackassign.stateful.state_file import StateFile

log = logging.getLogger(__name__)


class FencedError(RackassignError):
    """Another owner has begun an epoch, or has a newer claim."""


class StateLostError(RackassignError):
    """A changelog has lost records that have others behind them, so it no longer determines the state."""


class ChangelogPort(Protocol):
    """A changelog; see `changelog.ChangelogClient`."""

    def write(self, tp: TopicPartition, changes: Sequence[ChangelogRecord]) -> tuple[int, int]:
        """Write records; return the first offset and the one behind the last."""

    def offset_range(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the offsets at which changelogs begin and end."""

    def read_range(self, tp: TopicPartition, start: int, end: int) -> list[ChangelogRecord]:
        """Read the records from one offset to another."""


class ActivePartition:
    """A partition that was assigned to this member.

    Until it is `ready`, the caller applies the changelog to its store and calls `continue_restore`.

    Args:
        tp: The partition.
        store: Its local file.
        log: The changelogs.
        claim: Claim of this member.
        confirmed: Returns whether the coordinator confirms, when called, that the claim's generation is the current
            one.
    """

    def __init__(
        self,
        tp: TopicPartition,
        store: StateFile,
        log: ChangelogPort,
        claim: Claim = Claim(),  # noqa: B008 - immutable
        confirmed: Callable[[], bool] = lambda: True,
    ) -> None:
        self.tp = tp
        self._claim = claim
        self._confirmed = confirmed
        self.store = store
        self.ready = False
        """Whether its state is restored and former owners are fenced."""
        self.reads = False
        """Whether its input is being read from where the state ends."""
        self.first: int | None = None
        """Offset of the first input record to read; None until it is known."""
        self._log = log
        self._epoch = -1
        self._start = store.position
        self._end: int | None = None

    def progress(self) -> tuple[int, int]:
        """Return the number of changelog records read, and the number to be read."""
        end = self._start if self._end is None else self._end
        return min(self.store.position, end) - self._start, max(0, end - self._start)

    def continue_restore(self) -> None:
        """Continue as far as possible now: find the end of the log, write the fence, rewrite overwritten keys.

        Raises:
            FencedError: Another owner has begun an epoch at the same time, or has a newer claim.
            StateLostError: The changelog does not have the whole state.
            KafkaUnavailableError: Kafka does not respond; the call can be repeated.
        """
        if self._end is None:
            begin, self._end = self._log.offset_range([self.tp])[self.tp]
            if self.store.position > self._end:
                log.warning(
                    "%s-%d: its changelog ends at %d, but %d records had been read: discarding the local state",
                    *(*self.tp, self._end, self.store.position),
                )
                self.store.clear()
                self._start = 0
            self._start = max(begin, self._start)
        if self.store.position < self._end:
            return
        if self.store.replay.lost:
            raise self._lost()
        self._claim = self._next_claim()
        self._epoch = self.store.replay.epoch + 1
        # This reads everything that was written in between, before the fence or with another fence.
        self._written([self._fence()])
        replay = self.store.replay
        if (replay.epoch, replay.claim, replay.fences) != (self._epoch, self._claim, 1):
            raise FencedError(f"{self.tp.topic}-{self.tp.partition}: epoch {self._epoch} is another member's")
        self._rewrite_stale()
        self.ready = True

    def _next_claim(self) -> Claim:
        """Return the claim for the fence."""
        last = self.store.replay.claim
        found = continued(self._claim, last)
        if found is None and last is not None and self._confirmed():
            found = self._claim._replace(term=last.term + 1)
        if found is None:
            raise FencedError(f"{self.tp.topic}-{self.tp.partition}: it was assigned to another member since")
        return found

    def _fence(self) -> ChangelogRecord:
        return ChangelogRecord("fence", self._epoch, claim=self._claim)

    def write(self, changed: Sequence[tuple[int, Mapping[bytes, bytes | None]]]) -> None:
        """Write the changes of input records, and apply them to the state.

        Args:
            changed: Offset and changes of each record.

        Raises:
            FencedError: Another member owns the partition; nothing is applied.
            StateLostError: The changelog has lost records that were written before.
            KafkaUnavailableError: It is unknown what was written; nothing is applied.
        """
        changes = [
            ChangelogRecord("last" if number == len(keys) else "change", self._epoch, source, key, value)
            for source, keys in changed
            for number, (key, value) in enumerate(keys.items(), 1)
        ]
        if changed:
            self._written([*changes, self._mark(changed[-1][0])])
        self._rewrite_stale()

    def reconcile(self) -> None:
        """Read what another member has written, and rewrite the overwritten keys.

        Raises:
            FencedError: It was a new owner.
            StateLostError: The changelog has lost records that were written before.
            KafkaUnavailableError: Kafka does not respond, or the log is shorter than before, which can be restored.
        """
        _, end = self._log.offset_range([self.tp])[self.tp]
        if end < self.store.position:
            raise KafkaUnavailableError(f"its changelog ends at {end}, but {self.store.position} records had been read")
        self._read_to(end)
        self._rewrite_stale()

    def _rewrite_stale(self) -> None:
        while rewrites := self._rewrites():
            self._written(rewrites)

    def _rewrites(self) -> list[ChangelogRecord]:
        """Return the records to be written again because others have overwritten them."""
        replay, store = self.store.replay, self.store
        found = [self._fence()] if replay.fence_overwritten else []
        found += [
            ChangelogRecord("rewrite", self._epoch, replay.source, key, store.stored_value(key))
            for key in replay.keys_to_rewrite()
        ]
        return [*found, self._mark(replay.source)] if found or replay.checkpoint_missing else []

    def _mark(self, source: int) -> ChangelogRecord:
        # A deletion leaves no trace of its input record once compaction removes it.
        return ChangelogRecord("mark", self._epoch, source)

    def _written(self, changes: Sequence[ChangelogRecord]) -> None:
        first, behind = self._log.write(self.tp, changes)
        if first < self.store.position:
            # Records behind the missing ones are in their place now, and all readers must know that.
            try:
                self._log.write(self.tp, [ChangelogRecord("lost", self._epoch)])
            except KafkaUnavailableError as error:
                raise self._lost() from error
            raise self._lost()
        if first == self.store.position and behind - first == len(changes):
            self.store.apply(changes, behind)
        else:
            # Another member has written there too. The log determines which records count.
            self.store.discard_uncommitted()
            self._read_to(behind)

    def _read_to(self, end: int) -> None:
        if self.store.position < end:
            self.store.apply(self._log.read_range(self.tp, self.store.position, end), end)
        if self.store.replay.epoch > self._epoch:
            raise FencedError(f"{self.tp.topic}-{self.tp.partition}: epoch {self.store.replay.epoch} has begun")
        if self.store.replay.lost:
            raise self._lost()

    def _lost(self) -> StateLostError:
        return StateLostError(
            f"{self.tp.topic}-{self.tp.partition}: its changelog was deleted or truncated while the partition was"
            " active, so it does not have the whole state: stop all members and delete the changelog, then the state is"
            " rebuilt from the input"
        )
