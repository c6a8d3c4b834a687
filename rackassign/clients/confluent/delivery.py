"""Taking records from librdkafka so that an exception loses none.

confluent-kafka frees what a call has taken if the handler of a signal has raised meanwhile (Ctrl-C), with or without a
wait. For librdkafka these records are delivered, so the next commit would skip them. Seen with 2.16.1. The handler may
also raise between that call and the user's code. Exceptions of callbacks do not get so far (`user_callbacks`).

So it is known at any time up to where every partition has been returned to the user. If a call ends with an exception,
the partitions that have moved beyond that are begun there again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaException, Message, TopicPartition

from rackassign.clients.confluent.fetcher import PartitionFetcher, Place, make_offset
from rackassign.clients.confluent.stall_detector import StallDetector
from rackassign.clients.confluent.user_callbacks import UserCallbacks

log = logging.getLogger(__name__)


class Delivery:
    """Takes records from librdkafka; for the polling thread.

    A call of the user is `begin`, then any number of `poll` or `consume`, and `put_back` if it ends with an exception.

    Args:
        reader: Fetcher whose partitions are read.
        stalls: Restarts detection for partitions that were begun again.
        callbacks: What a callback has raised is raised here, if there are no records to return.
        lost: Returns whether the membership is lost: then no record is returned, as others own the partitions now.
    """

    def __init__(
        self,
        reader: PartitionFetcher,
        stalls: StallDetector,
        callbacks: UserCallbacks,
        lost: Callable[[], bool],
    ) -> None:
        self._reader = reader
        self._stalls = stalls
        self._callbacks = callbacks
        self._lost = lost
        self._taken: Sequence[Message] | None = ()
        """What the current call has taken, or the one before it; None if it is too much to be kept."""
        self._noted: Mapping[Place, TopicPartition] | None = None
        """Where partitions continued when librdkafka was asked for it; None if it is to be asked again."""
        self._since: dict[tuple[str | None, int | None], int] = {}
        """Where partitions continue of which records have been returned since."""
        self._revision = -1

    def begin(self) -> None:
        """Note that what was taken before has been returned."""
        taken = self._taken
        if taken is None:
            self._noted = None
        else:
            for message in taken:
                offset = message.offset()
                if offset is not None and message.error() is None:
                    self._since[message.topic(), message.partition()] = offset + 1
        # Only now, since a signal may end this, too; then it is done once more.
        self._taken = ()

    def poll(self, wait_s: float) -> Message | None:
        """Return a message, or None after so many seconds."""
        self._callbacks.raise_error()
        if self._noted is None or self._revision != self._reader.revision:
            self._note()
        message = self._reader.consumer.poll(wait_s)
        if message is None:
            self._callbacks.raise_error()
            return None
        self._taken = (message,)
        self._callbacks.run()
        return next(iter(self._standing([message])), None) if self._lost() else message

    def consume(self, taken: list[Message], most: int, wait_s: float) -> list[Message]:
        """Return the messages taken before and more of them: as many as requested, or those after so many seconds."""
        if not taken:
            self._callbacks.raise_error()
            if self._noted is None or self._revision != self._reader.revision:
                self._note()
        messages = taken + self._reader.consumer.consume(most - len(taken), wait_s)
        # One request takes less time than so many records. The user may change the list that is returned.
        self._taken = None if self._noted is None or len(messages) > len(self._noted) else tuple(messages)
        if messages:
            self._callbacks.run()
        else:
            self._callbacks.raise_error()
        return self._standing(messages) if self._lost() else messages

    def put_back(self) -> None:
        """Read again what the current call has taken: it was not returned."""
        self._taken = ()
        if self._noted is None or self._revision != self._reader.revision:
            # Nothing was taken since partitions have changed.
            return
        since = {
            Place(topic, partition): make_offset(Place(topic, partition), offset, None)
            for (topic, partition), offset in self._since.items()
            if topic is not None and partition is not None
        }
        try:
            self._stalls.forget(self._reader.put_back({**self._noted, **since}))
        except (KafkaException, RuntimeError) as error:
            # The latter if a callback has closed the consumer.
            log.warning("an exception ended a poll, and records that it had taken may be skipped: %s", error)

    def _note(self) -> None:
        revision = self._reader.revision
        # In this order, as a signal may end it anywhere.
        noted = self._reader.next_offsets()
        self._since = {}
        self._noted = noted
        self._revision = revision

    @staticmethod
    def _standing(messages: list[Message]) -> list[Message]:
        return [message for message in messages if message.error() is not None]
