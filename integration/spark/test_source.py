"""Batches of the Spark source on real brokers: what it receives, and that each record is in the result once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.spark import Coordinator, _kafka_clients, _tasks, batch_traffic, doctor
from rackassign.spark._batch_planner import Planner
from rackassign.spark._fetch_size import SMALL_RANGE_BYTES
from rackassign.spark._java_regex import compile_java_regex
from rackassign.spark._kafka_clients import ConsumerPool
from rackassign.spark._metadata import KafkaMetadata as Asked
from rackassign.spark._offsets import from_json, to_json
from rackassign.spark._options import Options, Topics
from rackassign.spark._pull.coordinator import Coordinator as SplitServer
from rackassign.spark._range_reader import DataLossError, ReadOptions, consumer_properties, read
from rackassign.spark._record_sampling import sample
from rackassign.spark._splits import OffsetRange, Split
from rackassign.spark._stream import StreamReader
from rackassign.spark._task_metrics import metered_properties, process_meter
from rackassign.spark._tasks import SplitPartition, batches, make_planner, pull_partitions, read_partition
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.util.librdkafka_statistics import await_reports
from tests.helpers.kafka.spark_harness import (
    Received,
    all_of,
    create_coordinator,
    fill,
    grow,
    remade,
    session,
    stream,
    told_in,
    wire_size,
    written_meanwhile,
)

pytestmark = [pytest.mark.brokers, pytest.mark.local]

RECORD = 1000
SPREAD = [[1, 2], [2, 3], [3, 1]]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def planner(cluster: Cluster, topic: str, **options: str) -> Planner:
    told = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options}
    parsed = Options.of(told, "stream")
    return Planner(parsed, Asked(parsed.client), lambda wanted: sample(parsed.client, wanted))


def received(cluster: Cluster, splits: list[Split]) -> int:
    """Read splits one after the other, as workers do; return what they have received beyond getting to know brokers."""
    total = 0
    for fetch in {split.fetch_bytes for split in splits}:
        seen = Received()
        told = consumer_properties({"bootstrap.servers": cluster.bootstrap}, "a", fetch)
        # librdkafka's messages about fetches would say more, but beside busy processes Python cannot keep up with them,
        # and a reader gets no records meanwhile.
        consumer = Consumer({**told, "statistics.interval.ms": 20, "stats_cb": seen})
        try:
            consumer.list_topics(splits[0].range.tp.topic, timeout=TIMEOUT_S)
            before = seen.settled(consumer)
            for split in splits:
                if split.fetch_bytes == fetch:
                    count = sum(map(len, read(consumer, [split.range], ReadOptions())))
                    assert count == len(split.range)
                    consumer.unassign()
            total += seen.settled(consumer) - before
        finally:
            consumer.close()
    return total


@pytest.mark.parametrize(
    "batch", [16_384, *(pytest.param(each, marks=pytest.mark.long) for each in (65_536, 300_000)), 1_000_000]
)
@pytest.mark.parametrize("size", [300, 1000, 5000])
def test_little_more_is_received_than_the_batches_that_hold_a_range(
    rack_cluster: Cluster,
    spark_topics: Callable[[int], str],
    batch: int,
    size: int,
) -> None:
    topic = spark_topics(batch)
    plan = planner(rack_cluster, topic)
    start = {TopicPartition(topic, number): 100 for number in range(3)}
    # As a stream that catches up: batches that end in the middle of the log.
    for _ in range(2):
        end = {place: offset + size for place, offset in start.items()}
        splits = plan.stream(start, end)
        assert sum(len(split.range) for split in splits) == 3 * size
        wire = sum(wire_size(rack_cluster, topic, *split_bounds(split)) for split in splits)
        # When a partition is unassigned, librdkafka (2.16) empties its queue before it stops to fetch, and now and then
        # fetches one more batch in between. A reader that fetched behind the end of each range would have three more.
        assert received(rack_cluster, splits) <= 1.15 * wire + batch
        start = end


def split_bounds(split: Split) -> tuple[int, int, int]:
    return split.range.tp.partition, split.range.start, split.range.end


@pytest.fixture(scope="module")
def made_topics() -> dict[int, str]:
    return {}


@pytest.fixture
def spark_topics(rack_cluster: Cluster, make_topic: MakeTopic, made_topics: dict[int, str]) -> Callable[[int], str]:
    """A factory of topics with batches of about so many bytes, made once each."""

    def made(batch: int) -> str:
        if batch not in made_topics:
            made_topics[batch] = make_topic(replicas=SPREAD)
            counts = dict.fromkeys(range(3), 12_000)
            fill(rack_cluster, made_topics[batch], counts, size=RECORD, **{"batch.size": batch, "linger.ms": 200})
        return made_topics[batch]

    return made


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_the_sizes_of_records_are_those_in_the_log(
    rack_cluster: Cluster, make_topic: MakeTopic, compression: str
) -> None:
    topic = make_topic(replicas=[[1, 2]])
    packed: dict[str, Any] = {"compression.type": compression}
    fill(rack_cluster, topic, {0: 20_000}, size=RECORD, **packed)
    found = sample({"bootstrap.servers": rack_cluster.bootstrap}, OffsetRange(TopicPartition(topic, 0), 0, 20_000))
    wire = wire_size(rack_cluster, topic, 0, 0, 20_000) / 20_000
    assert wire / 1.5 <= found.record <= 1.5 * wire


@pytest.mark.long
def test_a_topic_of_two_thousand_partitions_is_planned_and_measured(
    rack_cluster: Cluster, make_topic: MakeTopic
) -> None:
    # librdkafka's statistics describe each partition, so that a callback takes longer than the interval of callbacks.
    topic = make_topic(replicas=[[1 + number % 3] for number in range(2000)])
    fill(rack_cluster, topic, {0: 150, 1999: 1})
    splits = planner(rack_cluster, topic).stream({}, ends_of(rack_cluster, topic, 2000))
    assert sum(len(split.range) for split in splits) == 151
    told = consumer_properties({"bootstrap.servers": rack_cluster.bootstrap}, "a", 1)
    consumer = Consumer({**told, **metered_properties(process_meter())})
    try:
        consumer.list_topics(topic, timeout=TIMEOUT_S)
        before = process_meter().settle(consumer)
        assert sum(map(len, read(consumer, [splits[0].range], ReadOptions()))) == 150
        consumer.unassign()
        assert set(process_meter().settle(consumer) - before) == {1}
    finally:
        consumer.close()


def test_a_task_reads_its_partitions_together_and_each_record_once(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(replicas=[[1 + number % 3] for number in range(100)])
    fill(rack_cluster, topic, {number: 1 + number % 40 for number in range(90)})
    producer = Producer({"bootstrap.servers": rack_cluster.bootstrap, "transactional.id": unique_name()})
    producer.init_transactions(60)
    for number in range(2):
        producer.begin_transaction()
        for partition in range(80, 100):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(60) == 0
        (producer.abort_transaction if number else producer.commit_transaction)(60)
    told = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": topic, "rackBinding": "none", "tasks": "1"}
    options = Options.of({**told, "kafka.isolation.level": "read_committed", "failOnDataLoss": "false"}, "batch")
    splits = make_planner(options).batch()
    assert len(splits) == 100
    expected = {number: list(range(1 + number % 40)) for number in range(90)} | {n: [] for n in range(90, 100)}
    for partition in range(80, 100):
        # One record was committed behind the others; then come a marker, the aborted record and another marker.
        expected[partition].append(len(expected[partition]))
    assert rows_of(options, splits) == expected
    # Records that were deleted after the batch was planned.
    deleted = {ConfluentPartition(topic, number, 3): number for number in range(10, 20)}
    admin = AdminClient({"bootstrap.servers": rack_cluster.bootstrap})
    for answer in admin.delete_records(list(deleted)).values():
        answer.result(TIMEOUT_S)
    for number in deleted.values():
        expected[number] = expected[number][3:]
    assert rows_of(options, splits) == expected
    assert sum("the log starts at offset 3: records are lost and skipped" in each for each in caplog.messages) == 10
    strict = Options.of({**told, "kafka.isolation.level": "read_committed"}, "batch")
    with pytest.raises(DataLossError, match="the log starts at offset 3"):
        rows_of(strict, splits)


def test_the_splits_of_a_task_are_pulled_with_one_metadata_request_for_each_topic(
    rack_cluster: Cluster, make_topic: MakeTopic, metered: Metered
) -> None:
    topics, counts = [make_topic(replicas=SPREAD * 20) for _ in range(2)], dict.fromkeys(range(60), 70)
    for topic in topics:
        fill(rack_cluster, topic, counts, size=RECORD)
    told = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": ",".join(topics), "rackBinding": "pull"}
    options = Options.of({**told, "startingOffsets": "earliest", "tasks": "1"}, "stream")
    plan = make_planner(options)
    splits = plan.stream(plan.initial(), plan.latest())
    assert min(split.size for split in splits) > SMALL_RANGE_BYTES
    with SplitServer("127.0.0.1") as coordinator:
        for _ in range(3):
            (partition,) = pull_partitions(
                options, splits, lambda tasks, limit: coordinator.begin(splits, tasks, max_splits_per_task=limit)
            )
            rows = [
                (row["topic"], row["partition"], row["offset"])
                for batch in read_partition(options, partition, ["topic", "partition", "offset"])
                for row in batch.to_pylist()
            ]
            assert sorted(rows) == sorted(row for topic in topics for row in all_of(topic, counts))
    assert len(metered.made) == 1
    # One for each topic; librdkafka may send some of its own when a connection breaks, and one of both that wait.
    requests, received = metered.metadata_and_received()
    assert 1 <= requests <= len(topics) + 3
    wire = sum(wire_size(rack_cluster, topic, partition, 0, 70) for topic in topics for partition in counts)
    assert received <= 1.05 * 3 * wire


def test_partitions_that_are_added_and_leaders_that_move_are_found_by_a_consumer_that_knows_the_topic(
    rack_cluster: Cluster, make_topic: MakeTopic, metered: Metered
) -> None:
    topic = make_topic(replicas=[[1, 2]])
    fill(rack_cluster, topic, {0: 5})
    told = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": topic, "rackBinding": "none"}
    options = Options.of(told, "batch")
    assert rows_of(options, make_planner(options).batch()) == {0: [0, 1, 2, 3, 4]}
    grow(rack_cluster, topic, 3)
    fill(rack_cluster, topic, {1: 2, 2: 1})
    assert rows_of(options, make_planner(options).batch()) == {0: [0, 1, 2, 3, 4], 1: [0, 1], 2: [0]}
    admin = KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)
    try:
        # Broker 1 has no replica any more.
        admin.alter_partition_reassignments({KafkaPartition(topic, 0): [3]})
    finally:
        admin.close()
    replicas = AdminClient({"bootstrap.servers": rack_cluster.bootstrap})
    wait_until(lambda: replicas.list_topics(topic).topics[topic].partitions[0].replicas == [3], "the replica to move")
    assert rows_of(options, make_planner(options).batch()) == {0: [0, 1, 2, 3, 4], 1: [0, 1], 2: [0]}
    assert len(metered.made) == 1


class Metered:
    """A pool for the tasks of this process, whose consumers report what they have sent and received."""

    def __init__(self) -> None:
        self.pool = ConsumerPool()
        self.made: list[Consumer] = []
        self._sent: dict[str, tuple[int, int]] = {}
        self._reports = 0

    def new_consumer(self, properties: Mapping[str, Any]) -> Consumer:
        self.made.append(Consumer({**properties, "statistics.interval.ms": 20, "stats_cb": self._report}))
        return self.made[-1]

    def _report(self, statistics: str) -> None:
        reported = json.loads(statistics)
        brokers = reported["brokers"].values()
        self._sent[reported["name"]] = (
            sum(broker["req"]["Metadata"] for broker in brokers),
            sum(broker["rxbytes"] for broker in brokers),
        )
        self._reports += 1

    def metadata_and_received(self) -> tuple[int, int]:
        """Return the number of requests for metadata that were sent so far, and of bytes that were received."""
        for consumer in self.made:
            assert await_reports(consumer.poll, lambda: self._reports, timeout_s=TIMEOUT_S), "no statistics"
        requests, received = zip(*self._sent.values(), strict=True)
        return sum(requests), sum(received)


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metered]:
    metered = Metered()
    monkeypatch.setattr(_kafka_clients, "new_consumer", metered.new_consumer)
    monkeypatch.setattr(_tasks, "consumers_of_this_process", lambda: metered.pool)
    yield metered
    metered.pool.close()


def rows_of(options: Options, splits: list[Split]) -> dict[int, list[int]]:
    """Read splits as a task does; return the offsets of each partition in the order in which they came."""
    found: dict[int, list[int]] = {split.range.tp.partition: [] for split in splits}
    for batch in batches(options, splits, ["partition", "offset"], None):
        for row in batch.to_pylist():
            found[row["partition"]].append(row["offset"])
    return found


def test_ranges_that_end_in_markers_end(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Any) -> None:
    topic = make_topic(replicas=[[1, 2]])
    producer = Producer({"bootstrap.servers": rack_cluster.bootstrap, "transactional.id": unique_name()})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(50):
            producer.produce(topic, b"%d" % number, partition=0)
        # What was not sent yet an abort would just forget.
        assert producer.flush(60) == 0
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(60)
    for level, expected in (("read_committed", 150), ("read_uncommitted", 300)):
        plan = planner(rack_cluster, topic, **{"kafka.isolation.level": level})
        end = plan.latest()
        assert end == {TopicPartition(topic, 0): 306}
        told = consumer_properties({"bootstrap.servers": rack_cluster.bootstrap, "isolation.level": level}, "a", 1)
        consumer = Consumer(told)
        try:
            for bounds, share in (((0, 306), 1.0), ((0, 51), 50 / expected)):
                got = read(consumer, [OffsetRange(TopicPartition(topic, 0), *bounds)], ReadOptions())
                assert sum(map(len, got)) == round(expected * share)
        finally:
            consumer.close()


def test_what_is_not_there_is_named(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(replicas=SPREAD)
    asked = Asked({"bootstrap.servers": rack_cluster.bootstrap})
    assert asked.describe_topics(Topics(pattern=topic[:-1] + ".")).racks_of(TopicPartition(topic, 1)) == ("b", "c")
    assert asked.follower_reads() is True
    with pytest.raises(ConfigError, match="subscribe: topic nothing-like-it does not exist"):
        asked.describe_topics(Topics(names=("nothing-like-it",)))
    with pytest.raises(ConfigError, match=f"assign: partition {topic}-7 does not exist"):
        asked.describe_topics(Topics(assigned=(TopicPartition(topic, 7),)))
    with pytest.raises(ConfigError, match=r"librdkafka rejected the configuration: .*no.such.property"):
        Asked({"bootstrap.servers": rack_cluster.bootstrap, "no.such.property": "1"})
    with pytest.raises(KafkaUnavailableError, match=r"Kafka at 127\.0\.0\.1:1 does not respond"):
        Asked({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "500"}).offsets([TopicPartition(topic, 0)], -1)


def loaded(spark: Any, cluster: Cluster, topic: str, **options: str) -> Any:
    reader = spark.read.format("rackassign").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.option("subscribe", topic).options(**options)


@pytest.mark.long
def test_a_batch_has_the_rows_and_columns_of_the_jvm_source(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, {0: 4, 1: 700})
    frame = loaded(spark, rack_cluster, topic, includeHeaders="true", minPartitions="5", tasks="2").load()
    assert frame.rdd.getNumPartitions() == 2
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema)
    rows = frame.collect()
    assert sorted((row.partition, row.offset, bytes(row.key)) for row in rows) == [
        (partition, number, b"%d" % number) for partition, count in ((0, 4), (1, 700)) for number in range(count)
    ]
    assert {(row.topic, bytes(row.value), row.timestampType) for row in rows} == {(topic, bytes(range(10)), 0)}
    odd = next(row for row in rows if row.offset == 3)
    assert [(header.key, header.value and bytes(header.value)) for header in odd.headers] == [("n", b"3"), ("n", None)]
    assert next(row for row in rows if row.offset == 2).headers is None
    few = loaded(spark, rack_cluster, topic, endingOffsets=f'{{"{topic}": {{"0": 3, "1": 0, "2": 0}}}}')
    assert [list(row.asDict()) for row in few.schema("offset long").load().collect()] == [["offset"]] * 3
    fill(rack_cluster, topic, {2: 1})
    create_coordinator(rack_cluster, topic)
    told = tmp_path / "told"
    assert (
        loaded(spark, rack_cluster, topic, startingTimestamp="1", metricsPath=str(told))
        .schema("value binary")
        .load()
        .count()
        == 705
    )
    lines = told_in(told)
    assert {(line["partition"], line["end"], line["rack"], line["useful"]) for line in lines} == {
        (0, 4, "a", 40),
        (1, 700, "a", 7000),
        (2, 1, "a", 10),
    }
    assert all(set(line["received"]) == {"1"} for line in lines if line["partition"] == 0)


def test_options_that_cannot_work_are_told_in_spark(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    for options, told in (
        ({"rackBinding": "pull"}, "rackBinding: pull requires a coordinator that exists until the batch query ends"),
        ({"subscirbe": "x"}, "unknown option subscirbe"),
    ):
        with pytest.raises(Exception, match=told):
            loaded(spark, rack_cluster, topic, **options).load().collect()
    query = stream(spark, rack_cluster, topic, subscirbe="x").writeStream.format("noop")
    found = started(query.option("checkpointLocation", str(tmp_path)))
    while SLOW_PYTHON in found:
        found = started(query)
    assert "unknown option subscirbe" in found
    # Of Spark, in place of ours.
    assert "UnboundLocalError" not in found


@pytest.mark.long
def test_a_new_query_reads_what_is_written_from_its_start_on(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    rows: list[tuple[int, int]] = []
    # All options have their defaults, so it starts at the latest offsets.
    frame = spark.readStream.format("rackassign").option("kafka.bootstrap.servers", rack_cluster.bootstrap)
    writer = frame.option("subscribe", topic).load().writeStream.option("checkpointLocation", str(tmp_path))

    def take(batch: Any, _: int) -> None:
        rows.extend((row.partition, row.offset) for row in batch.select("partition", "offset").collect())

    def has_read() -> bool:
        if not queries[-1].isActive:
            problem = str(queries[-1].exception())
            assert SLOW_PYTHON in problem, problem
            queries.append(writer.start())
        return len(rows) > 300

    with written_meanwhile(rack_cluster, topic):
        queries = [writer.foreachBatch(take).start()]
        try:
            wait_until(has_read, "rows of a new query")
        finally:
            queries[-1].stop()
    for number in range(3):
        read = [offset for partition, offset in rows if partition == number]
        assert read == list(range(read[0], read[0] + len(read)))


SLOW_PYTHON = "Python worker failed to connect back"
"""On a busy machine: Spark gives a new process of Python ten seconds, which no setting changes."""


def started(query: Any) -> str:
    """Start a query that cannot work, and return its error."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the caller looks at it
        query.start().processAllAvailable()
    return str(raised.value)


