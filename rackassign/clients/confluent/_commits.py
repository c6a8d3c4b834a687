"""Commits of the consumer. The member sends them, because it has the generation; librdkafka never commits.

Of asynchronous commits one is in flight, and those made meanwhile are merged until it is answered. kafka-python sends a
broker no more than a few requests at once, fails further ones, and never retries such a commit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Lock
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from rackassign.clients.confluent._config import ConsumerConfig
from rackassign.clients.confluent._fetcher import PartitionFetcher, leader_epoch, make_offset, to_topic_partition
from rackassign.clients.confluent._group_member import GroupMember, Offsets
from rackassign.clients.confluent.internals import INVALID_ARG, NO_OFFSET, STATE, kafka_exception
from rackassign.clients.kafka_python.internals.group_member import Partitions
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce, join_first, short_repr

log = logging.getLogger(__name__)

Answer = tuple[KafkaError | None, list[ConfluentPartition]]
"""Result of a commit, and its offsets."""

_Merged = dict[TopicPartition, ConfluentPartition]
"""The last offset of each partition that is to be committed."""


class AsyncCommitQueue:
    """Queue of asynchronous commits; thread-safe. Results are not pushed but taken with `take_answer`.

    A commit with a temporary error is sent again, until its partition is revoked.
    """

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        # Never held during calls of the member, which may call back.
        self._lock = Lock()
        self._waiting: _Merged = {}
        self._sent: _Merged | None = None
        self._dropped: set[TopicPartition] = set()
        self._trouble: KafkaError | None = None
        self._answers: deque[Answer] = deque()

    def add(self, offsets: Iterable[ConfluentPartition]) -> None:
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

    def flush(self, more: Iterable[ConfluentPartition], wait_s: float) -> None:
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

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._dropped.update(tps)
            self._fail_revoked([self._waiting.pop(tp) for tp in self._dropped & set(self._waiting)])

    def give_up(self, tps: Iterable[TopicPartition]) -> None:
        """Fail pending offsets of partitions of which later ones are committed now."""
        with self._lock:
            self._fail_revoked([self._waiting.pop(tp) for tp in set(tps) & set(self._waiting)])

    def refuse(self, offsets: list[ConfluentPartition]) -> None:
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
            # Partitions that are still owned after a rebalance may be committed in the next generation.
            if error is None or not (error.retriable() or error.code() == KafkaError.REBALANCE_IN_PROGRESS):
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

    def _fail_revoked(self, offsets: list[ConfluentPartition]) -> None:
        if offsets:
            over = KafkaError(KafkaError.ILLEGAL_GENERATION, "the partition was revoked before it was committed")
            self._answers.append((self._trouble or over, offsets))


def offsets_of(partitions: Iterable[ConfluentPartition]) -> Offsets:
    """Return the offsets in the form of the member's commit.

    Metadata end with a NUL, as those that confluent-kafka 2.16 commits. When it reads them, it looks for that NUL, and
    without one it reads memory behind them.
    """
    return {
        to_topic_partition(each): (each.offset, f"{each.metadata}\0" if each.metadata else "", leader_epoch(each))
        for each in partitions
    }


def _merged(offsets: Iterable[ConfluentPartition]) -> _Merged:
    return {to_topic_partition(each): each for each in offsets}


_LAST_S = 5.0
"""Time limit for the last commit of partitions to be revoked; the group waits for it."""


class Commits:
    """The commits of one consumer."""

    def __init__(self, member: GroupMember, reader: PartitionFetcher, properties: ConsumerConfig) -> None:
        self._member = member
        self._reader = reader
        self._properties = properties
        self._outbox = AsyncCommitQueue(member)
        self._stored: dict[TopicPartition, ConfluentPartition] = {}
        self._sent: dict[TopicPartition, int] = {}
        self._drops = 0
        self._dropped: dict[TopicPartition, int] = {}
        """When partitions were dropped last: the number of that drop."""
        self._warnings = WarnOnce(log)
        self._due = monotonic() + (properties.auto_commit_s or 0.0)

    def store(self, message: Message | None, offsets: Sequence[ConfluentPartition] | None) -> None:
        """Store offsets to be committed; none of them if a partition is not assigned."""
        if self._properties.auto_store:
            raise kafka_exception(INVALID_ARG, "store_offsets() needs enable.auto.offset.store=false")
        chosen = _chosen(message, offsets)
        if chosen is None:
            raise TypeError("expected either message or offsets")
        for offset in chosen:
            if to_topic_partition(offset) not in self._reader.held:
                raise kafka_exception(STATE, f"{offset.topic}-{offset.partition} is not assigned")
        self._stored |= {to_topic_partition(offset): offset for offset in chosen}

    def drop(self, tps: Partitions) -> None:
        """Discard the offsets of partitions that are no longer owned; they are not committed any more."""
        self._drops += 1
        self._dropped |= dict.fromkeys(tps, self._drops)
        self.forget(tps)
        self._outbox.drop(tps)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self._stored.pop(tp, None)
            self._sent.pop(tp, None)

    def commit(
        self,
        message: Message | None,
        offsets: Sequence[ConfluentPartition] | None,
        *,
        asynchronous: bool,
        timeout: float,
    ) -> list[ConfluentPartition] | None:
        """Commit with the current generation, and only partitions that are assigned in it."""
        # A warning names partitions that are not assigned; of an asynchronous commit, the callback gets them.
        end, drops = monotonic() + timeout, self._drops
        chosen = _chosen(message, offsets)
        asked = self._ready(self._reader.held) if chosen is None else [each for each in chosen if each.offset >= 0]
        owned, not_owned = self._by_ownership(asked, drops)
        if asynchronous:
            self._outbox.refuse(not_owned)
            if owned:
                self._send(owned)
            return None
        if not owned:
            raise kafka_exception(NO_OFFSET, "there is nothing to commit")
        # Pending commits first, and not again behind this one. They may wait for a rebalance, in which the polling
        # thread drops partitions, and even takes them again after another owner has committed further.
        self._outbox.flush([], timeout)
        owned, not_owned = self._by_ownership(asked, drops)
        for each in not_owned:
            place = f"{each.topic}-{each.partition}"
            self._warnings.warn(
                "not assigned", "%s is not assigned to this member, so its offset is not committed", place, about=place
            )
        self._outbox.give_up(map(to_topic_partition, owned))
        self._member.commit(offsets_of(owned), max(0.0, end - monotonic()))
        # With metadata and leader epochs, as librdkafka does.
        return [make_offset(to_topic_partition(each), each.offset, leader_epoch(each), each.metadata) for each in owned]

    def _by_ownership(
        self, asked: list[ConfluentPartition], drops: int
    ) -> tuple[list[ConfluentPartition], list[ConfluentPartition]]:
        """Return the offsets of owned partitions that were not dropped since so many drops; and the rest."""
        held = self._reader.held
        owned: list[ConfluentPartition] = []
        # These were read in a generation that is over; the new owner may have committed further.
        not_owned: list[ConfluentPartition] = []
        for each in asked:
            tp = to_topic_partition(each)
            (owned if tp in held and self._dropped.get(tp, 0) <= drops else not_owned).append(each)
        if not_owned and not owned:
            names = join_first([f"{each.topic}-{each.partition}" for each in not_owned], 3)
            raise kafka_exception(KafkaError.ILLEGAL_GENERATION, f"not assigned to this member: {names}")
        return owned, not_owned

    def serve(self) -> None:
        """Send due commits without waiting, and report results of commits."""
        self._outbox.send()
        self._report_results()
        interval = self._properties.auto_commit_s
        if interval is None or monotonic() < self._due:
            return
        self._due = monotonic() + interval
        ready = self._uncommitted(self._reader.held)
        if ready:
            self._send(ready)

    def commit_before_revoke(self, tps: Partitions) -> None:
        self._outbox.flush([] if self._properties.auto_commit_s is None else self._uncommitted(tps), _LAST_S)
        self._report_results()

    def end(self) -> None:
        """Commit all pending offsets and report the results; no further commits are possible."""
        self._outbox.end(_LAST_S)
        self._report_results()

    def _send(self, offsets: list[ConfluentPartition]) -> None:
        self._sent |= {to_topic_partition(each): each.offset for each in offsets}
        self._outbox.add(offsets)

    def _report_results(self) -> None:
        while (answer := self._outbox.take_answer()) is not None:
            error, offsets = answer
            if error is not None:
                self._unsend(offsets)
            if self._properties.on_commit is not None:
                self._properties.on_commit(error, offsets)
            elif error is not None:
                log.warning("a commit failed, so records may be delivered twice: %s", error.str())

    def _unsend(self, offsets: Iterable[ConfluentPartition]) -> None:
        for each in offsets:
            if self._sent.get(to_topic_partition(each)) == each.offset:
                self._sent.pop(to_topic_partition(each), None)

    def _ready(self, tps: Partitions) -> list[ConfluentPartition]:
        if self._properties.auto_store:
            return self._reader.positions(tps)
        # What `position()` returns may be stored, and is OFFSET_INVALID for a partition without delivered records. As
        # with librdkafka it is not committed: the broker would take it in place of the offset that was committed.
        # A copy, since this may be another thread than the one that stores and drops.
        return [offset for tp, offset in list(self._stored.items()) if tp in tps and offset.offset >= 0]

    def _uncommitted(self, tps: Partitions) -> list[ConfluentPartition]:
        return [each for each in self._ready(tps) if self._sent.get(to_topic_partition(each)) != each.offset]


def _chosen(message: Message | None, offsets: Sequence[ConfluentPartition] | None) -> list[ConfluentPartition] | None:
    if message is not None and offsets is not None:
        raise ValueError("message and offsets exclude each other")
    if message is None:
        if offsets is None:
            return None
        chosen = list(offsets)
        for each in chosen:
            # Raises for what is none.
            to_topic_partition(each)
        return chosen
    if not isinstance(message, Message):
        raise TypeError(f"expected a confluent_kafka.Message, got {short_repr(message)}")
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if message.error() is not None or topic is None or partition is None or offset is None:
        raise kafka_exception(INVALID_ARG, "this message is an error, not a record")
    return [make_offset(TopicPartition(topic, partition), offset + 1, message.leader_epoch())]
