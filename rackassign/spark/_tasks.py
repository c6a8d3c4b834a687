"""Tasks: their number, their input partitions, and how one binds the rack of its executor and reads its splits.

Splits are decided when the query is planned, or requested by the task (`_pull`).

How many tasks can run at the same time is known once the executors have registered. A stand-alone cluster, and others,
start an application before its first executor has (`spark.scheduler.minRegisteredResourcesRatio` is 0 there). At that
moment there are no slots, or those of one executor.

Spark keeps a worker process for many tasks. Before each of them, PySpark calls `importlib.invalidate_caches()` (seen in
4.0; 4.3 does so only if a path was added). Each finder of an archive then reads the directory of the archive again
(seen in Python 3.11). Spark's own archives have a finder for each of their packages that was imported from, so that a
task costs 0.1 s of CPU before it begins.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from pyspark.sql.datasource import InputPartition

from rackassign.errors import ConfigError
from rackassign.spark._batch_planner import Planner
from rackassign.spark._kafka_clients import consumers_of_this_process
from rackassign.spark._options import Options, WriteOptions
from rackassign.spark._range_reader import ReadOptions, consumer_properties, end_offset, read
from rackassign.spark._splits import Split, distribute, read_together, worthwhile_tasks
from rackassign.spark._task_metrics import metered_properties, process_meter, write_report
from rackassign.text import short_repr

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

    from rackassign.spark._pull.protocol import CoordinatorEndpoint


log = logging.getLogger(__name__)


_TASKS_PER_RACK = 2
"""With `pull`. Spark distributes tasks over executors in turn, so most racks get one even if some have no free slot.

A batch that is worth one task has one for each rack: if a rack gets none, at most what one task reads crosses.
"""


class SplitPartition(InputPartition):
    """An input partition whose splits are known when the query is planned."""

    def __init__(self, splits: Sequence[Split]) -> None:
        super().__init__(None)
        self.splits = tuple(splits)


class PullPartition(InputPartition):
    """An input partition whose task requests its splits from a coordinator."""

    def __init__(self, endpoint: CoordinatorEndpoint, task: int) -> None:
        super().__init__(None)
        self.endpoint = endpoint
        self.task = task


def make_planner(options: Options) -> Planner:
    from rackassign.spark._metadata import KafkaMetadata  # noqa: PLC0415 - executors do not need it
    from rackassign.spark._range_reader import check_properties  # noqa: PLC0415 - executors do not need it
    from rackassign.spark._record_sampling import sample  # noqa: PLC0415 - executors do not need it

    check_properties(options.client, options.max_fetch_bytes)
    return Planner(options, KafkaMetadata(options.client), lambda offsets: sample(options.client, offsets))


def task_count(options: Options, splits: Sequence[Split]) -> int:
    # As the option `tasks` allows. Without it, one for each split if the user has determined the number of splits, and
    # otherwise as few as are worth their cost.
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
    return [SplitPartition(each) for each in distribute(splits, task_count(options, splits))]


def pull_partitions(
    options: Options, splits: Sequence[Split], begin: Callable[[int, int], CoordinatorEndpoint]
) -> list[InputPartition]:
    tasks = task_count(options, splits)
    endpoint = begin(tasks, max_splits_per_task(options, tasks, splits))
    return [PullPartition(endpoint, task) for task in range(tasks)]


def read_partition(options: Options, partition: InputPartition, names: Sequence[str]) -> Iterator[RecordBatch]:
    """Yield the rows of a task; there are none for the task that Spark creates if there are no splits."""
    try:
        yield from _rows(options, partition, names)
    finally:
        drop_spark_path_finders()


def _rows(options: Options, partition: InputPartition, names: Sequence[str]) -> Iterator[RecordBatch]:
    if isinstance(partition, SplitPartition):
        yield from batches(options, partition.splits, names, executor_rack(options))
    elif isinstance(partition, PullPartition):
        from rackassign.spark._pull.client import request_splits  # noqa: PLC0415 - most queries do not need it

        rack = executor_rack(options)
        for splits in request_splits(partition.endpoint, partition.task, rack, options.coordinator_timeout_s):
            yield from batches(options, splits, names, rack)


def batches(options: Options, splits: Sequence[Split], names: Sequence[str], rack: str | None) -> Iterator[RecordBatch]:
    """Yield the records of splits as Arrow batches with these columns, in order."""
    from rackassign.spark._arrow import HEADERS, to_batches  # noqa: PLC0415 - loaded on first use

    # Splits are read together, except for measurements: the received bytes of a split are known if it is read alone.
    read_options = ReadOptions(
        options.poll_timeout_s,
        options.fail_on_loss,
        options.batch_rows,
        options.batch_bytes,
        HEADERS in names,
        partial(end_offset, options.client) if options.client.get("isolation.level") == "read_committed" else None,
    )
    metered = metered_properties(process_meter()) if options.metrics_path else {}
    groups = [(split,) for split in splits] if options.metrics_path else read_together(splits, options.max_fetch_bytes)
    for group in groups:
        properties = consumer_properties(options.client, rack, group[0].fetch_bytes) | metered
        tps = [split.range.tp for split in group]
        with consumers_of_this_process().borrow(properties, tps, options.poll_timeout_s) as consumer:
            record_bytes = sum(split.size for split in group) // max(1, sum(len(split.range) for split in group))
            records = read(consumer, [split.range for split in group], read_options, record_bytes)
            if options.metrics_path:
                records = _metered(options, group[0], consumer, records)
            yield from to_batches(records, names, max_rows=options.batch_rows, max_bytes=options.batch_bytes)


def _metered(
    options: Options, split: Split, consumer: Consumer, records: Iterator[list[Message]]
) -> Iterator[list[Message]]:
    """Yield the records of a split, and write a report of the bytes that were received meanwhile."""
    # Behind the first requests of a new consumer, for metadata, which any broker answers.
    before = process_meter().settle(consumer)
    useful = 0
    for chunk in records:
        useful += sum(map(len, chunk))
        yield chunk
    received = process_meter().settle(consumer) - before
    # The rack of the executor, even if `rackBinding` is none.
    here = rack_of_environment(options)
    write_report(options.metrics_path, split, here, useful, received)


def executor_rack(options: Options | WriteOptions, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the rack to which this executor is bound; None to use leaders in all racks."""
    if options.rack_binding == "none":
        return None
    rack = rack_of_environment(options, environment)
    if rack is None:
        problem = f"{options.rack_variable} is not set on this executor"
        if options.rack_required:
            raise ConfigError(f"onMissingRack: fail: {problem}")
        log.warning("%s: leaders in all racks are used", problem)
    elif not _is_unicode(rack):
        # Python reads such text from variables whose bytes are not UTF-8. The client raises a SystemError for it.
        raise ConfigError(f"{options.rack_variable} on this executor is not UTF-8: {short_repr(rack)}")
    return rack


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def rack_of_environment(options: Options | WriteOptions, environment: Mapping[str, str] = os.environ) -> str | None:
    return environment.get(options.rack_variable, "").strip() or None


