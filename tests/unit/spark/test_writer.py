"""What the writer of Spark checks before a task starts."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from rackassign.errors import ConfigError, RackassignError
from rackassign.spark._datasource import RackassignDataSource
from rackassign.spark._options import Mode, WriteOptions, without_effect_for_writing
from rackassign.spark._writer import Writer, _send, check_schema, warn_once

BROKERS = {"kafka.bootstrap.servers": "k:1"}
HEADERS = "array<struct<key:string,value:binary>>"
ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def headers_of(value: DataType) -> ArrayType:
    return ArrayType(StructType([StructField("key", StringType()), StructField("value", value)]))


TYPES: Mapping[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "array<string>": ArrayType(StringType()),
    HEADERS: headers_of(BinaryType()),
    "array<struct<key:string,value:string>>": headers_of(StringType()),
}


def of(**options: str) -> WriteOptions:
    return WriteOptions.of({**BROKERS, **{name.replace("_", "."): value for name, value in options.items()}})


def schema(columns: str) -> StructType:
    return StructType(
        [StructField(name, TYPES[kind]) for name, kind in (each.split(" ", 1) for each in columns.split("; "))]
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"topic": "a b"}, 'topic: invalid topic name "a b"'),
        ({"topic": ""}, 'topic: invalid topic name ""'),
        ({"subscribe": "t"}, "unknown option subscribe: expected one of includeHeaders, .*, topic"),
        ({"rack": "a"}, "rack: not supported: all executors would have the same rack"),
        ({"rackBinding": "pull"}, "rackBinding: pull is for reading"),
        ({"includeHeaders": "maybe"}, "includeHeaders: expected"),
        ({"tokenProvider": "a.b"}, "tokenProvider: only for kafka.sasl.mechanism=OAUTHBEARER"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"kafka.client.rack": "a"}, "kafka.client.rack: cannot be set"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer: cannot be set"),
        ({"kafka.partitioner": "random"}, "kafka.partitioner: cannot be set"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id: cannot be set"),
        ({"kafka.buffer.memory": "0"}, "kafka.buffer.memory: expected a whole number from 1024"),
        ({"kafka.delivery.timeout.ms": "0"}, "kafka.delivery.timeout.ms: expected a whole number from 1"),
        ({"kafka.message.timeout.ms": "0"}, "kafka.delivery.timeout.ms: expected a whole number from 1"),
        (
            {"kafka.buffer.memory": "2048", "kafka.queue.buffering.max.kbytes": "2"},
            "kafka.buffer.memory and kafka.queue.buffering.max.kbytes: they are one",
        ),
        ({"kafka.max.block.ms": "-1"}, "kafka.max.block.ms: expected a whole number from 0"),
        (
            {"kafka.max.request.size": "9", "kafka.message.max.bytes": "8"},
            "kafka.max.request.size and kafka.message.max.bytes: they are one property",
        ),
        ({"kafka.request.timeout.ms": "1"}, "kafka.request.timeout.ms: expected a whole number from 10"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(given: Mapping[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        WriteOptions.of({**BROKERS, **given})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {"acks": "all", "enable.idempotence": "true", "partitioner": "murmur2_random"}),
        ({"kafka.acks": "-1"}, {"acks": "-1", "enable.idempotence": "true"}),
        ({"kafka.acks": "ALL"}, {"acks": "ALL", "enable.idempotence": "true"}),
        ({"kafka.acks": "1"}, {"acks": "1", "enable.idempotence": None}),
        ({"kafka.enable.idempotence": "false"}, {"acks": "all", "enable.idempotence": "false"}),
        ({}, {"message.max.bytes": "1048576", "message.timeout.ms": "120000", "queue.buffering.max.kbytes": "32768"}),
        ({"kafka.max.request.size": "9", "kafka.delivery.timeout.ms": "8"}, {"message.max.bytes": "9"}),
        ({"kafka.delivery.timeout.ms": "8"}, {"message.timeout.ms": "8"}),
        ({}, {"socket.timeout.ms": "30000"}),
        ({"kafka.request.timeout.ms": "9000"}, {"socket.timeout.ms": "9000"}),
        ({"kafka.buffer.memory": "4096"}, {"queue.buffering.max.kbytes": "4"}),
        ({}, {"linger.ms": "50"}),
        ({"kafka.queue.buffering.max.ms": "7"}, {"linger.ms": "7", "queue.buffering.max.ms": None}),
        ({"kafka.linger.ms": "7", "kafka.max.block.ms": "9"}, {"linger.ms": "7", "max.block.ms": None}),
    ],
)
def test_defaults_are_those_of_javas_producer(given: Mapping[str, str], found: Mapping[str, str | None]) -> None:
    client = WriteOptions.of({**BROKERS, "topic": "t", **given}).client
    assert {name: client.get(name) for name in found} == found


def test_options_of_the_stream_itself_and_names_in_any_case_are_accepted() -> None:
    given = {"checkpointLocation": "/c", "queryName": "q", "TOPIC": "t", "OnMissingRack": "fail", "metricspath": "/m"}
    found = WriteOptions.of({**BROKERS, **given})
    assert (found.topic, found.rack_required, found.metrics_path) == ("t", True, "/m")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("value string", None),
        (f"key binary; value binary; partition int; headers {HEADERS}; topic string", None),
        ("key string", "value: this column is missing; the columns are key"),
        ("Value string", "value: this column is missing"),
        ("value int", "value: expected type string or binary, got int"),
        ("key bigint; value string", "key: expected type string or binary, got bigint"),
        ("value string; partition bigint", "partition: expected type int, got bigint"),
        ("value string; topic binary", "topic: expected type string, got binary"),
        ("value string; headers array<string>", "headers: expected type array"),
        ("value string; headers array<struct<key:string,value:string>>", "headers: expected type array"),
    ],
)
def test_columns_are_those_of_the_jvm_sink(columns: str, problem: str | None) -> None:
    if problem is None:
        check_schema(of(topic="t"), schema(columns))
    else:
        with pytest.raises(ConfigError, match=problem):
            check_schema(of(topic="t"), schema(columns))


def test_a_topic_is_named_by_an_option_or_a_column() -> None:
    check_schema(of(), schema("value string; topic string"))
    with pytest.raises(ConfigError, match="topic is missing: set the option topic, or add a column topic"):
        check_schema(of(), schema("value string"))


def test_columns_that_are_not_written_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    for _ in range(3):
        check_schema(of(topic="t"), schema("value string; offset bigint; Key string; topic string"))
    assert caplog.messages == [
        "these columns are not written: Key, offset",
        "column topic: the option topic is set as well, and has precedence",
    ]


@pytest.mark.parametrize(
    ("given", "mode", "problems"),
    [
        ({"metricsPath": "/m"}, "batch", ["metricsPath: what a batch query has sent is not reported, only .*"]),
        ({"metricsPath": "/m", "rackEnvVar": "R", "rackBinding": "none"}, "stream", []),
        ({"rackEnvVar": "R", "onMissingRack": "fail", "rackBinding": "none"}, "stream", ["onMissingRack: ", "rackEnv"]),
        ({"rackEnvVar": "R", "onMissingRack": "fail"}, "batch", []),
    ],
)
def test_options_without_effect_are_named(given: Mapping[str, str], mode: Mode, problems: list[str]) -> None:
    found = without_effect_for_writing(given, WriteOptions.of({**BROKERS, "topic": "t", **given}), mode)
    assert len(found) == len(problems)
    assert all(re.match(problem, each) for problem, each in zip(problems, found, strict=True))


def test_records_of_a_topic_are_not_overwritten() -> None:
    with pytest.raises(ConfigError, match=r"mode overwrite: .*; use mode append"):
        RackassignDataSource({**BROKERS, "topic": "t"}).writer(schema("value string"), overwrite=True)


def test_a_writer_reaches_executors_without_showing_its_passwords() -> None:
    options = {**BROKERS, "topic": "t", "kafka.sasl.password": "geheim"}
    writer = Writer(WriteOptions.of(options), schema("value string"))
    copy = pickle.loads(pickle.dumps(writer))  # noqa: S301 - made here
    assert copy.options == writer.options
    assert "geheim" not in repr(copy.options)


def header(key: str | None, value: bytes | None) -> dict[str, Any]:
    return {"key": key, "value": value}


class ShortQueue:
    """A pooled producer whose queue holds two records; it does not deliver the one with the key `refused`."""

    def __init__(self) -> None:
        self.producer = self
        self.failures: list[tuple[str, int, str]] = []
        self.delivered: list[tuple[Any, ...]] = []
        self._queue: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def request_leaders(self, topics: Iterable[str]) -> None:
        """Know them."""

    def produce(self, *record: Any) -> None:
        if len(self._queue) == 2 or record[1] == b"huge":
            raise BufferError
        self._queue.append(record)

    def poll(self, _: float) -> None:
        self.flush(0.0)

    def flush(self, _: float) -> None:
        for topic, value, key, *more in self._queue:
            if key == b"refused":
                self.failures.append((topic, 0, "too large"))
            else:
                self.delivered.append((topic, value, key, more[0], more[-1]))
        self._queue.clear()


def test_a_full_queue_is_waited_for_and_the_order_is_kept() -> None:
    queue: Any = ShortQueue()
    rows = pa.record_batch(
        {
            "value": pa.array(["a", None, "", "\u00fc", "e"]),
            "key": pa.array([b"1", None, b"", b"4", b"5"]),
            "partition": pa.array([3, None, 0, None, 1], pa.int32()),
            "headers": pa.array(
                [None, [], [{"key": "h", "value": b"x"}], [{"key": "", "value": None}], None], ARROW_HEADERS
            ),
            "ignored": pa.array([1] * 5),
        }
    )
    _send(queue, rows, "t")
    assert queue.delivered == [
        ("t", b"a", b"1", 3, None),
        ("t", None, None, -1, []),
        ("t", b"", b"", 0, [("h", b"x")]),
        ("t", b"\xc3\xbc", b"4", -1, [("", None)]),
        ("t", b"e", b"5", 1, None),
    ]


def test_a_record_that_is_not_delivered_is_named_while_others_wait() -> None:
    queue: Any = ShortQueue()
    rows = pa.record_batch({"value": ["v"] * 9, "key": ["k", "refused", *"abcdefg"], "topic": ["t", "u", *"ttttttt"]})
    with pytest.raises(RackassignError, match=r"^u-0: a record was not delivered: too large$"):
        _send(queue, rows, "")
    assert len(queue.delivered) == 1


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_record_that_no_queue_takes_fails_its_task(before: int) -> None:
    queue: Any = ShortQueue()
    rows = pa.record_batch({"value": [*["v"] * before, "huge"]})
    with pytest.raises(
        RackassignError, match=r"^t: a record was not delivered: it is larger than kafka.buffer.memory$"
    ):
        _send(queue, rows, "t")
    assert len(queue.delivered) == before


NOT_UTF_8 = pa.array([b"\xff", b"t"]).view(pa.string())
ODD_HEADERS = pa.StructArray.from_arrays([NOT_UTF_8, NOT_UTF_8.view(pa.binary())], ["key", "value"])


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"topic": pa.array(["t", "a\0b"])}, "topic: invalid topic name .a.u0000b. in a row"),
        ({"topic": NOT_UTF_8}, "topic: invalid topic name .* in a row"),
        ({"headers": pa.ListArray.from_arrays([0, 1, 2], ODD_HEADERS)}, "headers: a key that is not UTF-8"),
        ({"headers": pa.array([[{"key": "a\0b", "value": b""}], None], ARROW_HEADERS)}, "with NUL in it"),
        ({"topic": pa.array(["t", None])}, "topic: null in a row; set the option topic"),
        ({"partition": pa.array([-1, None], pa.int32())}, "partition: expected 0 or more, or null, got -1"),
        ({"headers": pa.array([[None], None], ARROW_HEADERS)}, "headers: null in the headers of a row"),
        (
            {"headers": pa.array([[{"key": None, "value": b""}], None], ARROW_HEADERS)},
            "headers: a header without a key",
        ),
    ],
)
def test_rows_that_cannot_be_written_are_refused(columns: Mapping[str, Any], problem: str) -> None:
    queue: Any = ShortQueue()
    rows = pa.record_batch({"value": pa.array(["v", "w"]), **columns})
    with pytest.raises(RackassignError, match=problem):
        _send(queue, rows, "" if "topic" in columns else "t")
    assert queue.delivered == []
