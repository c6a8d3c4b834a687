"""Throughput of a consumer that joins with kafka-python and fetches with librdkafka, beside each alone.

Each reads the same records of a real broker in a group of its own, in equal batches, from the first record that it is
given to the last; joining is not counted. They take turns, and each pair of rounds is compared with itself, because the
machine's speed varies by more than what is measured. librdkafka is several times faster than kafka-python because it is
written in C. The time of your own processing is added to each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import median
from typing import Any

import confluent_kafka
from kafka import KafkaConsumer

from benchmarks.tables import Sheet, show
from rackassign.clients.confluent import RackAwareConsumer
from rackassign.testing import LocalCluster, create_topic

PARTITIONS = 6
TOPIC = "hybrid"
BATCH = 5000
WAIT_S = 0.5


def fill(bootstrap: str, records: int, size: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    value = bytes(size)
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise TimeoutError("records that nobody takes")


def properties(bootstrap: str, group: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "group.id": group, "client.rack": "a", "auto.offset.reset": "earliest"}


def confluent(bootstrap: str, group: str, records: int) -> float:
    return by_batches(confluent_kafka.Consumer(properties(bootstrap, group)), records)


def hybrid(bootstrap: str, group: str, records: int) -> float:
    return by_batches(RackAwareConsumer(properties(bootstrap, group)), records)


def by_batches(consumer: Any, records: int) -> float:
    """Read everything; return records a second."""
    with closing(consumer):
        consumer.subscribe([TOPIC])
        return timed(lambda: len(consumer.consume(BATCH, WAIT_S)), records)


def kafka_python(bootstrap: str, group: str, records: int) -> float:
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=group, client_rack="a", auto_offset_reset="earliest"
    )
    with closing(consumer):
        return timed(
            lambda: sum(map(len, consumer.poll(timeout_ms=1000 * WAIT_S, max_records=BATCH).values())), records
        )


def timed(read: Callable[[], int], records: int) -> float:
    first = 0
    while not first:
        first = read()
    begun = time.perf_counter()
    seen = first
    while seen < records:
        seen += read()
    return (seen - first) / (time.perf_counter() - begun)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args(arguments)
    clients = {"confluent-kafka": confluent, "rackassign": hybrid, "kafka-python": kafka_python}
    speeds: dict[str, list[float]] = {name: [] for name in clients}
    with LocalCluster(["a"]) as cluster:
        create_topic(cluster.bootstrap, TOPIC, [[1]] * PARTITIONS)
        fill(cluster.bootstrap, options.records, options.size)
        confluent(cluster.bootstrap, "first", options.records)
        for pair in range(options.pairs):
            # Who comes first in a pair takes turns, too.
            order = list(clients) if pair % 2 else [*reversed(list(clients)[:2]), "kafka-python"]
            for name in order:
                speeds[name].append(clients[name](cluster.bootstrap, f"{name}-{pair}", options.records))
    rows = [
        (f"{name}, records a second", f"{median(of_client):,.0f}", f"{min(of_client):,.0f} to {max(of_client):,.0f}")
        for name, of_client in speeds.items()
    ]
    for peer in ("confluent-kafka", "kafka-python"):
        ratios = [ours / theirs for ours, theirs in zip(speeds["rackassign"], speeds[peer], strict=True)]
        rows.append(
            (f"as fast as {peer}, pair by pair", f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}")
        )
    title = f"Reading: {options.records:,} records of {options.size:,} bytes, {options.pairs} rounds each"
    show([Sheet(title, ("", "median", "range"), rows)])


if __name__ == "__main__":
    main()
