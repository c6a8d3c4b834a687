"""What a batch of the Spark source holds, without Spark and without brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError, InputError, KafkaUnavailableError
from rackassign.model import Partition, TopicPartition
from rackassign.spark._batch_planner import Planner
from rackassign.spark._fetch_size import MAX_FETCH_BYTES, ONE_BATCH, SMALL_RANGE_BYTES, UNKNOWN, RecordStats, fetch_size
from rackassign.spark._metadata import NO_LATER, TopicLayout, UnknownPartitionError
from rackassign.spark._offsets import EARLIEST, LATEST, Offsets
from rackassign.spark._options import Options, Topics
from rackassign.spark._range_reader import DataLossError
from rackassign.spark._record_sampling import sample
from rackassign.spark._splits import (
    MOST_SPLITS,
    OffsetRange,
    Split,
    distribute,
    read_together,
    split_ranges,
    worthwhile_tasks,
)

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
RACKS = {1: "a", 2: "b", 3: "c"}


class Cluster:
    """Brokers that hold what a test says: for each partition where its log starts and ends."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]], opened: int = 0) -> None:
        self.logs = dict(logs)
        self.opened = opened
        """Records of open transactions behind the end."""

    def describe_topics(self, topics: Topics) -> TopicLayout:
        assert topics.names == ("t",)
        replicas = {place: Partition((place.partition + 1, place.partition % 3 + 7)) for place in self.logs}
        return TopicLayout(replicas, RACKS)

    def offsets(self, places: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        return {place: self.logs[place][{EARLIEST: 0, LATEST: 1}[logical]] for place in places}

    def high_watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.logs[place][1] + self.opened for place in places}

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Records are as late as their offset."""
        return {place: at if at < self.logs[place][1] else NO_LATER for place, at in timestamps.items()}


def planner(cluster: Cluster, *, mode: str = "stream", **options: str) -> Planner:
    told = {"kafka.bootstrap.servers": "k:1", "subscribe": "t", **options}
    return Planner(
        Options.of(told, "batch" if mode == "batch" else "stream"), cluster, lambda _: RecordStats(100, 1000)
    )


def spans(splits: Iterable[Split]) -> list[tuple[int, int, int]]:
    return [(split.range.tp.partition, split.range.start, split.range.end) for split in splits]


def test_a_batch_holds_all_there_is() -> None:
    splits = planner(Cluster({P0: (5, 10), P1: (0, 0), P2: (0, 1000)}), mode="batch").batch()
    assert spans(splits) == [(0, 5, 10), (2, 0, 1000)]
    assert [split.racks for split in splits] == [("a",), ("c",)]
    assert [split.size for split in splits] == [500, 100_000]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"t": {"0": 7, "1": -2}}', "endingOffsets": '{"t": {"0": -1, "1": 9}}'}, [7, 20, 3, 9]),
        ({"startingTimestamp": "8"}, [8, 20, 8, 20]),
        ({"startingTimestamp": "8", "endingTimestamp": "30"}, [8, 20, 8, 20]),
        ({"endingTimestamp": "12"}, [0, 12, 3, 12]),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 4, "1": 5}}', "endingOffsets": "latest"}, [4, 20, 5, 20]),
        ({"startingTimestamp": "30", "startingOffsetsByTimestampStrategy": "latest"}, []),
    ],
)
def test_bounds_are_what_options_say(options: dict[str, str], expected: list[int]) -> None:
    splits = planner(Cluster({P0: (0, 20), P1: (3, 20)}), mode="batch", **options).batch()
    assert [number for span in spans(splits) for number in span[1:]] == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingTimestamp": "30"}, "t-0, t-1: no record with this timestamp.*startingOffsetsByTimestampStrategy"),
        ({"startingOffsets": '{"t": {"0": 7}}'}, "startingOffsets: no offset for t-1; use -1 for latest"),
        ({"startingOffsets": '{"t": {"0": 7, "1": 7, "2": 7}}'}, "startingOffsets: t-2: not among"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 7}}'}, r"startingOffsetsByTimestamp: no timestamp for t-1$"),
        (
            {"startingOffsets": '{"t": {"0": 7, "1": 99}}'},
            "^startingOffsets: t-1 starts at offset 99, after the end",
        ),
        (
            {"startingOffsets": '{"t": {"0": 7, "1": 7}}', "endingOffsets": '{"t": {"0": 6, "1": 8}}'},
            "^endingOffsets: t-0 ends at offset 6, before its start at 7",
        ),
    ],
)
def test_bounds_that_do_not_fit_are_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        planner(Cluster({P0: (0, 20), P1: (3, 20)}), mode="batch", **options).batch()


def test_a_batch_that_starts_behind_an_open_transaction_has_no_records_yet() -> None:
    cluster = Cluster({P0: (0, 20), P1: (3, 20)}, opened=5)
    splits = planner(cluster, mode="batch", startingOffsets='{"t": {"0": 25, "1": 7}}').batch()
    assert spans(splits) == [(1, 7, 20)]
    with pytest.raises(ConfigError, match="t-0 starts at offset 26, after the end of its log at 20"):
        planner(cluster, mode="batch", startingOffsets='{"t": {"0": 26, "1": 7}}').batch()


def test_an_end_that_has_expired_is_lost_data() -> None:
    cluster, ends = Cluster({P0: (100, 500), P1: (0, 500)}), {"endingOffsets": '{"t": {"0": 50, "1": 400}}'}
    with pytest.raises(DataLossError, match="the records of t-0 before offset 50 are deleted"):
        planner(cluster, mode="batch", **ends).batch()
    assert spans(planner(cluster, mode="batch", failOnDataLoss="false", **ends).batch()) == [(1, 0, 400)]


class Forgetful(Cluster):
    """Brokers that know a partition only in their metadata for a while."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]], failures: float, *, deleted: bool) -> None:
        super().__init__(logs)
        self._failures, self._deleted = failures, deleted

    def offsets(self, places: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        if P1 in (places := set(places)) and self._failures > 0:
            self._failures -= 1
            if self._deleted:
                del self.logs[P1]
            raise UnknownPartitionError("refused")
        return super().offsets(places, logical)


@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize("ask", [lambda plan: plan.initial(), lambda plan: plan.latest()])
def test_a_partition_that_is_not_known_after_it_was_described_is_described_again(
    ask: Callable[[Planner], dict[TopicPartition, int]], *, deleted: bool
) -> None:
    cluster = Forgetful({P0: (0, 5), P1: (0, 5)}, 2, deleted=deleted)
    assert ask(planner(cluster)) == ({P0: 5} if deleted else {P0: 5, P1: 5})
    batch = Forgetful({P0: (0, 5), P1: (0, 5)}, 1, deleted=deleted)
    assert len(planner(batch, mode="batch").batch()) == (1 if deleted else 2)


def test_a_partition_that_is_never_known_ends_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackassign.spark._batch_planner._PROPAGATION_S", 0.3)
    with pytest.raises(UnknownPartitionError, match="refused"):
        planner(Forgetful({P0: (0, 5), P1: (0, 5)}, float("inf"), deleted=False)).latest()


def test_a_sample_that_fails_does_not_end_the_query(caplog: pytest.LogCaptureFixture) -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "isolation.level": "read_committed", "log_level": "0"}
    options = Options.of({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, "batch")
    found = Planner(options, Cluster({P0: (0, 1000)}), lambda offsets: sample(client, offsets)).batch()
    assert spans(found) == [(0, 0, 1000)]
    assert "cannot sample the records of topic t: " in caplog.text
    rejected = {**client, "receive.message.max.bytes": "x"}
    Planner(options, Cluster({P0: (0, 1000)}), lambda offsets: sample(rejected, offsets)).batch()
    assert "librdkafka rejected the configuration" in caplog.text


def test_a_stream_begins_where_it_is_told_and_new_partitions_at_their_first_record() -> None:
    cluster = Cluster({P0: (0, 10)})
    plan = planner(cluster, startingOffsets="latest")
    begin = plan.initial()
    assert begin == {P0: 10}
    cluster.logs |= {P0: (0, 15), P1: (0, 4)}
    end = plan.next(begin, plan.latest(), None)
    assert end == {P0: 15, P1: 4}
    assert spans(plan.stream(begin, end)) == [(0, 10, 15), (1, 0, 4)]


def test_a_limit_counts_from_where_the_batch_starts() -> None:
    plan = planner(Cluster({P0: (0, 100), P1: (0, 100)}))
    assert plan.next({P0: 100}, plan.latest(), 10) == {P0: 100, P1: 10}
    assert plan.next({P0: 50, P1: 50}, plan.latest(), 10) == {P0: 55, P1: 55}


@pytest.mark.parametrize(
    ("start", "now", "told"),
    [
        ({P0: 5, P1: 5}, {P0: (0, 9)}, "partitions t-1 no longer exist"),
        ({P0: 15}, {P0: (0, 9)}, "the log of t-0 ends at offset 9, but was read up to 15"),
        ({P0: 5}, {P0: (0, 9), P1: (3, 9)}, "the new partition t-1 starts at offset 3 instead of 0"),
    ],
)
def test_loss_ends_the_query_or_is_left_out(
    start: dict[TopicPartition, int], now: dict[TopicPartition, tuple[int, int]], told: str
) -> None:
    strict, lenient = planner(Cluster(now)), planner(Cluster(now), failOnDataLoss="false")
    with pytest.raises(DataLossError, match=told):
        strict.stream(start, strict.next(start, strict.latest(), None))
    end = lenient.next(start, lenient.latest(), None)
    read = spans(lenient.stream(start, end))
    assert all(begin >= now[TopicPartition("t", number)][0] for number, begin, _ in read)
    assert set(end) == {*now, *start}


def test_what_was_read_of_open_transactions_is_no_loss() -> None:
    waiting = planner(Cluster({P0: (0, 9), P1: (0, 9)}, opened=6))
    end = waiting.next({P0: 15, P1: 3}, waiting.latest(), None)
    assert end == {P0: 15, P1: 9}
    assert spans(waiting.stream({P0: 15, P1: 3}, end)) == [(1, 3, 9)]


@pytest.mark.parametrize("binding", ["executor", "pull"])
def test_a_batch_that_would_end_before_it_begins_is_a_loss_whoever_planned_it(
    binding: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Before Spark 4.2 nothing but this sees where a batch of a query that goes on begins.
    start, end = {P0: 900, P1: 5}, {P0: 300, P1: 9}
    logs = {P0: (0, 300), P1: (0, 9)}
    with pytest.raises(
        DataLossError, match="the log of t-0 ends at offset 300, but was read up to 900: records may be lost; fail"
    ):
        planner(Cluster(logs), rackBinding=binding).stream(start, end)
    lenient = planner(Cluster(logs), rackBinding=binding, failOnDataLoss="false")
    with caplog.at_level("WARNING"):
        for _ in range(3):
            assert spans(lenient.stream(start, end)) == [(1, 5, 9)]
    assert [record.getMessage() for record in caplog.records] == [
        (
            "the log of t-0 ends at offset 300, but was read up to 900: records may be lost; "
            "failOnDataLoss=false continues without them"
        )
    ]
    # The next batch begins where the log ends now.
    assert spans(lenient.stream(end, {P0: 340, P1: 9})) == [(0, 300, 340)]


def test_a_loss_is_warned_of_once_and_once_more_when_it_happens_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster({P0: (0, 300)})
    plan = planner(cluster, failOnDataLoss="false")
    with caplog.at_level("WARNING"):
        for start in ({P0: 900}, {P0: 500}):
            end = plan.next(start, plan.latest(), 10)
            assert end == {P0: 300}
            assert plan.stream(start, end) == plan.stream(start, end) == []
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"the log of t-0 ends at offset 300, but was read up to {start}" for start in (900, 500)
    ]


def test_a_batch_that_goes_back_to_an_open_transaction_says_that_records_come_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Read without `read_committed` first, and with it now: where the log ends is not where this reader stops.
    options = {"kafka.isolation.level": "read_committed"}
    with pytest.raises(
        DataLossError, match="t-0 was read up to offset 15, but the next batch would start at 9: records would"
    ):
        planner(Cluster({P0: (0, 9)}, opened=6), **options).stream({P0: 15}, {P0: 9})
    with caplog.at_level("WARNING"):
        lenient = planner(Cluster({P0: (0, 9)}, opened=6), failOnDataLoss="false", **options)
        assert lenient.stream({P0: 15}, {P0: 9}) == []
    assert "records would be read again; failOnDataLoss=false reads them again" in caplog.text


@given(
    st.dictionaries(st.sampled_from([P0, P1, P2]), st.integers(0, 20), min_size=1),
    st.dictionaries(st.sampled_from([P0, P1, P2]), st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1),
    st.integers(0, 5),
)
def test_no_offset_is_passed_in_silence(
    start: dict[TopicPartition, int], logs: dict[TopicPartition, tuple[int, int]], opened: int
) -> None:
    logs = {place: (min(log), max(log)) for place, log in logs.items()}
    end = {place: log[1] for place, log in logs.items()}
    try:
        read = {place: (begin, stop) for place, begin, stop in places_of(planner(Cluster(logs, opened)), start, end)}
    except DataLossError:
        return
    for place, stop in end.items():
        begin = start.get(place, 0)
        assert read.get(place, (begin, begin)) == (begin, stop)
    assert set(start) <= set(end)


def places_of(plan: Planner, start: Offsets, end: Offsets) -> list[tuple[TopicPartition, int, int]]:
    return [(split.range.tp, split.range.start, split.range.end) for split in plan.stream(start, end)]


def test_a_partition_that_went_after_its_batch_was_planned_is_a_loss() -> None:
    with pytest.raises(DataLossError, match="partitions t-1 no longer exist"):
        planner(Cluster({P0: (0, 9)})).stream({P0: 5, P1: 5}, {P0: 9, P1: 9})
    lenient = planner(Cluster({P0: (0, 9)}), failOnDataLoss="false")
    assert spans(lenient.stream({P0: 5, P1: 5}, {P0: 9, P1: 9})) == [(0, 5, 9)]


def test_replayed_batches_have_the_same_splits() -> None:
    plan = planner(Cluster({P0: (0, 900), P1: (0, 70)}), minPartitions="7")
    start, end = {P0: 3}, {P0: 850, P1: 60}
    assert plan.stream(start, end) == planner(Cluster({P0: (0, 999), P1: (0, 99)}), minPartitions="7").stream(
        start, end
    )


def test_records_are_looked_at_once_and_not_for_a_few() -> None:
    looked: list[OffsetRange] = []

    def look(wanted: OffsetRange) -> RecordStats:
        looked.append(wanted)
        return RecordStats(10, 100)

    options = Options.of({"kafka.bootstrap.servers": "k:1", "subscribe": "t"}, "stream")
    plan = Planner(options, Cluster({P0: (0, 10_000), P1: (0, 10_000)}), look)
    assert [split.size for split in plan.stream({P0: 0, P1: 0}, {P0: 9, P1: 9})] == [round(9 * UNKNOWN.record)] * 2
    assert looked == []
    plan.stream({P0: 0, P1: 0}, {P0: 100, P1: 900})
    assert [split.size for split in plan.stream({P0: 100, P1: 900}, {P0: 1100, P1: 900})] == [10_000]
    assert looked == [OffsetRange(P1, 0, 900)]


def test_what_records_are_like_may_remain_unknown() -> None:
    def look(_: OffsetRange) -> RecordStats:
        raise KafkaUnavailableError("nobody there")

    options = Options.of({"kafka.bootstrap.servers": "k:1", "subscribe": "t"}, "stream")
    plan = Planner(options, Cluster({P0: (0, 10_000)}), look)
    assert spans(plan.stream({P0: 0}, {P0: 500})) == [(0, 0, 500)]


@pytest.mark.parametrize("wanted", [{"max_records": 1}, {"min_splits": MOST_SPLITS + 1}])
def test_more_splits_than_the_driver_can_plan_are_refused(wanted: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"^(maxRecordsPerPartition=1|minPartitions=1000001): the 1000001 offsets"):
        split_ranges([OffsetRange(P0, 0, MOST_SPLITS), OffsetRange(P1, 5, 6)], **wanted)


RANGES = st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 10**6), st.integers(0, 5000)), max_size=12)


