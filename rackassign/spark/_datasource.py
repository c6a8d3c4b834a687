"""The Python data source `format("rackassign")`, with only the methods that Spark calls; its columns and filters.

Filters of Spark become bounds of offsets, for `pushFilters` of Spark 4.1 and later. Spark applies all filters to the
rows again, so a filter that is not understood here costs time and changes no result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructField, StructType

from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.spark._arrow import COLUMNS, HEADERS, check_columns
from rackassign.spark._kafka_clients import check_producer
from rackassign.spark._offsets import RowBounds
from rackassign.spark._options import Mode, Options, WriteOptions, without_effect, without_effect_for_writing
from rackassign.spark._splits import Split
from rackassign.spark._tasks import (
    drop_spark_path_finders,
    make_planner,
    pull_partitions,
    read_partition,
    split_partitions,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.datasource import Filter

    from rackassign.spark._writer import Writer

log = logging.getLogger(__name__)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def check_pushdown() -> None:
    if not hasattr(datasource.DataSourceReader, "pushFilters"):
        raise ConfigError("pushFilters: Spark passes filters to Python data sources since version 4.1")


def bounds_of(filters: Iterable[Filter]) -> RowBounds:
    bounds = RowBounds()
    for each in filters:
        # Names of columns with more than one part are of structures.
        path: tuple[str, ...] = getattr(each, "attribute", ())
        if len(path) == 1 and hasattr(each, "value"):
            bounds = _bounded(bounds, type(each).__name__, path[0], each.value)
    return bounds


def _bounded(bounds: RowBounds, kind: str, column: str, value: Any) -> RowBounds:  # noqa: ANN401 - of the column's type
    """Return narrower bounds, or the same ones for a filter that does not limit offsets."""
    if kind in {"EqualTo", "EqualNullSafe"}:
        values: tuple[Any, ...] = (value,)
    elif kind == "In":
        values = tuple(value)
    else:
        return _compared(bounds, kind, column, value)
    values = tuple(each for each in values if each is not None)
    if not values:
        return bounds
    if column == "topic":
        return bounds.and_topics(frozenset(values))
    if column == "partition":
        return bounds.and_partitions(frozenset(values))
    if column == "offset":
        return bounds.and_from(min(values)).and_before(max(values) + 1)
    return bounds.and_since(_milliseconds(min(values))) if column == "timestamp" else bounds


def _compared(bounds: RowBounds, kind: str, column: str, value: Any) -> RowBounds:  # noqa: ANN401 - of the column's type
    if value is None or kind not in {"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"}:
        return bounds
    if column == "timestamp" and kind.startswith("Greater"):
        return bounds.and_since(_milliseconds(value))
    if column == "offset":
        if kind.startswith("Greater"):
            return bounds.and_from(value + (kind == "GreaterThan"))
        return bounds.and_before(value + (kind == "LessThanOrEqual"))
    return bounds


def _milliseconds(value: datetime) -> int:
    """Return a timestamp in whole milliseconds, rounded down; Spark's without a zone are in that of this process."""
    aware = value.astimezone(timezone.utc) if value.tzinfo is None else value
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def schema_of(options: Options) -> StructType:
    """Return the columns of a query without a schema of the user."""
    known = full_schema(headers=options.headers)
    check_columns(options.columns, headers=options.headers)
    return StructType([known[name] for name in options.columns or known.names])