def test_a_topic_that_was_made_anew_is_seen_as_spark_asks_before_4_2(
    rack_cluster: Cluster, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, {0: 300, 1: 300, 2: 300})
    told = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    strict = StreamReader(Options.of(told, "stream"), ("value",))
    lenient = StreamReader(Options.of({**told, "failOnDataLoss": "false"}, "stream"), ("value",))
    for reader in (strict, lenient):
        begin = reader.initialOffset()
        end = reader.latestOffset()
        assert to_json(from_json(end)) == {topic: {"0": 300, "1": 300, "2": 300}}
        (task,) = reader.partitions(begin, end)
        assert isinstance(task, SplitPartition)
        assert [split.range.end for split in task.splits] == [300, 300, 300]
    remade(rack_cluster, topic, SPREAD)
    fill(rack_cluster, topic, {0: 100, 1: 100, 2: 100})
    wait_until(lambda: set(ends_of(rack_cluster, topic).values()) == {100}, "the new topic's records")
    lost = f"the log of {topic}-0 ends at offset 100, but was read up to 300: records may be lost"
    with pytest.raises(DataLossError, match=lost):
        strict.latestOffset()
    # One that was started again does not know yet where its batch begins.
    again = StreamReader(Options.of(told, "stream"), ("value",))
    now = again.latestOffset()
    assert to_json(from_json(now)) == {topic: {"0": 100, "1": 100, "2": 100}}
    with pytest.raises(DataLossError, match=lost):
        again.partitions(end, now)
    with caplog.at_level("WARNING", "rackassign"):
        assert from_json(lenient.latestOffset()) == from_json(now)
        assert lenient.partitions(end, now) == []
        assert lenient.partitions(end, now) == []
    assert sum("records may be lost" in record.getMessage() for record in caplog.records) == 3
    fill(rack_cluster, topic, {0: 10}, first=100)
    (piece,) = lenient.partitions(now, lenient.latestOffset())
    assert isinstance(piece, SplitPartition)
    assert [(split.range.start, split.range.end) for split in piece.splits] == [(100, 110)]


