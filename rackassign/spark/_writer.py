"""Writes rows to topics, to leaders in the rack of each executor: the checks of the driver, and what a task sends.

Columns, options and their meanings are those of the JVM sink.

* A record with a key lands where Java's producer puts it (murmur2). Of the others, those without a partition go to
  leaders in the rack of the executor; without a rack, or without such a leader, to all.
* A task ends when brokers have acknowledged all of its records. One that is not delivered fails the task, and Spark
  runs it again: records may be written twice, and none is missing.
* A task has some rows and what librdkafka queues (`kafka.buffer.memory`) in memory, however many it writes.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from rackassign.errors import ConfigError, RackassignError
from rackassign.model import TOPIC_NAME
from rackassign.spark._arrow import HEADERS
from rackassign.spark._kafka_clients import PooledProducer, producers_of_this_process
from rackassign.spark._options import WriteOptions
from rackassign.spark._task_metrics import WriteReport, append_line, metered_properties, writing_meter
from rackassign.spark._tasks import drop_spark_path_finders, executor_rack, rack_of_environment
from rackassign.text import clamp_middle, short_repr, strip_control_chars, truncate

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger(__name__)

_ROWS = 1000
"""Rows at a time that are Python objects."""

_ANY = -1
"""The partition of a record for which the producer chooses one."""

_SLICE_BYTES = 16 * 2**20
"""And so many bytes of them, as a row can have megabytes."""

_FULL_QUEUE_S = 0.1

_TOPIC_CHARS = 249
"""The longest name that Kafka accepts; what a row has in its place can be of any length."""

_TEXT = "string or binary"


def check_schema(options: WriteOptions, schema: StructType) -> None:
    """Check the columns of rows as the JVM sink does; others are not written."""
    given = {field.name: field.dataType for field in schema}
    expected: dict[str, tuple[str, Callable[[DataType], bool]]] = {
        "topic": ("string", lambda kind: isinstance(kind, StringType)),
        "key": (_TEXT, _is_text),
        "value": (_TEXT, _is_text),
        "partition": ("int", lambda kind: isinstance(kind, IntegerType)),
        HEADERS: ("array<struct<key:string,value:binary>>", _is_headers),
    }
    if not options.topic and "topic" not in given:
        raise ConfigError("topic is missing: set the option topic, or add a column topic")
    if "value" not in given:
        raise ConfigError(f"value: this column is missing; the columns are {', '.join(map(truncate, given)) or 'none'}")
    for name, (kind, matches) in expected.items():
        if name in given and not matches(given[name]):
            raise ConfigError(f"{name}: expected type {kind}, got {given[name].simpleString()}")
    if others := sorted(given.keys() - expected.keys()):
        warn_once(f"these columns are not written: {', '.join(map(truncate, others))}")
    if options.topic and "topic" in given:
        warn_once("column topic: the option topic is set as well, and has precedence")


# Once for each process of the driver: Spark asks for the writer of a stream with each batch.
@functools.cache
def warn_once(message: str) -> None:
    log.warning(message)


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _is_headers(kind: DataType) -> bool:
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
        return False
    return [(each.name, type(each.dataType)) for each in kind.elementType] == [
        ("key", StringType),
        ("value", BinaryType),
    ]


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task has sent, in bytes by broker; nothing without `metricsPath`."""

    rack: str | None
    sent: Mapping[int, int]