_STARTING_S = 30.0
"""Age of an application from which on its executors are not waited for: Spark itself waits as long at most."""


_SETTLED_S = 2.0
"""Seconds without another executor after which those are all."""


_POLL_INTERVAL_S = 0.1


def total_slots(spark: SparkSession) -> int | None:
    """Return how many tasks can run at the same time, as the scheduler counts them; None if unknown."""
    try:
        # Not public, but the number that Spark itself compares. Without this check, too few slots cost minutes.
        context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # noqa: BLE001 - Spark Connect has no context, another Spark no such method; the errors differ
        return None


def await_executors(
    spark: SparkSession,
    slots: Callable[[SparkSession], int | None] = total_slots,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the executors of an application that has just started have registered."""
    # At once if the application is older than half a minute, runs in one process, or does not report its slots.
    waited, count = 0.0, slots(spark)
    while count is not None and (count == 0 or waited < _SETTLED_S) and _is_starting(spark):
        sleep(_POLL_INTERVAL_S)
        waited += _POLL_INTERVAL_S
        found = slots(spark)
        if found != count:
            count, waited = found, 0.0


def _is_starting(spark: SparkSession) -> bool:
    try:
        context = spark.sparkContext
        master = context.master or ""
        one_process = master.startswith("local") and not master.startswith("local-cluster")
        return not one_process and time.time() - context.startTime / 1000 < _STARTING_S
    except Exception:  # noqa: BLE001 - Spark Connect has no context, and raises an error of its own
        return False


_ARCHIVE_OF_SPARK = re.compile(r"pyspark\.zip|py4j-.*-src\.zip|spark-core_.*\.jar")
"""Names of the archives that Spark puts on the path of a worker (`PythonUtils.sparkPythonPath`)."""


def drop_spark_path_finders(finders: MutableMapping[str, Any] | None = None) -> None:
    """Remove the finders of Spark's own archives from the cache of the import system."""
    # Python creates a finder again when a module is imported from its archive. That is cheap, since the directory of
    # the archive is kept, which is never out of date: unlike those of the user, the archives do not change.
    cache = sys.path_importer_cache if finders is None else finders
    for path, finder in list(cache.items()):
        if isinstance(finder, zipimporter) and _ARCHIVE_OF_SPARK.fullmatch(Path(finder.archive).name):
            # Another thread may have removed it.
            cache.pop(path, None)
