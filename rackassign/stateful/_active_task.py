"""The owner of a task: it restores the state, fences former owners, and writes commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful._changelog import ChangelogRecord, Claim, continued
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._processing import TaskRun

log = logging.getLogger(__name__)

COMMIT_BYTES = 4 << 20
"""Changes of a task that are committed before the interval is over."""


class FencedError(RackassignError):
    """Another owner has begun an epoch, or has a newer claim."""


class StateLostError(RackassignError):
    """A changelog has lost records that have others behind them, so it no longer determines the state."""


class PendingWrite(Protocol):
    """Records on their way to a changelog."""

    def done(self) -> bool:
        """Return whether `result` has no need to wait."""

    def result(self) -> tuple[int, int]:
        """Wait until all replicas have the records; return the first offset and the one behind the last.

        Raises:
            KafkaUnavailableError: Some may not have been written.
        """


class ChangelogPort(Protocol):
    """A changelog; see `ChangelogClient`."""

    def send(self, tp: TopicPartition, changes: Sequence[ChangelogRecord]) -> PendingWrite:
        """Begin to write records, behind those that were sent before."""

    def offset_range(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the offsets at which changelogs begin and end."""

    def read_range(self, tp: TopicPartition, start: int, end: int) -> list[ChangelogRecord]:
        """Read the records from one offset to another."""


class _Sent(NamedTuple):
    """A commit that is being written."""

    records: Sequence[ChangelogRecord]
    # Offset of the first record; None until those before the last one are written.
    first: int | None
    # The write of the last record, or of those before it.
    write: PendingWrite
    offsets: Mapping[TopicPartition, int]


