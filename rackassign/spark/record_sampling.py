"""The size of records and batches of a topic, sampled by one short read before a query is planned."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rackassign.spark.range_reader import consumer_properties
from rackassign.spark.splits import OffsetRange

if TYPE_CHECKING:
    from confluent_kafka import Consumer
from rackassign.spark.fetch_size import ONE_BATCH, UNKNOWN, RecordStats

_ENOUGH_FETCHES = 8


_ENOUGH_BYTES = 256 * 2**10


_MOST_S = 3.0


_STATISTICS_MS = 20


def sample(client: Mapping[str, str], wanted: OffsetRange) -> RecordStats:
    """Read the first batches of a range, one by one: eight, or a quarter of a megabyte, or what comes in time.

    What a topic is like only decides how much is read at once, so that a guess is no error: where nothing comes, the
    answer is `UNKNOWN`.

    Args:
        client: Properties for librdkafka.
        wanted: A range that is about to be read.
    """
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - not before it is needed

    seen = _Statistics()
    consumer = Consumer({
        **consumer_properties(client, None, ONE_BATCH),
        "statistics.interval.ms": _STATISTICS_MS,
        "stats_cb": seen,
    })  # fmt: skip
    try:
        # Known before it is read, so that it does not count as read.
        consumer.list_topics(wanted.place.topic, timeout=_MOST_S)
        seen.await_next(consumer)
        before = seen.received
        consumer.assign([TopicPartition(*wanted.place, wanted.start)])
        deadline = time.monotonic() + _MOST_S
        while time.monotonic() < deadline and not seen.enough(before):
            got = consumer.consume(100, _STATISTICS_MS / 1000)
            # The last of the range, or the end of the log: there is no more to see.
            if any(message.error() is not None or (message.offset() or 0) >= wanted.end - 1 for message in got):
                break
        seen.await_next(consumer)
        size = seen.received - before
    finally:
        consumer.close()
    return RecordStats(size / seen.records, size / seen.fetches) if seen.records and seen.fetches else UNKNOWN


class _Statistics:
    """What librdkafka has counted."""

    def __init__(self) -> None:
        self.received = 0
        self.fetches = 0
        self.records = 0
        self._count = 0

    def __call__(self, text: str) -> None:
        said = json.loads(text)
        brokers: list[dict[str, Any]] = list(said["brokers"].values())
        self.received = sum(broker["rxbytes"] for broker in brokers)
        # One that is on its way has brought nothing yet.
        self.fetches = sum(max(0, broker["req"].get("Fetch", 0) - broker["waitresp_cnt"]) for broker in brokers)
        self.records = sum(
            partition["rxmsgs"] for topic in said["topics"].values() for partition in topic["partitions"].values()
        )
        self._count += 1

    def enough(self, before: int) -> bool:
        """Tell whether what came since then says what the topic is like."""
        return self.fetches >= _ENOUGH_FETCHES or (self.records > 0 and self.received - before >= _ENOUGH_BYTES)

    def await_next(self, consumer: Consumer) -> None:
        count, deadline = self._count, time.monotonic() + _MOST_S
        while self._count == count and time.monotonic() < deadline:
            consumer.consume(1, _STATISTICS_MS / 1000)
