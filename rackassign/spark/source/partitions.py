"""Input partitions. Their splits are decided when the query is planned, or requested by the task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from rackassign.spark.options import Options
from rackassign.spark.planner import Planner
from rackassign.spark.splits import Split, distribute, worthwhile_tasks
from rackassign.spark.task import batches, executor_rack
from rackassign.spark.worker_process import forget_finders_of_spark

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rackassign.spark.pull.protocol import CoordinatorEndpoint

_TASKS_PER_RACK = 2
"""With `pull`. Spark distributes tasks over executors in turn, so most racks get one even if some have no free slot.

A batch that is worth one task has one for each rack: if a rack gets none, at most what one task reads crosses.
"""


class SplitPartition(InputPartition):
    """An input partition whose splits are known when the query is planned.

    Args:
        splits: The splits to read.
    """

    def __init__(self, splits: Sequence[Split]) -> None:
        super().__init__(None)
        self.splits = tuple(splits)


class PullPartition(InputPartition):
    """An input partition whose task requests its splits from a coordinator.

    Args:
        endpoint: The endpoint of the coordinator.
        task: The index of the task.
    """

    def __init__(self, endpoint: CoordinatorEndpoint, task: int) -> None:
        super().__init__(None)
        self.endpoint = endpoint
        self.task = task


def task_count(options: Options, splits: Sequence[Split]) -> int:
    """Return the number of tasks that read these splits.

    It is what the option `tasks` allows. Without the option there is one task for each split if the user has determined
    the number of splits, and otherwise as few as are worth their cost.
    """
    if options.tasks:
        return min(options.tasks, len(splits))
    if options.min_splits or options.max_records:
        return len(splits)
    # Splits are only requested where tasks run, so there has to be a task in each rack.
    racks = {rack for split in splits for rack in split.racks} if options.rack_binding == "pull" else ()
    per_rack = 1 if worthwhile_tasks(splits) == 1 else _TASKS_PER_RACK
    return worthwhile_tasks(splits, max(1, per_rack * len(racks)))


def max_splits_per_task(options: Options, tasks: int, splits: Sequence[Split]) -> int:
    """Return how many splits a task of `pull` may request: one if there are as many tasks as splits; 0 for no limit."""
    return 1 if tasks == len(splits) and not options.tasks else 0


def split_partitions(options: Options, splits: Sequence[Split]) -> list[InputPartition]:
    """Return the input partitions of these splits, each with the splits of one task."""
    return [SplitPartition(each) for each in distribute(splits, task_count(options, splits))]


def pull_partitions(
    options: Options, splits: Sequence[Split], begin: Callable[[int, int], CoordinatorEndpoint]
) -> list[InputPartition]:
    """Return the input partitions of tasks that request these splits.

    Args:
        options: The options of the query.
        splits: The splits.
        begin: Passes the splits to a coordinator, with the number of tasks and the highest number of splits of a task.
    """
    tasks = task_count(options, splits)
    endpoint = begin(tasks, max_splits_per_task(options, tasks, splits))
    return [PullPartition(endpoint, task) for task in range(tasks)]


def read_partition(options: Options, partition: InputPartition, names: Sequence[str]) -> Iterator[RecordBatch]:
    """Yield the rows of a task; there are none for the task that Spark creates if there are no splits."""
    try:
        yield from _rows(options, partition, names)
    finally:
        forget_finders_of_spark()


def _rows(options: Options, partition: InputPartition, names: Sequence[str]) -> Iterator[RecordBatch]:
    if isinstance(partition, SplitPartition):
        yield from batches(options, partition.splits, names, executor_rack(options))
    elif isinstance(partition, PullPartition):
        from rackassign.spark.pull.client import request_splits  # noqa: PLC0415 - most queries do not need it

        rack = executor_rack(options)
        for splits in request_splits(partition.endpoint, partition.task, rack, options.coordinator_timeout_s):
            yield from batches(options, splits, names, rack)


def make_planner(options: Options) -> Planner:
    """Return a planner for these options that is connected to the brokers.

    Raises:
        ConfigError: librdkafka rejects a property, or `tokenProvider` returns no token.
    """
    from rackassign.spark.metadata import KafkaMetadata  # noqa: PLC0415 - executors do not need it
    from rackassign.spark.range_reader import check_properties  # noqa: PLC0415 - executors do not need it
    from rackassign.spark.record_sampling import sample  # noqa: PLC0415 - executors do not need it

    check_properties(options.client, options.max_fetch_bytes)
    return Planner(options, KafkaMetadata(options.client), lambda offsets: sample(options.client, offsets))
