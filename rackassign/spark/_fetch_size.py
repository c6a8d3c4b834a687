"""Computes the size of fetches for a range, so that few of the received bytes are discarded.

This module uses neither Spark nor a Kafka client.

Theory of operation
-------------------
A broker fills a fetch response with record batches up to the limit, and truncates the last one. The truncated batch is
received, billed and discarded. Only a first batch that is larger than the limit is sent whole, and alone. librdkafka
continues to fetch while the application processes records, also past the end of a range. So there are two losses for a
range of W bytes in batches of b bytes that is fetched f bytes at a time:

* *Truncated batches*: half a batch per fetch on average, which is b / 2f of all bytes. The loss is zero if f <= b.
* *Past the end*: the part of the last fetches behind the end of the range. With `queued.min.messages` = 1 librdkafka
  fetches only when its queue is empty. If the last response contains more than the rest of the range, the queue never
  becomes empty, and no further fetch is sent, whatever the timing. So the loss is at most one fetch, and half of one on
  average: f / 2W.

With f <= W / 16 the second loss is at most 6 %, and 3 % on average. With f >= 6 b the first is at most 8 %. If both
conditions cannot be met, the second one is relaxed to W / 8. A range with fewer than 48 to 96 batches is fetched by
batch (f = 1). Nothing is lost then, but each batch costs a round trip, and a response has a batch of one range only.
Batches so large that one is worth a round trip are also fetched one by one.

Behind a range that ends with the log there is nothing to fetch, except for what is written after the range was planned.
So the second loss is none in most cases, and f >= 6 b is enough. A small range of this kind is fetched at once. A
stream of many partitions consists of such ranges, and a consumer receives those of many partitions with one response.
"""

from __future__ import annotations

from dataclasses import dataclass

ONE_BATCH = 1
"""The limit in bytes with which a response contains one record batch, however large."""

MAX_FETCH_BYTES = 4 * 2**20
"""The highest limit in bytes. A larger one is not faster, and takes more memory in each worker."""

SMALL_RANGE_BYTES = 64 * 2**10
"""The size up to which a range at the end of the log is received with one fetch."""

_FETCHES_PER_RANGE = 16
_LEAST_FETCHES_PER_RANGE = 8
_BATCHES_PER_FETCH = 6
_LARGE_BATCH = 128 * 2**10


@dataclass(frozen=True, slots=True)
class RecordStats:
    """The mean sizes in bytes of a topic's records, as compressed in their batch, and of its record batches."""

    record: float
    batch: float


UNKNOWN = RecordStats(1024.0, 16384.0)
"""The assumption for a topic that was not sampled: the batch size of the Java producer."""


def fetch_size(records: int, stats: RecordStats, max_bytes: int = MAX_FETCH_BYTES, *, ends_log: bool = False) -> int:
    """Return the limit in bytes for fetches: a power of two, so that similar ranges can use the same consumer."""
    size = records * stats.record
    if ends_log and size <= SMALL_RANGE_BYTES:
        return min(SMALL_RANGE_BYTES, _power_of_two(max_bytes))
    if stats.batch >= _LARGE_BATCH:
        return ONE_BATCH
    least = _BATCHES_PER_FETCH * stats.batch
    fitting = _power_of_two(min(max_bytes, size / _FETCHES_PER_RANGE))
    if fitting >= least:
        return fitting
    above = 2 * _power_of_two(least)
    return above if above <= max_bytes and (ends_log or above <= size / _LEAST_FETCHES_PER_RANGE) else ONE_BATCH


def _power_of_two(size: float) -> int:
    """Return the largest power of two that is not above a size, and 1 for less."""
    return 1 << (max(1, int(size)).bit_length() - 1)
