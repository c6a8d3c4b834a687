"""Reads a batch with tasks that run at the same time, exchange their racks, and divide the splits among themselves.

It uses Spark's barrier mode, in which no task starts before all can, and in which tasks can exchange messages. So no
coordinator and no listening socket are needed. The splits are planned on the driver when the DataFrame is created. Task
0 assigns them to tasks when it runs, with the same plan as for pulled splits (`pull.scheduler.plan`).

An exchange takes a second, whatever its size, and two are needed: one for the racks, and one for the plan. Meanwhile
each task reads ahead from a split that no other task can choose: a local one among every n-th by number, where n is the
number of tasks. The plan leaves that split with the task unless a plan without this restriction is more local. In that
case the batches that were read ahead are discarded.
"""

from __future__ import annotations

import heapq
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rackassign.errors import ConfigError, RackassignError
from rackassign.spark._arrow import check_columns
from rackassign.spark._client_config import parse_int
from rackassign.spark._options import Options, without_effect
from rackassign.spark._pull.scheduler import plan
from rackassign.spark._splits import Split
from rackassign.spark._tasks import await_executors, batches, executor_rack, forget_finders_of_spark, total_slots
from rackassign.text import short_repr

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession


log = logging.getLogger(__name__)

SLOTS_TIMEOUT_S = 5.0
"""Seconds to wait for executors that have just been requested."""

_POLL_INTERVAL_S = 0.1
_MAX_READ_AHEAD_BYTES = 128 * 2**20
"""The highest number of bytes that a task reads ahead before it has the plan."""

_MAX_READERS = 200
"""With more tasks than this, the plan has one reader for several tasks, because only the shares of racks matter."""


def read_barrier(
    spark: SparkSession, options: Mapping[str, str], tasks: int | None = None, *, columns: Sequence[str] = ()
) -> DataFrame:
    """Return the rows of `format("rackassign")`, with each partition read by a task in a rack with a replica of it.

    The offsets are determined by this call, and every action on the DataFrame reads the same ones. All tasks have to
    run at the same time, so the call fails if there are fewer slots than tasks. Spark Connect does not report the
    number of slots, so `tasks` is required there. Also set
    `spark.scheduler.barrier.maxConcurrentTasksCheck.interval=1s` and `.maxFailures=2` when the application starts with
    Spark Connect. Otherwise Spark waits ten minutes by default if there are too few slots.

    Spark does not support `show`, `take`, `limit` and `coalesce` on such a DataFrame, and a union waits for the slots
    of both sides. They work after a shuffle, for example after `repartition` by a column. Spark does not rerun such a
    stage if it writes: if an executor fails, the whole write fails. If the stage is followed by a shuffle, Spark reruns
    it. Each of the two exchanges takes up to a second, because Spark polls once per second.

    Args:
        spark: A classic or a Connect session. This process requests the metadata and the offsets from Kafka.
        options: The options of `format("rackassign")` for a batch query. `rackBinding` none reads from leaders; its
            other values make no difference.
        tasks: The number of tasks. If None, the option `tasks`, or the number of all slots if that is not set either.
        columns: The columns of the rows; if empty, those of the option `columns`, or all. Spark also reads columns
            that the query does not use, so selecting them here saves work.

    Raises:
        ConfigError: An option is invalid, or there are too few slots.
        KafkaUnavailableError: Kafka does not respond.
    """
    from rackassign.spark._datasource import full_schema, schema_of  # noqa: PLC0415 - imports Spark
    from rackassign.spark._tasks import make_planner  # noqa: PLC0415 - imports Spark

    read = Options.of(_without_pull(options), "batch")
    for problem in without_effect(options, read, "batch"):
        log.warning("this option has no effect: %s", problem)
    if read.push_filters:
        raise ConfigError("pushFilters: Spark passes no filters to read_barrier; use startingOffsets and endingOffsets")
    if isinstance(columns, str):
        raise ConfigError(f"columns: expected a list of names, got {short_repr(columns)}")
    names = tuple(columns or schema_of(read).names)
    check_columns(names, headers=read.headers)
    requested = read.tasks if tasks is None else parse_int("tasks", tasks)
    if not requested:
        await_executors(spark)
    count = task_count(requested, lambda: total_slots(spark))
    schema = full_schema(headers=read.headers)
    ids = spark.range(0, count, 1, count)
    return ids.mapInArrow(_reader(read, make_planner(read).batch(), names), _only(schema, names), barrier=True)


