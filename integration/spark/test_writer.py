"""The writer of Spark beside the JVM sink, by rack, and while executors, brokers and drivers die: on real brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import RACKS, Far, far, fill, known_everywhere
from tests.helpers.kernel_traffic import ConnectionBytes

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark_faults]

OURS, THEIRS = "rackassign", "kafka"
HEADERS = "array<struct<key:string,value:binary>>"
MANY = 30_000
VALUES = ("key", "concat(partition, '-', offset) value")


@pytest.fixture(scope="module")
def stage() -> Iterator[Far]:
    with far() as running:
        yield running


def write(frame: Any, sink: str, cluster: Cluster, **options: str) -> None:
    told = {"kafka.bootstrap.servers": cluster.bootstrap, **options}
    frame.write.format(sink).options(**told).mode("append").save()


def read(stage: Far, cluster: Cluster, topic: str) -> list[tuple[Any, ...]]:
    """Return all records in no order; the partition of one without a key is what its sink has chosen."""
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    frame = stage.spark.read.format(THEIRS).options(**told).load()
    rows = frame.selectExpr("key", "value", "headers", "if(key is null, null, partition) partition").collect()
    return sorted(map(tuple, rows), key=repr)


def odd_rows(stage: Far) -> Any:
    keys = [None, b"", b"k", "\u00fc\U0001f600".encode(), bytes(range(256))]
    values = [None, b"", b"v", bytes(range(256)), b"x" * 100_000]
    headers: list[Any] = [None, [], [("a", b"1"), ("a", None)], [("", b"")], [("\u00fc\U0001f600", bytes(range(256)))]]
    rows = [(keys[n % 5], values[n // 2 % 5], None if n % 3 == 0 else n % 6, headers[n // 3 % 5]) for n in range(60)]
    return stage.spark.createDataFrame(rows, f"key binary, value binary, partition int, headers {HEADERS}")


KINDS: dict[str, Callable[[Far], Any]] = {
    "odd": odd_rows,
    "text": lambda stage: stage.spark.range(500).selectExpr("concat('k\u00e4', id) key", "concat('v', id) value"),
    "keys": lambda stage: stage.spark.range(100_000).selectExpr("cast(id as string) key", "cast(id as string) value"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_records_and_partitions_of_keys_are_those_of_the_jvm_sink(
    stage: Far, rack_cluster: Cluster, make_topic: MakeTopic, kind: str
) -> None:
    frame, found = KINDS[kind](stage), []
    for sink in (OURS, THEIRS):
        topic = make_topic(partitions=6)
        write(frame, sink, rack_cluster, topic=topic)
        found.append(read(stage, rack_cluster, topic))
    assert len(found[0]) == frame.count()
    assert found[0] == found[1]


def test_topics_may_be_in_a_column(stage: Far, rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topics = make_topic(partitions=3), make_topic(partitions=3)
    one, other = topics
    write(stage.spark.range(100).selectExpr("'v' value", f"if(id < 30, '{one}', '{other}') topic"), OURS, rack_cluster)
    assert [len(read(stage, rack_cluster, topic)) for topic in topics] == [30, 70]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["'v' value", "99 partition"], "{topic}-99: a record was not delivered: .*Unknown partition"),
        (["'v' value", "-1 partition"], "partition: expected 0 or more, or null, got -1"),
        (["repeat('x', 1100000) value"], "{topic}: a record was not delivered: .*Message size too large"),
        (["'v' value", f"cast(array(null) as {HEADERS}) headers"], "headers: null in the headers of a row"),
    ],
)
def test_a_record_that_is_not_delivered_fails_its_task_with_the_reason(
    stage: Far, rack_cluster: Cluster, make_topic: MakeTopic, columns: list[str], problem: str
) -> None:
    topic = make_topic(partitions=3)
    with pytest.raises(Exception, match=problem.format(topic=topic)):
        write(stage.spark.range(1).selectExpr(*columns), OURS, rack_cluster, topic=topic)


def below(pid: int) -> list[int]:
    """Return the IDs of a process and of those that it has started."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text("utf-8").split())
    return found