@given(RANGES, st.integers(0, 60), st.integers(0, 700))
def test_pieces_are_the_ranges_and_as_many_and_small_as_wanted(
    told: dict[int, tuple[int, int]], least: int, most_records: int
) -> None:
    whole = [OffsetRange(TopicPartition("t", number), start, start + size) for number, (start, size) in told.items()]
    pieces = split_ranges(whole, min_splits=least, max_records=most_records)
    for each in whole:
        parts = [piece for piece in pieces if piece.tp == each.tp]
        covered = [offset for part in parts for offset in (part.start, part.end)]
        expected = [each.start, *covered[1:-1], each.end] if len(each) else []
        assert covered == expected
        assert covered[1:-1:2] == covered[2::2]
        assert all(parts)
        assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(not most_records or len(piece) <= most_records for piece in pieces)
    ranges = split_ranges(whole, max_records=most_records)
    assert len(pieces) == max(len(ranges), min(least, sum(map(len, whole))))


def test_a_large_range_among_small_ones_is_divided_into_as_many_pieces_as_are_missing() -> None:
    """Spark's own source has as many (KafkaOffsetRangeCalculator)."""
    whole = [OffsetRange(TopicPartition("t", 0), 0, 1_000_000)]
    whole += [OffsetRange(TopicPartition("t", number), 0, 10) for number in range(1, 31)]
    pieces = split_ranges(whole, min_splits=32)
    assert [len(piece) for piece in pieces] == [500_000] * 2 + [10] * 30


