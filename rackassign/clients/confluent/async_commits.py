"""Asynchronous commits: one is in flight, and those made meanwhile are merged until it is answered.

kafka-python sends a broker no more than a few requests at once, fails further ones, and never retries such a commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Lock

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from rackassign.clients.confluent.fetcher import Place, leader_epoch, to_topic_partition
from rackassign.clients.confluent.group_member import GroupMember, Offsets

Answer = tuple[KafkaError | None, list[TopicPartition]]
"""Result of a commit, and its offsets."""

_Merged = dict[Place, TopicPartition]
"""The last offset of each partition that is to be committed."""


class AsyncCommitQueue:
    """Queue of asynchronous commits; thread-safe. Results are not pushed but taken with `take_answer`.

    A commit with a temporary error is sent again, until its partition is revoked.

    Args:
        member: Member that commits.
    """

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        # Never held during calls of the member, which may call back.
        self._lock = Lock()
        self._waiting: _Merged = {}
        self._sent: _Merged | None = None
        self._dropped: set[Place] = set()
        self._trouble: KafkaError | None = None
        self._answers: deque[Answer] = deque()

    def add(self, offsets: Iterable[TopicPartition]) -> None:
        """Commit these, or later offsets that are added for the same partitions before the commit is sent."""
        with self._lock:
            self._waiting |= _merged(offsets)
        self.send()

    def send(self) -> None:
        """Send pending offsets, unless a commit is in flight."""
        self._receive()
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
        except BaseException:
            self._interrupted(sent)
            raise

    def flush(self, more: Iterable[TopicPartition], wait_s: float) -> None:
        """Commit all pending offsets, and more, and wait for it."""
        self._receive()
        with self._lock:
            # A commit in flight is sent again, because its response alone cannot be awaited.
            flushed = {**self._again(), **self._waiting, **_merged(more)}
            self._sent, self._waiting, self._dropped = flushed or None, {}, set()
        if not flushed:
            return
        error: KafkaError | None = None
        try:
            self._member.commit(offsets_of(flushed.values()), wait_s)
        except KafkaException as problem:
            error = problem.args[0]
        except BaseException:
            self._interrupted(flushed)
            raise
        self._answered(flushed, error)

    def drop(self, tps: Iterable[Place]) -> None:
        """Discard pending offsets of revoked partitions."""
        with self._lock:
            self._dropped.update(tps)
            self._fail_revoked([self._waiting.pop(tp) for tp in self._dropped & set(self._waiting)])

    def give_up(self, tps: Iterable[Place]) -> None:
        """Fail pending offsets of partitions of which later ones are committed now."""
        with self._lock:
            self._fail_revoked([self._waiting.pop(tp) for tp in set(tps) & set(self._waiting)])

    def refuse(self, offsets: list[TopicPartition]) -> None:
        """Fail offsets of partitions that are not assigned; nothing of them is sent."""
        if offsets:
            error = KafkaError(KafkaError.ILLEGAL_GENERATION, "the partition is not assigned to this member")
            with self._lock:
                self._answers.append((error, offsets))

    def end(self, wait_s: float) -> None:
        """Commit all pending offsets, wait for it, and send none of them afterwards."""
        self.flush([], wait_s)
        with self._lock:
            failed = list(self._waiting)
        self.drop(failed)

    def take_answer(self) -> Answer | None:
        """Return the result of a commit, oldest first and each once; None if there is none."""
        with self._lock:
            return self._answers.popleft() if self._answers else None

    def _receive(self) -> None:
        sent = self._sent
        if sent is None:
            return
        try:
            self._member.run_commit_callbacks()
        except KafkaException as error:
            # Then there is no response.
            self._answered(sent, error.args[0])

    def _answered(self, sent: _Merged, error: KafkaError | None) -> None:
        with self._lock:
            if self._sent is not sent:
                # It was flushed meanwhile.
                return
            self._trouble = None
            if error is None or not _passes(error):
                self._answers.append((error, list(sent.values())))
                self._sent = None
            else:
                self._trouble = error
                self._send_again()

    def _interrupted(self, sent: _Merged) -> None:
        """Have a commit sent again after an exception, as of a signal's handler: its response would not be noticed."""
        with self._lock:
            if self._sent is sent:
                self._send_again()

    def _send_again(self) -> None:
        self._waiting = {**self._again(), **self._waiting}
        self._sent = None

    def _again(self) -> _Merged:
        """Return the offsets in flight that may be sent again; fail the rest."""
        sent = self._sent or {}
        self._fail_revoked([offset for tp, offset in sent.items() if tp in self._dropped])
        return {tp: offset for tp, offset in sent.items() if tp not in self._dropped}

    def _fail_revoked(self, offsets: list[TopicPartition]) -> None:
        if offsets:
            over = KafkaError(KafkaError.ILLEGAL_GENERATION, "the partition was revoked before it was committed")
            self._answers.append((self._trouble or over, offsets))


def offsets_of(partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the offsets in the form of the member's commit.

    Metadata end with a NUL, as those that confluent-kafka 2.16 commits. When it reads them, it looks for that NUL, and
    without one it reads memory behind them.
    """
    return {
        to_topic_partition(each): (each.offset, f"{each.metadata}\0" if each.metadata else "", leader_epoch(each))
        for each in partitions
    }


def _merged(offsets: Iterable[TopicPartition]) -> _Merged:
    return {to_topic_partition(each): each for each in offsets}


def _passes(error: KafkaError) -> bool:
    # Partitions that are still owned after a rebalance may be committed in the next generation.
    return bool(error.retriable()) or error.code() == KafkaError.REBALANCE_IN_PROGRESS
