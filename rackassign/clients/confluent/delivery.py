"""Taking records from librdkafka so that an exception loses none.

confluent-kafka frees what a call has taken if the handler of a signal has raised meanwhile (Ctrl-C). For librdkafka
these records are delivered, so the next commit would skip them. Seen with 2.16.1: the handler runs when the wait is
over, and the record that ended it is gone. Exceptions of callbacks do not get so far (`user_callbacks`).

So records that are available are taken without waiting. Before a wait it is noted where every partition continues, and
if the wait ends with an exception, the partitions that have moved are begun there again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaException, Message, TopicPartition

from rackassign.clients.confluent.fetcher import PartitionFetcher, Place, make_offset
from rackassign.clients.confluent.stall_detector import StallDetector
from rackassign.clients.confluent.user_callbacks import UserCallbacks

log = logging.getLogger(__name__)


class Delivery:
    """Takes records from librdkafka; for the polling thread.

    Args:
        reader: Fetcher whose partitions are read.
        stalls: Restarts detection for partitions that were begun again.
        callbacks: What a callback has raised is raised here, if there are no records to return.
    """

    def __init__(self, reader: PartitionFetcher, stalls: StallDetector, callbacks: UserCallbacks) -> None:
        self._reader = reader
        self._stalls = stalls
        self._callbacks = callbacks
        self._noted: dict[Place, TopicPartition] | None = None
        """Where partitions continue; None after a record was taken. Of many partitions it takes a millisecond."""
        self._revision = 0

    def poll(self, wait_s: float) -> Message | None:
        """Return a message, or None after so many seconds."""
        self._callbacks.raise_error()
        message = self._reader.consumer.poll(0.0)
        if message is None and wait_s > 0:
            with self._put_back_on_error(()):
                message = self._reader.consumer.poll(wait_s)
        if message is None:
            self._callbacks.raise_error()
        else:
            self._noted = None
        return message

    def consume(self, taken: list[Message], most: int, wait_s: float) -> list[Message]:
        """Return the messages taken before and more of them: as many as requested, or those after so many seconds."""
        if not taken:
            self._callbacks.raise_error()
        messages = taken + self._reader.consumer.consume(most - len(taken), 0.0)
        if len(messages) < most and wait_s > 0:
            with self._put_back_on_error(messages):
                messages = messages + self._reader.consumer.consume(most - len(messages), wait_s)
        if messages:
            self._noted = None
        else:
            self._callbacks.raise_error()
        return messages

    @contextmanager
    def _put_back_on_error(self, taken: Sequence[Message]) -> Iterator[None]:
        before = self._next_offsets(taken)
        try:
            yield
        except BaseException:
            self._put_back(before)
            raise

    def _next_offsets(self, taken: Sequence[Message]) -> Mapping[Place, TopicPartition]:
        """Return where partitions continue, if what was taken has not been returned."""
        if self._noted is None or self._revision != self._reader.revision:
            self._noted, self._revision = self._reader.next_offsets(), self._reader.revision
        firsts: dict[Place, TopicPartition] = {}
        for message in taken:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is None and topic is not None and partition is not None and offset is not None:
                place = Place(topic, partition)
                firsts.setdefault(place, make_offset(place, offset, None))
        return self._noted | firsts if firsts else self._noted

    def _put_back(self, before: Mapping[Place, TopicPartition]) -> None:
        self._noted = None
        try:
            self._stalls.forget(self._reader.put_back(before))
        except KafkaException as error:
            log.warning("an exception ended a poll, and records that it had taken may be skipped: %s", error)
