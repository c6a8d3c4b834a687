"""Samples the sizes of a topic's records and record batches with one short read before a query is planned."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rackassign.errors import KafkaUnavailableError
from rackassign.spark.fetch_size import ONE_BATCH, UNKNOWN, RecordStats
from rackassign.spark.kafka_clients import new_consumer
from rackassign.spark.range_reader import consumer_properties
from rackassign.spark.splits import OffsetRange
from rackassign.util.librdkafka_statistics import ClientStatistics, await_reports

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_MAX_FETCHES = 8
_MAX_BYTES = 256 * 2**10
_MAX_S = 3.0
_STATISTICS_MS = 20


def sample(client: Mapping[str, str], offsets: OffsetRange) -> RecordStats:
    """Read the first record batches of a range one by one, and return their mean sizes.

    The read ends after eight batches, after a quarter of a megabyte, or after three seconds. The sizes only determine
    the size of fetches, so an estimate is sufficient: if no records arrive, the result is `UNKNOWN`.

    Args:
        client: Properties for librdkafka.
        offsets: A range that is about to be read.

    Raises:
        ConfigError: librdkafka rejects a property for a consumer.
        KafkaUnavailableError: Kafka does not respond soon.
    """
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415 - loaded on first use

    seen = _Statistics()
    consumer = new_consumer({
        **consumer_properties(client, None, ONE_BATCH),
        "statistics.interval.ms": _STATISTICS_MS,
        "stats_cb": seen,
    })  # fmt: skip
    try:
        # Metadata is requested before the read, so that its bytes do not count.
        consumer.list_topics(offsets.tp.topic, timeout=_MAX_S)
        seen.await_current(consumer)
        before = seen.received
        consumer.assign([TopicPartition(*offsets.tp, offsets.start)])
        deadline = time.monotonic() + _MAX_S
        while time.monotonic() < deadline and not seen.enough(before):
            got = consumer.consume(100, _STATISTICS_MS / 1000)
            # This is the last record of the range, or the end of the log.
            if any(message.error() is not None or (message.offset() or 0) >= offsets.end - 1 for message in got):
                break
        seen.await_current(consumer)
        size = seen.received - before
    except KafkaException as error:
        raise KafkaUnavailableError(error.args[0].str()) from None
    finally:
        consumer.close()
    return RecordStats(size / seen.records, size / seen.fetches) if seen.records and seen.fetches else UNKNOWN


class _Statistics:
    """A callback that collects the statistics of librdkafka."""

    def __init__(self) -> None:
        self.received = 0
        self.fetches = 0
        self.records = 0
        self._count = 0

    def __call__(self, text: str) -> None:
        reported = ClientStatistics.from_json(text)
        self.received = sum(broker.received_bytes for broker in reported.brokers)
        # A request that awaits its response has returned no bytes yet.
        self.fetches = sum(max(0, broker.fetches - broker.in_flight) for broker in reported.brokers)
        self.records = sum(partition.received_records for partition in reported.partitions)
        self._count += 1

    def enough(self, before: int) -> bool:
        """Return whether the data received since then is a sufficient sample."""
        return self.fetches >= _MAX_FETCHES or (self.records > 0 and self.received - before >= _MAX_BYTES)

    def await_current(self, consumer: Consumer) -> None:
        """Wait for statistics of all requests so far; records that arrive meanwhile are dropped."""
        await_reports(lambda wait_s: consumer.consume(1, wait_s), lambda: self._count, timeout_s=_MAX_S)
