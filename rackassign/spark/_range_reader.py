"""Reads ranges of some partitions with librdkafka and fetches little more than the ranges.

The size of a fetch is decided when the range is planned (`fetch_size`). This module passes it to librdkafka, and never
requests more records than the ranges contain.

Several ranges are read at the same time, because a consumer that reads one after the other waits in between: the fetch
behind the end of a range waits at the broker for records to come, and the next fetch waits for its response.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.spark._kafka_clients import new_consumer, without_brokers
from rackassign.spark._splits import OffsetRange

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


log = logging.getLogger(__name__)

GROUP = "rackassign-spark"
"""librdkafka requires a group ID. The source never joins a group and never commits offsets."""

_FIRST_REQUEST_RECORDS = 64
_MAX_REQUEST_RECORDS = 500
"""Records at a time. The next record can be large without notice, and 500 of Kafka's largest are half a gigabyte."""

_GROWTH = 8
_CONSUME_TIMEOUT_S = 0.02
"""Seconds to wait for all records that were requested: fewer may come, if offsets are not records."""

_FETCH_WAIT_MS = 10
"""Milliseconds that a broker waits for records. The records of a range exist; what is waited for is the end of the log,
which is reported in place of records that a range need not have: those of transaction markers, or compacted ones."""

_REQUEST_TIMEOUT_S = 30.0


_PARTITION = methodcaller("partition")


class DataLossError(RackassignError):
    """Records that were planned to be read no longer exist."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    # Seconds without progress after which a read fails.
    poll_timeout_s: float = 60.0
    # Whether lost records are an error. If not, they are omitted with a warning.
    fail_on_loss: bool = True
    batch_rows: int = 10_000
    # At a time at most, of keys and values and, if rows have them, headers, unless a single record has more.
    batch_bytes: int = 16 * 2**20
    headers: bool = False
    # Returns the high watermark of a partition, which includes open transactions. None with `read_uncommitted`, where
    # all reads end there.
    high_watermark: Callable[[TopicPartition], int] | None = None


def consumer_properties(client: Mapping[str, str], rack: str | None, fetch_bytes: int) -> dict[str, Any]:
    return {
        "group.id": GROUP,
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
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
    """Create a consumer and close it: librdkafka rejects some properties for a consumer only."""
    new_consumer(consumer_properties(without_brokers(client), None, fetch_bytes)).close()


def read(
    consumer: Consumer, ranges: Sequence[OffsetRange], options: ReadOptions, record_bytes: int = 0
) -> Iterator[list[Message]]:
    """Yield the records of ranges as they arrive: some hundred at a time, each time of one partition and in order.

    A caller should keep what it needs of them and not the records themselves: memory that is in use again at once is in
    the processor's cache. The ranges are of different partitions. The consumer has `consumer_properties`, and no
    assignment afterwards.
    """
    return _RangesReader(consumer, ranges, options, record_bytes).records()


def end_offset(client: Mapping[str, str], tp: TopicPartition) -> int:
    """Return the high watermark of a partition, which includes open transactions."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use
    from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

    consumer = new_consumer({"group.id": GROUP, **client, "isolation.level": "read_uncommitted"})
    try:
        return int(consumer.get_watermark_offsets(KafkaPartition(*tp), timeout=_REQUEST_TIMEOUT_S, cached=False)[1])
    except KafkaException as error:
        raise KafkaUnavailableError(f"{tp.topic}-{tp.partition}: cannot request the end offset: {error}") from None
    finally:
        consumer.close()


