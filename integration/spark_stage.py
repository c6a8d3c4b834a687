"""What the tests of the Spark source share: one session, topics that are filled, and what is on a broker's disk."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession

from rackassign.testing import Cluster

from .support import wait_until

_HEADER = 61
"""Bytes of a record batch before its records."""


@contextmanager
def session() -> Iterator[Any]:
    """A Spark of two cores in this process, in rack a; a task may fail four times, which plain local mode forbids."""
    check_java()
    config = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        patched.setenv("RACKASSIGN_RACK", "a")
        builder: Any = SparkSession.builder
        builder = builder.master("local[2,4]")
        for name, value in config.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            for query in spark.streams.active:
                query.stop()
            spark.stop()


def check_java() -> None:
    """Skip where there is no Java that Spark takes; the one that comes in a wheel for brokers is too new for it."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    missing = "no Java is installed, which Spark needs"
    if os.environ.get("CI", "").lower() == "true":
        raise AssertionError(missing)
    pytest.skip(missing)


def fill(
    cluster: Cluster, topic: str, counts: Mapping[int, int], *, size: int = 10, first: int = 0, **properties: Any
) -> None:
    """Write so many records into each partition; keys are their numbers, and every other one has headers."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, **properties})
    value = bytes(range(256)) * (size // 256 + 1)
    for partition, count in counts.items():
        for number in range(first, first + count):
            headers: list[tuple[str, bytes | None]] | None = (
                [("n", b"%d" % number), ("n", None)] if number % 2 else None
            )
            while True:
                try:
                    producer.produce(topic, value[:size], b"%d" % number, partition, headers=headers)  # type: ignore[arg-type]
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(60) == 0


def wire_size(cluster: Any, topic: str, partition: int, start: int, end: int) -> int:
    """Return the bytes of the record batches that hold a range, as the log of a replica on this machine has them."""
    home: Path = next(iter(cluster._nodes.values())).log.parent.parent
    logs = min(home.glob(f"broker-*/data/{topic}-{partition}"))
    size = 0
    for segment in sorted(logs.glob("*.log")):
        held, at = segment.read_bytes(), 0
        while at + _HEADER <= len(held):
            base, length = struct.unpack_from(">qi", held, at)
            if length <= 0:
                # What is set aside for records to come.
                break
            (last,) = struct.unpack_from(">i", held, at + 23)
            size += (12 + length) * (base < end and base + last >= start)
            at += 12 + length
    return size


class Received:
    """What librdkafka has received, by its own statistics."""

    def __init__(self) -> None:
        self.size = 0
        self.count = 0

    def __call__(self, statistics: str) -> None:
        self.size = sum(broker["rxbytes"] for broker in json.loads(statistics)["brokers"].values())
        self.count += 1

    def settled(self, consumer: Consumer) -> int:
        """Return it once statistics came that were made after all that was done."""
        wanted = self.count + 2

        def come() -> bool:
            consumer.poll(0.01)
            return self.count >= wanted

        wait_until(come, "statistics")
        return self.size
