"""Cost of counting the fetched bytes by rack, on a real broker of this machine.

Rounds with and without the meter take turns. The speed of a round on a busy machine varies by more than the meter
costs, so the time that is spent in the meter is measured as well, and compared with the time of the whole round.
"""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import median
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from benchmarks.tables import Sheet, show
from rackassign import attach
from rackassign.clients.kafka_python import PATCHES
from rackassign.testing import LocalCluster, create_topic

PARTITIONS = 6
TOPIC = "metered"


def fill(bootstrap: str, records: int, size: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, batch_size=64 * 1024)) as producer:
        for i in range(records):
            producer.send(TOPIC, bytes(size), partition=i % PARTITIONS)
        producer.flush()


def read(bootstrap: str, records: int, equip: Callable[[KafkaConsumer], KafkaConsumer]) -> tuple[float, KafkaConsumer]:
    """Read everything; return the seconds it took, and the consumer."""
    consumer = equip(
        KafkaConsumer(bootstrap_servers=bootstrap, client_rack="a", auto_offset_reset="earliest", group_id=None)
    )
    with closing(consumer):
        consumer.assign([KafkaPythonPartition(TOPIC, p) for p in range(PARTITIONS)])
        begun = time.perf_counter()
        seen = 0
        while seen < records:
            seen += sum(map(len, consumer.poll(timeout_ms=1000, max_records=5000).values()))
        return time.perf_counter() - begun, consumer


def plain(consumer: KafkaConsumer) -> KafkaConsumer:
    return consumer


def metered(consumer: KafkaConsumer) -> KafkaConsumer:
    """Equip it with the meter alone."""
    return attach(consumer, disable_patches=[patch.name for patch in PATCHES])


class Timed:
    """Equips a consumer with the meter, and sums up the time spent in it."""

    def __init__(self) -> None:
        self.spent = 0.0

    def __call__(self, consumer: KafkaConsumer) -> KafkaConsumer:
        fetcher = consumer._fetcher
        original = fetcher._handle_fetch_response
        inside = 0.0

        def timed_original(*arguments: Any) -> None:
            nonlocal inside
            begun = time.perf_counter()
            original(*arguments)
            inside += time.perf_counter() - begun

        # The client's own work is put between two clocks, and what is around it is the meter's.
        timed_original.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        fetcher._handle_fetch_response = timed_original
        metered(consumer)
        outer = fetcher._handle_fetch_response

        def timed(*arguments: Any) -> None:
            nonlocal inside
            inside = 0.0
            begun = time.perf_counter()
            outer(*arguments)
            self.spent += time.perf_counter() - begun - inside

        fetcher._handle_fetch_response = timed
        return consumer


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=120_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    with LocalCluster(["a"]) as cluster:
        create_topic(cluster.bootstrap, TOPIC, [[1]] * PARTITIONS)
        fill(cluster.bootstrap, options.records, options.size)
        read(cluster.bootstrap, options.records, plain)
        without, with_it, share = [], [], []
        for _ in range(options.rounds):
            without.append(read(cluster.bootstrap, options.records, plain)[0])
            with_it.append(read(cluster.bootstrap, options.records, metered)[0])
            timed = Timed()
            share.append((read(cluster.bootstrap, options.records, timed)[0], timed.spent))
    slower = [b / a - 1 for a, b in zip(without, with_it, strict=True)]
    spent = [inside / whole for whole, inside in share]
    rows = [
        ("records a second, without", f"{options.records / median(without):,.0f}", ""),
        ("records a second, with", f"{options.records / median(with_it):,.0f}", ""),
        ("slower by, round by round", f"{median(slower):+.1%}", f"{min(slower):+.1%} to {max(slower):+.1%}"),
        ("part of the time spent in the meter", f"{median(spent):.2%}", f"{min(spent):.2%} to {max(spent):.2%}"),
    ]
    title = f"Metering: {options.records:,} records of {options.size:,} bytes, {options.rounds} rounds each"
    show([Sheet(title, ("", "median", "range"), rows)])


if __name__ == "__main__":
    main()
