"""A range is read whole, and little more than it, whatever comes in place of records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.spark._arrow import check_columns, to_batches
from rackassign.spark._kafka_clients import ConsumerPool
from rackassign.spark._options import Options
from rackassign.spark._range_reader import DataLossError, ReadOptions, consumer_properties, read
from rackassign.spark._splits import OffsetRange
from rackassign.spark._tasks import executor_rack

PLACE = TopicPartition("t", 0)
IMPATIENT = ReadOptions(poll_timeout_s=0.001)


@dataclass(frozen=True)
class Record:
    """A record, or what comes in place of one."""

    at: int
    size: int = 10
    problem: KafkaError | None = None
    place: int | None = 0

    def __len__(self) -> int:
        return self.size

    def topic(self) -> str:
        return PLACE.topic

    def partition(self) -> int | None:
        return self.place

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.problem

    def key(self) -> bytes | None:
        return b"k" if self.at % 2 else None

    def value(self) -> bytes:
        return bytes(self.size)

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000 + self.at

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return [("h", b"1"), ("h", None)] if self.at % 2 else None


@dataclass
class Log:
    """A consumer of one partition, all of which is on this machine."""

    records: list[Record]
    start: int
    end: int
    troubles: list[KafkaError] = field(default_factory=list)
    taken: int = -1
    at: int = 0
    told_end: bool = False

    def assign(self, places: list[Any]) -> None:
        self.at = places[0].offset
        self.told_end = False

    def unassign(self) -> None:
        pass

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return self.start, self.end

    def consume(self, most: int, _timeout: float) -> list[Record]:
        if self.troubles:
            return [Record(-1001, problem=self.troubles.pop(0))]
        if not self.start <= self.at <= self.end:
            return [Record(self.at, problem=KafkaError(KafkaError._AUTO_OFFSET_RESET))]
        got = [record for record in self.records if record.at >= self.at][:most]
        if got:
            self.at = got[-1].at + 1
            self.taken = max(self.taken, got[-1].at)
        elif not self.told_end:
            self.told_end = True
            got = [Record(self.end, problem=KafkaError(KafkaError._PARTITION_EOF))]
        return got


def played(log: Any, start: int, end: int, terms: ReadOptions = IMPATIENT) -> list[int]:
    chunks: Iterator[list[Any]] = read(log, [OffsetRange(PLACE, start, end)], terms)
    return [record.at for chunk in chunks for record in chunk]


def converted(chunks: list[list[Any]], names: tuple[str, ...], rows: int = 100, size: int = 10_000) -> list[Any]:
    return list(to_batches(iter(chunks), names, max_rows=rows, max_bytes=size))


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 300)), min_size=1, max_size=8)),
    st.integers(8, 30),
    st.integers(300, 3000),
)
def test_batches_have_all_records_in_order_and_no_more_than_fits(
    chunks: list[list[tuple[int, int]]], most_rows: int, most_bytes: int
) -> None:
    at, given_chunks = 0, list[list[Any]]()
    for sizes in chunks:
        given_chunks.append([])
        for step, size in sizes:
            # Sometimes offsets are missing: of records that were compacted, and of transactions.
            at += step
            given_chunks[-1].append(Record(at, size))
    batches = converted(given_chunks, ("value", "offset", "partition"), most_rows, most_bytes)
    expected = [(record.at, record.size, 0) for chunk in given_chunks for record in chunk]
    assert [
        (row["offset"], len(row["value"]), row["partition"]) for batch in batches for row in batch.to_pylist()
    ] == expected
    largest = max((sum(map(len, chunk)) for chunk in given_chunks), default=0)
    for batch in batches:
        assert batch.num_rows <= most_rows
        # Lengths take four bytes each.
        assert batch.column("value").nbytes <= max(most_bytes, largest + 4 * 9)
    for batch in batches[:-1]:
        # As full as the next part, of up to eight records, allows.
        assert batch.num_rows + 8 > most_rows or batch.nbytes + largest + 12 * 9 > most_bytes


@given(st.sets(st.integers(0, 400)), st.integers(0, 400), st.integers(0, 400), st.integers(1, 50))
def test_a_range_is_read_whole_wherever_records_are_missing(there: set[int], a: int, b: int, rows: int) -> None:
    start, end = min(a, b), max(a, b)
    log = Log([Record(at) for at in sorted(there)], 0, 401)
    terms = ReadOptions(poll_timeout_s=0.001, batch_rows=rows)
    assert played(log, start, end, terms) == [at for at in sorted(there) if start <= at < end]


@pytest.mark.parametrize("rows", [1, 10, 64, 200])
def test_no_part_has_more_records_than_a_batch_may_have(rows: int) -> None:
    log: Any = Log([Record(at) for at in range(1000)], 0, 1000)
    parts = list(read(log, [OffsetRange(PLACE, 0, 1000)], ReadOptions(poll_timeout_s=0.001, batch_rows=rows)))
    assert sum(map(len, parts)) == 1000
    # The first one included, before anything is known of the records.
    assert max(map(len, parts)) <= rows
    assert max(batch.num_rows for batch in converted(parts, ("offset",), rows)) <= rows


def test_nothing_is_taken_past_the_end_where_all_records_are_there() -> None:
    log = Log([Record(at) for at in range(5000)], 0, 5000)
    assert played(log, 100, 3100) == list(range(100, 3100))
    assert log.taken == 3099


def test_little_is_taken_past_the_end_where_most_records_are_gone() -> None:
    log = Log([Record(at) for at in range(0, 100_000, 10)], 0, 100_000)
    assert len(played(log, 0, 50_000)) == 5000
    assert log.taken < 50_000 * 1.01


def test_few_large_records_are_taken_at_a_time() -> None:
    log = Log([Record(at, size=1000) for at in range(500)], 0, 500)
    reading: Any = log
    sizes = [len(chunk) for chunk in read(reading, [OffsetRange(PLACE, 0, 500)], ReadOptions(batch_bytes=20_000))]
    # With their keys, of a byte each.
    assert max(sizes) == 19
    assert sum(sizes) == 500


def test_large_records_behind_small_ones_are_packed_by_their_bytes() -> None:
    log: Any = Log([Record(at, size=10 if at < 5000 else 5_000_000) for at in range(5100)], 0, 5100)
    packed = list(read(log, [OffsetRange(PLACE, 0, 5100)], ReadOptions()))
    assert sum(map(len, packed)) == 5100
    assert max(sum(len(record) for record in chunk) for chunk in packed) <= 16 * 2**20
    counted: Any = Log([Record(at, size=0) for at in range(300)], 0, 300)
    narrow = list(read(counted, [OffsetRange(PLACE, 0, 300)], ReadOptions(batch_bytes=20, headers=True)))
    assert max(map(len, narrow)) < max(
        map(len, read(counted, [OffsetRange(PLACE, 0, 300)], ReadOptions(batch_bytes=20)))
    )


def test_a_transaction_that_is_open_is_waited_for_and_is_no_loss() -> None:
    log: Any = Log([Record(at) for at in range(40)], 0, 40)
    terms = ReadOptions(poll_timeout_s=0.05, fail_on_loss=False, high_watermark=lambda _: 80)
    with pytest.raises(KafkaUnavailableError, match=r"last error: a transaction is open at offset 40"):
        played(log, 20, 80, terms)
    with pytest.raises(DataLossError, match="the log ends at offset 40"):
        played(log, 20, 80, ReadOptions(high_watermark=lambda _: 40))


def test_a_header_that_cannot_be_read_is_told_with_its_place() -> None:
    class Odd(Record):
        def headers(self) -> Any:
            raise SystemError("returned a result with an exception set")

        def topic(self) -> str:
            return "t"

        def partition(self) -> int:
            return 0

    odd: Any = Odd(7)
    with pytest.raises(
        RackassignError, match="t-0, offset 7: a header key is not valid UTF-8; read the topic without include"
    ):
        converted([[odd]], ("headers",))
    assert [batch.num_rows for batch in converted([[odd]], ("offset",))] == [1]
    log: Any = Log([odd], 0, 8)
    assert len(list(read(log, [OffsetRange(PLACE, 7, 8)], ReadOptions(headers=True)))) == 1


@pytest.mark.parametrize(
    ("log", "told", "kept"),
    [
        (Log([Record(at) for at in range(50, 90)], 50, 90), "the log starts at offset 50", list(range(50, 80))),
        (Log([Record(at) for at in range(40)], 0, 40), "the log ends at offset 40", list(range(20, 40))),
        (Log([], 0, 0), "the log ends at offset 0", []),
        (Log([], 500, 900), "the log starts at offset 500", []),
    ],
)
def test_loss_is_an_error_or_left_out(log: Log, told: str, kept: list[int]) -> None:
    with pytest.raises(DataLossError, match=told):
        played(log, 20, 80)
    assert played(log, 20, 80, ReadOptions(poll_timeout_s=0.001, fail_on_loss=False)) == kept


class Logs:
    """A consumer of several partitions. It returns what comes of one after the other, some records at a time."""

    def __init__(self, logs: dict[int, Log], some: int = 3) -> None:
        self.logs = logs
        self.some = some
        self.fetched: list[int] = []
        self.most_fetched = 0

    def assign(self, places: list[Any]) -> None:
        self.fetched = [place.partition for place in places]
        self.most_fetched = max(self.most_fetched, len(self.fetched))
        for place in places:
            self.logs[place.partition].assign([place])

    def incremental_unassign(self, places: list[Any]) -> None:
        for place in places:
            self.fetched.remove(place.partition)

    def unassign(self) -> None:
        self.fetched = []

    def get_watermark_offsets(self, place: Any, **_: object) -> tuple[int, int]:
        return self.logs[place.partition].get_watermark_offsets()

    def consume(self, most: int, timeout: float) -> list[Record]:
        got: list[Record] = []
        for number in self.fetched:
            some = self.logs[number].consume(min(self.some, most - len(got)), timeout) if most > len(got) else []
            got += [replace(record, place=number) for record in some]
        return got


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 40)), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6),
    st.integers(1, 20),
)
def test_ranges_that_are_read_together_are_read_whole(told: list[tuple[set[int], int, int]], some: int) -> None:
    logs = Logs({number: Log([Record(at) for at in sorted(each[0])], 0, 41) for number, each in enumerate(told)}, some)
    ranges = [OffsetRange(TopicPartition("t", number), min(a, b), max(a, b)) for number, (_, a, b) in enumerate(told)]
    found: dict[int, list[int]] = {number: [] for number in range(len(told))}
    for chunk in read(cast("Any", logs), ranges, IMPATIENT):
        (place,) = {record.partition() for record in chunk}
        assert place is not None
        found[place] += [at for record in chunk if (at := record.offset()) is not None]
    for number, (there, _, _) in enumerate(told):
        assert found[number] == sorted(at for at in there if ranges[number].start <= at < ranges[number].end)
    # Nothing waits for what was before it.
    assert logs.most_fetched == sum(map(bool, ranges))


def test_what_is_complete_is_not_fetched_while_its_records_are_processed() -> None:
    logs = Logs({0: Log([Record(0)], 0, 500), 1: Log([Record(at) for at in range(9)], 0, 9)})
    ranges = [OffsetRange(TopicPartition("t", 0), 0, 1), OffsetRange(TopicPartition("t", 1), 0, 9)]
    fetched = [
        (chunk[0].partition(), chunk[-1].offset(), list(logs.fetched))
        for chunk in read(cast("Any", logs), ranges, IMPATIENT)
    ]
    assert fetched == [(0, 0, [1]), (1, 2, [1]), (1, 5, [1]), (1, 8, [])]


def test_lost_records_of_one_range_leave_the_others_whole(caplog: pytest.LogCaptureFixture) -> None:
    def logs() -> Any:
        return Logs({
            0: Log([Record(at) for at in range(30)], 0, 30),
            1: Log([Record(at) for at in range(10, 30)], 10, 30),
            2: Log([Record(at) for at in range(20)], 0, 20),
        })  # fmt: skip

    ranges = [OffsetRange(TopicPartition("t", number), 0, 30) for number in range(3)]
    with pytest.raises(DataLossError, match="t-1, offsets 0 to 30, at 0: the log starts at offset 10"):
        list(read(logs(), ranges, IMPATIENT))
    lenient = ReadOptions(poll_timeout_s=0.001, fail_on_loss=False)
    got = sorted((each.partition(), each.offset()) for chunk in read(logs(), ranges, lenient) for each in chunk)
    assert got == [(place, at) for place, (a, b) in enumerate(((0, 30), (10, 30), (0, 20))) for at in range(a, b)]
    assert [each.split(":")[0] for each in caplog.messages] == [
        "t-1, offsets 0 to 30, at 0",
        "t-2, offsets 0 to 30, at 20",
    ]


def test_an_error_without_a_partition_concerns_every_range() -> None:
    class Failing(Logs):
        def consume(self, _most: int, _timeout: float) -> list[Record]:
            return [Record(-1001, problem=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), place=None)]

    logs: Any = Failing({number: Log([], 0, 9) for number in (0, 1)})
    with pytest.raises(KafkaUnavailableError, match="t-0, offsets 0 to 9, at 0: "):
        list(read(logs, [OffsetRange(TopicPartition("t", number), 0, 9) for number in (0, 1)], ReadOptions()))


def test_rows_of_several_partitions_share_a_batch() -> None:
    chunks: list[list[Any]] = [[Record(4), Record(5)], [Record(7, place=3)], [Record(6)]]
    (batch,) = converted(chunks, ("partition", "offset", "topic"))
    assert [tuple(row.values()) for row in batch.to_pylist()] == [(0, 4, "t"), (0, 5, "t"), (3, 7, "t"), (0, 6, "t")]


def test_a_follower_that_is_behind_is_waited_for() -> None:
    class Behind(Log):
        def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
            return 0, 20

    with pytest.raises(KafkaUnavailableError, match=r"t-0, offsets 0 to 15, at 10: no records received"):
        played(Behind([Record(at) for at in range(10)], 0, 10), 0, 15)


def test_passing_trouble_is_passed_and_named_where_it_does_not() -> None:
    log = Log([Record(at) for at in range(10)], 0, 10, [KafkaError(KafkaError._TRANSPORT)])
    assert played(log, 0, 10, ReadOptions()) == list(range(10))
    log = Log([], 0, 10, [KafkaError(KafkaError._ALL_BROKERS_DOWN)] * 1000)
    with pytest.raises(KafkaUnavailableError, match=r"no records received .*last error: "):
        played(log, 0, 10)
    log = Log([], 0, 10, [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(KafkaUnavailableError, match="t-0, offsets 0 to 10"):
        played(log, 0, 10, ReadOptions())


def test_rows_have_the_columns_that_are_wanted() -> None:
    records: list[Any] = [Record(4), Record(5)]
    (batch,) = converted(
        [records[:1], records[1:]], ("offset", "key", "topic", "timestampType", "headers", "timestamp")
    )
    rows = batch.to_pylist()
    assert [(row["offset"], row["key"], row["topic"], row["timestampType"]) for row in rows] == [
        (4, None, "t", 0),
        (5, b"k", "t", 0),
    ]
    assert [row["headers"] for row in rows] == [None, [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]]
    assert rows[1]["timestamp"].timestamp() == 1_700_000_000.005
    for wrong, told in ((("ofset",), "unknown column ofset"), (("headers",), "includeHeaders")):
        with pytest.raises(ConfigError, match=told):
            check_columns(wrong, headers=False)


def test_a_rack_is_bound_where_the_task_runs() -> None:
    told = {"kafka.bootstrap.servers": "k:1", "subscribe": "t"}
    assert executor_rack(Options.of(told, "batch"), {"RACKASSIGN_RACK": " a "}) == "a"
    assert executor_rack(Options.of({**told, "rackEnvVar": "ZONE"}, "batch"), {"ZONE": "b"}) == "b"
    assert executor_rack(Options.of({**told, "rackBinding": "none"}, "batch"), {"RACKASSIGN_RACK": "a"}) is None
    assert executor_rack(Options.of(told, "batch"), {}) is None
    with pytest.raises(ConfigError, match="onMissingRack: fail: RACKASSIGN_RACK is not set"):
        executor_rack(Options.of({**told, "onMissingRack": "fail"}, "batch"), {})
    # What `os.environ` has of a variable whose bytes are not UTF-8.
    with pytest.raises(ConfigError, match=r'^RACKASSIGN_RACK on this executor is not UTF-8: "\\udce4"$'):
        executor_rack(Options.of(told, "batch"), {"RACKASSIGN_RACK": "\udce4"})
    assert "client.rack" not in consumer_properties({}, None, 1)


def test_consumers_are_used_again_until_nobody_wants_them() -> None:
    pool = ConsumerPool(max_unused=1)
    one, other = (
        {**consumer_properties({"bootstrap.servers": "127.0.0.1:1"}, rack, 1), "log_level": 0} for rack in ("a", "b")
    )
    with pool.borrow(one) as first, pool.borrow(one) as second:
        assert first is not second
    with pool.borrow(one) as again:
        # The one that was given back last.
        assert again is first
    with pool.borrow(other) as different:
        assert different is not first
    # Only one is kept, and that is no longer it.
    assert is_closed(first)
    pool.close()
    assert is_closed(different)


def test_a_consumer_that_has_failed_is_not_used_again() -> None:
    pool = ConsumerPool()
    told = {**consumer_properties({"bootstrap.servers": "127.0.0.1:1"}, None, 1), "log_level": 0}
    lent: list[Any] = []

    def fail() -> None:
        with pool.borrow(told) as consumer:
            lent.append(consumer)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert is_closed(lent[0])


def test_idle_consumers_are_closed() -> None:
    pool = ConsumerPool(idle_s=0.01)
    with pool.borrow(
        {**consumer_properties({"bootstrap.servers": "127.0.0.1:1"}, None, 1), "log_level": 0}
    ) as consumer:
        pass
    deadline = time.monotonic() + 60
    while pool._unused:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread.interval == pool._idle_s:
            thread.join()
    assert is_closed(consumer)


def is_closed(consumer: Any) -> bool:
    try:
        consumer.consume(1, 0)
    except RuntimeError:
        return True
    return False