class ActiveTask:
    """A task that was assigned to this member.

    Until it is `ready`, the caller applies the changelog to its store and calls `continue_restore`. Then it processes
    records, of which one commit is written while the next one is processed.
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
        self.restored = False
        """Whether its input has been read once since its state was restored."""
        self.run: TaskRun | None = None
        """Its processing; None until it is ready."""
        self._log = log
        self._epoch = -1
        # Where the log begins, and where the restore has begun, or begun again.
        self._begin = 0
        self._start = store.position
        self._end: int | None = None
        self._sent: _Sent | None = None
        self._fence_awaited = False
        self._marker = 0
        """Records of the log behind the store's position that end the last transaction of this owner; 0 or 1."""
        self._asked_at = -1

    def progress(self) -> tuple[int, int]:
        """Return the number of changelog records read, and the number to be read."""
        end = self._start if self._end is None else self._end
        return max(0, min(self.store.position, end) - self._start), max(0, end - self._start)

    def continue_restore(self) -> None:
        """Continue as far as possible now: find the end of the log, write the fence, rewrite overwritten keys."""
        # After a KafkaUnavailableError the call can be repeated.
        if self._end is None:
            self._begin, self._end = self._log.offset_range([self.tp])[self.tp]
            if self.store.position > self._end:
                log.warning(
                    "%s-%d: its changelog ends at %d, but %d records had been read: discarding the local state",
                    *(*self.tp, self._end, self.store.position),
                )
                self.store.clear()
        # The file may be discarded also when its last record is not found.
        self._start = max(self._begin, min(self._start, self.store.position))
        if self.store.position < self._end or not self.store.verified:
            return
        if self.store.replay.lost:
            raise self._lost()
        if not self._fence_awaited and not self._begin_epoch():
            return
        replay = self.store.replay
        if (replay.epoch, replay.claim, replay.fences) != (self._epoch, self._claim, 1):
            raise FencedError(f"{self.tp.topic}-{self.tp.partition}: epoch {self._epoch} is another member's")
        self._rewrite_stale()
        self.ready = True

    def _begin_epoch(self) -> bool:
        """Write the fence; return whether all is read that was written in between, before or with another fence."""
        # If a transaction is open that began before the fence, its end has to be awaited, which may take seconds: then
        # it is read by the caller, as all before. One that begins later cannot be committed by a former owner.
        self._claim = self._next_claim()
        self._epoch = self.store.replay.epoch + 1
        fence = [self._fence()]
        first, behind = self._log.send(self.tp, fence).result()
        if first > self.store.position and self._log.offset_range([self.tp])[self.tp][1] < behind:
            self._end, self._fence_awaited = behind, True
            return False
        self._apply_written(fence, first, behind)
        return True

    def _next_claim(self) -> Claim:
        last = self.store.replay.claim
        claim = continued(self._claim, last)
        if claim is None and last is not None and self._confirmed():
            claim = self._claim._replace(term=last.term + 1)
        if claim is None:
            raise FencedError(f"{self.tp.topic}-{self.tp.partition}: it was assigned to another member since")
        return claim

    def _fence(self) -> ChangelogRecord:
        return ChangelogRecord("fence", self._epoch, claim=self._claim)

    @property
    def writes(self) -> bool:
        """Whether a commit is being written."""
        return self._sent is not None

    @property
    def changed(self) -> bool:
        """Whether anything was processed since the last commit."""
        return self.run is not None and self.run.changed

    def is_due(self, *, interval_over: bool) -> bool:
        """Return whether what was processed has to be committed now, or is much already."""
        return self.changed and (interval_over or self.store.uncommitted_bytes >= COMMIT_BYTES)

    def commit_run(self) -> None:
        """Begin to write what was processed since the last commit, which must be settled."""
        if self.run is not None:
            offsets = {TopicPartition(topic, self.tp.partition): at for topic, at in self.run.offsets().items()}
            self.commit(self.run.take_commit(), offsets)

    def commit(
        self, changes: Mapping[bytes, bytes | None], offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Begin to write the next commit, behind the last one, which must be settled."""
        # The last record, which is the progress, makes all others count. So it is sent once they are written: a
        # producer that gives a batch up, after its timeout or with a new epoch, writes those behind it.
        records = self.records_of(changes)
        self._sent = _Sent(records, None, self._log.send(self.tp, records[:-1] or records), offsets or {})

    def records_of(self, changes: Mapping[bytes, bytes | None]) -> list[ChangelogRecord]:
        """Return the records of the next commit from changes, the last of which is the progress."""
        number = self.store.replay.commit + 1
        return [
            ChangelogRecord("last" if count == len(changes) else "change", self._epoch, number, key, value)
            for count, (key, value) in enumerate(changes.items(), 1)
        ]

    def send_last(self, *, wait: bool) -> None:
        """Send the last record of the commit that is being written, if the others are written."""
        sent = self._sent
        if sent is None or sent.first is not None or not (wait or sent.write.done()):
            return
        self._sent = None
        first, _ = sent.write.result()
        last = sent.write if len(sent.records) == 1 else self._log.send(self.tp, sent.records[-1:])
        self._sent = sent._replace(first=first, write=last)

    def settle(self, *, wait: bool) -> Mapping[TopicPartition, int]:
        """Apply the commit that was written to the local file; return its input offsets, none while it is written."""
        # After an error nothing is applied. After a KafkaUnavailableError it is unknown what was written.
        if self._sent is None:
            return {}
        self.send_last(wait=wait)
        sent = self._sent
        if sent.first is None or not (wait or sent.write.done()):
            return {}
        self._sent = None
        _, behind = sent.write.result()
        if behind <= sent.first:
            # The last record was sent behind the others, so the log was cut between them.
            raise self._marked_lost()
        self._finish_commit(sent.records, sent.first, behind, marker=0)
        return sent.offsets

    def committed(self, records: Sequence[ChangelogRecord], first: int, behind: int) -> bool:
        """Apply a commit that was written in a transaction, which is committed; return whether that was possible."""
        # If another member has written before it, the state has to be restored: to read that may need the end of a
        # transaction of that member, for which other tasks are not to wait.
        if first > self.store.position + self._marker or behind - first != len(records):
            return False
        self._finish_commit(records, first, behind, marker=1)
        return True

    def _finish_commit(self, records: Sequence[ChangelogRecord], first: int, behind: int, *, marker: int) -> None:
        self._apply_written(records, first, behind)
        self._marker = marker
        self.store.commit_applied()
        self._rewrite_stale()

    def is_behind(self, end: int) -> bool:
        """Return whether there is something to be read from the changelog; asked at intervals."""
        idle = self.store.position == self._asked_at
        self._asked_at = self.store.position
        if self._marker and not idle:
            # The log ends before the last transaction until its marker is written, and with the marker after that.
            return end - self.store.position > self._marker
        return end != self.store.position

    def reconcile(self) -> None:
        """Read what another member has written, and rewrite the overwritten keys; no commit may be being written."""
        _, end = self._log.offset_range([self.tp])[self.tp]
        if end < self.store.position:
            raise KafkaUnavailableError(f"its changelog ends at {end}, but {self.store.position} records had been read")
        self._read_to(end)
        self._rewrite_stale()

    def _rewrite_stale(self) -> None:
        while rewrites := self._rewrites():
            self._write(rewrites)

    def _rewrites(self) -> list[ChangelogRecord]:
        """Return the records to be written again because others have overwritten them."""
        replay, store = self.store.replay, self.store
        fences = [self._fence()] if replay.fence_overwritten else []
        return fences + [
            ChangelogRecord("rewrite", self._epoch, replay.commit, key, store.stored_value(key))
            for key in replay.keys_to_rewrite()
        ]

    def _write(self, records: Sequence[ChangelogRecord]) -> None:
        # These are no part of a transaction, and may be in the log before its marker.
        self._marker = 0
        self._apply_written(records, *self._log.send(self.tp, records).result())

    def _apply_written(self, records: Sequence[ChangelogRecord], first: int, behind: int) -> None:
        if first < self.store.position:
            raise self._marked_lost()
        if 0 <= first - self.store.position <= self._marker and behind - first == len(records):
            # One record between is the marker of the last transaction: others would be behind that.
            self.store.apply([*records[:-1], replace(records[-1], offset=behind - 1)], behind)
        else:
            # Another member has written there too. The log determines which records count; those of this member do,
            # unless it is fenced.
            self._read_to(behind)
        self._marker = 0

    def _read_to(self, end: int) -> None:
        if self.store.position < end:
            self.store.apply(self._log.read_range(self.tp, self.store.position, end), end)
        if self.store.replay.epoch > self._epoch:
            raise FencedError(f"{self.tp.topic}-{self.tp.partition}: epoch {self.store.replay.epoch} has begun")
        if self.store.replay.lost:
            raise self._lost()

    def _marked_lost(self) -> StateLostError:
        """Write for all readers that records behind the missing ones are in their place now; return the error."""
        found = self._lost()
        try:
            self._log.send(self.tp, [ChangelogRecord("lost", self._epoch)]).result()
        except KafkaUnavailableError as error:
            found.__cause__ = error
        return found

    def _lost(self) -> StateLostError:
        return StateLostError(
            f"{self.tp.topic}-{self.tp.partition}: its changelog was deleted or truncated while the partition was"
            " active, so it does not have the whole state: stop all members and delete the changelog, then the state is"
            " rebuilt from the input"
        )