def test_ranges_of_a_kind_get_pieces_in_proportion() -> None:
    whole = [OffsetRange(TopicPartition("t", number), 0, size) for number, size in enumerate((100, 200, 300))]
    assert Counter(piece.tp.partition for piece in split_ranges(whole, min_splits=12)) == {0: 2, 1: 4, 2: 6}


@given(st.lists(st.integers(0, 100), max_size=40), st.integers(0, 50), st.randoms(use_true_random=False))
def test_splits_are_spread_evenly_over_no_more_tasks_than_wanted(sizes: list[int], tasks: int, chance: Random) -> None:
    splits = [Split(OffsetRange(TopicPartition("t", i), 0, 1), ("a",), size, 1) for i, size in enumerate(sizes)]
    given = distribute(splits, tasks)
    assert sorted(split.range.tp for each in given for split in each) == [split.range.tp for split in splits]
    assert len(given) == (min(tasks, len(splits)) if tasks else len(splits))
    assert all(given)
    for each in given:
        assert [split.range.tp for split in each] == sorted(split.range.tp for split in each)
    loads = [sum(split.size for split in each) for each in given]
    assert max(loads, default=0) - min(loads, default=0) <= max(sizes, default=0)
    if 0 < tasks < len(splits):
        # A batch that is planned again has the same tasks.
        assert distribute(chance.sample(splits, len(splits)), tasks) == given


