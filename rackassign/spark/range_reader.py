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
from rackassign.spark.client_config import TOKEN_CALLBACK
from rackassign.spark.kafka_clients import new_consumer
from rackassign.spark.splits import OffsetRange

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = logging.getLogger(__name__)

GROUP = "rackassign-spark"
"""librdkafka requires a group ID. The source never joins a group and never commits offsets."""

_FIRST_REQUEST_RECORDS = 64
_MAX_REQUEST_RECORDS = 500
"""Records at a time. The next record can be large without notice, and 500 of Kafka's largest are half a gigabyte."""

_GROWTH = 8
_CONSUME_TIMEOUT_S = 0.5
_REQUEST_TIMEOUT_S = 30.0


class DataLossError(RackassignError):
    """Records that were planned to be read no longer exist."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading ranges.

    Args:
        poll_timeout_s: Seconds without progress after which a read fails.
        fail_on_loss: Whether lost records are an error. If not, they are omitted with a warning.
        batch_rows: The highest number of records at a time.
        batch_bytes: The highest number of bytes of keys and values at a time, unless a single record has more.
        headers: Whether bytes of headers count as well.
        high_watermark: Returns the high watermark of a partition, which includes open transactions. None with
            `read_uncommitted`, where all reads end there.
    """

    poll_timeout_s: float = 60.0
    fail_on_loss: bool = True
    batch_rows: int = 10_000
    batch_bytes: int = 16 * 2**20
    headers: bool = False
    high_watermark: Callable[[TopicPartition], int] | None = None


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


def check_properties(client: Mapping[str, str], fetch_bytes: int) -> None:
    """Create a consumer and close it: librdkafka rejects some properties for a consumer only.

    Args:
        client: The properties that the user has set.
        fetch_bytes: The largest size of fetches.

    Raises:
        ConfigError: librdkafka rejects a property.
    """
    # Without brokers it does not connect, and needs no token.
    alone = {name: value for name, value in client.items() if name not in {"bootstrap.servers", TOKEN_CALLBACK}}
    new_consumer(consumer_properties(alone, None, fetch_bytes)).close()


def read(
    consumer: Consumer, offsets: OffsetRange, options: ReadOptions, record_bytes: int = 0
) -> Iterator[list[Message]]:
    """Yield the records of a range, in order, as they arrive: some hundred at a time.

    A caller should keep what it needs of them and not the records themselves: memory that is in use again at once is in
    the processor's cache.

    Args:
        consumer: A consumer with `consumer_properties`. The partition stays assigned to it afterwards.
        offsets: The range to read.
        options: Options for reading.
        record_bytes: The estimated size of a record; 0 if unknown.

    Raises:
        DataLossError: Records are lost, and `fail_on_loss` is set.
        KafkaUnavailableError: No records arrive within the timeout, or Kafka refuses the request.
    """
    return _RangeReader(consumer, offsets, options, record_bytes).records()


def end_offset(client: Mapping[str, str], tp: TopicPartition) -> int:
    """Return the high watermark of a partition, which includes open transactions.

    Args:
        client: The properties that the user has set.
        tp: The partition.

    Raises:
        KafkaUnavailableError: Kafka does not respond with an offset.
    """
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use
    from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

    consumer = new_consumer({"group.id": GROUP, **client, "isolation.level": "read_uncommitted"})
    try:
        return int(consumer.get_watermark_offsets(KafkaPartition(*tp), timeout=_REQUEST_TIMEOUT_S, cached=False)[1])
    except KafkaException as error:
        raise KafkaUnavailableError(f"{tp.topic}-{tp.partition}: cannot request the end offset: {error}") from None
    finally:
        consumer.close()