def ends_of(cluster: Cluster, topic: str, partitions: int = 3) -> dict[TopicPartition, int]:
    try:
        return Asked({"bootstrap.servers": cluster.bootstrap}).high_watermarks(
            [TopicPartition(topic, n) for n in range(partitions)]
        )
    except KafkaUnavailableError:
        # Not all brokers know the new topic yet.
        return {TopicPartition(topic, 0): -1}


def test_patterns_find_what_java_finds(spark: Any) -> None:
    names = [
        "orders",
        "Orders",
        "orders.v1",
        "team-a.orders",
        "a-b",
        "a.b",
        "a_b",
        "abc",
        "abab",
        "aab",
        "12",
        "-",
        "Z",
    ]
    words = [
        *"abcAB1.-_*+?|()[]^$\\&{}",
        "\\d",
        "\\W",
        "\\p{L}",
        "\\P{L}",
        "[a-c]",
        "[^b]",
        "(?:",
        "(?=",
        "(?!",
        "(?<n>",
    ]
    words += [
        "(?<=",
        "&&",
        "{2}",
        "(?i)",
        "(?i:",
        "\\Q",
        "\\E",
        "\\-",
        "[a-",
        "-z]",
        "\\b",
        "\\x61",
        "\\1",
        "\\k<n>",
        "[[",
    ]
    chosen = Random(4)
    in_both = 0
    for _ in range(1500):
        pattern = "".join(chosen.choices(words, k=chosen.randint(1, 8)))
        try:
            ours = compile_java_regex(pattern)
        except ConfigError:
            # May be Java's alone; what is taken must mean the same.
            continue
        theirs = spark._jvm.java.util.regex.Pattern.compile(pattern)
        found = [name for name in names if theirs.matcher(name).find()]
        assert [name for name in names if ours.search(name)] == found, pattern
        in_both += 1
    assert in_both > 200


