"""Filters of Spark become offsets, and no row of a query is lost by that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource
from pyspark.sql.types import LongType, StructField, StructType

from rackassign.errors import ConfigError, InputError
from rackassign.model import Partition, TopicPartition
from rackassign.spark._batch_planner import Planner
from rackassign.spark._datasource import BatchReader, FilteredBatchReader, RackassignDataSource, bounds_of
from rackassign.spark._fetch_size import RecordStats
from rackassign.spark._metadata import NO_LATER, TopicLayout
from rackassign.spark._offsets import EARLIEST, LATEST, RowBounds
from rackassign.spark._options import Options, Topics

pushdown = pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="needs pyspark 4.1")
OPTIONS = {"kafka.bootstrap.servers": "k:1", "subscribe": "a,b"}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Cluster:
    """Two topics with partitions whose records have timestamps, in any order."""

    def __init__(self, logs: Mapping[TopicPartition, list[int]]) -> None:
        self.logs = logs

    def describe_topics(self, _: Topics) -> TopicLayout:
        return TopicLayout({tp: Partition((1,)) for tp in self.logs}, {1: "a"})

    def offsets(self, tps: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        return {tp: {EARLIEST: 0, LATEST: len(self.logs[tp])}[logical] for tp in tps}

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.offsets(tps, LATEST)

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert all(timestamp >= 0 for timestamp in timestamps.values())
        return {
            tp: next((at for at, stamp in enumerate(self.logs[tp]) if stamp >= timestamp), NO_LATER)
            for tp, timestamp in timestamps.items()
        }


def when(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def column_filter(column: str, kind: str, value: Any) -> Any:
    return getattr(datasource, kind)((column,), value)


COMPARISONS = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
VALUES = {
    "topic": st.sampled_from("abc"),
    "partition": st.integers(0, 3),
    "offset": st.integers(-2, 12),
    # In microseconds, between the milliseconds of records too; and before 1970.
    "timestamp": st.integers(-3000, 9000).map(when),
}


@st.composite
def filters(draw: st.DrawFn) -> Any:
    column = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from((*COMPARISONS, "In", "Not")))
    if kind == "In":
        return column_filter(column, kind, tuple(draw(st.lists(st.none() | VALUES[column], min_size=1))))
    inner = column_filter(column, "EqualTo" if kind == "Not" else kind, draw(VALUES[column]))
    return datasource.Not(inner) if kind == "Not" else inner


def satisfies(row: Mapping[str, Any], each: Any) -> bool:
    kind = type(each).__name__
    if kind == "Not":
        return not satisfies(row, each.child)
    value, wanted = row[each.attribute[0]], each.value
    if kind == "In":
        return value in wanted
    holds: dict[str, bool] = {
        "EqualTo": value == wanted,
        "EqualNullSafe": value == wanted,
        "GreaterThan": value > wanted,
        "GreaterThanOrEqual": value >= wanted,
        "LessThan": value < wanted,
        "LessThanOrEqual": value <= wanted,
    }
    return holds[kind]


@pushdown
@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 2)),
        st.lists(st.integers(-1, 8), max_size=10),
        max_size=4,
    ),
    st.lists(filters(), max_size=4),
)
def test_no_row_that_satisfies_all_filters_is_left_out(
    logs: dict[TopicPartition, list[int]], given_filters: list[Any]
) -> None:
    planner = Planner(Options.of(OPTIONS, "batch"), Cluster(logs), lambda _: RecordStats(100, 1000))
    read = {
        (split.range.tp, offset)
        for split in planner.batch(bounds_of(given_filters))
        for offset in range(split.range.start, split.range.end)
    }
    rows = {
        (tp, offset): {"topic": tp.topic, "partition": tp.partition, "offset": offset, "timestamp": when(stamp * 1000)}
        for tp, log in logs.items()
        for offset, stamp in enumerate(log)
    }
    wanted = {at for at, row in rows.items() if all(satisfies(row, each) for each in given_filters)}
    assert wanted <= read <= rows.keys()


@pushdown
def test_records_behind_the_end_of_the_log_are_left_out_by_no_timestamp() -> None:
    # Three records are visible. The range extends into a transaction that is open, and whose end the reader awaits.
    log = Cluster({TopicPartition("a", 0): [0, 1, 2]})
    options = Options.of({**OPTIONS, "endingOffsets": '{"a": {"0": 10}}'}, "batch")
    planner = Planner(options, log, lambda _: RecordStats(100, 1000))

    def planned(since: int) -> list[tuple[int, int]]:
        bounds = bounds_of([column_filter("timestamp", "GreaterThanOrEqual", when(since * 1000))])
        return [(split.range.start, split.range.end) for split in planner.batch(bounds)]

    assert planned(1) == [(1, 10)]
    assert planned(5) == [(3, 10)]
    whole = Planner(Options.of(OPTIONS, "batch"), log, lambda _: RecordStats(100, 1000))
    assert whole.batch(bounds_of([column_filter("timestamp", "GreaterThan", when(5000))])) == []


@pushdown
def test_filters_are_bounds() -> None:
    bounds = bounds_of([
        column_filter("topic", "EqualTo", "a"),
        column_filter("partition", "In", (1, 2, None)),
        column_filter("partition", "EqualTo", 2),
        column_filter("offset", "GreaterThan", 4),
        column_filter("offset", "LessThanOrEqual", 8),
        column_filter("timestamp", "GreaterThanOrEqual", when(1_999)),
        # None of these limits offsets.
        column_filter("value", "EqualTo", b"x"),
        column_filter("timestamp", "LessThan", when(5_000)),
        column_filter("partition", "GreaterThan", 1),
        column_filter("offset", "EqualTo", None),
        datasource.IsNotNull(("offset",)),
        datasource.EqualTo(("headers", "key"), "x"),
    ])  # fmt: skip
    assert bounds == RowBounds(frozenset("a"), frozenset({2}), 5, 9, 1)


@pushdown
def test_a_timestamp_without_a_zone_is_in_that_of_the_process() -> None:
    aware, naive = when(5_000), when(5_000).astimezone().replace(tzinfo=None)
    assert bounds_of([column_filter("timestamp", "EqualTo", naive)]) == bounds_of(
        [column_filter("timestamp", "EqualTo", aware)]
    )


def reader(**options: str) -> Any:
    return RackassignDataSource({**OPTIONS, **options}).reader(StructType([StructField("offset", LongType())]))


def test_without_the_option_spark_passes_no_filters_and_asks_for_no_setting() -> None:
    assert type(reader()) is BatchReader
    assert type(reader(pushFilters="false")) is BatchReader


def test_a_query_without_columns_is_refused_because_it_would_have_no_rows() -> None:
    with pytest.raises(ConfigError, match="schema: expected at least one column; for a count use columns=offset"):
        RackassignDataSource(OPTIONS).reader(StructType())


def test_a_query_that_gets_no_filters_refuses_the_option() -> None:
    options = {**OPTIONS, "pushFilters": "true"}
    with pytest.raises(ConfigError, match="pushFilters: only for batch queries"):
        Options.of(options, "stream")
    assert not Options.of({**OPTIONS, "pushFilters": "false"}, "stream").push_filters


def test_an_older_spark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(datasource.DataSourceReader, "pushFilters", raising=False)
    with pytest.raises(ConfigError, match=r"pushFilters: .* since version 4.1"):
        reader(pushFilters="true")


@pushdown
def test_all_filters_are_applied_by_spark_too() -> None:
    given_filters = [column_filter("offset", "EqualTo", 3), column_filter("value", "EqualTo", b"x")]
    filtered = reader(pushFilters="true")
    assert isinstance(filtered, FilteredBatchReader)
    assert list(filtered.pushFilters(given_filters)) == given_filters
    assert filtered._bounds == RowBounds(first=3, end=4)


def test_offsets_below_zero_are_no_bounds() -> None:
    assert RowBounds().and_from(-5) == RowBounds()
    assert RowBounds().and_before(-5) == RowBounds(end=0)
    with pytest.raises(InputError, match="expected offsets of 0 or more"):
        RowBounds(first=-1)


@pytest.mark.parametrize(
    "options", [{"columns": "offset,key"}, {"columns": " key , headers ", "includeHeaders": "true"}]
)
def test_the_option_columns_is_the_schema(options: dict[str, str]) -> None:
    names = [name.strip() for name in options["columns"].split(",")]
    assert RackassignDataSource({**OPTIONS, **options}).schema().names == names


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("ofset", "unknown column ofset: expected one of key, value"),
        ("headers", "headers: this column requires includeHeaders=true"),
        ("key,key", "columns: expected different names"),
        (" , ", "columns: expected different names"),
        ("", "columns: expected different names"),
    ],
)
def test_wrong_columns_are_refused(value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        RackassignDataSource({**OPTIONS, "columns": value}).schema()


def test_columns_and_another_schema_are_refused() -> None:
    source = RackassignDataSource({**OPTIONS, "columns": "offset"})
    schema = RackassignDataSource({**OPTIONS, "columns": "key"}).schema()
    with pytest.raises(ConfigError, match="columns: the schema of the query has other columns: key; use one of both"):
        source.reader(schema)
