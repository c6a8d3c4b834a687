"""Streams over topics that change under them, and queries that run side by side, on real brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rackassign.spark import Coordinator
from rackassign.spark._stream import supports_read_limits
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import all_of, fill, known_everywhere, remade, session, stream

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

SPREAD = [[1, 2], [2, 3], [3, 1]]
COLUMNS = ("topic", "partition", "offset")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def run_out(frame: Any, into: Path) -> None:
    """Run a query to the end of what there is, into Parquet."""
    writer = frame.select(*COLUMNS).writeStream.format("parquet").option("path", str(into / "rows"))
    query = writer.option("checkpointLocation", str(into / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()


def rows_of(frame: Any) -> list[tuple[str, int, int]]:
    return sorted(map(tuple, frame.select(*COLUMNS).collect()))


def kept(spark: Any, into: Path) -> list[tuple[str, int, int]]:
    return rows_of(spark.read.parquet(str(into / "rows")))


@pytest.mark.skipif(not supports_read_limits(), reason="real-time mode exists since Spark 4.2")
def test_real_time_mode_is_refused_by_name(spark: Any, rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    frame = stream(spark, rack_cluster, make_topic(replicas=SPREAD)).select("value")
    writer = frame.writeStream.format("console").outputMode("update").trigger(realTime="5 minutes")
    with pytest.raises(Exception, match=r"The input stream \S*Python\S* is not supported in Real-time Mode"):
        writer.start().awaitTermination()


def test_a_recreated_topic_ends_a_stream_or_is_read_from_its_new_end(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, {0: 100, 1: 100, 2: 100})
    run_out(stream(spark, rack_cluster, topic), tmp_path)
    remade(rack_cluster, topic, SPREAD)
    known_everywhere(rack_cluster, topic, 3)
    fill(rack_cluster, topic, {0: 30})
    with pytest.raises(Exception, match=rf"the log of {topic}-[012] ends at offset \d+, but was read up to 100"):
        run_out(stream(spark, rack_cluster, topic), tmp_path)
    run_out(stream(spark, rack_cluster, topic, failOnDataLoss="false"), tmp_path)
    fill(rack_cluster, topic, {0: 20, 1: 5}, first=30)
    run_out(stream(spark, rack_cluster, topic), tmp_path)
    added = [(topic, 0, offset) for offset in range(30, 50)] + [(topic, 1, offset) for offset in range(5)]
    assert kept(spark, tmp_path) == sorted(all_of(topic, dict.fromkeys(range(3), 100)) + added)


def test_a_deleted_topic_ends_a_stream_and_its_others_are_read_without_it(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    gone, left = make_topic(replicas=SPREAD), make_topic(replicas=SPREAD)
    for topic in (gone, left):
        fill(rack_cluster, topic, {0: 10, 1: 10})
    both = {"subscribePattern": f"^({gone}|{left})$"}

    def frame(**options: str) -> Any:
        told = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "startingOffsets": "earliest", **both, **options}
        return spark.readStream.format("rackassign").options(**told).load()

    run_out(frame(), tmp_path)
    admin = AdminClient({"bootstrap.servers": rack_cluster.bootstrap})
    for deleted in admin.delete_topics([gone], operation_timeout=TIMEOUT_S).values():
        deleted.result(TIMEOUT_S)
    fill(rack_cluster, left, {0: 5}, first=10)
    with pytest.raises(Exception, match=rf"partitions {gone}-0.* no longer exist"):
        run_out(frame(), tmp_path)
    for count in (3, 4):
        # Its offsets are kept: metadata that lack a topic once must not make it begin again.
        run_out(frame(failOnDataLoss="false"), tmp_path)
        fill(rack_cluster, left, {2: count}, first=3 * (count - 3))
    with pytest.raises(Exception, match=rf"partitions {gone}-0.* no longer exist"):
        run_out(frame(), tmp_path)
    run_out(frame(failOnDataLoss="false"), tmp_path)
    assert kept(spark, tmp_path) == sorted(all_of(gone, {0: 10, 1: 10}) + all_of(left, {0: 15, 1: 10, 2: 7}))


def test_transactions_that_end_between_batches_are_read_once_or_not_at_all(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    kept_one, aborted = (
        Producer({"bootstrap.servers": rack_cluster.bootstrap, "transactional.id": unique_name()}) for _ in range(2)
    )
    for producer in (kept_one, aborted):
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()

    def write(producer: Producer, count: int) -> None:
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(TIMEOUT_S) == 0

    def run() -> list[int]:
        run_out(stream(spark, rack_cluster, topic, **{"kafka.isolation.level": "read_committed"}), tmp_path)
        return [offset for _, _, offset in kept(spark, tmp_path)]

    fill(rack_cluster, topic, {0: 10})
    write(aborted, 5)
    fill(rack_cluster, topic, {0: 3})
    write(kept_one, 4)
    # Nothing behind the first record of an open transaction is stable.
    assert run() == list(range(10))
    aborted.abort_transaction(TIMEOUT_S)
    plain = [*range(10), *range(15, 18)]
    assert run() == plain
    write(kept_one, 2)
    assert run() == plain
    kept_one.commit_transaction(TIMEOUT_S)
    # The coordinator writes the marker of a transaction after it has responded.
    wait_until(lambda: _end(rack_cluster, topic) == 26, "the marker of the commit")
    fill(rack_cluster, topic, {0: 1})
    # Offset 22 is the marker of the abort, and 25 that of the commit.
    assert run() == [*plain, 18, 19, 20, 21, 23, 24, 26]


def _end(cluster: Cluster, topic: str) -> int:
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "isolation.level": "read_uncommitted"}
    with closing(Consumer(config)) as consumer:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S, cached=False)[1])


def test_two_streams_and_two_coordinators_share_a_session(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topics = [make_topic(replicas=SPREAD), make_topic(replicas=SPREAD)]
    counts: list[Mapping[int, int]] = [{0: 300, 1: 200, 2: 100}, {0: 7, 2: 90}]
    queries = []
    with Coordinator(spark) as one, Coordinator(spark) as two, ExitStack() as opened:
        # One after the other: Spark waits ten seconds for the process of each query, however busy the machine is.
        for topic, each in zip(topics, counts, strict=True):
            fill(rack_cluster, topic, each)
            frame = stream(spark, rack_cluster, topic, rackBinding="pull").select(*COLUMNS)
            writer = frame.writeStream.format("parquet").option("path", str(tmp_path / topic / "rows"))
            query = writer.option("checkpointLocation", str(tmp_path / topic / "checkpoint")).start()
            opened.callback(query.stop)
            query.processAllAvailable()
            queries.append(query)
        frames = []
        for topic, held in zip(topics, (one, two), strict=True):
            told = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": topic, **held.options}
            frames.append(spark.read.format("rackassign").options(**told).load())
        for topic, frame, each in zip(topics, frames, counts, strict=True):
            assert rows_of(frame) == all_of(topic, each)
        for held in (one, two):
            stats = held.stats()
            assert stats.local + stats.stolen > 0 == stats.unknown
        for topic, query in zip(topics, queries, strict=True):
            fill(rack_cluster, topic, {1: 40}, first=1000)
            query.processAllAvailable()
    for topic, each in zip(topics, counts, strict=True):
        assert kept(spark, tmp_path / topic) == all_of(topic, {**each, 1: each.get(1, 0) + 40})