@pytest.mark.spark
def test_batches_pull_their_splits_from_a_coordinator_that_is_held(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, other = make_topic(replicas=SPREAD), make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, dict.fromkeys(range(3), 500))
    fill(rack_cluster, other, {0: 40})
    with Coordinator(spark) as held:
        told = {**held.options, "maxRecordsPerPartition": "100"}
        frame = loaded(spark, rack_cluster, topic, **told, tasks="2", metricsPath=str(tmp_path / "told")).load()
        rows = frame.union(loaded(spark, rack_cluster, other, **told).load()).select("topic", "partition", "offset")
        expected = sorted(all_of(topic, dict.fromkeys(range(3), 500)) + all_of(other, {0: 40}))
        for _ in range(2):
            assert sorted(map(tuple, rows.collect())) == expected
        assert held.stats().local + held.stats().stolen > 0
        assert held.options["coordinatorToken"] not in frame._jdf.queryExecution().toString()
        # It is read in the executor's rack; what has no replica there must be read elsewhere, and is told as such.
        assert {line["rack"] for line in told_in(tmp_path / "told")} == {"a"}
    # Nobody listens any more, and nothing has been dealt out yet: it is read without.
    late = loaded(spark, rack_cluster, topic, **told, coordinatorTimeoutMs="200").load()
    assert sorted(map(tuple, late.select("topic", "partition", "offset").collect())) == all_of(
        topic, dict.fromkeys(range(3), 500)
    )


