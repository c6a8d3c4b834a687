"""What a stream tells Spark of offsets, as each version of Spark asks for them; without Spark and without brokers.

Offsets for lag monitors: the newest arrive, and whatever happens to them, a query does not notice.
"""

from __future__ import annotations

import json
import logging
import pickle
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from rackassign.errors import ConfigError, InputError, KafkaUnavailableError
from rackassign.model import Partition, TopicPartition
from rackassign.spark import _stream as offset_publisher
from rackassign.spark import _stream as room
from rackassign.spark import _tasks as partitions
from rackassign.spark._batch_planner import Planner
from rackassign.spark._datasource import RackassignDataSource
from rackassign.spark._fetch_size import RecordStats
from rackassign.spark._metadata import TopicLayout
from rackassign.spark._offsets import EARLIEST, LATEST, from_json, with_start
from rackassign.spark._options import Options, Topics
from rackassign.spark._range_reader import DataLossError
from rackassign.spark._splits import OffsetRange, Split
from rackassign.spark._stream import OffsetPublisher, StreamReader
from rackassign.spark._tasks import SplitPartition, max_splits_per_task, task_count
from rackassign.testing.harness import wait_until

P0 = TopicPartition("t", 0)


class Log:
    """A topic of one partition or more, which may be made anew."""

    def __init__(self, end: int, opened: int = 0) -> None:
        self.end = end
        self.opened = opened
        self.partitions = 1

    def describe_topics(self, _: Topics) -> TopicLayout:
        known = {TopicPartition("t", number): Partition((1,)) for number in range(self.partitions)}
        return TopicLayout(known, {1: "a"})

    def offsets(self, places: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        return {place: {EARLIEST: 0, LATEST: self.end}[logical] for place in places}

    def high_watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self.end + self.opened)

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict.fromkeys(timestamps, 0)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log(900)
    monkeypatch.setattr(room, "make_planner", lambda options: Planner(options, made, lambda _: RecordStats(100, 1000)))
    return made


def reader(**options: str) -> StreamReader:
    told = {"kafka.bootstrap.servers": "k:1", "subscribe": "t", "startingOffsets": "earliest", **options}
    return StreamReader(Options.of(told, "stream"), ("value",))


def at(offset: int) -> dict[str, Any]:
    return {"t": {"0": offset}}


def spans(pieces: Iterable[object]) -> list[tuple[int, int]]:
    read = [split.range for piece in pieces if isinstance(piece, SplitPartition) for split in piece.splits]
    return [(each.start, each.end) for each in read]


@pytest.mark.parametrize("binding", ["none", "executor"])
def test_tasks_bounds_the_tasks_of_splits_that_are_not_pulled_too(log: Log, binding: str) -> None:
    stream = reader(tasks="2", minPartitions="5", rackBinding=binding)
    pieces = stream.partitions(at(0), at(log.end))
    assert len(pieces) == 2
    assert sorted(spans(pieces)) == [(0, 180), (180, 360), (360, 540), (540, 720), (720, 900)]
    sizes = [len(piece.splits) for piece in pieces if isinstance(piece, SplitPartition)]
    assert sorted(sizes) == [2, 3]


