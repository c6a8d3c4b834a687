"""The class of `format("rackassign")`, which contains only the methods that Spark calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.spark.option_effects import without_effect
from rackassign.spark.options import Mode, Options
from rackassign.spark.row_bounds import RowBounds
from rackassign.spark.source.partitions import make_planner, pull_partitions, read_partition, split_partitions
from rackassign.spark.source.pushdown import bounds_of, check_pushdown
from rackassign.spark.source.schema import columns, schema_of
from rackassign.spark.splits import Split
from rackassign.spark.worker_process import forget_finders_of_spark

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.datasource import Filter

log = logging.getLogger(__name__)

NAME = "rackassign"


class RackassignDataSource(DataSource):
    """A data source that reads topics like `format("kafka")`, with each executor reading in its own rack."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the JVM source, or those of the option `columns`."""
        return schema_of(self._options("batch", only_columns=True))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        options = self._options("batch")
        names = columns(options, schema)
        if not options.push_filters:
            return BatchReader(options, names)
        check_pushdown()
        return FilteredBatchReader(options, names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - as Spark calls it
        """Return the reader of a stream. If the options are invalid, the reader raises the error at the first call."""
        from rackassign.spark.source.stream import FailingStreamReader, check_limit, stream_reader  # noqa: PLC0415 - batch queries do not need it

        try:
            options = self._options("stream")
            check_limit(options)
            return stream_reader(options, columns(options, schema))
        except RackassignError as error:
            # An error raised here is hidden by an UnboundLocalError: Spark's caller stops a reader that it did not get.
            return FailingStreamReader(str(error))

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
    """The reader of a batch query.

    Args:
        options: The options of the query.
        names: The columns of the rows.
    """

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
            forget_finders_of_spark()

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the rows of a task; runs on an executor."""
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
    """Submit the splits to the coordinator of the user, and return input partitions that request them there.

    If the coordinator does not respond, no split has been assigned yet. The splits are then distributed over the tasks
    here, as with `rackBinding=executor`.
    """
    from rackassign.spark.pull.client import submit_batch  # noqa: PLC0415 - most queries do not need it
    from rackassign.spark.pull.protocol import CoordinatorEndpoint  # noqa: PLC0415 - most queries do not need it

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
