"""Throughput, processor time and batches of producers that write in their rack, beside the plain ones.

Each writes the same records without keys to a topic of its own, on three brokers in three racks of this machine, from
the first record to the end of `flush()`. The two producers of a client take turns, and each pair of rounds is compared
with itself, because the machine's speed varies by more than what is measured. Batches and the share of the rack are
read from the logs of the brokers.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

import rackassign
from benchmarks.tables import Sheet, show
from rackassign.clients import aiokafka, confluent
from rackassign.testing import LocalCluster, create_topic

PARTITIONS = 9
Write = Callable[[int, bytes], None]
"""Writes so many records of this value, and returns when all are stored."""

AT_ONCE = 2_000
"""Records of aiokafka whose results are waited for together."""

_BATCH = struct.Struct(">8x i")
_LENGTH_FROM = 12


@dataclass(frozen=True, slots=True)
class Round:
    """What a producer did."""

    seconds: float
    processor: float
    batch: float
    local: float


def with_kafka_python(make: Callable[..., KafkaProducer], bootstrap: str, topic: str) -> Write:
    producer = make(bootstrap_servers=bootstrap, linger_ms=5)

    def write(records: int, value: bytes) -> None:
        with closing(producer):
            for _ in range(records):
                producer.send(topic, value)
            producer.flush()

    producer.partitions_for(topic)
    return write


def with_aiokafka(make: Callable[..., AIOKafkaProducer], bootstrap: str, topic: str) -> Write:
    async def write(records: int, value: bytes) -> None:
        async with make(bootstrap_servers=bootstrap, linger_ms=5) as producer:
            for begun in range(0, records, AT_ONCE):
                results = [await producer.send(topic, value) for _ in range(min(AT_ONCE, records - begun))]
                await asyncio.gather(*results)

    return lambda records, value: asyncio.run(write(records, value))


def with_confluent(make: Callable[..., confluent_kafka.Producer], bootstrap: str, topic: str) -> Write:
    producer = make({"bootstrap.servers": bootstrap, "log_level": 0})
    # Also without librdkafka's choice at first: it lasts until leaders are known, which is not measured.
    producer.produce(topic, b"")
    producer.flush()
    time.sleep(1)

    def write(records: int, value: bytes) -> None:
        for number in range(records):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
            if not number % 1000:
                producer.poll(0)
        producer.flush()

    return write


def in_rack(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **configs: make(**configs, client_rack="a")


CLIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], int]] = {
    "kafka-python": (with_kafka_python, KafkaProducer, in_rack(rackassign.RackAwareProducer), 40_000),
    "aiokafka": (with_aiokafka, AIOKafkaProducer, in_rack(aiokafka.RackAwareProducer), 40_000),
    "confluent-kafka": (
        with_confluent,
        confluent_kafka.Producer,
        lambda config: confluent.RackAwareProducer({**config, "client.rack": "a"}),
        400_000,
    ),
}
"""For each client what writes with it, its producer, ours, and records of a round."""


def batches(log: bytes) -> Iterator[int]:
    """Yield the bytes of each batch of a partition's log."""
    position = 0
    while position + _LENGTH_FROM < len(log):
        (length,) = _BATCH.unpack_from(log, position)
        if length <= 0:
            return
        yield _LENGTH_FROM + length
        position += _LENGTH_FROM + length


def measured(cluster: LocalCluster, topic: str, write: Write, records: int, size: int) -> Round:
    begun, used = time.perf_counter(), time.process_time()
    write(records, bytes(size))
    seconds, processor = time.perf_counter() - begun, time.process_time() - used
    directories: list[Path] = [spec.data for spec in vars(cluster)["_specs"].values()]
    written: dict[int, list[int]] = {}
    for number in range(PARTITIONS):
        segments = [each for path in directories for each in path.glob(f"{topic}-{number}/*.log")]
        written[number] = [size for segment in sorted(segments) for size in batches(segment.read_bytes())]
    every = [size for sizes in written.values() for size in sizes]
    home = sum(sum(sizes) for number, sizes in written.items() if number % 3 == 0)
    return Round(seconds, processor, sum(every) / len(every), home / sum(every))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=list(CLIENTS), action="append")
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args(arguments)
    numbers, rows = count(), []
    with LocalCluster(["a", "b", "c"]) as cluster:
        for client in options.client or CLIENTS:
            write, *makes, records = CLIENTS[client]
            for size in options.size or (100, 1000):
                # Bytes count, too: a round of large records has fewer.
                total = records if size <= 100 else records // 4
                rounds: tuple[list[Round], list[Round]] = ([], [])
                for pair in range(options.pairs):
                    # Which one is first in a pair takes turns, too.
                    for which in (0, 1) if pair % 2 else (1, 0):
                        topic = f"written-{next(numbers)}"
                        create_topic(cluster.bootstrap, topic, [[1], [2], [3]] * (PARTITIONS // 3))
                        ready = write(makes[which], cluster.bootstrap, topic)
                        rounds[which].append(measured(cluster, topic, ready, total, size))
                rows.append(row(client, size, total, *rounds))
    headings = (
        "client, bytes of a record",
        "records a second",
        "as fast",
        "range",
        "processor",
        "batch",
        "in the rack",
    )
    show([Sheet(f"Producers in their rack beside plain ones, {options.pairs} pairs of rounds", headings, rows)])


def row(client: str, size: int, total: int, plain: list[Round], ours: list[Round]) -> tuple[str, ...]:
    pairs = list(zip(plain, ours, strict=True))
    speeds = [one.seconds / other.seconds for one, other in pairs]
    return (
        f"{client}, {size}",
        f"{median(total / each.seconds for each in ours):,.0f}",
        f"{median(speeds):.2f}",
        f"{min(speeds):.2f} to {max(speeds):.2f}",
        f"{median(other.processor / one.processor for one, other in pairs):.2f}",
        f"{median(other.batch / one.batch for one, other in pairs):.2f}",
        f"{median(one.local for one in plain):.0%}, {median(other.local for other in ours):.0%}",
    )


if __name__ == "__main__":
    main()