# Spark passes Arrow batches to the writer of a stream since 4.1, and before that to one that is of both classes.
class Writer(DataSourceArrowWriter, DataSourceStreamWriter):  # type: ignore[misc] # both have an `abort`
    """The writer of a batch query or a stream."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self.options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        """Write the rows of a task, and return when brokers have acknowledged all of them; runs on an executor."""
        try:
            # The first rows come first: where the input cannot be read, there is nothing to connect for.
            first = next(iterator, None)
            return Written(None, {}) if first is None else self._write(chain([first], iterator))
        finally:
            drop_spark_path_finders()

    def commit(self, messages: Sequence[Written | None], batchId: int | None = None) -> None:  # type: ignore[override] # noqa: N803 - as Spark calls it
        """Report what the tasks of a batch have sent; runs on the driver."""
        if not self.options.metrics_path or batchId is None:
            return
        sent: dict[str | None, Counter[int]] = {}
        for message in messages:
            if message is not None:
                sent.setdefault(message.rack, Counter()).update(message.sent)
        try:
            for rack, sizes in sorted(sent.items(), key=lambda each: each[0] or ""):
                append_line(self.options.metrics_path, WriteReport(batchId, rack, sizes).to_json())
        except ConfigError as error:
            # An error would make Spark write the batch again.
            log.warning("what batch %d has sent is not reported: %s", batchId, error)

    def _write(self, batches: Iterator[RecordBatch]) -> Written:
        rack = executor_rack(self.options)
        properties: dict[str, Any] = {**self.options.client, **({} if rack is None else {"client.rack": rack})}
        meter = writing_meter() if self.options.metrics_path else None
        if meter is not None:
            properties |= metered_properties(meter)
        with producers_of_this_process().lend(properties) as pooled:
            pooled.begin()
            before = Counter[int]() if meter is None else meter.settle(pooled.producer)
            for batch in batches:
                rows = max(1, min(_ROWS, _SLICE_BYTES * batch.num_rows // max(1, batch.nbytes)))
                for start in range(0, batch.num_rows, rows):
                    _send(pooled, batch.slice(start, rows), self.options.topic)
            pooled.producer.flush()
            _check(pooled)
            sent = Counter[int]() if meter is None else meter.settle(pooled.producer) - before
        # The rack of the executor, even if `rackBinding` is none.
        return Written(rack_of_environment(self.options), dict(sent))


def _send(pooled: PooledProducer, rows: RecordBatch, topic: str) -> None:
    """Queue some rows, and serve the reports of records that were not delivered."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use

    topics = [topic] * rows.num_rows if topic else _topics(rows)
    pooled.request_leaders(topics)
    none: list[Any] = [None] * rows.num_rows
    keys = _bytes(rows, "key") if "key" in rows.schema.names else none
    headers = _headers(rows) if HEADERS in rows.schema.names else none
    partitions = _partitions(rows) if "partition" in rows.schema.names else [_ANY] * rows.num_rows
    produce = pooled.producer.produce
    for to, key, value, partition, more in zip(topics, keys, _bytes(rows, "value"), partitions, headers, strict=True):
        try:
            # All at their positions: keywords take longer.
            produce(to, value, key, partition, None, None, 0, more)
        except (BufferError, KafkaException) as refusal:  # noqa: PERF203 - it costs nothing that can be measured
            _send_again(pooled, (to, value, key, partition, None, None, 0, more), refusal)
    pooled.producer.poll(0)
    _check(pooled)


def _send_again(pooled: PooledProducer, record: tuple[Any, ...], refusal: Exception) -> None:
    """Queue a record that was refused, or raise the reason if it is refused for good."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use

    topic, partition, empty = record[0], record[3], False
    while True:
        if isinstance(refusal, KafkaException):
            if not pooled.update(topic, refusal.args[0]):
                raise _undelivered(topic, partition, refusal.args[0].str()) from None
        elif empty:
            raise _undelivered(topic, partition, "it is larger than kafka.buffer.memory") from None
        else:
            # Memory is bounded by the queue. Its records are sent, without `kafka.linger.ms`, or are given up in
            # `kafka.delivery.timeout.ms`.
            pooled.producer.flush(_FULL_QUEUE_S)
            _check(pooled)
        empty = len(pooled.producer) == 0
        try:
            return pooled.producer.produce(*record)
        except (BufferError, KafkaException) as again:
            refusal = again


def _check(pooled: PooledProducer) -> None:
    for failure in pooled.failures:
        raise _undelivered(*failure)


def _undelivered(topic: str, partition: int, reason: str) -> RackassignError:
    place = clamp_middle(topic, _TOPIC_CHARS) + ("" if partition == _ANY else f"-{partition}")
    return RackassignError(strip_control_chars(f"{place}: a record was not delivered: {reason}"))


def _bytes(rows: RecordBatch, name: str) -> list[bytes | None]:
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    column = rows.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        # Without a copy: Arrow's text is UTF-8.
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    return _objects(column)


def _objects(column: Any) -> list[Any]:  # noqa: ANN401 - pyarrow has no annotations
    # A tenth of the time of `to_pylist`, which makes a scalar of each value first.
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _topics(rows: RecordBatch) -> list[str]:
    raw = _bytes(rows, "topic")
    names = {each: "" if each is None else each.decode("utf-8", "replace") for each in set(raw)}
    if None in names:
        raise RackassignError("topic: null in a row; set the option topic")
    if wrong := sorted(name for name in names.values() if not TOPIC_NAME.fullmatch(name)):
        raise RackassignError(f"topic: invalid topic name {short_repr(wrong[0])} in a row")
    return [names[each] for each in raw]


def _partitions(rows: RecordBatch) -> list[int]:
    import pyarrow.compute as pc  # noqa: PLC0415 - loaded on first use

    column = rows.column("partition")
    lowest = pc.min(column).as_py()
    if lowest is not None and lowest < 0:
        raise RackassignError(f"partition: expected 0 or more, or null, got {lowest}")
    return _objects(column.fill_null(_ANY))


def _headers(rows: RecordBatch) -> list[list[tuple[str, bytes | None]] | None]:
    try:
        lists = rows.column(HEADERS).to_pylist()
        found = [each and [(header["key"], header["value"]) for header in each] for each in lists]
    except TypeError:
        raise RackassignError(f"{HEADERS}: null in the headers of a row") from None
    except UnicodeDecodeError:
        # Spark's strings can have any bytes.
        raise RackassignError(f"{HEADERS}: a key that is not UTF-8") from None
    # librdkafka would end a key at a NUL.
    if any(key is None or "\0" in key for each in found if each for key, _ in each):
        raise RackassignError(f"{HEADERS}: a header without a key, or with NUL in its key")
    return found