def task_count(requested: int, slots: Callable[[], int | None], timeout_s: float = SLOTS_TIMEOUT_S) -> int:
    """Return the number of tasks, waiting for slots if there are too few.

    Args:
        requested: The requested number of tasks; 0 for as many as can run at the same time.
        slots: Returns how many tasks can run at the same time; None if unknown.
        timeout_s: Seconds to wait for more slots.

    Raises:
        ConfigError: There are fewer slots than tasks, or no number is set and the slots are unknown.
    """
    deadline = time.monotonic() + timeout_s
    while (available := slots()) is not None and available < max(1, requested):
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"tasks: {max(1, requested)} tasks have to run at the same time, but there are {available} slots; "
                "use fewer tasks or more executors (a task can need more than one core: spark.task.cpus)"
            )
        time.sleep(_POLL_INTERVAL_S)
    if available is None and not requested:
        raise ConfigError(
            "tasks: must be set, because this session does not report how many tasks can run at the same time"
        )
    return requested or available or 0


def first_split(splits: Sequence[Split], task: int, tasks: int, rack: str | None) -> int | None:
    """Return the split that a task reads ahead, chosen without other tasks; None if it has no local one."""
    near = [number for number in range(task, len(splits), tasks) if rack in splits[number].racks]
    return min(near, key=lambda number: (-splits[number].size, number), default=None)


def assign_splits(
    splits: Sequence[Split], racks: Sequence[str | None], read_ahead: Mapping[int, int] | None = None
) -> list[list[int]]:
    """Return the numbers of the splits of each task, distributed as evenly and as locally as possible.

    Args:
        splits: All splits of the batch.
        racks: The rack of each task; None if unknown.
        read_ahead: The split that each task reads ahead. Tasks keep these splits unless that makes the plan less local.
    """
    unrestricted = _assign(splits, racks, {})
    if not read_ahead:
        return unrestricted
    kept = _assign(splits, racks, read_ahead)
    return kept if _local_bytes(splits, racks, kept) >= _local_bytes(splits, racks, unrestricted) else unrestricted


def _local_bytes(splits: Sequence[Split], racks: Sequence[str | None], shares: Sequence[Sequence[int]]) -> int:
    return sum(
        splits[number].size for rack, share in zip(racks, shares, strict=True) for number in share
        if rack in splits[number].racks
    )  # fmt: skip