class _RangeReader:
    def __init__(self, consumer: Consumer, offsets: OffsetRange, options: ReadOptions, record_bytes: int) -> None:
        self._consumer = consumer
        self._offsets = offsets
        self._options = options
        self._position = offsets.start
        self._request_size = max(
            1, min(_FIRST_REQUEST_RECORDS, options.batch_bytes // max(1, record_bytes), options.batch_rows)
        )
        self._last_error = ""

    def records(self) -> Iterator[list[Message]]:
        self._seek(self._position)
        deadline = time.monotonic() + self._options.poll_timeout_s
        seen = 0
        while self._position < self._offsets.end:
            before = self._position
            got = self._consumer.consume(self._next_request_size(seen), _CONSUME_TIMEOUT_S)
            records = [message for message in got if message.error() is None]
            if records:
                self._position = self._offset(records[-1]) + 1
                while records and self._offset(records[-1]) >= self._offsets.end:
                    records.pop()
                seen += len(records)
                if records:
                    yield from self._chunks(records)
            if len(records) < len(got):
                for message in got:
                    self._handle_event(message)
            if self._position > before:
                # Computed here because the caller may process the yielded batches for any length of time.
                deadline = time.monotonic() + self._options.poll_timeout_s
            elif time.monotonic() >= deadline:
                raise KafkaUnavailableError(
                    self._message(f"no records received within {self._options.poll_timeout_s:g} s")
                )

    def _next_request_size(self, seen: int) -> int:
        """Return how many records to request: at most as many as the rest of the range is expected to contain.

        The estimate uses the density of records so far. librdkafka fetches more as soon as records leave its queue, so
        a request for records behind the end would fetch past the end.
        """
        left = self._offsets.end - self._position
        done = self._position - self._offsets.start
        expected = -(-left * seen // done) if done else left
        return max(1, min(self._request_size, expected))

    def _chunks(self, records: list[Message]) -> Iterator[list[Message]]:
        """Yield records with no more bytes than allowed at a time; adapt the number of records to request next."""
        options = self._options
        # No loop with several calls for each record, which would take as long as receiving the record.
        size = sum(map(len, records)) + sum([len(key) for message in records if (key := message.key())])
        if options.headers:
            size += sum(map(_header_bytes, records))
        if size <= options.batch_bytes:
            yield records
        else:
            yield from _split(records, options)
        fitting = options.batch_bytes * len(records) // size if size else options.batch_rows
        self._request_size = max(
            1, min(self._request_size * _GROWTH, fitting, options.batch_rows, _MAX_REQUEST_RECORDS)
        )

    def _handle_event(self, message: Message) -> None:
        """Handle an event or error that librdkafka returns in place of a record."""
        from confluent_kafka import KafkaError  # noqa: PLC0415 - loaded on first use

        error = message.error()
        if error is None:
            return
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            # The offsets up to the end of the log that are not records have been passed.
            self._position = max(self._position, self._offset(message))
            if self._position < self._offsets.end:
                self._check_end()
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001 - its public name
            self._out_of_range()
        elif error.fatal() or code in {
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
            KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
        }:
            raise KafkaUnavailableError(self._message(error.str()))
        else:
            # librdkafka retries.
            self._last_error = error.str()

    def _check_end(self) -> None:
        """Determine whether the log ends before the range does, or only that of a follower that lags behind."""
        _, end = self._log_bounds()
        if end >= self._offsets.end:
            return
        if (
            self._options.high_watermark is not None
            and self._options.high_watermark(self._offsets.tp) >= self._offsets.end
        ):
            self._last_error = f"a transaction is open at offset {end}"
            return
        self._report_loss(f"the log ends at offset {end}")
        self._position = self._offsets.end

    def _out_of_range(self) -> None:
        start, end = self._log_bounds()
        if start > self._position:
            self._report_loss(f"the log starts at offset {start}")
        elif end < self._offsets.end:
            self._report_loss(f"the log ends at offset {end}")
            start = self._offsets.end
        self._position = min(max(self._position, start), self._offsets.end)
        if self._position < self._offsets.end:
            self._seek(self._position)

    def _log_bounds(self) -> tuple[int, int]:
        """Request the start and the end of the log from the leader."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use
        from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

        try:
            bounds: tuple[int, int] = self._consumer.get_watermark_offsets(
                KafkaPartition(*self._offsets.tp), timeout=_REQUEST_TIMEOUT_S, cached=False
            )
        except KafkaException as error:
            raise KafkaUnavailableError(self._message(str(error))) from None
        return bounds

    def _report_loss(self, what: str) -> None:
        text = self._message(what)
        if self._options.fail_on_loss:
            raise DataLossError(f"{text}: records are lost; failOnDataLoss=false skips them")
        log.warning("%s: records are lost and skipped", text)

    def _seek(self, offset: int) -> None:
        from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

        self._consumer.assign([KafkaPartition(*self._offsets.tp, offset)])

    def _message(self, what: str) -> str:
        tp, offsets = self._offsets.tp, self._offsets
        last_error = f"; last error: {self._last_error}" if self._last_error else ""
        return (
            f"{tp.topic}-{tp.partition}, offsets {offsets.start} to {offsets.end}, at {self._position}: "
            f"{what}{last_error}"
        )

    @staticmethod
    def _offset(message: Message) -> int:
        offset = message.offset()
        # Every record and every end-of-partition event has an offset; the type allows None.
        return -1 if offset is None else offset


def _split(records: list[Message], options: ReadOptions) -> Iterator[list[Message]]:
    """Yield records in parts with as many bytes as allowed, or with one record."""
    part: list[Message] = []
    size = 0
    for message in records:
        more = len(message) + len(message.key() or b"") + (_header_bytes(message) if options.headers else 0)
        if part and size + more > options.batch_bytes:
            yield part
            part, size = [], 0
        part.append(message)
        size += more
    yield part


def _header_bytes(message: Message) -> int:
    """Return the bytes of a record's headers; 0 if they cannot be decoded."""
    with suppress(SystemError, UnicodeDecodeError):
        # A list in practice, although the client's type annotations allow other types.
        found: list[Any] = list(message.headers() or ())
        return sum(len(key) + len(value or b"") for key, value in found)
    return 0
