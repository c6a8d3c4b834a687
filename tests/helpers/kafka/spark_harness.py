"""What the tests of the Spark source share: one session, topics that are filled, and what is on a broker's disk."""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count as numbers
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from pyspark.sql.functions import udf

from rackassign.errors import ClusterError
from rackassign.spark._range_reader import GROUP
from rackassign.testing import Cluster
from rackassign.testing._topics import create_topic
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.spark import SparkCluster
from rackassign.testing.spark import check_java as java_is_there
from rackassign.testing.spark import session as spark_session
from rackassign.util.librdkafka_statistics import ConnectionStatistics, await_reports
from tests.helpers.kafka.spark_connector import check_spark, connector_jars
from tests.helpers.threads import meanwhile

RACKS = ("a", "b", "c")

_HEADER = 61
"""Bytes of a record batch before its records."""


@contextmanager
def session() -> Iterator[Any]:
    """A Spark of two cores in this process, in rack a; a task may fail four times, which plain local mode forbids."""
    check_java()
    with pytest.MonkeyPatch.context() as patched:
        # What a session sets for its process is taken back with this.
        for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
            patched.setenv(name, "")
        patched.setenv("RACKASSIGN_RACK", "a")
        with spark_session("local[2,4]", {"spark.sql.shuffle.partitions": "2"}) as spark:
            yield spark


@dataclass(frozen=True, slots=True)
class Far:
    """A Spark with an executor in each rack, and a session that knows the JVM source beside ours."""

    cluster: SparkCluster
    spark: Any

    def all_are_up(self) -> bool:
        """Tell whether an executor of one core runs in each rack, as far as the driver knows too."""
        context = self.spark.sparkContext._jsc.sc()
        known = context.statusTracker().getExecutorInfos()
        # The driver counts as one.
        return all(len(self.cluster.executors(rack)) == 1 for rack in RACKS) and len(known) == 1 + len(RACKS)

    def kill(self, rack: str) -> None:
        """Kill the executor in a rack; wait until there is another one."""
        (old,) = self.cluster.executors(rack)
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: self.cluster.executors(rack) not in ([], [old]), f"another executor in rack {rack}")


@contextmanager
def far() -> Iterator[Far]:
    """A Spark of three workers in the racks a, b and c. Fails where the JVM source would not work."""
    check_java()
    check_spark()
    config = {"spark.jars": ",".join(map(str, connector_jars())), "spark.sql.shuffle.partitions": "2"}
    with SparkCluster(RACKS) as cluster, spark_session(cluster.master, config) as spark:
        started = Far(cluster, spark)
        wait_until(started.all_are_up, "executors")
        yield started


@dataclass(frozen=True, slots=True)
class Gate:
    """Holds up the one task that comes to a certain record, until it is opened."""

    folder: Path
    partition: int
    offset: int

    def held(self, frame: Any) -> Any:
        """Return the frame with the gate in it."""
        reached, opened = self.folder / "reached", self.folder / "opened"
        wanted = (self.partition, self.offset)

        def come(partition: int, offset: int) -> int:
            if (partition, offset) == wanted and not reached.exists():
                unfinished = reached.with_suffix(".part")
                unfinished.write_text(os.environ["RACKASSIGN_RACK"], "utf-8")
                unfinished.replace(reached)
                while not opened.exists():
                    time.sleep(0.02)
            return offset

        return frame.withColumn("offset", udf(come, "long", useArrow=False).asNondeterministic()("partition", "offset"))

    def rack(self) -> str:
        """Wait until a task is held up; return the rack it runs in."""
        reached = self.folder / "reached"
        wait_until(reached.exists, "a task at the gate", timeout_s=TIMEOUT_S)
        return reached.read_text("utf-8")

    def open(self) -> None:
        """Let the task go on."""
        (self.folder / "opened").touch()


