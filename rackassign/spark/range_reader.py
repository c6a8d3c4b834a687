"""Reads a range of one partition with librdkafka and fetches little more than the range.

The size of a fetch is decided when the range is planned (`fetch_size`). This module passes it to librdkafka, and never
requests more records than the range contains.
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
"""librdkafka requires a group ID. The source never joins a group and never commits offsets."""

_FIRST_ASK = 64
_MOST_ASKED = 500
"""Records at a time. The next record can be large without notice, and 500 of Kafka's largest are half a gigabyte."""

_GROWTH = 8
_LOOK_S = 0.5
_ANSWER_S = 30.0


class DataLossError(RackassignError):
    """Records that were planned to be read no longer exist."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading ranges.

    Args:
        poll_timeout_s: Seconds without progress after which a read fails.
        fail_on_loss: Whether lost records are an error. If not, they are omitted with a warning.
        batch_rows: The highest number of records in a batch.
        batch_bytes: The highest number of bytes of keys and values in a batch, unless a single record has more.
        headers: Whether bytes of headers count as well.
        high: Returns the high watermark of a partition, which includes open transactions. None with
            `read_uncommitted`, where all reads end there.
    """

    poll_timeout_s: float = 60.0
    fail_on_loss: bool = True
    batch_rows: int = 10_000
    batch_bytes: int = 16 * 2**20
    headers: bool = False
    high: Callable[[TopicPartition], int] | None = None


def consumer_properties(client: Mapping[str, str], rack: str | None, fetch_bytes: int) -> dict[str, Any]:
    """Return the properties of a librdkafka consumer for ranges with a fetch size.

    Args:
        client: The properties that the user has set.
        rack: The rack of the reader; None to read from leaders.
        fetch_bytes: The size of fetches, from `fetch_size`.
    """
    return {
        "group.id": GROUP,
        **client,
        **({} if rack is None else {"client.rack": rack}),
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Reports the position behind the last offsets of a range that are not records.
        "enable.partition.eof": True,
        "fetch.message.max.bytes": fetch_bytes,
        # Fetch only when the queue is empty...
        "queued.min.messages": 1,
        # ...but then immediately; by default librdkafka checks the queue again after a second.
        "fetch.queue.backoff.ms": 1,
    }


def read(consumer: Consumer, wanted: OffsetRange, terms: ReadOptions, record_bytes: int = 0) -> Iterator[list[Message]]:
    """Yield the records of a range, in order.

    Args:
        consumer: A consumer with `consumer_properties`. The partition stays assigned to it afterwards.
        wanted: The range to read.
        terms: Options for reading.
        record_bytes: The estimated size of a record; 0 if unknown.

    Raises:
        DataLossError: Records are lost, and `fail_on_loss` is set.
        KafkaUnavailableError: No records arrive within the timeout, or Kafka refuses the request.
    """
    return _Reading(consumer, wanted, terms, record_bytes).records()


def end_offset(client: Mapping[str, str], place: TopicPartition) -> int:
    """Return the high watermark of a partition, which includes open transactions.

    Args:
        client: The properties that the user has set.
        place: The partition.

    Raises:
        KafkaUnavailableError: Kafka does not respond with an offset.
    """
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - loaded on first use
    from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415 - loaded on first use

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
                # Computed here because the caller may process the yielded batches for any length of time.
                deadline = time.monotonic() + self._terms.poll_timeout_s
            elif time.monotonic() >= deadline:
                raise KafkaUnavailableError(self._told(f"nothing came for {self._terms.poll_timeout_s:g} s"))
        if self._kept:
            yield self._kept

    def _next_ask(self, seen: int) -> int:
        """Return how many records to request: at most as many as the rest of the range is expected to contain.

        The estimate uses the density of records so far. librdkafka fetches more as soon as records leave its queue, so
        a request for records behind the end would fetch past the end.
        """
        left = self._wanted.end - self._position
        done = self._position - self._wanted.start
        expected = -(-left * seen // done) if done else left
        return max(1, min(self._ask, expected))

    def _packed(self, records: list[Message]) -> Iterator[list[Message]]:
        """Yield full batches and keep the rest; request more records next time if they fit into one batch."""
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
        """Handle an event or error that librdkafka returns in place of a record."""
        from confluent_kafka import KafkaError  # noqa: PLC0415 - loaded on first use

        error = message.error()
        if error is None:
            return
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            # The offsets up to the end of the log that are not records have been passed.
            self._position = max(self._position, self._offset(message))
            if self._position < self._wanted.end:
                self._at_end()
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001 - its public name
            self._out_of_range()
        elif error.fatal() or code in {
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
            KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
        }:
            raise KafkaUnavailableError(self._told(error.str()))
        else:
            # librdkafka retries.
            self._trouble = error.str()

    def _at_end(self) -> None:
        """Determine whether the log ends before the range does, or only that of a follower that lags behind."""
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
        """Request the start and the end of the log from the leader."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use
        from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415 - loaded on first use

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
        from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415 - loaded on first use

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
        # Every record and every end-of-partition event has an offset; the type allows None.
        return -1 if offset is None else offset


def _of_headers(message: Message) -> int:
    """Return the bytes of a record's headers; 0 if they cannot be decoded."""
    with suppress(SystemError, UnicodeDecodeError):
        # A list in practice, although the client's type annotations allow other types.
        found: list[Any] = list(message.headers() or ())
        return sum(len(key) + len(value or b"") for key, value in found)
    return 0
