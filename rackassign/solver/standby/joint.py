"""Place all copies of all items at once, by a mixed-integer program over the sets of lowest cost.

Theory of operation
-------------------
Exchanges move one copy of an item at a time. With two dimensions an item may have two sets that differ in two nodes,
and none in between that costs as little, so no sequence of exchanges leads from one to the other. In the example of
KIP-708, with three clusters in three zones, every item has two such sets.

Items with the same fixed node, the same number of copies and the same former nodes are one *class*, and its sets of
lowest cost are columns: how many items of the class take each of them is what the program decides, first for even
loads, then for kept copies. Loads are a separable convex cost, of which only a part is needed: if the exchanges ended
with `gap` more than the most even loads that any placement could have, in a better placement no node is farther than
about `sqrt(gap * weight)` from its load there.

The program is exact. It is not tried if there are too many columns, and given up after a limit; then the result of the
exchanges stays, and is not called proven.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rackassign.solver.network_flow import bits_of
from rackassign.solver.simplex import ONE_ORDER, new_highs, run_highs
from rackassign.solver.standby.collisions import CollisionBound, CollisionIndex, ItemDemand

try:
    import highspy
except ImportError:
    highspy = None  # type: ignore[assignment]

MOST_COLUMNS = 20_000
"""Limit of the sets of all classes together."""

MOST_NODES = 2_000
"""Limit of the nodes of each search, by which the result does not depend on how fast a machine is."""

LONGEST_S = 2.0
"""Limit of all of it: a leader's client waits for the plan."""

_NOTHING = 1e-6

Sets = tuple[frozenset[int], ...]


def most_even(load: Sequence[int], weight: Sequence[int], copies: int) -> list[int]:
    """Return the most even loads that nodes can have after so many copies, wherever these can be placed."""
    counts = list(load)
    heap = [((2 * count + 1) / weight[node], node) for node, count in enumerate(counts)]
    heapq.heapify(heap)
    for _ in range(copies if counts else 0):
        _, node = heap[0]
        counts[node] += 1
        heapq.heapreplace(heap, ((2 * counts[node] + 1) / weight[node], node))
    return counts


def place_jointly(
    index: CollisionIndex,
    items: Sequence[ItemDemand],
    least: Sequence[CollisionBound],
    start: Sequence[set[int]],
    until: float = math.inf,
) -> list[set[int]] | None:
    """Place all items at once, so that no placement is more even, or as even and keeps more copies.

    Args:
        index: Cells of the topology.
        items: Items to place.
        least: Lowest cost of each item.
        start: The placement to improve, at the lowest cost of each item.
        until: Deadline, on the clock of `time.monotonic`.

    Returns:
        The nodes of each item; None if there are too many columns, the limit was reached or HiGHS is missing.
    """
    if highspy is None:
        return None
    classes = _Classes.of(index, items, least)
    if classes is None:
        return None
    program = _Program(index, items, classes, start)
    if program.is_optimal():
        return list(start)
    return program.solve(min(until, time.monotonic() + LONGEST_S))


@dataclass(frozen=True, slots=True)
class _Classes:
    """Classes of items, and their columns.

    Args:
        members: Numbers of the items of each class.
        columns: Sets of each class.
    """

    members: tuple[tuple[int, ...], ...]
    columns: tuple[Sets, ...]

    @classmethod
    def of(cls, index: CollisionIndex, items: Sequence[ItemDemand], least: Sequence[CollisionBound]) -> _Classes | None:
        """Return the classes of items; None if they have too many columns."""
        alike: dict[tuple[int, int, int, int, frozenset[int]], list[int]] = defaultdict(list)
        for number, (item, bound) in enumerate(zip(items, least, strict=True)):
            alike[item.fixed, item.copies, bound.copies, bound.cost, frozenset(item.current)].append(number)
        columns: list[Sets] = []
        left = MOST_COLUMNS
        # Former nodes do not affect the cost, so most classes share their columns with others.
        known: dict[tuple[int, int, int, int], Sets] = {}
        for numbers in alike.values():
            item, bound = items[numbers[0]], least[numbers[0]]
            key = item.fixed, item.copies, bound.copies, bound.cost
            if key not in known:
                known[key] = _sets_of(index, item, bound, left)
            left -= len(known[key])
            if left <= 0:
                return None
            columns.append(known[key])
        return cls(tuple(map(tuple, alike.values())), tuple(columns))


def _sets_of(index: CollisionIndex, item: ItemDemand, bound: CollisionBound, most: int) -> Sets:
    """Return the sets of nodes of an item at its lowest cost; no more than `most`."""
    fixed = [index.of[item.fixed]] if item.fixed >= 0 else []
    copies = (item.copies if index.field.strict else bound.copies) + len(fixed)
    found: list[frozenset[int]] = []

    def extend(chosen: tuple[int, ...], free: int) -> None:
        if len(chosen) == bound.copies:
            found.append(frozenset(chosen))
            return
        cells = tuple(sorted([index.of[node] for node in chosen] + fixed))
        for node in bits_of(index.joining(cells, copies, bound.cost) & free):
            if len(found) >= most:
                return
            # In ascending order, so that each set is found once.
            extend((*chosen, node), free & ~((2 << node) - 1))

    extend((), ((1 << len(index.of)) - 1) & ~(1 << item.fixed if item.fixed >= 0 else 0))
    return tuple(found)


