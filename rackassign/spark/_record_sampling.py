"""Samples the sizes of a topic's records and record batches with two short reads before a query is planned.

librdkafka does not report the size of a record batch. Its statistics count received bytes, but they describe each
partition of the topic: with thousands of partitions, one report takes a tenth of a second, and `consume` does not
return while reports are waiting. So sizes are computed from the responses to fetches, which librdkafka queues whole:

* With a limit of one byte, a response has one record batch. Its records give the number of records in a batch, and
  their decompressed size.
* With a larger limit, a response has as many whole batches as the limit allows, compressed. So the limit, divided by
  the number of records, is the compressed size of a record.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackassign.errors import KafkaUnavailableError
from rackassign.spark._fetch_size import ONE_BATCH, UNKNOWN, RecordStats
from rackassign.spark._kafka_clients import new_consumer
from rackassign.spark._range_reader import consumer_properties
from rackassign.spark._splits import OffsetRange

if TYPE_CHECKING:
    from confluent_kafka import Message

_MAX_BATCHES = 8
_MAX_BYTES = 256 * 2**10
"""The limit of the larger fetch. With this or more in one-batch responses, further ones are not read."""

_MAX_S = 3.0
_POLL_S = 0.02
_MOST_RECORDS = 100_000
_BATCH_HEADER, _RECORD_HEADER = 61, 8
"""Bytes beside keys and values: of a record batch, and at least of a record."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """What some responses have contained: offsets up to the last record, and decompressed bytes."""

    responses: int
    offsets: int
    size: int
    # Whether the range has no further records.
    complete: bool


def sample(client: Mapping[str, str], offsets: OffsetRange) -> RecordStats:
    """Read the first record batches of a range one by one, then several at once, and return their mean sizes."""
    # The reads end after eight batches, after a quarter of a megabyte each, or after three seconds together. The sizes
    # only determine the size of fetches, so an estimate is sufficient, and `UNKNOWN` if there are no records.
    deadline = time.monotonic() + _MAX_S
    batches = _read(client, offsets, ONE_BATCH, _MAX_BATCHES, deadline)
    if not batches.responses:
        return UNKNOWN
    record = batches.size / batches.offsets
    in_batch = batches.offsets / batches.responses
    if not batches.complete:
        several = _read(client, offsets, _MAX_BYTES, 1, deadline)
        # A single batch may be larger than the limit. Of several, the limit cuts the last one in half, on average.
        if several.offsets >= 2 * in_batch:
            record = min(record, _MAX_BYTES / (several.offsets + in_batch / 2))
    return RecordStats(record, record * in_batch)


def _read(client: Mapping[str, str], offsets: OffsetRange, fetch_bytes: int, most: int, deadline: float) -> _Sample:
    """Read so many responses of limited size from the start of a range, until a deadline of the monotonic clock."""
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - loaded on first use

    consumer = new_consumer(consumer_properties(client, None, fetch_bytes))
    sampled = _Sample(0, 0, 0, complete=False)
    try:
        consumer.assign([TopicPartition(*offsets.tp, offsets.start)])
        while sampled.responses < most and sampled.size < _MAX_BYTES and not sampled.complete:
            if time.monotonic() >= deadline:
                break
            got = consumer.consume(1, _POLL_S)
            # The records of a response are queued at once, and the next fetch is sent when none is left.
            got += consumer.consume(_MOST_RECORDS, 0.0) if got else []
            sampled = _extended(sampled, got, offsets)
    except KafkaException as error:
        raise KafkaUnavailableError(error.args[0].str()) from None
    finally:
        consumer.close()
    if not sampled.responses and not sampled.complete:
        raise KafkaUnavailableError(f"no records received within {_MAX_S:g} s")
    return sampled


def _extended(found: _Sample, got: list[Message], offsets: OffsetRange) -> _Sample:
    """Return a sample with the messages of one more response."""
    from confluent_kafka import KafkaError  # noqa: PLC0415 - loaded on first use

    records = [message for message in got if message.error() is None]
    errors = [error for message in got if (error := message.error()) is not None]
    ended = any(error.code() == KafkaError._PARTITION_EOF for error in errors)  # noqa: SLF001 - its public name
    if errors and not ended and not records:
        raise KafkaUnavailableError(errors[0].str())
    if not records:
        return _Sample(found.responses, found.offsets, found.size, complete=ended)
    # Kafka's offsets increase, and a range of compacted records has gaps: sizes are those of an offset on average.
    behind = (records[-1].offset() or 0) + 1
    size = sum(_RECORD_HEADER + len(message) + len(message.key() or b"") for message in records) + _BATCH_HEADER
    return _Sample(
        found.responses + 1, behind - offsets.start, found.size + size, complete=ended or behind >= offsets.end
    )