def _assign(splits: Sequence[Split], racks: Sequence[str | None], read_ahead: Mapping[int, int]) -> list[list[int]]:
    tasks: defaultdict[str | None, list[int]] = defaultdict(list)
    for task, rack in enumerate(racks):
        tasks[rack].append(task)
    tasks_per_reader = max(1, len(racks) // _MAX_READERS)
    readers = Counter({rack: -(-len(numbers) // tasks_per_reader) for rack, numbers in tasks.items()})
    # A split that a task reads ahead counts as the share of its rack, so it has a replica in that rack only.
    fixed = {
        number: replace(splits[number], racks=(rack,)) for task, number in read_ahead.items() if (rack := racks[task])
    }
    planned = plan({number: fixed.get(number, split) for number, split in enumerate(splits)}, readers) if splits else {}
    shares = [[read_ahead[task]] if task in read_ahead else [] for task in range(len(racks))]
    heaps = {
        rack: [(sum(splits[number].size for number in shares[task]), len(shares[task]), task) for task in numbers]
        for rack, numbers in tasks.items()
    }
    for heap in heaps.values():
        heapq.heapify(heap)
    # The largest first, each for the task of its rack with the fewest bytes.
    for number in sorted(set(range(len(splits))).difference(fixed), key=lambda each: (-splits[each].size, each)):
        heap = heaps[planned.get(number)]
        size, count, task = heap[0]
        heapq.heapreplace(heap, (size + splits[number].size, count + 1, task))
        shares[task].append(number)
    return [sorted(share) for share in shares]


def agree_on_splits(
    splits: Sequence[Split], task: int, announcement: Mapping[str, Any], gather: Callable[[str], Sequence[str]]
) -> list[int]:
    """Exchange racks with all tasks, and return the numbers of the splits that this task reads.

    Args:
        splits: All splits of the batch, the same in each task.
        task: The index of this task.
        announcement: The announcement of this task, from `announce`.
        gather: Sends a text to all tasks, and returns the texts of all tasks by index.

    Raises:
        ConfigError: A task has no rack although one is required.
    """
    announcements: list[dict[str, Any]] = [json.loads(text) for text in gather(json.dumps(announcement))]
    for number, each in enumerate(announcements):
        if "error" in each:
            # All tasks fail with the same error, so that it does not matter which one Spark reports.
            raise ConfigError(f"task {number}: {each['error']}")
    # One task plans for all, because the solver need not return exactly the same plan on another machine.
    read_ahead = {number: each["begun"] for number, each in enumerate(announcements) if each["begun"] is not None}
    racks = [each["rack"] for each in announcements]
    plans = gather(json.dumps(assign_splits(splits, racks, read_ahead)) if task == 0 else "")
    own_splits: list[int] = json.loads(plans[0])[task]
    return own_splits


def announce(splits: Sequence[Split], task: int, tasks: int, rack: Callable[[], str | None]) -> dict[str, Any]:
    """Return the announcement of a task: its rack and the split that it reads ahead, or its error.

    Args:
        splits: All splits of the batch.
        task: The index of the task.
        tasks: The number of tasks.
        rack: Returns the rack of the task.
    """
    try:
        own_rack = rack()
    except RackassignError as error:
        return {"error": str(error)}
    return {"rack": own_rack, "begun": first_split(splits, task, tasks, own_rack)}


def read_together(
    splits: Sequence[Split],
    task: int,
    announcement: Mapping[str, Any],
    gather: Callable[[str], Sequence[str]],
    read: Callable[[Sequence[Split]], Iterator[RecordBatch]],
) -> Iterator[RecordBatch]:
    """Yield the rows of a task, reading ahead while the tasks exchange messages.

    Args:
        splits: All splits of the batch.
        task: The index of this task.
        announcement: The announcement of this task, from `announce`.
        gather: Sends a text to all tasks, and returns the texts of all tasks by index.
        read: Yields the rows of splits.
    """
    number = announcement.get("begun")
    rows = iter(()) if number is None else read([splits[number]])
    ahead: list[RecordBatch] = []
    with ThreadPoolExecutor(1, thread_name_prefix="rackassign-barrier") as pool:
        agreeing = pool.submit(agree_on_splits, splits, task, announcement, gather)
        size = 0
        while not agreeing.done() and size < _MAX_READ_AHEAD_BYTES:
            batch = next(rows, None)
            if batch is None:
                break
            ahead.append(batch)
            size += batch.nbytes
        own_splits = agreeing.result()
    if number in own_splits:
        yield from ahead
        yield from rows
    else:
        del rows
    yield from read([splits[each] for each in own_splits if each != number])


def _reader(
    options: Options, splits: Sequence[Split], names: Sequence[str]
) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    def read(ids: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        from pyspark import BarrierTaskContext  # noqa: PLC0415 - imports Spark

        for _ in ids:
            # The rows exist only to create the task.
            pass
        context = BarrierTaskContext.get()
        task = context.partitionId()
        announcement = announce(splits, task, len(context.getTaskInfos()), lambda: executor_rack(options))
        try:
            yield from read_together(
                splits,
                task,
                announcement,
                context.allGather,
                # A task without a rack because of an error reads nothing.
                lambda share: batches(options, share, names, announcement.get("rack")),
            )
        finally:
            forget_finders_of_spark()

    return read


def _without_pull(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without `rackBinding=pull`, because tasks choose splits here in another way."""
    pulls = any(name.lower() == "rackbinding" and str(value).lower() == "pull" for name, value in options.items())
    return {name: value for name, value in options.items() if not (pulls and name.lower() == "rackbinding")}


def _only(schema: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - a type of Spark, which is not imported here
    return type(schema)([schema[name] for name in names])
