"""Reads a range of one partition with librdkafka, and little more than it.

How much is fetched at once is decided where the range is planned (`fetching`); here librdkafka is told so, and is
never asked for more than the range holds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.spark.splits import OffsetRange

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = logging.getLogger(__name__)

GROUP = "rackassign-spark"
"""librdkafka wants one; nothing is ever joined or committed."""

_FIRST_ASK = 64
_MOST_ASKED = 500
"""Records at a time: what is large comes without notice, and this many of Kafka's largest are half a gigabyte."""

_GROWTH = 8
_LOOK_S = 0.5
_ANSWER_S = 30.0


class DataLossError(RackassignError):
    """Records that were planned to be read are gone."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How ranges are read.

    Args:
        poll_timeout_s: So long without anything is an error.
        fail_on_loss: Whether records that are gone are an error, or left out with a warning.
        batch_rows: At most so many records at a time.
        batch_bytes: No more bytes of keys and values at a time, unless one record has more.
        headers: Whether those of headers count as well.
        high: Tells where the log of a partition ends, open transactions included; None where all reads are of that.
    """

    poll_timeout_s: float = 60.0
    fail_on_loss: bool = True
    batch_rows: int = 10_000
    batch_bytes: int = 16 * 2**20
    headers: bool = False
    high: Callable[[TopicPartition], int] | None = None


def consumer_properties(client: Mapping[str, str], rack: str | None, fetch_bytes: int) -> dict[str, Any]:
    """Return librdkafka's properties for ranges that are fetched so many bytes at a time.

    Args:
        client: What the user has set.
        rack: Of the reader; None to read from leaders.
        fetch_bytes: As from `fetching`.
    """
    return {
        "group.id": GROUP,
        **client,
        **({} if rack is None else {"client.rack": rack}),
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Says where the log ends, if what the range ends with are no records.
        "enable.partition.eof": True,
        "fetch.message.max.bytes": fetch_bytes,
        # Fetch when there is nothing left, and no sooner...
        "queued.min.messages": 1,
        # ...but then at once: it would look again after a second.
        "fetch.queue.backoff.ms": 1,
    }


def read(consumer: Consumer, wanted: OffsetRange, terms: ReadOptions, record_bytes: int = 0) -> Iterator[list[Message]]:
    """Yield the records of a range, in order.

    Args:
        consumer: With `consumer_properties`; is assigned to the range, and left so.
        wanted: What to read.
        terms: How.
        record_bytes: What a record is thought to have; 0 if nobody knows.

    Raises:
        DataLossError: Records are gone, and that is an error.
        NoAnswerError: Nothing comes for too long, or Kafka refuses.
    """
    return _Reading(consumer, wanted, terms, record_bytes).records()


def end_offset(client: Mapping[str, str], place: TopicPartition) -> int:
    """Return where the log of a partition ends, open transactions included.

    Args:
        client: What the user has set.
        place: The partition.

    Raises:
        NoAnswerError: Kafka does not say.
    """
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - not before it is needed
    from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415 - the same

    asking = Consumer({"group.id": GROUP, **client, "isolation.level": "read_uncommitted"})
    try:
        return int(asking.get_watermark_offsets(HostPartition(*place), timeout=_ANSWER_S, cached=False)[1])
    except KafkaException as error:
        raise KafkaUnavailableError(f"{place.topic}-{place.partition}: its end cannot be told: {error}") from None
    finally:
        asking.close()


