"""Commits that nobody waits for: one is on its way, and those that come meanwhile are merged until it is answered.

kafka-python sends a broker no more than a few requests at once, fails what is more, and repeats no commit of this kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Lock

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from rackassign.clients.confluent.fetcher import Place, leader_epoch, to_topic_partition
from rackassign.clients.confluent.group_member import GroupMember, Offsets

Answer = tuple[KafkaError | None, list[TopicPartition]]
"""What has come of which offsets."""

_Merged = dict[Place, TopicPartition]
"""The offset of each partition that was asked for last."""


class AsyncCommitQueue:
    """What is to be committed by and by; for any thread. It tells nobody: whoever wants to know takes the answers.

    What fails for a while is sent again, until its partition is given up.

    Args:
        member: Who commits.
    """

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        # Never held while the member is called, which calls back.
        self._lock = Lock()
        self._waiting: _Merged = {}
        self._sent: _Merged | None = None
        self._dropped: set[Place] = set()
        self._trouble: KafkaError | None = None
        self._answers: deque[Answer] = deque()

    def add(self, offsets: Iterable[TopicPartition]) -> None:
        """Commit these, or the later ones that are added for the same partitions before it comes to that."""
        with self._lock:
            self._waiting |= _merged(offsets)
        self.send()

    def send(self) -> None:
        """Send what waits, unless an answer is still to come."""
        self._hear()
        with self._lock:
            if self._sent is not None or not self._waiting:
                return
            sent = self._sent = self._waiting
            self._waiting, self._dropped = {}, set()

        def done(error: KafkaError | None) -> None:
            self._answered(sent, error)

        try:
            self._member.commit_async(offsets_of(sent.values()), done)
        except KafkaException as error:
            done(error.args[0])

    def flush(self, more: Iterable[TopicPartition], wait_s: float) -> None:
        """Commit all that is open, and more, and wait for it."""
        self._hear()
        with self._lock:
            # What is on its way goes once more, for nobody can wait for that answer alone.
            flushed = {**self._again(), **self._waiting, **_merged(more)}
            self._sent, self._waiting, self._dropped = flushed or None, {}, set()
        if not flushed:
            return
        error: KafkaError | None = None
        try:
            self._member.commit(offsets_of(flushed.values()), wait_s)
        except KafkaException as problem:
            error = problem.args[0]
        self._answered(flushed, error)

    def drop(self, places: Iterable[Place]) -> None:
        """Send nothing more of partitions that are given up."""
        with self._lock:
            self._dropped.update(places)
            self._refuse([self._waiting.pop(place) for place in self._dropped & set(self._waiting)])

    def end(self, wait_s: float) -> None:
        """Commit all that is open, wait for it, and send nothing more of it."""
        self.flush([], wait_s)
        with self._lock:
            failed = list(self._waiting)
        self.drop(failed)

    def take_answer(self) -> Answer | None:
        """Return what has come of a commit, the oldest first and each once; None if there is nothing to tell."""
        with self._lock:
            return self._answers.popleft() if self._answers else None

    def _hear(self) -> None:
        sent = self._sent
        if sent is None:
            return
        try:
            self._member.run_commit_callbacks()
        except KafkaException as error:
            # Then no answer will come.
            self._answered(sent, error.args[0])

    def _answered(self, sent: _Merged, error: KafkaError | None) -> None:
        with self._lock:
            if self._sent is not sent:
                # It was flushed meanwhile.
                return
            self._trouble = None
            if error is None or not _passes(error):
                self._answers.append((error, list(sent.values())))
            else:
                self._trouble = error
                self._waiting = {**self._again(), **self._waiting}
            self._sent = None

    def _again(self) -> _Merged:
        """Return what of that on its way may be sent again; the rest is refused."""
        sent = self._sent or {}
        self._refuse([offset for place, offset in sent.items() if place in self._dropped])
        return {place: offset for place, offset in sent.items() if place not in self._dropped}

    def _refuse(self, offsets: list[TopicPartition]) -> None:
        if offsets:
            over = KafkaError(KafkaError.ILLEGAL_GENERATION, "given up before it was committed")
            self._answers.append((self._trouble or over, offsets))


def offsets_of(partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the same as the member takes it."""
    return {to_topic_partition(each): (each.offset, each.metadata or "", leader_epoch(each)) for each in partitions}


def _merged(offsets: Iterable[TopicPartition]) -> _Merged:
    return {to_topic_partition(each): each for each in offsets}


def _passes(error: KafkaError) -> bool:
    # What is still held after a rebalance may be committed in the next generation.
    return bool(error.retriable()) or error.code() == KafkaError.REBALANCE_IN_PROGRESS