@dataclass(slots=True)
class _OpenRange:
    offsets: OffsetRange
    # The offset behind the last one that was received.
    position: int
    records: int = 0

    def is_complete(self) -> bool:
        return self.position >= self.offsets.end

    def expected(self) -> int:
        """Estimate the number of records in the rest of the range, by the density of records so far."""
        left = self.offsets.end - self.position
        done = self.position - self.offsets.start
        return -(-left * self.records // done) if done else left


class _RangesReader:
    def __init__(
        self, consumer: Consumer, ranges: Sequence[OffsetRange], options: ReadOptions, record_bytes: int
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._open = {each.tp: _OpenRange(each, each.start) for each in ranges if len(each)}
        # Each record is asked for no more than what differs, because a call takes a part of the time of receiving it.
        self._only = next(iter(self._open.values())) if len(self._open) == 1 else None
        topics = {tp.topic for tp in self._open}
        self._topic = topics.pop() if len(topics) == 1 else ""
        first = _MAX_REQUEST_RECORDS if record_bytes else _FIRST_REQUEST_RECORDS
        self._request_size = max(1, min(first, options.batch_bytes // max(1, record_bytes), options.batch_rows))
        self._last_error = ""
        self._moved = False
        """Whether a range continues at another offset than the consumer does."""

    def records(self) -> Iterator[list[Message]]:
        if self._open:
            self._assign()
        deadline = time.monotonic() + self._options.poll_timeout_s
        while self._open:
            got = self._consumer.consume(self._next_request_size(), _CONSUME_TIMEOUT_S)
            before = {tp: each.position for tp, each in self._open.items()}
            received = [self._receive(each, messages) for each, messages in self._by_range(got)]
            has_progress = any(each.position > before[tp] for tp, each in self._open.items())
            # Now, because the caller may process what is yielded for any length of time.
            self._end_complete()
            if received:
                yield from self._chunks([records for records in received if records])
            if has_progress:
                deadline = time.monotonic() + self._options.poll_timeout_s
            elif time.monotonic() >= deadline:
                raise KafkaUnavailableError(
                    self._message(
                        next(iter(self._open.values())),
                        f"no records received within {self._options.poll_timeout_s:g} s",
                    )
                )

    def _by_range(self, messages: list[Message]) -> Iterator[tuple[_OpenRange, list[Message]]]:
        """Yield messages with their range, as many as follow each other."""
        if self._only is not None:
            yield self._only, messages
            return
        for place, group in itertools.groupby(messages, _PARTITION if self._topic else _place_of):
            topic, partition = (self._topic, place) if self._topic else place
            if topic is None or partition is None:
                # An error of the topic or of the client, which concerns every range.
                each = next((other for other in self._open.values() if not other.is_complete()), None)
            else:
                each = self._open.get(TopicPartition(topic, partition))
            if each is not None:
                yield each, list(group)

    def _receive(self, each: _OpenRange, messages: list[Message]) -> list[Message]:
        """Advance a range by messages of it, and return the records that belong to it."""
        records = [message for message in messages if message.error() is None]
        count = len(records)
        if records:
            each.position = self._offset(records[-1]) + 1
            while records and self._offset(records[-1]) >= each.offsets.end:
                records.pop()
            each.records += len(records)
        if count < len(messages):
            for message in messages:
                if not each.is_complete():
                    self._handle_event(each, message)
        return records

    def _next_request_size(self) -> int:
        """Return how many records to request: at most as many as the rest of the ranges is expected to contain."""
        # librdkafka fetches as soon as records leave its queue: a request for records behind the end would fetch them.
        expected = sum(each.expected() for each in self._open.values())
        return max(1, min(self._request_size, expected))

    def _chunks(self, received: list[list[Message]]) -> Iterator[list[Message]]:
        """Yield records with no more bytes than allowed at a time; adapt the number of records to request next."""
        options = self._options
        total = 0
        for records in received:
            # No loop with several calls for each record, which would take as long as receiving the record.
            size = sum(map(len, records)) + sum([len(key) for message in records if (key := message.key())])
            if options.headers:
                size += sum(map(_header_bytes, records))
            if size <= options.batch_bytes:
                yield records
            else:
                yield from _split(records, options)
            total += size
        fitting = options.batch_bytes * sum(map(len, received)) // total if total else options.batch_rows
        self._request_size = max(
            1, min(self._request_size * _GROWTH, fitting, options.batch_rows, _MAX_REQUEST_RECORDS)
        )

    def _end_complete(self) -> None:
        """Stop to fetch ranges that are complete, and continue ranges that have moved at their new offsets."""
        from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

        complete = [tp for tp, each in self._open.items() if each.is_complete()]
        for tp in complete:
            del self._open[tp]
        if not self._open:
            self._consumer.unassign()
        elif self._moved:
            self._assign()
        elif complete:
            self._consumer.incremental_unassign([KafkaPartition(*tp) for tp in complete])

    def _assign(self) -> None:
        """Fetch the open ranges from their positions on; what is in the queue of the consumer is dropped."""
        from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

        self._moved = False
        self._consumer.assign([KafkaPartition(*tp, each.position) for tp, each in self._open.items()])

    def _handle_event(self, each: _OpenRange, message: Message) -> None:
        """Handle an event or error that librdkafka returns in place of a record."""
        from confluent_kafka import KafkaError  # noqa: PLC0415 - loaded on first use

        error = message.error()
        if error is None:
            return
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            # The offsets up to the end of the log that are not records have been passed.
            each.position = max(each.position, self._offset(message))
            if not each.is_complete():
                self._check_end(each)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001 - its public name
            self._out_of_range(each)
        elif error.fatal() or code in {
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
            KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
        }:
            raise KafkaUnavailableError(self._message(each, error.str()))
        else:
            # librdkafka retries.
            self._last_error = error.str()

    def _check_end(self, each: _OpenRange) -> None:
        """Determine whether the log ends before the range does, or only that of a follower that lags behind."""
        _, end = self._log_bounds(each)
        if end >= each.offsets.end:
            return
        if (
            self._options.high_watermark is not None
            and self._options.high_watermark(each.offsets.tp) >= each.offsets.end
        ):
            self._last_error = f"a transaction is open at offset {end}"
            return
        self._report_loss(each, f"the log ends at offset {end}")
        each.position = each.offsets.end

    def _out_of_range(self, each: _OpenRange) -> None:
        start, end = self._log_bounds(each)
        if start > each.position:
            self._report_loss(each, f"the log starts at offset {start}")
        elif end < each.offsets.end:
            self._report_loss(each, f"the log ends at offset {end}")
            start = each.offsets.end
        each.position = min(max(each.position, start), each.offsets.end)
        # The consumer has ended to fetch the partition.
        self._moved = True

    def _log_bounds(self, each: _OpenRange) -> tuple[int, int]:
        """Request the start and the end of the log from the leader."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use
        from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

        try:
            bounds: tuple[int, int] = self._consumer.get_watermark_offsets(
                KafkaPartition(*each.offsets.tp), timeout=_REQUEST_TIMEOUT_S, cached=False
            )
        except KafkaException as error:
            raise KafkaUnavailableError(self._message(each, str(error))) from None
        return bounds

    def _report_loss(self, each: _OpenRange, what: str) -> None:
        text = self._message(each, what)
        if self._options.fail_on_loss:
            raise DataLossError(f"{text}: records are lost; failOnDataLoss=false skips them")
        log.warning("%s: records are lost and skipped", text)

    def _message(self, each: _OpenRange, what: str) -> str:
        tp, offsets = each.offsets.tp, each.offsets
        last_error = f"; last error: {self._last_error}" if self._last_error else ""
        return (
            f"{tp.topic}-{tp.partition}, offsets {offsets.start} to {offsets.end}, at {each.position}: "
            f"{what}{last_error}"
        )

    @staticmethod
    def _offset(message: Message) -> int:
        offset = message.offset()
        # Every record and every end-of-partition event has an offset; the type allows None.
        return -1 if offset is None else offset


def _place_of(message: Message) -> tuple[Any, Any]:
    return message.topic(), message.partition()


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