class _Reading:
    def __init__(self, consumer: Consumer, wanted: OffsetRange, terms: ReadOptions, record_bytes: int) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._terms = terms
        self._position = wanted.start
        self._ask = max(1, min(_FIRST_ASK, terms.batch_bytes // max(1, record_bytes)))
        self._trouble = ""
        self._kept: list[Message] = []
        self._kept_bytes = 0

    def records(self) -> Iterator[list[Message]]:
        self._seek(self._position)
        deadline = time.monotonic() + self._terms.poll_timeout_s
        seen = 0
        while self._position < self._wanted.end:
            before = self._position
            got = self._consumer.consume(self._next_ask(seen), _LOOK_S)
            records = [message for message in got if message.error() is None]
            if records:
                self._position = self._offset(records[-1]) + 1
                while records and self._offset(records[-1]) >= self._wanted.end:
                    records.pop()
                seen += len(records)
                yield from self._packed(records)
            if len(records) < len(got):
                for message in got:
                    self._heed(message)
            if self._position > before:
                # After the caller's own work, which may take as long as it likes.
                deadline = time.monotonic() + self._terms.poll_timeout_s
            elif time.monotonic() >= deadline:
                raise KafkaUnavailableError(self._told(f"nothing came for {self._terms.poll_timeout_s:g} s"))
        if self._kept:
            yield self._kept

    def _next_ask(self, seen: int) -> int:
        """Return how many records to ask for: no more than the rest holds, as dense as it was so far.

        What is taken from librdkafka's queue makes it fetch more, so asking past the end is reading past the end.
        """
        left = self._wanted.end - self._position
        done = self._position - self._wanted.start
        expected = -(-left * seen // done) if done else left
        return max(1, min(self._ask, expected))

    def _packed(self, records: list[Message]) -> Iterator[list[Message]]:
        """Yield what makes full batches, and keep the rest; ask for more next time if it fits into one."""
        terms, begun = self._terms, self._kept_bytes
        before = 0
        for message in records:
            size = len(message) + len(message.key() or b"") + (_of_headers(message) if terms.headers else 0)
            if self._kept and (self._kept_bytes + size > terms.batch_bytes or len(self._kept) >= terms.batch_rows):
                before += self._kept_bytes
                yield self._kept
                self._kept, self._kept_bytes = [], 0
            self._kept.append(message)
            self._kept_bytes += size
        came = before + self._kept_bytes - begun
        fitting = terms.batch_bytes * len(records) // came if came else terms.batch_rows
        self._ask = max(1, min(self._ask * _GROWTH, fitting, terms.batch_rows, _MOST_ASKED))

    def _heed(self, message: Message) -> None:
        """Heed what comes in place of a record."""
        from confluent_kafka import KafkaError  # noqa: PLC0415 - not before it is needed

        error = message.error()
        if error is None:
            return
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            # What lies before the end of the log and was no record has been passed.
            self._position = max(self._position, self._offset(message))
            if self._position < self._wanted.end:
                self._at_end()
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001 - the same
            self._out_of_range()
        elif error.fatal() or code in {
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - the same
            KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the same
        }:
            raise KafkaUnavailableError(self._told(error.str()))
        else:
            # It will be tried again.
            self._trouble = error.str()

    def _at_end(self) -> None:
        """Find out whether the log ends too early, or only that of a follower that is behind."""
        _, end = self._bounds()
        if end >= self._wanted.end:
            return
        if self._terms.high is not None and self._terms.high(self._wanted.place) >= self._wanted.end:
            self._trouble = f"a transaction is open at {end}"
            return
        self._lost(f"the log ends at {end}")
        self._position = self._wanted.end

    def _out_of_range(self) -> None:
        start, end = self._bounds()
        if start > self._position:
            self._lost(f"the log starts at {start}")
        elif end < self._wanted.end:
            self._lost(f"the log ends at {end}")
            start = self._wanted.end
        self._position = min(max(self._position, start), self._wanted.end)
        if self._position < self._wanted.end:
            self._seek(self._position)

    def _bounds(self) -> tuple[int, int]:
        """Ask the leader where the log starts and ends."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - not before it is needed
        from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415 - the same

        try:
            bounds: tuple[int, int] = self._consumer.get_watermark_offsets(
                HostPartition(*self._wanted.place), timeout=_ANSWER_S, cached=False
            )
        except KafkaException as error:
            raise KafkaUnavailableError(self._told(str(error))) from None
        return bounds

    def _lost(self, what: str) -> None:
        text = self._told(what)
        if self._terms.fail_on_loss:
            raise DataLossError(f"{text}: records are gone; with failOnDataLoss=false they are left out")
        log.warning("%s: records are gone and left out", text)

    def _seek(self, offset: int) -> None:
        from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415 - not before it is needed

        self._consumer.assign([HostPartition(*self._wanted.place, offset)])

    def _told(self, what: str) -> str:
        place, wanted = self._wanted.place, self._wanted
        trouble = f"; the last trouble was: {self._trouble}" if self._trouble else ""
        return (
            f"{place.topic}-{place.partition}, offsets {wanted.start} to {wanted.end}, at {self._position}: "
            f"{what}{trouble}"
        )

    @staticmethod
    def _offset(message: Message) -> int:
        offset = message.offset()
        # Every record and every end of a log has one.
        return -1 if offset is None else offset


def _of_headers(message: Message) -> int:
    """Return the bytes of a record's headers; what cannot be read counts nothing here."""
    with suppress(SystemError, UnicodeDecodeError):
        # A list in fact, whatever the types of the client say.
        found: list[Any] = list(message.headers() or ())
        return sum(len(key) + len(value or b"") for key, value in found)
    return 0