def sent(stage: Far, cluster: Cluster) -> Counter[tuple[str, str | None]]:
    """Return the bytes that the kernel has sent for executors, by their rack and that of the broker."""
    racks = {broker.port: broker.rack for broker in cluster.brokers}
    total: Counter[tuple[str, str | None]] = Counter()
    for rack in RACKS:
        for pid in [pid for executor in stage.cluster.executors(rack) for pid in below(executor)]:
            meter = ConnectionBytes(pid, sent=True)
            for port, size in meter.look().items():
                if port in racks:
                    total[rack, racks[port]] += size
            meter.close()
    return total


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_records_without_keys_cross_no_rack(
    stage: Far, rack_cluster: Cluster, make_topic: MakeTopic, factor: int
) -> None:
    topic = make_topic(partitions=9, replication_factor=factor)
    before = sent(stage, rack_cluster)
    rows = stage.spark.range(0, MANY, 1, 6).selectExpr("repeat(cast(id as string), 40) value")
    write(rows, OURS, rack_cluster, topic=topic)
    after = sent(stage, rack_cluster)
    after.subtract(before)
    local = sum(size for (rack, other), size in after.items() if rack == other)
    assert local > MANY * 40 * 4
    # Requests for metadata go to any broker.
    assert sum(after.values()) - local < 0.001 * local


def streamed(cluster: Cluster, into: str, frame: Any, checkpoint: Path) -> Any:
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": into, "checkpointLocation": str(checkpoint)}
    return frame.writeStream.format(OURS).options(**told).trigger(processingTime="0 seconds").start()


def source(stage: Far, cluster: Cluster, topic: str) -> Any:
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return stage.spark.readStream.format(OURS).options(**told).load().selectExpr(*VALUES)


def check(stage: Far, cluster: Cluster, topic: str, counts: dict[int, int]) -> None:
    """Check that each record of the source has come at least once."""
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    frame = stage.spark.read.format(THEIRS).options(**told).load().selectExpr("cast(value as string) value")
    found = {row.value for row in frame.distinct().collect()}
    assert found == {f"{partition}-{offset}" for partition, count in counts.items() for offset in range(count)}


@pytest.mark.parametrize("fault", ["executor", "broker"])
def test_a_stream_loses_nothing_when_an_executor_or_a_broker_dies(
    stage: Far, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, fault: str
) -> None:
    topic = make_topic(partitions=3)
    into = make_topic(partitions=6, config={"min.insync.replicas": "2"})
    known_everywhere(rack_cluster, topic, 3)
    log = tmp_path / "checkpoint"
    # Spark before 4.2 takes all that is there into one batch, so records come while it runs.
    part = dict.fromkeys(range(3), MANY // 3)
    fill(rack_cluster, topic, part, size=100)
    query = streamed(rack_cluster, into, source(stage, rack_cluster, topic), log)
    try:
        wait_until(lambda: bool(committed(log)), "a batch", timeout_s=TIMEOUT_S)
        fill(rack_cluster, topic, part, size=100)
        wait_until(lambda: len(planned(log)) > 1, "a second batch", timeout_s=TIMEOUT_S)
        if fault == "executor":
            stage.kill("b")
        else:
            rack_cluster.kill(2)
            query.processAllAvailable()
            assert len(committed(log)) > 1
            rack_cluster.start(2)
        fill(rack_cluster, topic, part, size=100)
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    check(stage, rack_cluster, into, dict.fromkeys(range(3), MANY))


def planned(log: Path) -> list[str]:
    """Return the numbers of the batches of a stream that were begun, and of which the offsets are in its log."""
    return [each.name for each in (log / "offsets").glob("[0-9]*")]


def committed(log: Path) -> list[str]:
    return [each.name for each in (log / "commits").glob("[0-9]*")]


PROGRAM = f"""
import sys
from rackassign.testing.spark import session
bootstrap, topic, into, checkpoint = sys.argv[1:]
told = {{"kafka.bootstrap.servers": bootstrap}}
with session("local[2]") as spark:
    reader = spark.readStream.format("rackassign").options(**told, subscribe=topic, startingOffsets="earliest")
    frame = reader.load().selectExpr(*{VALUES})
    writer = frame.writeStream.format("rackassign").options(**told, topic=into, checkpointLocation=checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
"""


def test_a_driver_that_is_killed_loses_nothing(
    stage: Far, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, into = make_topic(partitions=3), make_topic(partitions=6)
    known_everywhere(rack_cluster, topic, 3)
    counts = dict.fromkeys(range(3), 3 * MANY)
    fill(rack_cluster, topic, counts, size=100)
    log = tmp_path / "checkpoint"
    words = [sys.executable, "-c", PROGRAM, rack_cluster.bootstrap, topic, into, str(log)]
    with subprocess.Popen(words) as driver:
        # The batch is written in part.
        wait_until(lambda: records(rack_cluster, into) > 0, "a record of the first batch", timeout_s=TIMEOUT_S)
        os.kill(driver.pid, signal.SIGKILL)
    assert planned(log)
    assert not committed(log)
    assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 0
    check(stage, rack_cluster, into, counts)


def records(cluster: Cluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in range(6))
    finally:
        consumer.close()