def split(number: int, records: int, size: int) -> Split:
    return Split(OffsetRange(TopicPartition("t", number), 0, records), ("a",), size, 1)


@pytest.mark.parametrize(
    ("splits", "minimum", "tasks"),
    [
        ([], 1, 0),
        ([(1, 100)] * 60, 1, 1),
        # So many records, however small they are.
        ([(50_000, 100)] * 12, 1, 12),
        ([(25_000, 100)] * 12, 1, 6),
        # Or so many bytes, however few records they are in.
        ([(10, 2**24)] * 12, 1, 12),
        ([(10, 2**22)] * 12, 1, 3),
        ([(10**7, 2**34)] * 3, 1, 3),
        ([(1, 100)] * 60, 6, 6),
        ([(1, 100)] * 4, 6, 4),
        ([(50_000, 100)] * 12, 6, 12),
    ],
)
def test_a_task_reads_enough_to_be_worth_its_cost(splits: list[tuple[int, int]], minimum: int, tasks: int) -> None:
    assert worthwhile_tasks([split(number, *each) for number, each in enumerate(splits)], minimum) == tasks


@pytest.mark.parametrize(
    ("fetches", "most", "groups"),
    [
        ([65_536] * 600, 4 * 2**20, [512, 88]),
        ([131_072] * 40, 4 * 2**20, [32, 8]),
        ([4 * 2**20] * 3, 4 * 2**20, [1, 1, 1]),
        ([ONE_BATCH] * 40, 4 * 2**20, [16, 16, 8]),
        # With a lower limit than when the batch was planned.
        ([131_072] * 2, 65_536, [1, 1]),
        # A consumer has one size of fetches.
        ([65_536, ONE_BATCH, 65_536, ONE_BATCH], 4 * 2**20, [2, 2]),
        ([], 4 * 2**20, []),
    ],
)
def test_splits_are_read_together_as_far_as_a_fetch_for_each_is_no_more_than_one(
    fetches: list[int], most: int, groups: list[int]
) -> None:
    splits = [replace(split(number, 5, 50), fetch_bytes=fetch) for number, fetch in enumerate(fetches)]
    found = read_together(splits, most)
    assert [len(group) for group in found] == groups
    assert sorted((each for group in found for each in group), key=lambda each: each.range.tp) == splits
    assert all(len({each.fetch_bytes for each in group}) == 1 for group in found)


