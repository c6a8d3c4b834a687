"""Reads a batch with tasks that all run at once, tell each other where they are, and share out the splits.

Spark's barrier mode: no task begins before all can, and they may exchange messages. So nobody has to be asked, and
nothing listens. What there is to read is decided on the driver when the frame is made; who reads what is decided by
task 0 when it runs, by the optimum that also plans for splits that are pulled.

An exchange takes a second, whatever there is to say, and two are needed: racks to task 0, and the plan back. Meanwhile
each task begins with a split of which it can know that nobody else does: near, and of every so many-th by number. The
plan leaves it that one unless all would be read nearer without; then what was read ahead is thrown away.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rackassign.errors import ConfigError, RackassignError
from rackassign.spark.arrow import COLUMNS, HEADERS, check_columns
from rackassign.spark.options import Options
from rackassign.spark.pull.scheduler import plan
from rackassign.spark.splits import Split
from rackassign.spark.task import batches, executor_rack

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

SLOTS_COME_S = 5.0
"""So long executors that have just been asked for are waited for."""

_LOOK_AGAIN_S = 0.1
_MOST_AHEAD = 128 * 2**20
"""Bytes that a task reads before it knows the plan."""

_MOST_READERS = 200
"""More tasks than this are counted by the handful: what is planned is shares."""


def read_barrier(
    spark: SparkSession, options: Mapping[str, str], tasks: int | None = None, *, columns: Sequence[str] = ()
) -> DataFrame:
    """Return the rows that `format("rackassign")` would, each partition read by a task in a rack with a replica.

    Offsets are fixed now; every action on the frame reads the same ones. All tasks must run at once: with fewer slots
    than tasks this is refused at once. Spark Connect does not tell how many slots there are: name `tasks` there, and
    set `spark.scheduler.barrier.maxConcurrentTasksCheck.interval=1s` and `.maxFailures=2` when the application starts,
    or too few slots are waited for, ten minutes by default.

    Spark refuses `show`, `take`, `limit` and `coalesce` on such a frame, and has a union wait for the slots of both;
    they work behind a shuffle, as `repartition` by a column is. Nor does it run such a stage again where it writes: if
    an executor dies, the write fails as a whole, and behind a shuffle the stage is run again. Each of the two exchanges
    takes up to a second: that is how often Spark looks.

    Args:
        spark: Classic or Connect; the process it is in asks Kafka what there is.
        options: As of `format("rackassign")` for a batch; `rackBinding` none reads from leaders, others make no
            difference.
        tasks: How many; the option of that name if None, and all slots there are if that is not set either.
        columns: Of the rows; all if there are none. Spark reads those it does not need as well, so it pays to say.

    Raises:
        ConfigError: An option is wrong, or there are too few slots.
        NoAnswerError: Kafka does not answer.
    """
    from rackassign.spark.source.partitions import make_planner  # noqa: PLC0415 - brings Spark
    from rackassign.spark.source.schema import full_schema  # noqa: PLC0415 - brings Spark

    read = Options.of(_without_pull(options), "batch")
    names = tuple(columns) or ((*COLUMNS, HEADERS) if read.headers else COLUMNS)
    check_columns(names, headers=read.headers)
    wanted = read.tasks if tasks is None else tasks
    if wanted < 0 or tasks == 0:
        raise ConfigError(f"tasks: expected 1 or more, got {wanted}")
    count = task_count(wanted, lambda: total_slots(spark))
    schema = full_schema(headers=read.headers)
    ids = spark.range(0, count, 1, count)
    return ids.mapInArrow(_reader(read, make_planner(read).batch(), names), _only(schema, names), barrier=True)


def task_count(wanted: int, slots: Callable[[], int | None], patience_s: float = SLOTS_COME_S) -> int:
    """Return how many tasks there will be.

    Args:
        wanted: So many; 0 for all that can run at once.
        slots: Tells how many can; None if that cannot be known.
        patience_s: So long more are waited for.

    Raises:
        ConfigError: That many cannot.
    """
    deadline = time.monotonic() + patience_s
    while (found := slots()) is not None and found < max(1, wanted):
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"tasks: {max(1, wanted)} must run at once, and there is room for {found}; "
                "take fewer tasks or more executors (a task may take more than one core: spark.task.cpus)"
            )
        time.sleep(_LOOK_AGAIN_S)
    if found is None and not wanted:
        raise ConfigError("tasks: expected how many, since this session does not tell how many can run at once")
    return wanted or found or 0


def total_slots(spark: SparkSession) -> int | None:
    """Return how many tasks can run at once, as the scheduler counts them for barriers; None if it does not tell."""
    try:
        # Not public, but what Spark itself compares; a frame that is refused now would wait for minutes.
        context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # noqa: BLE001 - Spark Connect has no context, another Spark no such method; each says it its way
        return None


def first_split(splits: Sequence[Split], task: int, tasks: int, rack: str | None) -> int | None:
    """Return the number of the split that a task begins with, knowing of no other; None if none is near."""
    near = [number for number in range(task, len(splits), tasks) if rack in splits[number].racks]
    return min(near, key=lambda number: (-splits[number].size, number), default=None)


def assign_splits(
    splits: Sequence[Split], racks: Sequence[str | None], begun: Mapping[int, int] | None = None
) -> list[list[int]]:
    """Return for each task the numbers of the splits it reads: as local and as even as can be.

    Args:
        splits: All of them.
        racks: Where each task runs; None if it does not know.
        begun: Splits that tasks have begun, by task: those stay with them, if that makes nothing less local.
    """
    free = _dealt(splits, racks, {})
    if not begun:
        return free
    kept = _dealt(splits, racks, begun)
    return kept if _local(splits, racks, kept) >= _local(splits, racks, free) else free


def _local(splits: Sequence[Split], racks: Sequence[str | None], shares: Sequence[Sequence[int]]) -> int:
    return sum(
        splits[number].size for rack, share in zip(racks, shares, strict=True) for number in share
        if rack in splits[number].racks
    )  # fmt: skip


def _dealt(splits: Sequence[Split], racks: Sequence[str | None], begun: Mapping[int, int]) -> list[list[int]]:
    tasks: defaultdict[str | None, list[int]] = defaultdict(list)
    for task, rack in enumerate(racks):
        tasks[rack].append(task)
    shrunk = max(1, len(racks) // _MOST_READERS)
    readers = Counter({rack: -(-len(theirs) // shrunk) for rack, theirs in tasks.items()})
    # What was begun counts as its rack's share, and cannot be read at home anywhere else.
    fixed = {number: replace(splits[number], racks=(rack,)) for task, number in begun.items() if (rack := racks[task])}
    planned = plan({number: fixed.get(number, split) for number, split in enumerate(splits)}, readers) if splits else {}
    shares = [[begun[task]] if task in begun else [] for task in range(len(racks))]
    heaps = {
        rack: [(sum(splits[number].size for number in shares[task]), len(shares[task]), task) for task in theirs]
        for rack, theirs in tasks.items()
    }
    for heap in heaps.values():
        heapq.heapify(heap)
    # The largest first, each to whom of its rack has least.
    for number in sorted(set(range(len(splits))).difference(fixed), key=lambda each: (-splits[each].size, each)):
        heap = heaps[planned.get(number)]
        size, had, task = heap[0]
        heapq.heapreplace(heap, (size + splits[number].size, had + 1, task))
        shares[task].append(number)
    return [sorted(share) for share in shares]


def agree_on_splits(
    splits: Sequence[Split], task: int, told_here: Mapping[str, Any], gather: Callable[[str], Sequence[str]]
) -> list[int]:
    """Return the numbers of the splits that this task reads, as all tasks have agreed.

    Args:
        splits: All of them, the same in each task.
        task: The index of this one.
        told_here: What it tells of itself, as from `announce`.
        gather: Hands a text to all tasks, and returns those of all, by index.

    Raises:
        ConfigError: One of the tasks has to have a rack, and has none.
    """
    told = [json.loads(text) for text in gather(json.dumps(told_here))]
    for number, said in enumerate(told):
        if "error" in said:
            # All fail for the same reason, whichever of them Spark reports.
            raise ConfigError(f"task {number}: {said['error']}")
    # One plans for all: what is solved elsewhere need not come out the same to the letter.
    begun = {number: said["begun"] for number, said in enumerate(told) if said["begun"] is not None}
    plans = gather(json.dumps(assign_splits(splits, [said["rack"] for said in told], begun)) if task == 0 else "")
    mine: list[int] = json.loads(plans[0])[task]
    return mine


def announce(splits: Sequence[Split], task: int, tasks: int, rack: Callable[[], str | None]) -> dict[str, Any]:
    """Return what a task tells of itself: its rack and what it begins with, or why it cannot.

    Args:
        splits: All of them.
        task: Its index.
        tasks: How many there are.
        rack: Tells where it runs.
    """
    try:
        where = rack()
    except RackassignError as error:
        return {"error": str(error)}
    return {"rack": where, "begun": first_split(splits, task, tasks, where)}


def read_together(
    splits: Sequence[Split],
    task: int,
    told: Mapping[str, Any],
    gather: Callable[[str], Sequence[str]],
    read: Callable[[Split], Iterator[RecordBatch]],
) -> Iterator[RecordBatch]:
    """Yield the rows of a task, reading ahead while the tasks agree.

    Args:
        splits: All of them.
        task: The index of this one.
        told: What it tells of itself.
        gather: As for `agree_on_splits`.
        read: Reads a split.
    """
    number = told.get("begun")
    begun = iter(()) if number is None else read(splits[number])
    ahead: list[RecordBatch] = []
    with ThreadPoolExecutor(1, thread_name_prefix="rackassign-barrier") as pool:
        agreeing = pool.submit(agree_on_splits, splits, task, told, gather)
        size = 0
        while not agreeing.done() and size < _MOST_AHEAD:
            batch = next(begun, None)
            if batch is None:
                break
            ahead.append(batch)
            size += batch.nbytes
        mine = agreeing.result()
    if number in mine:
        yield from ahead
        yield from begun
    else:
        del begun
    for each in mine:
        if each != number:
            yield from read(splits[each])


def _reader(
    options: Options, splits: Sequence[Split], names: Sequence[str]
) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    def read(ids: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        from pyspark import BarrierTaskContext  # noqa: PLC0415 - as the rest of Spark

        for _ in ids:
            # Only there so that there is a task.
            pass
        context = BarrierTaskContext.get()
        task = context.partitionId()
        told = announce(splits, task, len(context.getTaskInfos()), lambda: executor_rack(options))
        yield from read_together(splits, task, told, context.allGather, lambda split: batches(options, split, names))

    return read


def _without_pull(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without what says that splits are pulled: here they are chosen as well, in another way."""
    pulls = any(name.lower() == "rackbinding" and str(value).lower() == "pull" for name, value in options.items())
    return {name: value for name, value in options.items() if not (pulls and name.lower() == "rackbinding")}


def _only(schema: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - types of Spark, which is not imported here
    return type(schema)([schema[name] for name in names])
