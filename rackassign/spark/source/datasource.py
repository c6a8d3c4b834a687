"""`format("rackassign")`: what Spark calls, and nothing it could do without."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.spark.options import Mode, Options
from rackassign.spark.source.partitions import PullPartition, SplitPartition, make_planner, read_partition
from rackassign.spark.source.schema import columns, full_schema
from rackassign.spark.splits import Split

if TYPE_CHECKING:
    from pyarrow import RecordBatch


log = logging.getLogger(__name__)

NAME = "rackassign"


class RackassignDataSource(DataSource):
    """Reads topics like `format("kafka")`, each executor in its own rack."""

    @classmethod
    def name(cls) -> str:
        """Return what it is called."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the JVM source."""
        return full_schema(headers=self._options("batch", only_headers=True).headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        options = self._options("batch")
        return BatchReader(options, columns(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - as Spark calls it
        """Return what reads a stream, or says why it cannot be read as soon as it is asked anything."""
        from rackassign.spark.source.stream import RefusedStream, check_limit, stream_reader  # noqa: PLC0415 - a batch does without

        try:
            options = self._options("stream")
            check_limit(options)
            return stream_reader(options, columns(options, schema))
        except RackassignError as error:
            # Raised here, it is hidden by an UnboundLocalError of Spark: what calls this stops a reader it has not got.
            return RefusedStream(str(error))

    def _options(self, mode: Mode, *, only_headers: bool = False) -> Options:
        told = {str(name): str(value) for name, value in self.options.items()}
        if only_headers:
            # Whether this is a batch or a stream is not known yet, and what they allow differs.
            kept = {"includeheaders", "kafka.bootstrap.servers"}
            told = {name: value for name, value in told.items() if name.lower() in kept}
            told = {"subscribe": "any", "kafka.bootstrap.servers": "any", **told}
        return Options.of(told, mode)


class BatchReader(DataSourceReader):
    """Reads a batch.

    Args:
        options: What the user wants.
        names: The columns.
    """

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks; runs on the driver."""
        splits = make_planner(self._options).batch()
        if self._options.rack_binding != "pull" or not splits:
            return [SplitPartition(split) for split in splits]
        return _offered(self._options, splits)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the rows of a task; runs on an executor."""
        return read_partition(self._options, partition, self._names)


def _offered(options: Options, splits: Sequence[Split]) -> Sequence[InputPartition]:
    """Return tasks that ask the coordinator that the user holds, having offered it the splits.

    Where nobody takes the offer, no task has been dealt anything yet: each split is bound to a task, as with `late`.
    """
    from rackassign.spark.pull.client import submit_batch  # noqa: PLC0415 - the same
    from rackassign.spark.pull.protocol import CoordinatorEndpoint  # noqa: PLC0415 - most do without

    tasks = min(options.tasks or len(splits), len(splits))
    held = CoordinatorEndpoint(options.coordinator_host, options.coordinator_port, options.coordinator_token, 0)
    try:
        desk = submit_batch(
            held,
            splits,
            tasks,
            each=0 if options.tasks else 1,
            steal_after_s=options.steal_after_s,
            timeout_s=options.coordinator_timeout_s,
        )
    except KafkaUnavailableError as error:
        log.warning("%s. This batch is read as with rackBinding=executor", error)
        return [SplitPartition(split) for split in splits]
    return [PullPartition(desk, task) for task in range(tasks)]