@pytest.mark.spark
def test_the_doctor_sees_executors_and_what_to_expect(spark: Any, rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(replicas=SPREAD)
    found = doctor(spark, rack_cluster.bootstrap, topic)
    assert [(executor.rack, executor.slots) for executor in found.executors] == [("a", 2)]
    assert (found.broker_racks, found.replicas, found.followers) == (("a", "b", "c"), (2, 2), True)
    assert (round(found.expected.none, 2), round(found.expected.executor, 2)) == (0.33, 0.67)
    (finding,) = found.findings
    assert finding == (
        "no executor is in rack b, c, and 1 of 3 partitions have replicas only there: they are read across racks"
        " whatever rackBinding is; have executors in each rack"
    )
    nameless = doctor(spark, rack_cluster.bootstrap, topic, rack_env="NOT_SET", tasks=2)
    assert "executors have no rack" in nameless.findings[0]


def test_what_a_stream_writes_is_there_and_in_the_traffic_of_its_batch(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, into = make_topic(replicas=SPREAD), make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, {0: 100, 1: 100, 2: 100}, size=1000)
    told = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "metricsPath": str(tmp_path / "metrics")}
    options = {**told, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("rackassign").options(**options).load()
    writer = frame.select("value").writeStream.format("rackassign").options(**told, topic=into)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    [first] = [each for each in query.recentProgress if each["numInputRows"]]
    [found] = batch_traffic(options, [first])
    written = spark.read.format("rackassign").options(**told, subscribe=into).load()
    assert sorted(row.value for row in written.collect()) == sorted(
        row.value for row in spark.read.format("rackassign").options(**told, subscribe=topic).load().collect()
    )
    # Without keys, to the partition that is led in the rack of the session.
    assert {row.partition for row in written.select("partition").collect()} == {0}
    assert 300_000 < found.written_local < 400_000
    assert (found.written_crossed < 1000, found.written_unknown) == (True, 0)
