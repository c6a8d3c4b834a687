"""What is committed, and by whom: the member, which knows the generation; never librdkafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from time import monotonic

from confluent_kafka import KafkaError, Message, TopicPartition

from rackassign.clients.confluent.async_commits import AsyncCommitQueue, offsets_of
from rackassign.clients.confluent.config import ConsumerConfig
from rackassign.clients.confluent.errors import INVALID_ARG, NO_OFFSET, STATE, kafka_exception
from rackassign.clients.confluent.fetcher import PartitionFetcher, Place, Places, make_offset, to_topic_partition
from rackassign.clients.confluent.group_member import GroupMember

log = logging.getLogger(__name__)

_LAST_S = 5.0
"""So long the last commit of partitions that are given up may take; the group waits for it."""


class Commits:
    """The commits of one consumer.

    Args:
        member: Who commits.
        reader: Who knows what was delivered.
        properties: Whether that is committed by itself, or stored, and who is told.
    """

    def __init__(self, member: GroupMember, reader: PartitionFetcher, properties: ConsumerConfig) -> None:
        self._member = member
        self._reader = reader
        self._properties = properties
        self._outbox = AsyncCommitQueue(member)
        self._stored: dict[Place, TopicPartition] = {}
        self._sent: dict[Place, int] = {}
        self._due = monotonic() + (properties.auto_commit_s or 0.0)

    def store(self, message: Message | None, offsets: Sequence[TopicPartition] | None) -> None:
        """Keep what is to be committed.

        Raises:
            KafkaException: Everything that is delivered is kept anyway; or something is not assigned, and then nothing
                is kept.
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

    def drop(self, places: Places) -> None:
        """Forget partitions that are no longer held; nothing of them is committed any more."""
        self.forget(places)
        self._outbox.drop(places)

    def forget(self, places: Iterable[Place]) -> None:
        """Forget what was delivered of partitions: they are read from somewhere else."""
        for place in places:
            self._stored.pop(place, None)
            self._sent.pop(place, None)

    def commit(
        self,
        message: Message | None,
        offsets: Sequence[TopicPartition] | None,
        *,
        asynchronous: bool,
        timeout: float,
    ) -> list[TopicPartition] | None:
        """Commit by the generation there is now, and only what is assigned in it.

        Returns:
            What was committed, if it was waited for.

        Raises:
            KafkaException: Nothing of it is assigned, there is nothing, or, if it is waited for, the commit failed.
        """
        chosen = _chosen(message, offsets)
        asked = self._ready(self._reader.held) if chosen is None else [each for each in chosen if each.offset >= 0]
        ours = [each for each in asked if to_topic_partition(each) in self._reader.held]
        if asked and not ours:
            # It was given out in a generation that is over; whoever has it now may be further.
            raise kafka_exception(KafkaError.ILLEGAL_GENERATION, "nothing of this is assigned any more")
        if asynchronous:
            if ours:
                self._send(ours)
            return None
        if not ours:
            raise kafka_exception(NO_OFFSET, "there is nothing to commit")
        end = monotonic() + timeout
        # First what was asked for first.
        self._outbox.flush([], timeout)
        self._member.commit(offsets_of(ours), max(0.0, end - monotonic()))
        return [TopicPartition(each.topic, each.partition, each.offset) for each in ours]

    def serve(self) -> None:
        """Commit what is due, without waiting for it, and tell what has come of commits."""
        self._outbox.send()
        self._tell()
        interval = self._properties.auto_commit_s
        if interval is None or monotonic() < self._due:
            return
        self._due = monotonic() + interval
        ready = self._news(self._reader.held)
        if ready:
            self._send(ready)

    def commit_before_revoke(self, places: Places) -> None:
        """Commit what was delivered of partitions that are about to be given up, and all that is open."""
        self._outbox.flush([] if self._properties.auto_commit_s is None else self._news(places), _LAST_S)
        self._tell()

    def end(self) -> None:
        """Commit all that is open, and tell what has come of it; nothing is afterwards."""
        self._outbox.end(_LAST_S)
        self._tell()

    def _send(self, offsets: list[TopicPartition]) -> None:
        self._sent |= {to_topic_partition(each): each.offset for each in offsets}
        self._outbox.add(offsets)

    def _tell(self) -> None:
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

    def _ready(self, places: Places) -> list[TopicPartition]:
        if self._properties.auto_store:
            return self._reader.positions(places)
        return [offset for place, offset in self._stored.items() if place in places]

    def _news(self, places: Places) -> list[TopicPartition]:
        return [each for each in self._ready(places) if self._sent.get(to_topic_partition(each)) != each.offset]


def _chosen(message: Message | None, offsets: Sequence[TopicPartition] | None) -> list[TopicPartition] | None:
    """Return what the user named; None if that is nothing."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets exclude each other")
    if message is None:
        return None if offsets is None else list(offsets)
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if message.error() is not None or topic is None or partition is None or offset is None:
        raise kafka_exception(INVALID_ARG, "this message is no record")
    return [make_offset(Place(topic, partition), offset + 1, message.leader_epoch())]