def test_a_topic_that_metadata_lack_once_is_not_read_again(
    log: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPARK-41375: a right that was taken away for a moment, for example."""
    stream = reader(failOnDataLoss="false")
    ends = [at(900)]
    for partitions_, end in ((1, 900), (0, 900), (0, 900), (1, 910)):
        log.partitions, log.end = partitions_, end
        ends.append(stream.latestOffset(ends[-1]))
    assert ends == [at(900)] * 4 + [at(910)]
    assert spans(stream.partitions(ends[-2], ends[-1])) == [(900, 910)]
    assert caplog.text.count("no longer exist") == 1
    # A batch without it does not wait for it.
    log.partitions = 0
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits"))
    assert (stream.latestOffset(at(910)), stream.partitions(at(910), at(910))) == (at(910), [])


def test_a_task_reads_its_splits_together(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        partitions, "batches", lambda _options, splits, _names, _rack: iter([[each.range.start for each in splits]])
    )
    stream = reader(tasks="1", minPartitions="3")
    (piece,) = stream.partitions(at(0), at(log.end))
    assert list(stream.read(piece)) == [[0, 300, 600]]


@pytest.mark.parametrize(
    ("options", "tasks", "per_task"),
    [
        ({}, 1, 0),
        ({"minPartitions": "2"}, 60, 1),
        ({"maxRecordsPerPartition": "1000"}, 60, 1),
        ({"tasks": "7"}, 7, 0),
        ({"tasks": "70"}, 60, 0),
        # One for each of three racks.
        ({"rackBinding": "pull"}, 3, 0),
        ({"rackBinding": "pull", "minPartitions": "2"}, 60, 1),
        ({"rackBinding": "pull", "tasks": "7"}, 7, 0),
    ],
)
def test_small_splits_share_tasks_unless_options_say_how_many(
    options: dict[str, str], tasks: int, per_task: int
) -> None:
    splits = [
        Split(OffsetRange(TopicPartition("t", number), 0, 100), ("abc"[number % 3],), 100, 1) for number in range(60)
    ]
    chosen = reader(**options)._options
    assert task_count(chosen, splits) == tasks
    assert max_splits_per_task(chosen, tasks, splits) == per_task
    without_racks = [replace(split, racks=()) for split in splits]
    assert task_count(reader(rackBinding="pull")._options, without_racks) == 1


def test_what_is_worth_two_tasks_has_two_for_each_rack() -> None:
    splits = [Split(OffsetRange(TopicPartition("t", n), 0, 10_000), ("abc"[n % 3],), 100, 1) for n in range(10)]
    pull = reader(rackBinding="pull")._options
    assert task_count(pull, splits) == 6
    assert task_count(pull, splits[:9]) == 3
    assert task_count(pull, splits[:2]) == 2


def test_with_as_many_tasks_as_splits_each_pulls_one() -> None:
    large = [Split(OffsetRange(TopicPartition("t", number), 0, 50_000), ("a",), 100, 1) for number in range(12)]
    options = reader(rackBinding="pull")._options
    assert task_count(options, large) == 12
    assert max_splits_per_task(options, 12, large) == 1


def test_without_being_told_of_starts_a_log_that_went_back_is_seen_before_it_is_in_the_checkpoint(log: Log) -> None:
    # As Spark 4.0 and 4.1 call it.
    stream = reader()
    assert stream.initialOffset() == at(0)
    first = stream.latestOffset()
    assert first == with_start({P0: 900}, {P0: 0})
    assert spans(stream.partitions(at(0), first)) == [(0, 900)]
    log.end = 300
    with pytest.raises(DataLossError, match="the log of t-0 ends at offset 300, but was read up to 900"):
        stream.latestOffset()


def test_a_query_that_is_started_again_sees_it_when_the_batch_is_planned(log: Log) -> None:
    log.end = 300
    stream = reader()
    # A checkpoint that is gone on with: nobody has told yet where the batch starts.
    end = stream.latestOffset()
    with pytest.raises(DataLossError, match="the log of t-0 ends at offset 300, but was read up to 900"):
        stream.partitions(at(900), end)


@pytest.mark.parametrize("version", ["4.1", "4.2"])
def test_a_new_query_starts_where_it_was_although_records_are_written(
    log: Log, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    passes_start = version == "4.2"
    at_once = log.offsets

    def while_written(places: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        log.end += 10
        return at_once(places, logical)

    def latest(stream: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
        # As Spark stores it.
        return dict(json.loads(json.dumps(stream.latestOffset(*([start] if passes_start else ())))))

    stream = reader(startingOffsets="latest")
    with monkeypatch.context() as patched:
        patched.setattr(log, "offsets", while_written)
        # Before 4.2 Spark asks for the end first.
        end = latest(stream, stream.initialOffset() if passes_start else {})
        begin = stream.initialOffset()
    log.end = 950
    assert spans(stream.partitions(begin, end)) == [(910, 920)]
    # The batch was not committed: the query begins with it again, and so does every further start.
    for _ in range(2):
        again = reader(startingOffsets="latest")
        assert again.initialOffset() == at(log.end)
        assert spans(again.partitions(at(log.end), end)) == [(910, 920)]
        log.end += 40
    second = latest(again, end)
    assert second == at(log.end)
    assert spans(again.partitions(end, second)) == [(920, log.end)]
    assert latest(again, second) == second


def test_a_restarted_query_reads_on_from_its_checkpoint_before_4_2(log: Log) -> None:
    for starting in ("latest", "earliest"):
        stream = reader(startingOffsets=starting)
        log.end = 900
        end = stream.latestOffset()
        log.end = 950
        # The checkpoint has a start, so where a new query would start does not matter.
        assert spans(stream.partitions(at(700), end)) == [(700, 900)]
        third = stream.latestOffset()
        assert spans(stream.partitions(end, third)) == [(900, 950)]
        # Neither does it in a batch that another reader has planned.
        again = reader(startingOffsets=starting)
        assert spans(again.partitions(at(700), end)) == [(700, 900)]


@pytest.mark.usefixtures("log")
def test_a_start_that_no_longer_fits_stops_no_restarted_query() -> None:
    stream = reader(startingOffsets='{"t": {"0": 5, "1": 5}}')
    end = stream.latestOffset()
    assert spans(stream.partitions(at(700), end)) == [(700, 900)]
    with pytest.raises(ConfigError, match="startingOffsets: t-1: not among"):
        reader(startingOffsets='{"t": {"0": 5, "1": 5}}').initialOffset()


@pytest.mark.usefixtures("log")
def test_without_new_records_the_end_of_the_first_batch_stays_what_it_is() -> None:
    stream = reader()
    end = stream.latestOffset(stream.initialOffset())
    # Spark compares the JSON.
    assert stream.latestOffset(end) == end
    assert stream.partitions(end, end) == []


def test_partitions_that_are_added_before_the_first_batch_is_committed_are_read_after_it(log: Log) -> None:
    end = with_start({P0: 10}, {P0: 3})
    log.partitions = 2
    stream = reader()
    assert stream.initialOffset() == {"t": {"0": 0, "1": 0}}
    assert spans(stream.partitions(stream.initialOffset(), end)) == [(3, 10)]
    assert spans(stream.partitions(end, {"t": {"0": 10, "1": 7}})) == [(0, 7)]


def test_a_first_batch_whose_start_is_not_known_is_not_taken_for_another(log: Log) -> None:
    # The JVM source has its start in a file of its own.
    stream = reader(startingOffsets="latest")
    with pytest.raises(DataLossError, match="the first batch of the query ends at offset 890 of t-0, and where it"):
        stream.partitions(stream.initialOffset(), at(890))
    stream = reader()
    log.partitions = 2
    assert spans(stream.partitions(stream.initialOffset(), at(890))) == [(0, 890)]


@pytest.mark.usefixtures("log")
def test_a_start_in_a_checkpoint_that_cannot_be_read_is_an_error() -> None:
    (name,) = set(with_start({}, {P0: 3}))
    for broken in (name[:-1], name.replace("3", "-3")):
        stream = reader()
        with pytest.raises(InputError, match="checkpoint"):
            stream.partitions(stream.initialOffset(), {"t": {"0": 10}, broken: {}})


def test_without_failing_on_loss_it_goes_on_from_the_end_there_is(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    stream = reader(failOnDataLoss="false")
    stream.partitions(at(0), at(900))
    log.end = 300
    with caplog.at_level("WARNING"):
        assert stream.latestOffset() == at(300)
        assert spans(stream.partitions(at(900), at(300))) == []
        log.end = 320
        assert stream.latestOffset() == at(320)
        assert spans(stream.partitions(at(300), at(320))) == [(300, 320)]
    assert len(caplog.records) == 1


def test_an_open_transaction_neither_ends_a_query_nor_takes_it_back(log: Log) -> None:
    stream = reader(**{"kafka.isolation.level": "read_committed"})
    stream.partitions(at(0), at(900))
    log.end, log.opened = 850, 60
    assert stream.latestOffset() == at(900)
    log.end, log.opened = 910, 0
    assert stream.latestOffset() == at(910)


def test_what_was_captured_is_kept_to_even_if_it_is_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader()
    with monkeypatch.context() as nothing:
        nothing.setattr(log, "describe_topics", lambda _: TopicLayout({}, {}))
        stream.capture()
    assert from_json(stream.latestOffset()) == {}


def test_a_reader_that_has_planned_can_travel(log: Log) -> None:
    stream = reader()
    stream.partitions(at(0), at(log.end))
    assert isinstance(pickle.loads(pickle.dumps(stream)), StreamReader)  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscirbe": "t"}, "unknown option subscirbe"),
        ({"endingOffsets": "latest"}, "endingOffsets: not supported for a stream"),
        ({"kafka.max.partition.fetch.bytes": "many"}, "max.partition.fetch.bytes: expected a whole number"),
    ],
)
def test_what_cannot_work_is_said_where_spark_shows_it(options: dict[str, str], told: str) -> None:
    # What `streamReader` raises is hidden by an UnboundLocalError of Spark: it stops the reader all the same.
    source = RackassignDataSource({"kafka.bootstrap.servers": "k:1", "subscribe": "t", **options})
    reader = pickle.loads(pickle.dumps(source.streamReader(StructType([]))))  # noqa: S301 - our own
    for ask in (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.partitions({}, {}),
        lambda: reader.read(SplitPartition(())),
    ):
        with pytest.raises(ConfigError, match=told):
            ask()
    reader.stop()


GUARD_S = 120.0


class Group:
    """A group to which offsets are committed, one request after the other, when the test lets it."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.asked = threading.Semaphore(0)
        self.may = threading.Semaphore(0)
        self.problem: Exception | None = None

    def send(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.asked.release()
        assert self.may.acquire(timeout=GUARD_S)
        if self.problem is not None:
            raise self.problem
        self.sent.append(offsets[P0])


def test_slow_brokers_get_the_newest_offsets_only_and_hold_up_nothing() -> None:
    group = Group()
    publisher = OffsetPublisher("g", group.send)
    publisher.publish({P0: 1})
    assert group.asked.acquire(timeout=GUARD_S)
    for offset in (2, 3, 4):
        publisher.publish({P0: offset})
    group.may.release(2)
    publisher.close(GUARD_S)
    assert group.sent == [1, 4]
    publisher.publish({P0: 5})
    assert group.sent == [1, 4]


def test_brokers_that_do_not_respond_do_not_keep_a_query_from_ending() -> None:
    group = Group()
    publisher = OffsetPublisher("g", group.send)
    publisher.publish({P0: 1})
    assert group.asked.acquire(timeout=GUARD_S)
    publisher.close(0.01)
    group.may.release()


def test_each_problem_is_a_warning_once_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    publisher = OffsetPublisher("g", group.send)
    steps = [
        KafkaUnavailableError("down"),
        KafkaUnavailableError("down"),
        None,
        KafkaUnavailableError("down"),
        OSError(5),
    ]
    with caplog.at_level(logging.WARNING):
        for number, problem in enumerate(steps):
            publisher.publish({P0: number})
            assert group.asked.acquire(timeout=GUARD_S)
            group.problem = problem
            group.may.release()
            # The next one is sent when this one has ended.
        publisher.close(GUARD_S)
    assert group.sent == [2]
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["down", "down", "5"]
    assert caplog.messages[0] == "commitGroup: offsets of group g are not committed: down"


def test_offsets_that_were_not_committed_are_sent_again_although_there_are_no_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offset_publisher, "_RETRY_S", 0.0)
    group = Group()
    group.problem = KafkaUnavailableError("down")
    group.may.release(100)
    publisher = OffsetPublisher("g", group.send)
    publisher.publish({P0: 1})
    assert group.asked.acquire(timeout=GUARD_S)
    wait_until(lambda: publisher._retry_at is not None, "the failure", timeout_s=GUARD_S)
    # But not at once: an idle stream publishes its offsets many times a second.
    monkeypatch.setattr(publisher, "_retry_at", time.monotonic() + 3600)
    publisher.publish({P0: 1})
    group.problem = None
    monkeypatch.setattr(publisher, "_retry_at", time.monotonic())
    for _ in range(3):
        publisher.publish({P0: 1})
    publisher.close(GUARD_S)
    assert group.sent == [1]
    # Of the four calls after the failure only the second one has sent them.
    assert group.asked.acquire(blocking=False)
    assert not group.asked.acquire(blocking=False)


def test_closing_without_offsets_ends_at_once() -> None:
    OffsetPublisher("g", Group().send).close(GUARD_S)


def test_the_option_is_for_streams() -> None:
    options = {"kafka.bootstrap.servers": "k:1", "subscribe": "t", "commitGroup": "lag"}
    assert Options.of(options, "stream").commit_group == "lag"
    with pytest.raises(ConfigError, match="commitGroup: only for streams"):
        Options.of(options, "batch")
    with pytest.raises(ConfigError, match="commitGroup: expected a value"):
        Options.of({**options, "commitGroup": " "}, "stream")