def test_splits_of_one_partition_are_read_one_after_the_other() -> None:
    halves = [Split(OffsetRange(P0, start, start + 5), (), 50, ONE_BATCH) for start in (0, 5)]
    found = read_together([*halves, split(1, 5, 50)], 65_536)
    assert found == [(halves[0],), (halves[1], split(1, 5, 50))]


def test_small_ranges_at_the_end_of_the_log_are_fetched_at_once() -> None:
    cluster = Cluster({P0: (0, 10), P1: (0, 1000), P2: (0, 10)})
    # The ranges have 1 kB, 100 kB and 1 kB, in batches of 1 kB.
    assert fetches(planner(cluster, mode="batch").batch()) == {0: SMALL_RANGE_BYTES, 1: 8192, 2: SMALL_RANGE_BYTES}
    assert fetches(planner(cluster, mode="batch", **{"kafka.max.partition.fetch.bytes": "5000"}).batch())[0] == 4096
    reader = planner(cluster)
    end = reader.next({P0: 0, P1: 0, P2: 0}, reader.latest(), 500)
    # A limit ends ranges within the log.
    assert end[P1] < 1000
    end[P2] = 10
    found = fetches(reader.stream({P0: 0, P1: 0, P2: 5}, {P0: 5, P1: end[P1], P2: 10}))
    assert found[0] == ONE_BATCH
    assert found[2] == SMALL_RANGE_BYTES
    # A planner that has not requested the latest offsets has no reason.
    assert set(fetches(planner(cluster).stream({P0: 0, P2: 5}, {P0: 10, P2: 10})).values()) == {ONE_BATCH}


