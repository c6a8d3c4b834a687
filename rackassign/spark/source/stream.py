"""The same as a stream: offsets of batches, and what a checkpoint holds of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.spark.offsets import from_json, to_json
from rackassign.spark.options import Options
from rackassign.spark.planner import Planner
from rackassign.spark.source.partitions import PullPartition, SplitPartition, make_planner, read_partition

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rackassign.spark.pull.coordinator import Coordinator


def supports_read_limits() -> bool:
    """Tell whether this Spark tells a source where a batch starts and how much it may hold: 4.2 and later."""
    return hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")


def check_limit(options: Options) -> None:
    """Refuse a limit where Spark does not say where a batch starts.

    Raises:
        ConfigError: There is one, and this Spark is too old for it.
    """
    if options.limit is not None and not supports_read_limits():
        raise ConfigError("maxOffsetsPerTrigger: cannot be kept: Spark tells a Python source of limits from 4.2 on")


class StreamReader(DataSourceStreamReader):
    """Reads a stream.

    Spark makes one that lives as long as the query and plans, and others, of which it calls nothing but `read`,
    in the
    workers: what plans is made when it is first needed.

    Args:
        options: What the user wants.
        names: The columns.
    """

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._made: Planner | None = None
        self._deals: Coordinator | None = None
        self._captured: dict[TopicPartition, int] | None = None
        self._newest: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] | None = None
        """Where the next batch starts, as far as this can be known without being told."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return where a query without a checkpoint begins; is called more than once."""
        self._reached = self._planner().initial()
        return to_json(self._reached)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: ANN401, N802 - as Spark calls it; 4.0 and 4.1 without arguments
        """Return where the next batch ends.

        Args:
            start: Where it begins; None before Spark 4.2.
            limit: `ReadMaxRows`, or one that sets no bound.

        Raises:
            DataLossError: It would end before it begins; nothing of that is in the checkpoint yet.
        """
        self._newest = self._planner().latest() if self._captured is None else self._captured
        begins = self._reached if start is None else from_json(start)
        if begins is None:
            # A query that goes on, before Spark 4.2: `partitions` is the first that is told where its batch starts.
            return to_json(self._newest)
        most = getattr(limit, "max_rows", None)
        return to_json(self._planner().next(begins, self._newest, most))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        self._reached = from_json(end)
        splits = self._planner().stream(from_json(start), self._reached)
        if self._options.rack_binding != "pull" or not splits:
            return [SplitPartition(split) for split in splits]
        tasks = min(self._options.tasks or len(splits), len(splits))
        # Spark asks for the tasks of a batch once for each place in a query that reads it.
        of = json.dumps([start, end], sort_keys=True)
        desk = self._coordinator().begin(splits, tasks, each=0 if self._options.tasks else 1, of=of)
        return [PullPartition(desk, task) for task in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the rows of a task; runs on an executor."""
        return read_partition(self._options, partition, self._names)

    def stop(self) -> None:
        """End what lives as long as the query."""
        if self._deals is not None:
            self._deals.close()
            self._deals = None

    def capture(self) -> None:
        """Hold what there is now for all there will ever be."""
        self._captured = self._planner().latest()

    def limit(self) -> int | None:
        """Return how many offsets a batch may have; None for all there are."""
        return self._options.limit

    def newest(self) -> dict[str, Any] | None:
        """Return what there was when the last batch was planned; None before."""
        return to_json(self._newest) or None

    def _planner(self) -> Planner:
        if self._made is None:
            self._made = make_planner(self._options)
        return self._made

    def _coordinator(self) -> Coordinator:
        if self._deals is None:
            from rackassign.spark.pull.coordinator import Coordinator  # noqa: PLC0415 - most do without
            from rackassign.spark.pull.server import local_address_for  # noqa: PLC0415 - the same

            host = self._options.coordinator_host or local_address_for(self._options.client["bootstrap.servers"])
            self._deals = Coordinator(host, self._options.coordinator_port, steal_after_s=self._options.steal_after_s)
        return self._deals

    def __getstate__(self) -> dict[str, Any]:
        # Clients and servers cannot travel, and are of no use to a worker.
        return {**self.__dict__, "_made": None, "_deals": None}


class RefusedStream(DataSourceStreamReader):
    """Stands for a stream that cannot be read as it was asked for: whatever Spark asks first is answered with why.

    Args:
        problem: Why.
    """

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Raise ConfigError; a new query asks this first."""
        raise ConfigError(self._problem)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: ANN401, ARG002, N802 - the same
        """Raise ConfigError; a query that goes on asks this first."""
        raise ConfigError(self._problem)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002 - the same
        """Raise ConfigError; one that goes on with a batch that was not committed asks this first."""
        raise ConfigError(self._problem)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:  # noqa: ARG002 - the same
        """Raise ConfigError."""
        raise ConfigError(self._problem)


def stream_reader(options: Options, names: Sequence[str]) -> StreamReader:
    """Return a reader that can do what this Spark knows of."""
    if not supports_read_limits():
        return StreamReader(options, names)
    from rackassign.spark.source.stream_limits import LimitedStreamReader  # noqa: PLC0415 - what it needs, older Sparks do not have

    return LimitedStreamReader(options, names)
