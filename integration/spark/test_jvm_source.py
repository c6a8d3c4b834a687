"""The Spark source beside the JVM source: the same rows, the same refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import far, fill, known_everywhere

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark_faults]

SPREAD = [[1, 2], [2, 3], [3, 1]]
OURS, THEIRS = "rackassign", "kafka"
HOUR_MS = 3_600_000
FOR_EVER = {"retention.ms": "-1"}
"""Of topics whose records say that they are old."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with far() as running:
        yield running.spark


def loaded(spark: Any, cluster: Cluster, source: str, **options: str) -> Any:
    return spark.read.format(source).options(**{"kafka.bootstrap.servers": cluster.bootstrap, **options}).load()


def rows(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def same(spark: Any, cluster: Cluster, **options: str) -> list[Any]:
    """Read with both sources, check that the same came, and return it."""
    theirs, ours = (loaded(spark, cluster, source, **options) for source in (THEIRS, OURS))
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert found == rows(theirs)
    return found


def odd_records(cluster: Cluster, topic: str) -> None:
    """Write what is unusual: no key, an empty one, no value, and headers of all kinds."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    headers: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [],
        [("a", b"1"), ("a", b"2"), ("b", None), ("", b""), ("\u00fc\U0001f600", bytes(range(256)))],
    ]
    for number in range(30):
        producer.produce(
            topic,
            (b"value", None, b"", bytes(range(256)))[number % 4],
            (b"key", None, b"")[number % 3],
            number % 2,
            headers=headers[number % len(headers)],  # type: ignore[arg-type]
            timestamp=(1, 1_700_000_000_123 + number)[number % 2],
        )
    assert producer.flush(60) == 0


def compressed(cluster: Cluster, topic: str) -> None:
    for number, codec in enumerate(("gzip", "snappy", "lz4", "zstd")):
        told = {"compression.type": codec, "linger.ms": 50}
        fill(cluster, topic, dict.fromkeys(range(3), 300), size=400, first=300 * number, **told)


def with_its_beginning_gone(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, {0: 100, 2: 10})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for deleted in admin.delete_records([Offset(topic, 0, 60), Offset(topic, 2, 10)]).values():
        deleted.result(60)


KINDS: dict[str, tuple[dict[str, str], Callable[[Cluster, str], None], int]] = {
    "odd": (FOR_EVER, odd_records, 30),
    "appended": ({"message.timestamp.type": "LogAppendTime"}, odd_records, 30),
    "compressed": ({}, compressed, 3600),
    "cut": ({}, with_its_beginning_gone, 40),
    "sparse": ({}, lambda cluster, topic: fill(cluster, topic, {1: 5}), 5),
    "empty": ({}, lambda _, __: None, 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_schema_are_those_of_the_jvm_source(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, kind: str
) -> None:
    config, write, count = KINDS[kind]
    topic = make_topic(replicas=SPREAD, config=config)
    write(rack_cluster, topic)
    found = same(spark, rack_cluster, subscribe=topic, includeHeaders="true")
    assert len(found) == count
    assert {row.timestampType for row in found} <= {1 if kind == "appended" else 0}
    assert len(same(spark, rack_cluster, subscribe=topic)) == count


def test_rows_of_transactions_are_those_of_the_jvm_source(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    topic = make_topic(replicas=SPREAD)
    first, second = (
        Producer({"bootstrap.servers": rack_cluster.bootstrap, "transactional.id": unique_name()}) for _ in range(2)
    )
    for producer in (first, second):
        producer.init_transactions(60)

    def begin(producer: Producer, partition: int) -> None:
        producer.begin_transaction()
        for number in range(50):
            producer.produce(topic, b"%d" % number, partition=partition)
        # What was not sent yet an abort would just forget.
        assert producer.flush(60) == 0

    for number in range(6):
        begin(first, 0)
        (first.abort_transaction if number % 2 else first.commit_transaction)(60)
    # Ends in a marker, and in an abort.
    begin(first, 1)
    first.abort_transaction(60)
    begin(second, 2)
    second.commit_transaction(60)
    # One that stays open: nothing behind its first record is stable.
    begin(second, 0)
    fill(rack_cluster, topic, {0: 20})
    committed = same(spark, rack_cluster, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert len(committed) == 150 + 50
    everything = same(spark, rack_cluster, subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert len(everything) == 300 + 50 + 50 + 50 + 20
    assert len(same(spark, rack_cluster, subscribe=topic)) == len(everything)
    second.abort_transaction(60)


def offsets_there(cluster: Cluster, topic: str) -> list[int]:
    """Return the offsets of the records that are left in partition 0."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "looks",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    })  # fmt: skip
    found: list[int] = []
    try:
        consumer.assign([Offset(topic, 0, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(message.offset() or 0)
    finally:
        consumer.close()


def test_rows_of_a_compacted_topic_are_those_of_the_jvm_source(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic
) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
        "delete.retention.ms": "0",
    }
    # One replica: the cleaner works on each for itself.
    topic = make_topic(replicas=[[2]], config=config)
    for _ in range(5):
        fill(rack_cluster, topic, {0: 200}, size=100)

    def compacted() -> bool:
        # A segment is closed when a record comes after its time.
        fill(rack_cluster, topic, {0: 1}, first=777)
        there = offsets_there(rack_cluster, topic)
        return there[-1] > 3 * len(there)

    wait_until(compacted, "gaps", timeout_s=600)
    known = same_at_rest(spark, rack_cluster, topic)
    assert known[0].offset > 0
    for start in (0, 3, known[3].offset - 1, known[3].offset + 1):
        told = {"startingOffsets": f'{{"{topic}": {{"0": {start}}}}}'}
        found = same_at_rest(spark, rack_cluster, topic, **told)
        assert found[0].offset >= start
    # Ends where no record is.
    assert same_at_rest(spark, rack_cluster, topic, endingOffsets=f'{{"{topic}": {{"0": 5}}}}') == []


def same_at_rest(spark: Any, cluster: Cluster, topic: str, **options: str) -> list[Any]:
    """Compare while the cleaner does nothing: between two equal reads of the JVM source."""
    while True:
        before, ours, after = (
            rows(loaded(spark, cluster, source, subscribe=topic, **options)) for source in (THEIRS, OURS, THEIRS)
        )
        if before == after:
            assert ours == before
            return ours


@pytest.fixture
def timed(rack_cluster: Cluster, make_topic: MakeTopic) -> str:
    """A topic of three partitions with 100 records each, at 0, 10, 20... ms after an hour that is long ago."""
    topic: str = make_topic(replicas=SPREAD, config=FOR_EVER)
    producer = Producer({"bootstrap.servers": rack_cluster.bootstrap})
    for number in range(300):
        producer.produce(topic, b"%d" % number, partition=number % 3, timestamp=HOUR_MS + 10 * (number // 3))
    assert producer.flush(60) == 0
    return topic


def test_options_mean_what_they_mean_to_the_jvm_source(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, timed: str
) -> None:
    other = make_topic(replicas=SPREAD[:2])
    fill(rack_cluster, other, {0: 20})
    for topic, partitions in ((timed, 3), (other, 2)):
        known_everywhere(rack_cluster, topic, partitions)
    one = {"subscribe": timed}
    each = {"startingOffsets": f'{{"{timed}": {{"0": -2, "1": 40, "2": 100}}}}'}
    late = str(HOUR_MS + 10_000)
    for options, count in (
        ({"subscribe": f"{timed},{other}"}, 320),
        ({"subscribe": f" {timed} , {other} "}, 320),
        ({"subscribePattern": f"({timed}|{other})"}, 320),
        # A pattern is looked for anywhere in a name, and Kafka's own topics are none of it.
        ({"subscribePattern": timed[3:]}, 300),
        ({"subscribePattern": "^__consumer"}, 0),
        ({"assign": f'{{"{timed}": [0, 2], "{other}": [0]}}'}, 220),
        ({**one, **each}, 160),
        ({**one, "endingOffsets": f'{{"{timed}": {{"0": -1, "1": 40, "2": 0}}}}'}, 140),
        ({**one, **each, "endingOffsets": f'{{"{timed}": {{"0": 7, "1": 41, "2": -1}}}}'}, 8),
        ({**one, "startingOffsets": "EARLIEST", "endingOffsets": "Latest"}, 300),
        ({**one, "startingTimestamp": str(HOUR_MS + 15)}, 294),
        ({**one, "startingTimestamp": "0"}, 300),
        ({**one, "startingTimestamp": "5", "endingTimestamp": "1"}, 0),
        ({**one, "endingTimestamp": str(HOUR_MS + 30)}, 9),
        ({**one, "endingTimestamp": late}, 300),
        ({**one, "startingTimestamp": late, "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({**one, "startingTimestamp": str(HOUR_MS + 990), "endingTimestamp": late}, 3),
        ({**one, "startingOffsetsByTimestamp": f'{{"{timed}": {{"0": {HOUR_MS + 900}, "1": 1, "2": 0}}}}'}, 210),
        ({**one, "endingOffsetsByTimestamp": f'{{"{timed}": {{"0": {HOUR_MS + 900}, "1": 1, "2": {late}}}}}'}, 190),
        # The first of these counts, and the others do not.
        ({**one, "startingTimestamp": str(HOUR_MS + 980), **each}, 6),
        ({**one, "minPartitions": "7"}, 300),
        ({**one, "maxRecordsPerPartition": "11"}, 300),
        ({**one, "minPartitions": "1000"}, 300),
        ({**one, "failOnDataLoss": "FALSE", "includeHeaders": "True", "groupIdPrefix": "g"}, 300),
        ({**one, "kafkaConsumer.pollTimeoutMs": "30000", "kafka.fetch.max.wait.ms": "10"}, 300),
        ({**one, "maxOffsetsPerTrigger": "5"}, 300),
    ):
        assert len(same(spark, rack_cluster, **options)) == count, options


REFUSED: tuple[dict[str, str], ...] = (
    {"subscribe": ""},
    {"subscribe": " , "},
    {"subscribePattern": ""},
    {"subscribePattern": "("},
    {"assign": "0"},
    {"assign": '{"%s": 0}'},
    {"subscribe": "%s", "subscribePattern": "x"},
    {"subscribe": "%s", "assign": '{"%s": [0]}'},
    {"subscribe": "there-is-none-like-it"},
    {},
)
REFUSED_BESIDE: tuple[dict[str, str], ...] = (
    {"kafka.bootstrap.servers": ""},
    {"startingOffsets": "middle"},
    {"startingOffsets": '{"%s": {"0": 1}}'},
    {"startingOffsets": '{"%s": {"0": 1, "1": 1, "2": 1, "3": 1}}'},
    {"startingOffsets": '{"%s": {"0": 1, "1": 1, "2": 1}, "more": {"0": 1}}'},
    {"startingOffsets": '{"%s": [0]}'},
    {"startingOffsets": "{"},
    {"startingTimestamp": "then"},
    {"startingTimestamp": str(2 * HOUR_MS)},
    {"startingOffsetsByTimestamp": '{"%s": {"0": 1}}'},
    {"startingOffsetsByTimestampStrategy": "other"},
    {"minPartitions": "0"},
    {"minPartitions": "few"},
    {"maxRecordsPerPartition": "0"},
    {"includeHeaders": "maybe"},
    {"failOnDataLoss": "maybe"},
    {"kafka.auto.offset.reset": "earliest"},
    {"kafka.key.deserializer": "x"},
    {"kafka.value.deserializer": "x"},
    {"kafka.enable.auto.commit": "true"},
    {"kafka.interceptor.classes": "x"},
    {"kafka.isolation.level": "some"},
)
OF_A_BATCH: tuple[dict[str, str], ...] = (
    {"startingOffsets": "latest"},
    {"startingOffsets": '{"%s": {"0": -1, "1": 1, "2": 1}}'},
    {"endingOffsets": "earliest"},
    {"endingOffsets": '{"%s": {"0": -2, "1": 1, "2": 1}}'},
    {"endingOffsets": '{"%s": {"0": 1}}'},
    {"endingTimestamp": "then"},
    {"endingOffsetsByTimestamp": '{"%s": {"0": 1}}'},
    # Ends before it starts.
    {"startingOffsets": '{"%s": {"0": 5, "1": 0, "2": 0}}', "endingOffsets": '{"%s": {"0": 4, "1": 1, "2": 1}}'},
    {"startingOffsets": '{"%s": {"0": 500, "1": 0, "2": 0}}'},
    {"startingOffsets": '{"%s": {"0": 500, "1": 0, "2": 0}}', "failOnDataLoss": "false"},
    # What is not there yet.
    {"endingOffsets": '{"%s": {"0": 101, "1": 1, "2": 1}}', "kafkaConsumer.pollTimeoutMs": "2000"},
    {"kafka.isolation.level": "READ_COMMITTED"},
)
OF_A_STREAM: tuple[dict[str, str], ...] = (
    {"endingOffsets": "latest"},
    {"endingOffsetsByTimestamp": '{"%s": {"0": 1, "1": 1, "2": 1}}'},
    {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "2"},
)


OURS_ALONE: tuple[dict[str, str], ...] = (
    {"assign": "{}"},
    {"assign": '{"%s": [9]}'},
    {"subscribe": "%s", "startingTimestamp": "-1"},
    {"subscribe": "%s", "kafka.no.such.property": "1"},
    {"subscribe": "%s", "subscirbe": "1"},
)
"""What the JVM source lets pass, and then reads less than was asked for, or something else."""


def refused(options: tuple[dict[str, str], ...], topic: str) -> Iterator[dict[str, str]]:
    for each in options:
        yield {name: value.replace("%s", topic) for name, value in each.items()}


def refusal(run: Callable[[], object]) -> str:
    """Return with what words a query ends that cannot be; nothing if it can."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - each source has its own, of the JVM and of Python
        return str(error) or repr(error)
    return ""


def check_refusals(of_theirs: str, of_ours: str, told: dict[str, str]) -> None:
    assert of_theirs, told
    # By us, in words, and not by something that came to grief over it.
    assert re.search(r"rackassign\.[a-z_.]+[A-Za-z]+Error: ", of_ours), told


def test_batches_that_the_jvm_source_refuses_are_refused(spark: Any, rack_cluster: Cluster, timed: str) -> None:
    def read(source: str, told: dict[str, str]) -> None:
        loaded(spark, rack_cluster, source, **told).collect()

    beside = tuple({"subscribe": timed, **each} for each in REFUSED_BESIDE + OF_A_BATCH)
    for options in refused(REFUSED + beside, timed):
        theirs, ours = (refusal(partial(read, source, options)) for source in (THEIRS, OURS))
        check_refusals(theirs, ours, options)
    for options in refused(OURS_ALONE, timed):
        theirs, ours = (refusal(partial(read, source, options)) for source in (THEIRS, OURS))
        assert not theirs, options
        check_refusals("lets it pass", ours, options)


def test_streams_that_the_jvm_source_refuses_are_refused(
    spark: Any, rack_cluster: Cluster, timed: str, tmp_path: Path
) -> None:
    def run(source: str, told: dict[str, str], checkpoint: Path) -> None:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", rack_cluster.bootstrap)
        writer = reader.options(**told).load().writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    beside = tuple({"subscribe": timed, **each} for each in OF_A_STREAM)
    for number, options in enumerate(refused(REFUSED + beside, timed)):
        theirs, ours = (
            refusal(partial(run, source, options, tmp_path / f"{source}-{number}")) for source in (THEIRS, OURS)
        )
        check_refusals(theirs, ours, options)
