"""Commits of the consumer. The member sends them, because it has the generation; librdkafka never commits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from time import monotonic

from confluent_kafka import KafkaError, Message, TopicPartition

from rackassign.clients.confluent.async_commits import AsyncCommitQueue, offsets_of
from rackassign.clients.confluent.config import ConsumerConfig
from rackassign.clients.confluent.errors import INVALID_ARG, NO_OFFSET, STATE, kafka_exception
from rackassign.clients.confluent.fetcher import (
    PartitionFetcher,
    Place,
    Places,
    leader_epoch,
    make_offset,
    to_topic_partition,
)
from rackassign.clients.confluent.group_member import GroupMember
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import join_first, short_repr

log = logging.getLogger(__name__)

_LAST_S = 5.0
"""Time limit for the last commit of partitions to be revoked; the group waits for it."""


class Commits:
    """The commits of one consumer.

    Args:
        member: Member that commits.
        reader: Fetcher with the positions of delivered records.
        properties: Whether delivered or stored offsets are committed, how often, and the callback.
    """

    def __init__(self, member: GroupMember, reader: PartitionFetcher, properties: ConsumerConfig) -> None:
        self._member = member
        self._reader = reader
        self._properties = properties
        self._outbox = AsyncCommitQueue(member)
        self._stored: dict[Place, TopicPartition] = {}
        self._sent: dict[Place, int] = {}
        self._drops = 0
        self._dropped: dict[Place, int] = {}
        """When partitions were dropped last: the number of that drop."""
        self._warnings = WarnOnce(log)
        self._due = monotonic() + (properties.auto_commit_s or 0.0)

    def store(self, message: Message | None, offsets: Sequence[TopicPartition] | None) -> None:
        """Store offsets to be committed.

        Raises:
            KafkaException: All delivered offsets are stored automatically; or a partition is not assigned, and then
                nothing is stored.
        """
        if self._properties.auto_store:
            raise kafka_exception(INVALID_ARG, "store_offsets() needs enable.auto.offset.store=false")
        chosen = _chosen(message, offsets)
        if chosen is None:
            raise TypeError("expected either message or offsets")
        for offset in chosen:
            if to_topic_partition(offset) not in self._reader.held:
                raise kafka_exception(STATE, f"{offset.topic}-{offset.partition} is not assigned")
        self._stored |= {to_topic_partition(offset): offset for offset in chosen}

    def drop(self, tps: Places) -> None:
        """Discard the offsets of partitions that are no longer owned; they are not committed any more."""
        self._drops += 1
        self._dropped |= dict.fromkeys(tps, self._drops)
        self.forget(tps)
        self._outbox.drop(tps)

    def forget(self, tps: Iterable[Place]) -> None:
        """Discard the stored offsets of partitions that were sought."""
        for tp in tps:
            self._stored.pop(tp, None)
            self._sent.pop(tp, None)

    def commit(
        self,
        message: Message | None,
        offsets: Sequence[TopicPartition] | None,
        *,
        asynchronous: bool,
        timeout: float,
    ) -> list[TopicPartition] | None:
        """Commit with the current generation, and only partitions that are assigned in it.

        Returns:
            The committed offsets of a synchronous commit; a warning names partitions that are not assigned. Of an
            asynchronous one, they are reported to the callback.

        Raises:
            KafkaException: None of the partitions is assigned, there is nothing to commit, or a synchronous commit
                failed.
        """
        end, drops = monotonic() + timeout, self._drops
        chosen = _chosen(message, offsets)
        asked = self._ready(self._reader.held) if chosen is None else [each for each in chosen if each.offset >= 0]
        owned, others = self._by_ownership(asked, drops)
        if asynchronous:
            self._outbox.refuse(others)
            if owned:
                self._send(owned)
            return None
        if not owned:
            raise kafka_exception(NO_OFFSET, "there is nothing to commit")
        # Pending commits first, and not again behind this one. They may wait for a rebalance, in which the polling
        # thread drops partitions, and even takes them again after another owner has committed further.
        self._outbox.flush([], timeout)
        owned, others = self._by_ownership(asked, drops)
        for each in others:
            place = f"{each.topic}-{each.partition}"
            self._warnings.warn(
                "not assigned", "%s is not assigned to this member, so its offset is not committed", place, about=place
            )
        self._outbox.give_up(map(to_topic_partition, owned))
        self._member.commit(offsets_of(owned), max(0.0, end - monotonic()))
        return [_copied(each) for each in owned]

    def _by_ownership(
        self, asked: list[TopicPartition], drops: int
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Return the offsets of partitions that are owned, and that were not dropped since so many drops; and the rest.

        Raises:
            KafkaException: None of the partitions is owned.
        """
        held = self._reader.held
        owned: list[TopicPartition] = []
        # These were read in a generation that is over; the new owner may have committed further.
        others: list[TopicPartition] = []
        for each in asked:
            tp = to_topic_partition(each)
            (owned if tp in held and self._dropped.get(tp, 0) <= drops else others).append(each)
        if others and not owned:
            names = join_first([f"{each.topic}-{each.partition}" for each in others], 3)
            raise kafka_exception(KafkaError.ILLEGAL_GENERATION, f"not assigned to this member: {names}")
        return owned, others

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

    def commit_before_revoke(self, tps: Places) -> None:
        """Commit delivered offsets of partitions about to be revoked, and all pending offsets."""
        self._outbox.flush([] if self._properties.auto_commit_s is None else self._uncommitted(tps), _LAST_S)
        self._report_results()

    def end(self) -> None:
        """Commit all pending offsets and report the results; no further commits are possible."""
        self._outbox.end(_LAST_S)
        self._report_results()

    def _send(self, offsets: list[TopicPartition]) -> None:
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

    def _unsend(self, offsets: Iterable[TopicPartition]) -> None:
        for each in offsets:
            if self._sent.get(to_topic_partition(each)) == each.offset:
                self._sent.pop(to_topic_partition(each), None)

    def _ready(self, tps: Places) -> list[TopicPartition]:
        if self._properties.auto_store:
            return self._reader.positions(tps)
        # What `position()` returns may be stored, and is OFFSET_INVALID for a partition without delivered records. As
        # with librdkafka it is not committed: the broker would take it in place of the offset that was committed.
        # A copy, since this may be another thread than the one that stores and drops.
        return [offset for tp, offset in list(self._stored.items()) if tp in tps and offset.offset >= 0]

    def _uncommitted(self, tps: Places) -> list[TopicPartition]:
        return [each for each in self._ready(tps) if self._sent.get(to_topic_partition(each)) != each.offset]


def _copied(offset: TopicPartition) -> TopicPartition:
    """Return an offset with its metadata and leader epoch, as librdkafka does."""
    return make_offset(to_topic_partition(offset), offset.offset, leader_epoch(offset), offset.metadata)


def _chosen(message: Message | None, offsets: Sequence[TopicPartition] | None) -> list[TopicPartition] | None:
    """Return the given offsets; None if none are given."""
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
    return [make_offset(Place(topic, partition), offset + 1, message.leader_epoch())]