def check_java() -> None:
    """Skip where there is no Java that Spark takes; the one that comes in a wheel for brokers is too new for it."""
    try:
        java_is_there()
    except ClusterError as error:
        if os.environ.get("CI", "").lower() == "true":
            raise
        pytest.skip(str(error))


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


def known_everywhere(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until each of the brokers tells of a topic with so many partitions."""

    def told(server: str) -> bool:
        found = AdminClient({"bootstrap.servers": server}).list_topics(timeout=TIMEOUT_S).topics.get(topic)
        return found is not None and len(found.partitions) == partitions

    servers = [f"{broker.host}:{broker.port}" for broker in cluster.brokers]
    wait_until(lambda: all(map(told, servers)), f"{partitions} partitions of {topic} on every broker")


def grow(cluster: Cluster, topic: str, partitions: int) -> None:
    """Add partitions to a topic until it has so many."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        admin.create_partitions({topic: partitions})
    finally:
        admin.close()
    known_everywhere(cluster, topic, partitions)


def remade(cluster: Cluster, topic: str, replicas: Sequence[Sequence[int]]) -> None:
    """Delete a topic and make it again, with nothing in it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for deleted in admin.delete_topics([topic], operation_timeout=TIMEOUT_S).values():
        deleted.result(60)

    def made() -> bool:
        try:
            create_topic(cluster.bootstrap, topic, replicas)
        except ClusterError:
            # It is still being deleted.
            return False
        return True

    wait_until(made, "the topic can be made again")


def lose_last_commit(checkpoint: Path) -> int:
    """Have a checkpoint forget that its last batch was done; return the number of that batch."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    return last


def create_coordinator(cluster: Cluster, topic: str) -> None:
    """Wait until the source's group has a coordinator; until then its consumers ask one broker after the other."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})

    def answers() -> bool:
        try:
            consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
        except KafkaException as error:
            # The broker may not have loaded its part of the group's topic yet.
            if error.args[0].code() != KafkaError.NOT_COORDINATOR and not error.args[0].retriable():
                raise
            return False
        return True

    try:
        wait_until(answers, f"a coordinator of {GROUP}")
    finally:
        consumer.close()


def wire_size(cluster: Any, topic: str, partition: int, start: int, end: int) -> int:
    """Return the bytes of the record batches that hold a range, as the log of a replica on this machine has them."""
    home: Path = next(iter(cluster._specs.values())).log.parent.parent
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


def told_in(folder: Path) -> list[dict[str, Any]]:
    """Return what tasks have reported (`metricsPath`)."""
    return [json.loads(line) for file in folder.iterdir() for line in file.read_text("utf-8").splitlines()]


class Received:
    """What librdkafka has received, by its own statistics."""

    def __init__(self) -> None:
        self.size = 0
        self.count = 0

    def __call__(self, statistics: str) -> None:
        brokers = ConnectionStatistics.from_json(statistics).brokers
        self.size = sum(broker.received_bytes for broker in brokers.values())
        self.count += 1

    def settled(self, consumer: Consumer) -> int:
        """Return it once statistics came that were made after all that was done."""
        assert await_reports(consumer.poll, lambda: self.count, timeout_s=TIMEOUT_S), "no statistics"
        return self.size


def all_of(topic: str, counts: Mapping[int, int]) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of as many records of each partition, sorted."""
    return sorted((topic, partition, offset) for partition, count in counts.items() for offset in range(count))


@contextmanager
def written_meanwhile(cluster: Cluster, topic: str, partitions: int = 3) -> Iterator[None]:
    """Write a hundred records a second to partitions in turn while the block lasts."""

    def work(over: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
        for number in numbers():
            producer.produce(topic, b"%d" % number, partition=number % partitions)
            producer.poll(0)
            if over.wait(0.01):
                break
        producer.flush(TIMEOUT_S)

    with meanwhile(work):
        yield


def stream(spark: Any, cluster: Cluster, topic: str, **options: str) -> Any:
    """Return a stream of topics from their beginning."""
    reader = spark.readStream.format("rackassign").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()
