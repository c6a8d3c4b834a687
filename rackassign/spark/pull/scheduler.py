"""Who reads which split of a batch: dealt out as tasks ask, each in the rack it runs in.

Pure: neither Spark nor sockets.

Theory of operation
-------------------
A task of Spark's is a number; where it runs is known only when it runs. So splits are not planned for tasks but dealt
when a task asks, and what a task was dealt is final: its n-th question has one answer, whoever asks it. A retry, a
speculative copy and a stage that is run again read the same records, in whatever rack they run.

What to deal is planned by the optimum: the splits that are left, over the tasks that were seen and those that are still
to come, even by bytes and as local as that allows. A task takes from what was planned for its rack; then what is local
to it and planned for others; only then what is local to others, from where most bytes are left. What is read by a rack
that has no replica of it is *stolen*, and counted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rackassign.errors import ConfigError
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.spark.splits import Split
from rackassign.util.text import short_repr

_TOPIC = "splits"
_ANYWHERE = "anywhere"
_UNEVEN = 2
_MOST_READERS = 200
"""More tasks than this are counted by the handful: what is planned is shares."""


@dataclass(frozen=True, slots=True)
class SchedulingStats:
    """How much was dealt, in bytes as they were thought to be.

    Args:
        local: With a replica in the rack of the task.
        stolen: With replicas, and none there.
        unknown: To tasks without a rack, or without any replica of known rack.
    """

    local: int = 0
    stolen: int = 0
    unknown: int = 0


Wait = Literal["wait"]
"""An answer: not yet, ask again."""


class SplitScheduler:
    """The splits of one batch; may be asked from any thread.

    Args:
        splits: What there is to read.
        tasks: How many will ask.
        each: At most so many splits to a task; 0 for no bound. With a bound all splits must find room.
        slots: How many tasks of each rack are expected, as the batch before has shown; empty if nobody knows.
        steal_after_s: So long a task is told to wait before it steals: its rack may be fast, and the others not late.
        clock: Seconds.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        tasks: int,
        *,
        each: int = 0,
        slots: Mapping[str | None, int] | None = None,
        steal_after_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if tasks < 1 or (each and tasks * each < len(splits)):
            raise ConfigError(f"tasks: {tasks} are too few for {len(splits)} splits")
        self._splits = tuple(splits)
        self._tasks = tasks
        self._each = each
        self._left = set(range(len(splits)))
        self._answers: dict[int, list[int]] = {}
        self._racks: dict[int, str | None] = {}
        self._given: dict[int, str | None] = {}
        self._expected = dict(slots or {})
        self._plan: dict[int, str] = {}
        self._planned_for: Counter[str | None] | None = None
        self._dealt = SchedulingStats()
        self._steal_after_s = steal_after_s
        self._clock = clock
        self._waiting: dict[int, tuple[int, float]] = {}
        self._begun: float | None = None
        self._lock = threading.Lock()

    def answer(self, task: int, number: int, rack: str | None) -> Split | Wait | None:
        """Return the split that is a task's n-th, or None: it has no more; `wait` is no answer yet.

        Args:
            task: Its index.
            number: Of the question, from 0; one further than the last that was answered at most.
            rack: Where the task runs; None if it does not know.

        Raises:
            ConfigError: There is no such task, or a question was left out.
        """
        if not 0 <= task < self._tasks:
            raise ConfigError(f"task: expected 0 to {self._tasks - 1}, got {short_repr(task)}")
        with self._lock:
            told = self._answers.setdefault(task, [])
            if not 0 <= number <= len(told):
                raise ConfigError(f"number: task {task} has {len(told)} answers, and asked for {short_repr(number)}")
            if number == len(told):
                chosen = self._choose(task, rack, len(told))
                if chosen is None or chosen == "wait":
                    # None is final as well: nothing will ever be given back.
                    return chosen
                told.append(chosen)
            return self._splits[told[number]]

    def dealt(self) -> SchedulingStats:
        """Return how much was dealt so far."""
        with self._lock:
            return self._dealt

    def left(self) -> int:
        """Return how many splits nobody has."""
        with self._lock:
            return len(self._left)

    def slots(self) -> dict[str | None, int]:
        """Return how many tasks of each rack have come, for the batch that follows."""
        with self._lock:
            return dict(Counter(self._racks.values()))

    def _choose(self, task: int, rack: str | None, had: int) -> int | Wait | None:
        if not self._left or (self._each and had >= self._each):
            return None
        self._racks.setdefault(task, rack)
        self._replan()
        chosen = self._best(rack)
        if self._is_stolen(self._splits[chosen], rack) and self._must_wait(task, had, self._splits[chosen].racks):
            return "wait"
        self._left.remove(chosen)
        self._given[chosen] = rack
        self._count(self._splits[chosen], rack)
        return chosen

    def _best(self, rack: str | None) -> int:
        """Return the split for a task of this rack: the largest of the best kind, the first of those."""
        near = [number for number in self._left if rack in self._splits[number].racks]
        mine = [number for number in self._left if self._plan.get(number) == rack]
        for wanted in (set(near).intersection(mine), mine, near):
            if wanted:
                return self._largest(wanted)
        # What nobody can read at home is nobody's loss.
        homeless = [number for number in self._left if not self._splits[number].racks]
        if homeless:
            return self._largest(homeless)
        waiting: Counter[str] = Counter()
        for number in self._left:
            waiting[self._plan.get(number, _ANYWHERE)] += self._splits[number].size
        most = max(sorted(waiting), key=lambda each: waiting[each])
        return self._largest(number for number in self._left if self._plan.get(number, _ANYWHERE) == most)

    def _largest(self, numbers: Iterable[int]) -> int:
        return min(numbers, key=lambda number: (-self._splits[number].size, number))

    def _foreseen(self) -> Counter[str | None]:
        """Return how many tasks each rack will have run in the end: those that came, and a guess of the others.

        They are taken to come as in the batch before, or as much from each rack with replicas.
        """
        seen: Counter[str | None] = Counter(self._racks.values())
        weights: dict[str | None, int] = dict(self._expected)
        if not weights:
            weights = dict.fromkeys([*seen, *(rack for split in self._splits for rack in split.racks)], 1)
        total = sum(weights.values())
        for _ in range(self._tasks - seen.total() if total else 0):
            behind = max(sorted(weights, key=str), key=lambda rack: weights[rack] * self._tasks - seen[rack] * total)
            seen[behind] += 1
        shrunk = max(1, seen.total() // _MOST_READERS)
        return Counter({rack: -(-count // shrunk) for rack, count in seen.items()})

    @staticmethod
    def _is_stolen(split: Split, rack: str | None) -> bool:
        return rack is not None and bool(split.racks) and rack not in split.racks

    def _must_wait(self, task: int, number: int, homes: Sequence[str]) -> bool:
        """Tell whether a task has not waited for this answer long enough; it begins to when it first asks.

        Once the batch is as old as that, a split is waited for only where somebody can read it at home.
        """
        now = self._clock()
        if self._begun is None:
            self._begun = now
        if now - self._begun >= self._steal_after_s and not set(homes).intersection(self._racks.values()):
            return False
        asked, since = self._waiting.setdefault(task, (number, now))
        if asked != number:
            self._waiting[task] = number, now
            since = now
        return now - since < self._steal_after_s

    def _count(self, split: Split, rack: str | None) -> None:
        local, stolen, unknown = self._dealt.local, self._dealt.stolen, self._dealt.unknown
        if self._is_stolen(split, rack):
            self._dealt = SchedulingStats(local, stolen + split.size, unknown)
        elif rack in split.racks:
            self._dealt = SchedulingStats(local + split.size, stolen, unknown)
        else:
            self._dealt = SchedulingStats(local, stolen, unknown + split.size)

    def _replan(self) -> None:
        """Plan what is left, if what is known of the racks has changed."""
        readers = self._foreseen()
        if readers == self._planned_for:
            return
        self._planned_for = readers
        # What a rack has had counts as its share, and cannot be read at home anywhere else.
        had = {
            number: replace(self._splits[number], racks=() if rack is None else (rack,))
            for number, rack in self._given.items()
        }
        self._plan = plan({number: had.get(number, split) for number, split in enumerate(self._splits)}, readers)


def plan(splits: Mapping[int, Split], readers: Mapping[str | None, int]) -> dict[int, str]:
    """Return for each split the rack that is to read it; those that a reader without rack is to read are left out.

    Args:
        splits: By number.
        readers: How many each rack has.
    """
    from rackassign.strategies import Options, plan_sticky  # noqa: PLC0415 - brings the solver

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
    # Splits of about the same size are counted: that can be solved exactly, and weights cannot.
    uneven = sizes and max(sizes) > _UNEVEN * max(1.0, min(sizes))
    group = Group(
        Topology(tuple(Broker(number, rack) for rack, number in broker_of.items()), {_TOPIC: partitions}),
        tuple(Member(name, frozenset({_TOPIC}), rack) for name, rack in members.items()),
        weights={_TOPIC: tuple(sizes)} if uneven else {},
    )
    planned: dict[int, str] = {}
    for name, target in plan_sticky(group, Options()).target.items():
        rack = members[name]
        if rack is not None:
            planned |= {numbers[place]: rack for place in target.get(_TOPIC, ())}
    return planned
