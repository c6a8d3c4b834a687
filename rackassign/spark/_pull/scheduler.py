"""Assigns the splits of a batch to tasks when they request one, according to the rack in which each task runs.

This module uses neither Spark nor sockets.

Theory of operation
-------------------
A task of Spark has a number, and its rack is known only once it runs. So splits are not assigned to tasks in advance,
but when a task requests some. The assignment is final: the n-th request of a task always has the same response. A
retry, a speculative copy and a stage that is rerun read the same records, in whichever rack they run.

The racks of splits are planned with the solver for sticky assignments. It distributes all splits over the tasks seen
and the tasks still expected, evenly by bytes and as locally as that allows. Splits that are already assigned count as
the share of their rack. A task gets a split that is planned for its rack. If there is none, it gets one that is local
to it and planned for another rack. If there is none either, it gets one that is local to others, from the rack with the
most bytes left. A split that is read in a rack without a replica of it is *stolen*, and counted.

A request gets several splits, which are read together: a task that reads one after the other waits for each. It gets a
quarter of the task's part of what is left for its rack. So requests get less and less, and a slow task holds little in
the end that others could read. What is planned for other racks is assigned in small amounts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rackassign.errors import ConfigError
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.spark._fetch_size import SMALL_RANGE_BYTES
from rackassign.spark._pull.protocol import Wait
from rackassign.spark._splits import MAX_TOGETHER, Split
from rackassign.strategies import Options, plan_sticky
from rackassign.text import short_repr

_TOPIC = "splits"
_ANYWHERE = "anywhere"
_MAX_SIZE_RATIO = 2
_MAX_READERS = 200
"""With more tasks than this, the plan has one reader for several tasks, because only the shares of racks matter."""

_PARTS = 4
"""Requests in which a task would get its part of what is left for its rack, if all were as large as the next one."""

_UNLIMITED_PLANNING_S = 1.0
_PLANNING_SHARE = 0.25
"""Seconds of planning after which planning may take at most this share of the time. Requests wait for a plan, and with
ten thousand splits hundreds of tasks that start together would otherwise wait for one plan after the other, for longer
than `coordinatorTimeoutMs`."""


@dataclass(frozen=True, slots=True)
class SchedulingStats:
    """How much was assigned to tasks, in estimated bytes."""

    local: int = 0
    # Bytes of splits with replicas in other racks only.
    stolen: int = 0
    # Bytes of splits for tasks without a rack, or of splits for which no replica's rack is known.
    unknown: int = 0


class SplitScheduler:
    """The splits of one batch. Methods may be called from any thread."""

    def __init__(
        self,
        splits: Sequence[Split],
        tasks: int,
        *,
        max_splits_per_task: int = 0,
        slots: Mapping[str | None, int] | None = None,
        steal_after_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # `max_splits_per_task`: 0 for no limit. `slots`: the tasks that each rack is expected to have, from the batch
        # before. `steal_after_s`: the rack of a task may be fast, which does not mean that the other racks are late.
        if tasks < 1 or (max_splits_per_task and tasks * max_splits_per_task < len(splits)):
            raise ConfigError(f"tasks: {tasks} are too few for {len(splits)} splits")
        self._splits = tuple(splits)
        self._tasks = tasks
        self._max_splits_per_task = max_splits_per_task
        self._unassigned = _Unassigned(self._splits)
        self._assigned: dict[int, list[tuple[int, ...]]] = {}
        self._task_racks: dict[int, str | None] = {}
        self._reader_racks: dict[int, str | None] = {}
        self._slots = dict(slots or {})
        self._expected: Counter[str | None] = Counter()
        self._seen_tasks = -1
        self._planned_for: dict[str | None, int] | None = None
        self._stats = SchedulingStats()
        self._steal_after_s = steal_after_s
        self._clock = clock
        self._waiting: dict[int, tuple[int, float]] = {}
        self._first_steal: float | None = None
        self._lock = threading.Lock()
        self._begun, self._planning_s = self._clock(), 0.0
        # Before there are tasks, which would wait for it.
        self._replan()
        self._begun, self._planning_s = self._clock(), 0.0

    def next_splits(self, task: int, number: int, rack: str | None) -> tuple[Split, ...] | Wait:
        """Return the splits of the n-th request of a task, none if it has no more, or `wait` if it has to repeat it."""
        if not 0 <= task < self._tasks:
            raise ConfigError(f"task: expected 0 to {self._tasks - 1}, got {short_repr(task)}")
        with self._lock:
            assigned = self._assigned.setdefault(task, [])
            if not 0 <= number <= len(assigned):
                raise ConfigError(f"number: expected 0 to {len(assigned)} from task {task}, got {short_repr(number)}")
            if number == len(assigned):
                chosen = self._choose(task, number, rack)
                if chosen == "wait":
                    return chosen
                if not chosen:
                    # This is final as well, because splits are never returned.
                    return ()
                assigned.append(chosen)
            return tuple(self._splits[each] for each in assigned[number])

    def stats(self) -> SchedulingStats:
        with self._lock:
            return self._stats

    def unassigned(self) -> int:
        with self._lock:
            return len(self._unassigned)

    def slots(self) -> dict[str | None, int]:
        """Return how many tasks of each rack have requested splits, for the next batch."""
        with self._lock:
            return dict(Counter(self._task_racks.values()))

    def _choose(self, task: int, number: int, rack: str | None) -> tuple[int, ...] | Wait:
        room = min(MAX_TOGETHER, len(self._unassigned))
        if self._max_splits_per_task:
            room = min(room, self._max_splits_per_task - sum(map(len, self._assigned[task])))
        if not room:
            return ()
        self._task_racks.setdefault(task, rack)
        self._replan()
        part = self._unassigned.planned_bytes(rack) // (_PARTS * max(1, self._expected[rack]))
        chosen: list[int] = []
        size, is_own, limit = 0, False, 0
        while len(chosen) < room:
            best = self._unassigned.best(rack)
            split = self._splits[best]
            is_stolen = self._is_stolen(split, rack)
            is_planned = not is_stolen and self._unassigned.planned_rack(best) == rack
            if not chosen:
                is_own, limit = is_planned, max(SMALL_RANGE_BYTES, part if is_planned else 0)
            elif is_planned != is_own or size + split.size > limit:
                break
            # Each time to wait begins with a request.
            if is_stolen and self._steal_after_s and (chosen or self._must_wait(task, number, split.racks)):
                break
            self._unassigned.remove(best)
            self._reader_racks[best] = rack
            self._count(split, rack)
            chosen.append(best)
            size += split.size
        return tuple(chosen) or "wait"

    def _expected_tasks(self) -> Counter[str | None]:
        """Estimate how many tasks each rack will have run at the end of the batch."""
        # The tasks that have not sent a request yet are distributed as in the batch before. If there was none, the same
        # number is expected in each rack with replicas or tasks.
        tasks: Counter[str | None] = Counter(self._task_racks.values())
        weights: dict[str | None, int] = dict(self._slots)
        if not weights:
            weights = dict.fromkeys([*tasks, *(rack for split in self._splits for rack in split.racks)], 1)
        if any(weights.values()):
            tasks += _apportioned(weights, tasks, self._tasks)
        return tasks

    @staticmethod
    def _is_stolen(split: Split, rack: str | None) -> bool:
        return rack is not None and bool(split.racks) and rack not in split.racks

    def _must_wait(self, task: int, number: int, racks: Sequence[str]) -> bool:
        """Return whether a task still has to wait before it steals; the time starts when it first sends the request."""
        # Once the batch is older than the time to wait, a task only waits if the split is local to a task seen so far.
        now = self._clock()
        if self._first_steal is None:
            self._first_steal = now
        if now - self._first_steal >= self._steal_after_s and not set(racks).intersection(self._task_racks.values()):
            return False
        waiting_for, since = self._waiting.setdefault(task, (number, now))
        if waiting_for != number:
            self._waiting[task] = number, now
            since = now
        return now - since < self._steal_after_s

    def _count(self, split: Split, rack: str | None) -> None:
        local, stolen, unknown = self._stats.local, self._stats.stolen, self._stats.unknown
        if self._is_stolen(split, rack):
            self._stats = SchedulingStats(local, stolen + split.size, unknown)
        elif rack in split.racks:
            self._stats = SchedulingStats(local + split.size, stolen, unknown)
        else:
            self._stats = SchedulingStats(local, stolen, unknown + split.size)

    def _replan(self) -> None:
        """Compute the plan again if the estimated number of tasks per rack has changed."""
        if len(self._task_racks) == self._seen_tasks:
            return
        # Without time for a plan, a later request is planned for all tasks seen by then.
        if self._planning_s > _UNLIMITED_PLANNING_S + _PLANNING_SHARE * (self._clock() - self._begun):
            return
        self._seen_tasks = len(self._task_racks)
        self._expected = self._expected_tasks()
        tasks_per_reader = max(1, self._expected.total() // _MAX_READERS)
        readers = {rack: -(-count // tasks_per_reader) for rack, count in self._expected.items()}
        if readers == self._planned_for:
            return
        self._planned_for = readers
        # A split that is assigned already counts as the share of its rack, so it has a replica in that rack only.
        assigned = {
            number: replace(self._splits[number], racks=() if rack is None else (rack,))
            for number, rack in self._reader_racks.items()
        }
        begun = self._clock()
        self._unassigned.plan(
            plan({number: assigned.get(number, split) for number, split in enumerate(self._splits)}, readers)
        )
        self._planning_s += self._clock() - begun


class _Unassigned:
    """The splits that are not assigned, by the racks for which they are planned and those in which they are local.

    Each choice takes the same time however many splits there are: with ten thousand, requests would otherwise wait for
    each other longer than for records.
    """

    def __init__(self, splits: Sequence[Split]) -> None:
        self._splits = splits
        self._gone: set[int] = set()
        # The largest first, and of equally large ones that with the lowest number.
        self._order = sorted(range(len(splits)), key=lambda number: (-splits[number].size, number))
        self._local = self._queues((rack, number) for number in self._order for rack in splits[number].racks)
        self._nowhere = self._queues((None, number) for number in self._order if not splits[number].racks)
        self.plan({})

    def __len__(self) -> int:
        return len(self._splits) - len(self._gone)

    def plan(self, planned: Mapping[int, str]) -> None:
        """Take the rack for which each split is planned; without one a split is for tasks without a rack."""
        left = [number for number in self._order if number not in self._gone]
        self._rack = {number: planned.get(number) for number in left}
        self._planned = self._queues((self._rack[number], number) for number in left)
        self._planned_local = self._queues(
            (rack, number) for number in left if (rack := self._rack[number]) in self._splits[number].racks
        )
        self._bytes: Counter[str] = Counter()
        for number in left:
            self._bytes[self._rack[number] or _ANYWHERE] += self._splits[number].size
        self._count = Counter(self._rack.values())

    @staticmethod
    def _queues(numbers: Iterable[tuple[str | None, int]]) -> dict[str | None, deque[int]]:
        found: defaultdict[str | None, deque[int]] = defaultdict(deque)
        for rack, number in numbers:
            found[rack].append(number)
        return dict(found)

    def _first(self, queues: Mapping[str | None, deque[int]], rack: str | None) -> int | None:
        queue = queues.get(rack, ())
        while queue and queue[0] in self._gone:
            queue.popleft()
        return queue[0] if queue else None

    def best(self, rack: str | None) -> int:
        """Return the split for a task of this rack: the largest of the best category, with the lowest number."""
        # A split without a replica of known rack is local to no task, so assigning it loses no locality.
        for queues, of in (
            (self._planned_local, rack),
            (self._planned, rack),
            (self._local, rack),
            (self._nowhere, None),
        ):
            found = self._first(queues, of)
            if found is not None:
                return found
        left = [each for each, count in self._count.items() if count]
        most = max(sorted(left, key=lambda each: each or _ANYWHERE), key=lambda each: self._bytes[each or _ANYWHERE])
        self._first(self._planned, most)
        return self._planned[most][0]

    def planned_rack(self, number: int) -> str | None:
        return self._rack[number]

    def planned_bytes(self, rack: str | None) -> int:
        return self._bytes[rack or _ANYWHERE]

    def remove(self, number: int) -> None:
        self._gone.add(number)
        rack = self._rack[number]
        self._bytes[rack or _ANYWHERE] -= self._splits[number].size
        self._count[rack] -= 1


def _apportioned(weights: Mapping[str | None, int], seen: Mapping[str | None, int], total: int) -> Counter[str | None]:
    """Return the racks of tasks that are not seen yet, so that all tasks are as the weights, which are not all 0."""
    # It is the result of choosing a rack for one task after the other, each time that which lacks most.
    left, whole = total - sum(seen.values()), sum(weights.values())
    lacks = {rack: weights[rack] * total - seen.get(rack, 0) * whole for rack in sorted(weights, key=str)}
    # All that lack more than a level get tasks until they do not; the lowest such level leaves few tasks.
    low, high = min(lacks.values()) - whole * (left + 1), max(lacks.values())
    while low < high:
        middle = (low + high) // 2
        if sum(max(0, -(-(lack - middle) // whole)) for lack in lacks.values()) <= left:
            high = middle
        else:
            low = middle + 1
    racks: Counter[str | None] = Counter({rack: max(0, -(-(lack - high) // whole)) for rack, lack in lacks.items()})
    for _ in range(left - racks.total()):
        racks[max(lacks, key=lambda rack: lacks[rack] - racks[rack] * whole)] += 1
    return racks


def plan(splits: Mapping[int, Split], readers: Mapping[str | None, int]) -> dict[int, str]:
    """Return the planned rack of each split, without the splits of readers that have no rack."""
    numbers = list(splits)
    racks = sorted({rack for split in splits.values() for rack in split.racks})
    broker_of = {rack: number for number, rack in enumerate(racks)}
    partitions = tuple(Partition(tuple(broker_of[rack] for rack in splits[number].racks)) for number in numbers)
    members = {
        f"{number}-{count}": rack
        for number, rack in enumerate(sorted(readers, key=lambda each: (each is None, each)))
        for count in range(readers[rack])
    }
    sizes = [float(splits[number].size) for number in numbers]
    # Splits of similar sizes are counted and not weighted, because only problems without weights are solved exactly.
    uneven = sizes and max(sizes) > _MAX_SIZE_RATIO * max(1.0, min(sizes))
    group = Group(
        Topology(tuple(Broker(number, rack) for rack, number in broker_of.items()), {_TOPIC: partitions}),
        tuple(Member(name, frozenset({_TOPIC}), rack) for name, rack in members.items()),
        weights={_TOPIC: tuple(sizes)} if uneven else {},
    )
    planned: dict[int, str] = {}
    for name, target in plan_sticky(group, Options()).target.items():
        rack = members[name]
        if rack is not None:
            planned |= {numbers[index]: rack for index in target.get(_TOPIC, ())}
    return planned