class _Program:
    """The program of a placement.

    Args:
        index: Cells of the topology.
        items: Items to place.
        classes: Their classes.
        start: The placement to improve.
    """

    def __init__(
        self, index: CollisionIndex, items: Sequence[ItemDemand], classes: _Classes, start: Sequence[set[int]]
    ) -> None:
        self._weight = index.field.weight
        self._load = index.field.load
        self._items = items
        self._classes = classes
        self._start = start
        counts = list(self._load)
        for own in start:
            for node in own:
                counts[node] += 1
        even = most_even(self._load, self._weight, sum(map(len, start)))
        self._gap = max(0.0, self._uneven(counts) - self._uneven(even))
        self._steps = tuple(self._load_steps(even))
        self._kept = [
            [len(own.intersection(items[numbers[0]].current)) for own in sets]
            for numbers, sets in zip(classes.members, classes.columns, strict=True)
        ]

    def is_optimal(self) -> bool:
        """Return whether the placement is as even as any could be, and each item keeps as much as it could alone."""
        kept = sum(len(own.intersection(item.current)) for own, item in zip(self._start, self._items, strict=True))
        most = sum(
            len(numbers) * max(own, default=0) for numbers, own in zip(self._classes.members, self._kept, strict=True)
        )
        return self._gap <= _NOTHING and kept == most

    def solve(self, until: float) -> list[set[int]] | None:
        """Return the optimal placement; None if the limit was reached."""
        highs = self._model()
        columns = self._columns()
        if not _run(highs, until):
            return None
        least = highs.getInfo().objective_function_value
        # The second objective, among all that are as even.
        slopes = [slope for _, _, node_slopes in self._steps for slope in node_slopes]
        ids = np.arange(columns, columns + len(slopes), dtype=np.int32)
        highs.addRow(-highspy.kHighsInf, least + _NOTHING, len(ids), ids, np.array(slopes))
        kept = [float(-each) for row in self._kept for each in row] + [0.0] * len(slopes)
        highs.changeColsCost(len(kept), np.arange(len(kept), dtype=np.int32), np.array(kept))
        if not _run(highs, until):
            return None
        return self._placed(highs.getSolution().col_value[:columns])

    def _columns(self) -> int:
        return sum(map(len, self._classes.columns))

    def _model(self) -> highspy.Highs:
        """Return the program: how many items take each column, and the load of each node as unit steps."""
        highs = new_highs(_OPTIONS)
        nothing = np.array([], dtype=np.int32), np.array([])
        rows: list[tuple[float, float, list[int], list[float]]] = []
        at: list[list[int]] = [[] for _ in self._weight]
        number = 0
        for members, sets in zip(self._classes.members, self._classes.columns, strict=True):
            rows.append((len(members), len(members), list(range(number, number + len(sets))), [1.0] * len(sets)))
            for own in sets:
                highs.addCol(0.0, 0.0, float(len(members)), 0, *nothing)
                highs.changeColIntegrality(number, highspy.HighsVarType.kInteger)
                for node in own:
                    at[node].append(number)
                number += 1
        for node, low, slopes in self._steps:
            steps = list(range(number, number + len(slopes)))
            for slope in slopes:
                highs.addCol(slope, 0.0, 1.0, 0, *nothing)
            number += len(steps)
            base = low - self._load[node]
            rows.append((base, base, at[node] + steps, [1.0] * len(at[node]) + [-1.0] * len(steps)))
        for low_, high_, ids, values in rows:
            highs.addRow(float(low_), float(high_), len(ids), np.array(ids, dtype=np.int32), np.array(values))
        return highs

    def _load_steps(self, even: Sequence[int]) -> Iterator[tuple[int, int, list[float]]]:
        """Yield each node with its lowest load in a better placement, and the cost of each step up to the highest."""
        for node, (count, weight) in enumerate(zip(even, self._weight, strict=True)):
            away = math.floor((1 + math.sqrt(1 + 4 * (self._gap + _NOTHING) * weight)) / 2)
            low = max(self._load[node], count - away)
            yield node, low, [(2 * step + 1) / weight for step in range(low, count + away)]

    def _uneven(self, counts: Sequence[int]) -> float:
        return sum(count * count / weight for count, weight in zip(counts, self._weight, strict=True))

    def _placed(self, taken: Sequence[float]) -> list[set[int]]:
        """Return the sets of the items: in each class, items and columns in order."""
        placed: list[set[int]] = [set() for _ in self._items]
        values = iter(taken)
        for members, sets in zip(self._classes.members, self._classes.columns, strict=True):
            numbers = iter(members)
            for own in sets:
                for _ in range(round(next(values))):
                    placed[next(numbers)] = set(own)
        return placed


_OPTIONS = ONE_ORDER | {"mip_rel_gap": 0.0, "mip_abs_gap": 0.0, "mip_max_nodes": MOST_NODES}


def _run(highs: highspy.Highs, until: float) -> bool:
    """Solve the program; return whether it was solved to the optimum."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        return False
    highs.setOptionValue("time_limit", highs.getRunTime() + seconds)
    run_highs(highs)
    return highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
