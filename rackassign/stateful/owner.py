"""Who runs a partition: restores its state, fences off whoever ran it before, and writes what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rackassign.errors import RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful.changes import Change
from rackassign.stateful.store import Store


class FencedError(RackassignError):
    """Another owner has begun an epoch of its own."""


class Log(Protocol):
    """A changelog; see `changelog.Changelogs`."""

    def write(self, place: TopicPartition, changes: Sequence[Change]) -> tuple[int, int]:
        """Write records; return the first offset and the one behind the last."""

    def bounds(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return where changelogs begin and end."""

    def between(self, place: TopicPartition, start: int, end: int) -> list[Change]:
        """Read what is there from one offset to another."""


class Owner:
    """A partition that was given to this member.

    Until it is `ready`, somebody feeds its store from the changelog and calls `advance`.

    Args:
        place: The partition.
        store: Its local file, wherever that is.
        log: The changelogs.
    """

    def __init__(self, place: TopicPartition, store: Store, log: Log) -> None:
        self.place = place
        self.store = store
        self.ready = False
        """Whether its state is restored, and nobody else may change it."""
        self.reads = False
        """Whether its input is read from where the state ends."""
        self._log = log
        self._epoch = -1
        self._start = store.position
        self._end: int | None = None

    def progress(self) -> tuple[int, int]:
        """Return how many records of the changelog were read, and how many there are to read."""
        end = self._start if self._end is None else self._end
        return min(self.store.position, end) - self._start, max(0, end - self._start)

    def advance(self) -> None:
        """Do what can be done by now: look where the log ends, fence, heal.

        Raises:
            FencedError: Another owner has begun an epoch at the same time.
            NoAnswerError: Kafka does not answer; it may be called again.
        """
        if self._end is None:
            begin, self._end = self._log.bounds([self.place])[self.place]
            if self.store.position > self._end:
                # The changelog was made anew: what is here is of another one.
                self.store.clear()
            self._start = max(begin, self.store.position)
        if self.store.position < self._end:
            return
        self._epoch = self.store.replay.epoch + 1
        _, behind = self._log.write(self.place, [Change("fence", self._epoch)])
        # Whoever has written in between, before the fence or with one of its own, is seen here.
        self._read_to(behind)
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
            NoAnswerError: It is not known what was written; nothing is taken in.
        """
        changes = [
            Change("last" if number == len(keys) else "change", self._epoch, source, key, value)
            for source, keys in changed
            for number, (key, value) in enumerate(keys.items(), 1)
        ]
        if changes:
            self._written(changes)
        self._heal()

    def catch_up(self) -> None:
        """Read what somebody else has written, and heal it.

        Raises:
            FencedError: It was another owner.
            NoAnswerError: Kafka does not answer.
        """
        self._read_to(self._log.bounds([self.place])[self.place][1])
        self._heal()

    def _heal(self) -> None:
        while keys := self.store.replay.to_heal():
            source = self.store.replay.source
            self._written([Change("heal", self._epoch, source, key, self.store.kept(key)) for key in keys])

    def _written(self, changes: Sequence[Change]) -> None:
        first, behind = self._log.write(self.place, changes)
        if first == self.store.position and behind - first == len(changes):
            self.store.apply(changes, behind)
        else:
            # Somebody else wrote there as well. What counts of that the log says.
            self.store.forget()
            self._read_to(behind)

    def _read_to(self, end: int) -> None:
        if self.store.position < end:
            self.store.apply(self._log.between(self.place, self.store.position, end), end)
        if self.store.replay.epoch > self._epoch:
            raise FencedError(f"{self.place.topic}-{self.place.partition}: epoch {self.store.replay.epoch} has begun")