def fetches(splits: Iterable[Split]) -> dict[int, int]:
    return {each.range.tp.partition: each.fetch_bytes for each in splits}


def test_a_range_that_runs_backwards_is_refused() -> None:
    with pytest.raises(InputError, match="start <= end"):
        OffsetRange(P0, 5, 4)


@given(
    records=st.integers(1, 10**7),
    record=st.floats(1, 1e6, allow_nan=False),
    per_batch=st.floats(1, 1e3, allow_nan=False),
    most=st.integers(1, MAX_FETCH_BYTES),
    ends_log=st.booleans(),
)
def test_what_is_thrown_away_is_bounded(
    *, records: int, record: float, per_batch: float, most: int, ends_log: bool
) -> None:
    grain = RecordStats(record, record * per_batch)
    fetch, whole = fetch_size(records, grain, most, ends_log=ends_log), records * record
    if fetch == ONE_BATCH:
        # Round trips are bounded where batches are small.
        few_batches = not ends_log and whole < 8 * 12 * grain.batch + 16
        assert few_batches or grain.batch >= 2**17 or most < 12 * grain.batch + 2
        return
    assert fetch <= most
    past_the_end, cut_batches = fetch / whole, grain.batch / 2 / fetch
    assert ends_log or past_the_end <= 1 / 8
    assert cut_batches <= 1 / 12 or (ends_log and whole <= 64 * 2**10)
