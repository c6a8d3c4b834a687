"""How much to fetch at once, so that little of what is received is thrown away.

Pure: neither Spark nor Kafka.

Theory of operation
-------------------
A broker answers a fetch with whole record batches and then cuts: the piece of a batch at the end of the answer is
received, billed and thrown away; only a first batch that is larger than the limit comes whole, and alone. librdkafka
fetches on while the application works, past the end of any range. So there are two losses for a range of W bytes in
batches of b bytes that is fetched f bytes at a time:

* *Cut batches*: half a batch per fetch on average, b / 2f of everything; nothing if f <= b.
* *Past the end*: what the last fetches hold behind the end. librdkafka is told to ask only when it has nothing left
  (`queued.min.messages` = 1). As long as the last answer holds more than the range, its queue never runs dry and
  nothing further is asked for, whatever the timing: at most one fetch, and half of one on average: f / 2W.

With f <= W / 16 the second is at most 6 %, 3 % on average, and with f >= 6 b the first is at most 8 %. Where both
cannot be had, because the range has less than some hundred batches, they are fetched one by one (f = 1): nothing is
lost, at the price of a round trip for each. The same is done with batches so large that one of them is worth a round
trip.
"""

from __future__ import annotations

from dataclasses import dataclass

ONE_BATCH = 1
"""As a limit of bytes: one batch at a time, however large."""

LARGEST_FETCH = 4 * 2**20
"""More than this is not faster, and is memory in each worker."""

_FETCHES_PER_RANGE = 16
_BATCHES_PER_FETCH = 6
_LARGE_BATCH = 128 * 2**10


@dataclass(frozen=True, slots=True)
class RecordStats:
    """What records of a topic are like on the wire.

    Args:
        record: Mean bytes of a record, as compressed in its batch.
        batch: Mean bytes of a record batch.
    """

    record: float
    batch: float


UNKNOWN = RecordStats(1024.0, 16384.0)
"""For a topic nobody has looked at: the Java producer's batches."""


def fetch_size(records: int, grain: RecordStats, most: int = LARGEST_FETCH) -> int:
    """Return the limit of bytes for the fetches of a range.

    Args:
        records: How many offsets the range has.
        grain: What its records are like.
        most: The largest limit.

    Returns:
        A power of two, so that ranges of about the same size are read by the same consumer.
    """
    wanted = max(ONE_BATCH, int(min(most, records * grain.record / _FETCHES_PER_RANGE)))
    rounded = 1 << (wanted.bit_length() - 1)
    return ONE_BATCH if grain.batch >= _LARGE_BATCH or rounded < _BATCHES_PER_FETCH * grain.batch else rounded