def full_schema(*, headers: bool) -> StructType:
    from pyspark.sql.types import (  # noqa: PLC0415 - only needed here
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = (
        *(BinaryType(), BinaryType(), StringType(), IntegerType(), LongType(), TimestampType(), IntegerType()),
        ArrayType(header),
    )
    names = (*COLUMNS, HEADERS) if headers else COLUMNS
    return StructType([StructField(name, kind) for name, kind in zip(names, types, strict=False)])


def columns(options: Options, schema: StructType) -> tuple[str, ...]:
    """Return the columns of a query: all, or those of the schema that the user has set."""
    if not schema.names:
        # Arrow has no rows without columns, so a count would be 0.
        raise ConfigError("schema: expected at least one column; for a count use columns=offset")
    if options.columns and options.columns != tuple(schema.names):
        raise ConfigError(
            f"columns: the schema of the query has other columns: {', '.join(schema.names)}; use one of both"
        )
    check_columns(schema.names, headers=options.headers)
    ours = {field.name: field.dataType for field in full_schema(headers=options.headers)}
    for field in schema:
        if field.dataType != ours[field.name]:
            kind = ours[field.name].simpleString()
            raise ConfigError(f"{field.name}: expected type {kind}, got {field.dataType.simpleString()}")
        if not field.nullable:
            raise ConfigError(f"{field.name}: a column of a Python source cannot be NOT NULL")
    return tuple(schema.names)


NAME = "rackassign"


class RackassignDataSource(DataSource):
    """A data source that reads topics like `format("kafka")`, with each executor reading in its own rack."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the JVM source, or those of the option `columns`."""
        return schema_of(self._options("batch", only_columns=True))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options("batch")
        names = columns(options, schema)
        if not options.push_filters:
            return BatchReader(options, names)
        check_pushdown()
        return FilteredBatchReader(options, names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - as Spark calls it
        """Return the reader of a stream. If the options are invalid, the reader raises the error at the first call."""
        from rackassign.spark._stream import FailingStreamReader, check_limit, stream_reader  # noqa: PLC0415 - batch queries do not need it

        try:
            options = self._options("stream")
            check_limit(options)
            return stream_reader(options, columns(options, schema))
        except RackassignError as error:
            # An error raised here is hidden by an UnboundLocalError: Spark's caller stops a reader that it did not get.
            return FailingStreamReader(str(error))

    def writer(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: FBT001 - as Spark calls it
        from rackassign.spark._metadata import KafkaMetadata  # noqa: PLC0415 - it loads confluent_kafka

        if overwrite:
            raise ConfigError("mode overwrite: records of a topic are not replaced; use mode append")
        made = self._writer(schema, "batch")
        # What executors could only find out one by one: the login, and whether there are brokers. Not for a stream,
        # whose writer Spark asks for with each batch.
        KafkaMetadata(made.options.client).brokers()
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: ARG002, FBT001, N802 - as Spark calls it
        """Return the writer of a stream; with output mode `complete`, all rows are written again with each batch."""
        return self._writer(schema, "stream")

    def _writer(self, schema: StructType, mode: Mode) -> Writer:
        from rackassign.spark._writer import Writer, warn_once  # noqa: PLC0415 - most queries do not need it

        given = {str(name): str(value) for name, value in self.options.items()}
        options = WriteOptions.of(given)
        for problem in without_effect_for_writing(given, options, mode):
            warn_once(f"this option has no effect: {problem}")
        check_producer(options.client)
        return Writer(options, schema)

    def _options(self, mode: Mode, *, only_columns: bool = False) -> Options:
        options = {str(name): str(value) for name, value in self.options.items()}
        if only_columns:
            # It is not known yet whether this is a batch or a stream, and their valid options differ.
            retained = {"includeheaders", "columns", "kafka.bootstrap.servers"}
            options = {name: value for name, value in options.items() if name.lower() in retained}
            options = {"subscribe": "any", "kafka.bootstrap.servers": "any", **options}
            return Options.of(options, mode)
        parsed = Options.of(options, mode)
        for problem in without_effect(options, parsed, mode):
            log.warning("this option has no effect: %s", problem)
        return parsed


class BatchReader(DataSourceReader):
    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._bounds = RowBounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the input partitions, one for each task; runs on the driver, in a process that plans other queries."""
        try:
            splits = make_planner(self._options).batch(self._bounds)
            if self._options.rack_binding != "pull" or not splits:
                return split_partitions(self._options, splits)
            return _submitted(self._options, splits)
        finally:
            drop_spark_path_finders()

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_partition(self._options, partition, self._names)


class FilteredBatchReader(BatchReader):
    """The reader of a batch query that gets the filters of the query.

    Spark rejects a reader with this method unless `spark.sql.python.filterPushdown.enabled` is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - as Spark calls it
        """Keep the bounds that follow from filters; Spark applies all of them to the rows as well."""
        self._bounds = bounds_of(filters)
        return filters


def _submitted(options: Options, splits: Sequence[Split]) -> Sequence[InputPartition]:
    """Submit the splits to the coordinator of the user, and return input partitions that request them there."""
    from rackassign.spark._pull.client import submit_batch  # noqa: PLC0415 - most queries do not need it
    from rackassign.spark._pull.protocol import CoordinatorEndpoint  # noqa: PLC0415 - most queries do not need it

    # If the coordinator does not respond, no split has been assigned yet. The splits are then distributed over the
    # tasks here, as with `rackBinding=executor`.
    endpoint = CoordinatorEndpoint(options.coordinator_host, options.coordinator_port, options.coordinator_token, 0)

    def begin(tasks: int, max_splits_per_task: int) -> CoordinatorEndpoint:
        return submit_batch(
            endpoint,
            splits,
            tasks,
            max_splits_per_task=max_splits_per_task,
            steal_after_s=options.steal_after_s,
            timeout_s=options.coordinator_timeout_s,
        )

    try:
        return pull_partitions(options, splits, begin)
    except KafkaUnavailableError as error:
        log.warning("%s. This batch is read as with rackBinding=executor", error)
        return split_partitions(options, splits)
