"""Who runs a partition: restores its state, fences off whoever ran it before, and writes what it changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful.records import ChangelogRecord
from rackassign.stateful.state_store import StateStore

log = logging.getLogger(__name__)


class FencedError(RackassignError):
    """Another owner has begun an epoch of its own."""


class StateLostError(RackassignError):
    """A changelog has lost records and has others behind them, so that the state cannot be told from it."""


class ChangelogPort(Protocol):
    """A changelog; see `changelog.ChangelogClient`."""

    def write(self, place: TopicPartition, changes: Sequence[ChangelogRecord]) -> tuple[int, int]:
        """Write records; return the first offset and the one behind the last."""

    def offset_range(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return where changelogs begin and end."""

    def read_range(self, place: TopicPartition, start: int, end: int) -> list[ChangelogRecord]:
        """Read what is there from one offset to another."""


class ActivePartition:
    """A partition that was given to this member.

    Until it is `ready`, somebody feeds its store from the changelog and calls `continue_restore`.

    Args:
        place: The partition.
        store: Its local file, wherever that is.
        log: The changelogs.
        generation: Of the group, in which it was given.
    """

    def __init__(self, place: TopicPartition, store: StateStore, log: ChangelogPort, generation: int = -1) -> None:
        self.place = place
        self.generation = generation
        self.store = store
        self.ready = False
        """Whether its state is restored, and nobody else may change it."""
        self.reads = False
        """Whether its input is read from where the state ends."""
        self.first: int | None = None
        """Offset of the input that it reads first; None until that is found out."""
        self._log = log
        self._epoch = -1
        self._start = store.position
        self._end: int | None = None

    def progress(self) -> tuple[int, int]:
        """Return how many records of the changelog were read, and how many there are to read."""
        end = self._start if self._end is None else self._end
        return min(self.store.position, end) - self._start, max(0, end - self._start)

    def continue_restore(self) -> None:
        """Do what can be done by now: look where the log ends, fence, heal.

        Raises:
            FencedError: Another owner has begun an epoch at the same time.
            StateLostError: The changelog does not have the whole state.
            NoAnswerError: Kafka does not answer; it may be called again.
        """
        if self._end is None:
            begin, self._end = self._log.offset_range([self.place])[self.place]
            if self.store.position > self._end:
                log.warning(
                    "%s-%d: its changelog ends at %d, and %d records were there: its state is made anew",
                    *(*self.place, self._end, self.store.position),
                )
                self.store.clear()
                self._start = 0
            self._start = max(begin, self._start)
        if self.store.position < self._end:
            return
        if self.store.replay.lost:
            raise self._lost()
        self._epoch = self.store.replay.epoch + 1
        # Whoever has written in between, before the fence or with one of its own, is seen here.
        self._written([ChangelogRecord("fence", self._epoch)])
        if self.store.replay.fences > 1:
            raise FencedError(f"{self.place.topic}-{self.place.partition}: epoch {self._epoch} is another's")
        self._heal()
        self.ready = True

    def write(self, changed: Sequence[tuple[int, Mapping[bytes, bytes | None]]]) -> None:
        """Write what input records have changed, and take it into the state.

        Args:
            changed: For each record its offset and what it changed.

        Raises:
            FencedError: Another owner has the partition; nothing is taken in.
            StateLostError: The changelog has lost what was written before.
            NoAnswerError: It is not known what was written; nothing is taken in.
        """
        changes = [
            ChangelogRecord("last" if number == len(keys) else "change", self._epoch, source, key, value)
            for source, keys in changed
            for number, (key, value) in enumerate(keys.items(), 1)
        ]
        if changed:
            self._written([*changes, self._mark(changed[-1][0])])
        self._heal()

    def reconcile(self) -> None:
        """Read what somebody else has written, and heal it.

        Raises:
            FencedError: It was another owner.
            StateLostError: The changelog has lost what was written before.
            NoAnswerError: Kafka does not answer, or not all is there that was, and can be restored.
        """
        _, end = self._log.offset_range([self.place])[self.place]
        if end < self.store.position:
            raise KafkaUnavailableError(f"its changelog ends at {end}, and {self.store.position} records were there")
        self._read_to(end)
        self._heal()

    def _heal(self) -> None:
        while healing := self._healing():
            self._written(healing)

    def _healing(self) -> list[ChangelogRecord]:
        """Return what has to be written once more, because others have written over it."""
        replay, store = self.store.replay, self.store
        found = [ChangelogRecord("fence", self._epoch)] if replay.fence_overwritten else []
        found += [
            ChangelogRecord("heal", self._epoch, replay.source, key, store.stored_value(key))
            for key in replay.to_heal()
        ]
        return [*found, self._mark(replay.source)] if found or replay.checkpoint_missing else []

    def _mark(self, source: int) -> ChangelogRecord:
        # What was deleted last leaves nothing that says for which record that was, once compaction forgets deletions.
        return ChangelogRecord("mark", self._epoch, source)

    def _written(self, changes: Sequence[ChangelogRecord]) -> None:
        first, behind = self._log.write(self.place, changes)
        if first < self.store.position:
            # What counts on records that are missing stands in their place now, and everybody is to know.
            try:
                self._log.write(self.place, [ChangelogRecord("lost", self._epoch)])
            except KafkaUnavailableError as error:
                raise self._lost() from error
            raise self._lost()
        if first == self.store.position and behind - first == len(changes):
            self.store.apply(changes, behind)
        else:
            # Somebody else wrote there as well. What counts of that the log says.
            self.store.discard_uncommitted()
            self._read_to(behind)

    def _read_to(self, end: int) -> None:
        if self.store.position < end:
            self.store.apply(self._log.read_range(self.place, self.store.position, end), end)
        if self.store.replay.epoch > self._epoch:
            raise FencedError(f"{self.place.topic}-{self.place.partition}: epoch {self.store.replay.epoch} has begun")
        if self.store.replay.lost:
            raise self._lost()

    def _lost(self) -> StateLostError:
        return StateLostError(
            f"{self.place.topic}-{self.place.partition}: its changelog was deleted or cut while the partition was run, "
            "so it has not all of the state: end all members, delete the changelog, and the state is made from the "
            "input once more"
        )
