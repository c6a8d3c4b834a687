"""What a bounded read receives for what it needs, on real brokers here: our settings beside others of librdkafka.

A stream that catches up reads ranges that end in the middle of the log. Whatever is fetched past their end, and each
batch that a broker cuts off at the limit of a fetch, is received and thrown away. What counts as needed is the wire
size of the record batches that hold the range, so 1.00 is the least there is. Speed is that of one consumer with all of
the machine's noise; only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer

from benchmarks.tables import Sheet, show
from rackassign.model import TopicPartition
from rackassign.spark._fetch_size import fetch_size
from rackassign.spark._range_reader import ReadOptions, consumer_properties, read
from rackassign.spark._record_sampling import sample
from rackassign.spark._splits import OffsetRange
from rackassign.testing import LocalCluster, create_topic
from tests.helpers.kafka.spark_harness import Received, fill, wire_size

RECORD = 1000
PARTITIONS = 3
ROUNDS = 3

OTHERS: dict[str, dict[str, Any]] = {
    "librdkafka's defaults": {
        "fetch.message.max.bytes": 2**20,
        "queued.min.messages": 100_000,
        "fetch.queue.backoff.ms": 1000,
    },
    "4 MiB fetches, 16 MiB queue": {
        "fetch.message.max.bytes": 4 * 2**20,
        "queued.min.messages": 100_000,
        "queued.max.messages.kbytes": 16 * 1024,
        "fetch.queue.backoff.ms": 5,
    },
    "a sixteenth of the range, queue as it is": {"queued.min.messages": 100_000, "fetch.queue.backoff.ms": 5},
    "1 MiB fetches, one at a time": {"fetch.message.max.bytes": 2**20},
    "64 KiB fetches, one at a time": {"fetch.message.max.bytes": 2**16},
    "one batch at a time": {"fetch.message.max.bytes": 1},
}
"""What else could be set, over our settings."""


@dataclass(frozen=True, slots=True)
class Figures:
    """How ranges were read."""

    # Bytes received for each that was needed.
    received: float
    # Bytes of values a second.
    speed: float


def measured(cluster: LocalCluster, topic: str, size: int, more: dict[str, Any]) -> Figures:
    """Read ranges of so many records one after the other."""
    client = {"bootstrap.servers": cluster.bootstrap}
    grain = sample(client, OffsetRange(TopicPartition(topic, 0), 0, 10_000))
    seen = Received()
    told = {**consumer_properties(client, "a", fetch_size(size, grain)), **more}
    consumer = Consumer({**told, "statistics.interval.ms": 20, "stats_cb": seen})
    try:
        consumer.list_topics(topic, timeout=60)
        before, needed, useful, busy = seen.settled(consumer), 0, 0, 0.0
        for number in range(ROUNDS):
            for partition in range(PARTITIONS):
                wanted = OffsetRange(TopicPartition(topic, partition), 100 + number * size, 100 + (number + 1) * size)
                begun = time.perf_counter()
                useful += sum(len(message) for chunk in read(consumer, [wanted], ReadOptions()) for message in chunk)
                consumer.unassign()
                busy += time.perf_counter() - begun
                needed += wire_size(cluster, topic, partition, wanted.start, wanted.end)
        return Figures((seen.settled(consumer) - before) / needed, useful / busy)
    finally:
        consumer.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[16_384, 65_536, 300_000, 1_000_000])
    parser.add_argument("--ranges", type=int, nargs="+", default=[300, 3000, 10_000])
    options = parser.parse_args(arguments)
    sheets = []
    with LocalCluster(["a", "b", "c"]) as cluster:
        for batch in options.batches:
            topic = f"batches-{batch}"
            create_topic(cluster.bootstrap, topic, [[1, 2], [2, 3], [3, 1]])
            counts = dict.fromkeys(range(PARTITIONS), ROUNDS * max(options.ranges) + 10_000)
            fill(cluster, topic, counts, size=RECORD, **{"batch.size": batch, "linger.ms": 200})
            rows = []
            for name, more in {"rackassign": {}, **OTHERS}.items():
                figures = [measured(cluster, topic, size, more) for size in options.ranges]
                rows.append((name, *(f"{each.received:.2f} at {each.speed / 1e6:.0f} MB/s" for each in figures)))
            headings = ("received / needed", *(f"{size:,} records" for size in options.ranges))
            sheets.append(Sheet(f"Record batches of {batch:,} bytes, records of {RECORD:,}", headings, rows))
    show(sheets)


if __name__ == "__main__":
    main()
