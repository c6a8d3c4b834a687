"""What is committed, and by whom: the member, which knows the generation; never librdkafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from rackassign.clients.confluent.errors import INVALID_ARG, NO_OFFSET, STATE, refused
from rackassign.clients.confluent.member import Member, Offsets
from rackassign.clients.confluent.properties import Properties
from rackassign.clients.confluent.reader import Place, Places, Reader, epoch_of, place_of, with_epoch

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

    def __init__(self, member: Member, reader: Reader, properties: Properties) -> None:
        self._member = member
        self._reader = reader
        self._properties = properties
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
            raise refused(INVALID_ARG, "store_offsets() needs enable.auto.offset.store=false")
        chosen = _chosen(message, offsets)
        if chosen is None:
            raise TypeError("expected either message or offsets")
        for offset in chosen:
            if place_of(offset) not in self._reader.held:
                raise refused(STATE, f"{offset.topic}-{offset.partition} is not assigned")
        self._stored |= {place_of(offset): offset for offset in chosen}

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that are no longer held, or are read from somewhere else."""
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
        ours = [each for each in asked if place_of(each) in self._reader.held]
        if asked and not ours:
            # It was given out in a generation that is over; whoever has it now may be further.
            raise refused(KafkaError.ILLEGAL_GENERATION, "nothing of this is assigned any more")
        if asynchronous:
            if ours:
                self._send(ours)
            return None
        if not ours:
            raise refused(NO_OFFSET, "there is nothing to commit")
        self._member.commit(_offsets(ours), timeout)
        return [TopicPartition(each.topic, each.partition, each.offset) for each in ours]

    def serve(self) -> None:
        """Commit what was delivered, if it is time to, and do not wait for it."""
        interval = self._properties.auto_commit_s
        if interval is None or monotonic() < self._due:
            return
        self._due = monotonic() + interval
        ready = self._news(self._reader.held)
        if ready:
            self._send(ready)

    def last(self, places: Places) -> None:
        """Commit what was delivered of partitions that are about to be given up; never raises."""
        ready = [] if self._properties.auto_commit_s is None else self._news(places)
        if not ready:
            return
        try:
            self._member.commit(_offsets(ready), _LAST_S)
        except KafkaException as error:
            self._tell(error.args[0], ready)
        else:
            self._tell(None, ready)

    def _send(self, offsets: list[TopicPartition]) -> None:
        self._sent |= {place_of(each): each.offset for each in offsets}

        def done(error: KafkaError | None) -> None:
            if error is not None:
                for each in offsets:
                    self._sent.pop(place_of(each), None)
            self._tell(error, offsets)

        self._member.commit_later(_offsets(offsets), done)

    def _tell(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        if self._properties.on_commit is not None:
            self._properties.on_commit(error, offsets)
        elif error is not None:
            log.warning("a commit failed, so records may be delivered twice: %s", error.str())

    def _ready(self, places: Places) -> list[TopicPartition]:
        if self._properties.auto_store:
            return self._reader.positions(places)
        return [offset for place, offset in self._stored.items() if place in places]

    def _news(self, places: Places) -> list[TopicPartition]:
        return [each for each in self._ready(places) if self._sent.get(place_of(each)) != each.offset]


def _chosen(message: Message | None, offsets: Sequence[TopicPartition] | None) -> list[TopicPartition] | None:
    """Return what the user named; None if that is nothing."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets exclude each other")
    if message is None:
        return None if offsets is None else list(offsets)
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if message.error() is not None or topic is None or partition is None or offset is None:
        raise refused(INVALID_ARG, "this message is no record")
    return [with_epoch(Place(topic, partition), offset + 1, message.leader_epoch())]


def _offsets(partitions: Iterable[TopicPartition]) -> Offsets:
    return {place_of(each): (each.offset, each.metadata or "", epoch_of(each)) for each in partitions}
