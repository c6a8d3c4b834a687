"""Streams of the Spark source on real brokers: each record is in the result once, whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaError
from pyspark.sql.functions import col, udf

from rackassign.spark._stream import supports_read_limits
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import all_of, fill, session, stream, written_meanwhile

pytestmark = [pytest.mark.brokers, pytest.mark.local]

SPREAD = [[1, 2], [2, 3], [3, 1]]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


@pytest.mark.parametrize("options", [{}, {"tasks": "2"}])
@pytest.mark.spark
def test_pulled_splits_are_each_read_once_though_a_worker_dies(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, options: dict[str, str]
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, dict.fromkeys(range(3), 500))
    frame = stream(spark, rack_cluster, topic, rackBinding="pull", maxRecordsPerPartition="100", **options)
    died = run_dying(frame, tmp_path)
    assert died.exists()
    fill(rack_cluster, topic, {0: 300}, first=500)
    run_out(stream(spark, rack_cluster, topic, rackBinding="executor"), tmp_path)
    assert rows_of(spark, tmp_path) == all_of(topic, {0: 800, 1: 500, 2: 500})


def run_out(frame: Any, into: Path) -> list[int]:
    """Run a query to the end of what there is, into Parquet; return the rows of each batch."""
    writer = frame.selectExpr("topic", "partition", "offset").writeStream.format("parquet")
    writer = writer.option("path", str(into / "rows")).option("checkpointLocation", str(into / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def run_dying(frame: Any, into: Path) -> Path:
    """Run a query out, one worker of which dies once; return the file that then is there."""
    died = into / "died"

    def die_once(offset: int) -> int:
        if offset == 250 and not died.exists():
            died.touch()
            os._exit(1)
        return offset

    dying = udf(die_once, "long", useArrow=False).asNondeterministic()
    run_out(frame.withColumn("offset", dying(col("offset"))), into)
    return died


def rows_of(spark: Any, into: Path) -> list[tuple[str, int, int]]:
    return sorted(map(tuple, spark.read.parquet(str(into / "rows")).collect()))


def kept_limit(spark: Any, cluster: Cluster, topic: str, limit: int) -> dict[str, str]:
    """Return the option for a limit; before Spark 4.2 check that it is refused, and return nothing."""
    limited = {"maxOffsetsPerTrigger": str(limit)}
    if supports_read_limits():
        return limited
    query = stream(spark, cluster, topic, **limited).writeStream.format("noop").start()
    with pytest.raises(
        Exception, match="maxOffsetsPerTrigger: not supported: Spark passes limits to Python data sources"
    ):
        query.awaitTermination()
    return {}


def known_partitions(cluster: Cluster, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic).topics[topic].partitions
    return sorted(found)


def watermark(cluster: Cluster, topic: str, partition: int) -> int:
    properties = {"bootstrap.servers": cluster.bootstrap, "group.id": "watermarks"}
    with closing(Consumer(properties)) as consumer:
        return int(consumer.get_watermark_offsets(ConfluentPartition(topic, partition), TIMEOUT_S)[1])


@pytest.mark.spark
def test_a_stream_keeps_its_limit_and_takes_up_new_partitions_and_topics(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, other = make_topic(replicas=SPREAD), make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, dict.fromkeys(range(3), 1000))
    limited = kept_limit(spark, rack_cluster, topic, 1000)
    batches = run_out(stream(spark, rack_cluster, topic, **limited), tmp_path)
    assert batches == ([999, 999, 999, 3] if limited else [3000])
    admin = KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)
    try:
        admin.create_partitions({topic: 5})
    finally:
        admin.close()
    wait_until(lambda: len(known_partitions(rack_cluster, topic)) == 5, "new partitions")
    fill(rack_cluster, topic, {3: 30, 4: 1})
    fill(rack_cluster, other, {0: 7})
    run_out(stream(spark, rack_cluster, f"{topic},{other}", **limited), tmp_path)
    expected = {0: 1000, 1: 1000, 2: 1000, 3: 30, 4: 1}
    assert rows_of(spark, tmp_path) == sorted(all_of(topic, expected) + all_of(other, {0: 7}))


@pytest.mark.spark
def test_the_ends_of_batches_are_committed_to_a_group_for_monitors(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    group = f"lag-of-{topic}"
    admin = KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)

    def committed() -> list[int]:
        try:
            found = admin.list_group_offsets({group: None})[group]
        except KafkaError as error:
            # The first commit of a cluster creates the topic of groups.
            if not error.retriable:
                raise
            return []
        return [found[place].offset for place in sorted(found)]

    fill(rack_cluster, topic, {0: 100, 1: 50, 2: 7})
    writer = stream(spark, rack_cluster, topic, commitGroup=group).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="1 second").start()

    def rows() -> int:
        assert query.isActive, query.exception()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    try:
        if supports_read_limits():
            wait_until(lambda: committed() == [100, 50, 7], "the end of the only batch")
        wait_until(lambda: rows() == 157, "the first batch")
        fill(rack_cluster, topic, {0: 20}, first=100)
        # Before Spark 4.2 the end of a batch is known when the next one begins.
        wait_until(lambda: committed() in ([100, 50, 7], [120, 50, 7]), "the end of the first batch")
        wait_until(lambda: rows() == 177, "the second batch")
        # A consumer that has joined the group keeps others from committing: the stream goes on without.
        with closing(KafkaConsumer(bootstrap_servers=rack_cluster.bootstrap, group_id=group)) as member:
            member.subscribe([topic])
            wait_until(lambda: not member.poll(100) and bool(member.assignment()), "a member of the group")
            fill(rack_cluster, topic, {1: 5}, first=50)
            wait_until(lambda: rows() == 182, "a batch that is not committed")
    finally:
        query.stop()
        admin.close()


@pytest.mark.spark
def test_a_worker_that_dies_in_a_task_costs_no_row_and_doubles_none(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, dict.fromkeys(range(3), 500))
    assert run_dying(stream(spark, rack_cluster, topic), tmp_path).exists()
    assert rows_of(spark, tmp_path) == all_of(topic, dict.fromkeys(range(3), 500))


@pytest.mark.spark
def test_a_batch_whose_commit_is_lost_is_delivered_again_the_same(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, dict.fromkeys(range(3), 200))
    seen: dict[int, list[list[tuple[int, int]]]] = {}

    def run() -> None:
        def take(rows: Any, batch: int) -> None:
            seen.setdefault(batch, []).append(found_in(rows))

        frame = stream(spark, rack_cluster, topic, **limited)
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        # With availableNow=True a Python source gets one batch before Spark 4.2, and that may be an old one.
        query = writer.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    limited = kept_limit(spark, rack_cluster, topic, 400)
    run()
    last = max(seen)
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    fill(rack_cluster, topic, {0: 50}, first=200)
    run()
    assert len(seen[last]) == 2
    assert seen[last][0] == seen[last][1]
    everything = sorted(row for batches in seen.values() for row in batches[-1])
    assert everything == [(p, o) for p, count in ((0, 250), (1, 200), (2, 200)) for o in range(count)]


@pytest.mark.parametrize("starting", ["latest", "earliest"])
@pytest.mark.spark
def test_a_first_batch_that_failed_is_read_again_from_the_same_start(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, starting: str
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, dict.fromkeys(range(3), 100))
    taken: dict[int, list[list[tuple[int, int]]]] = {}

    def fail(rows: Any, batch: int) -> None:
        taken.setdefault(batch, []).append(found_in(rows))
        raise RuntimeError("the sink is broken")

    def take(rows: Any, batch: int) -> None:
        taken.setdefault(batch, []).append(found_in(rows))

    frame = stream(spark, rack_cluster, topic, startingOffsets=starting)
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with written_meanwhile(rack_cluster, topic):
        for _ in range(2):
            with pytest.raises(Exception, match="the sink is broken"):
                writer.foreachBatch(fail).start().processAllAvailable()
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin:
        admin.create_partitions({topic: 4})
    wait_until(lambda: len(known_partitions(rack_cluster, topic)) == 4, "the new partition")
    fill(rack_cluster, topic, {3: 7})
    query = writer.foreachBatch(take).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    # Each start has read the same first batch.
    assert taken[0][0] == taken[0][1] == taken[0][2]
    rows = sorted(row for batches in taken.values() for row in batches[-1])
    begins = {p: min(o for q, o in rows if q == p) for p in range(4)}
    assert begins[3] == 0
    assert all((begins[p] == 0) if starting == "earliest" else (begins[p] >= 100) for p in range(3))
    ends = {p: watermark(rack_cluster, topic, p) for p in range(4)}
    assert rows == [(p, o) for p in range(4) for o in range(begins[p], ends[p])]


def found_in(rows: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows.select("partition", "offset").collect())


@pytest.mark.spark
def test_records_that_are_gone_end_a_stream_or_are_left_out(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, {0: 100})
    run_out(stream(spark, rack_cluster, topic), tmp_path)
    fill(rack_cluster, topic, {0: 100}, first=100)
    admin = AdminClient({"bootstrap.servers": rack_cluster.bootstrap})
    for deleted in admin.delete_records([ConfluentPartition(topic, 0, 150)]).values():
        deleted.result(60)
    with pytest.raises(Exception, match=r"the log starts at offset 150: records are lost; failOnDataLoss=false"):
        run_out(stream(spark, rack_cluster, topic), tmp_path)
    run_out(stream(spark, rack_cluster, topic, failOnDataLoss="false"), tmp_path)
    assert rows_of(spark, tmp_path) == [(topic, 0, offset) for offset in (*range(100), *range(150, 200))]
