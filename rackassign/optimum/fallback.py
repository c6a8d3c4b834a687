"""A balanced assignment without a solver: as sticky and as near as taking one partition at a time gets.

Balance is exact here too, for it needs no solver. Owners keep what fits, then each partition goes to the cheapest
member that has room. It is what a group gets when HiGHS is missing, fails or runs out of work.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rackassign.optimum.arrays import Ints
from rackassign.optimum.balance import Balance, from_held
from rackassign.optimum.problem import NOBODY, Problem


def greedy(problem: Problem, balance: Balance) -> Ints:
    """Return the reader of each partition."""
    left = _flow(problem, balance)
    room = _rooms(problem, left)
    reader = np.full(len(problem.family), NOBODY)
    crowds = len(problem.sizes())
    pair_of = {key: i for i, key in enumerate((problem.pair_family * crowds + problem.pair_crowd).tolist())}
    for partition in np.flatnonzero(problem.owner != NOBODY).tolist():
        member = int(problem.owner[partition])
        pair = pair_of[int(problem.family[partition]) * crowds + int(problem.crowd[member])]
        if left[pair] and room[member]:
            reader[partition] = member
            left[pair] -= 1
            room[member] -= 1
    rest = _Rest(problem, left, room, pair_of)
    for partition in np.flatnonzero(reader == NOBODY).tolist():
        reader[partition] = rest.nearest(int(problem.family[partition]), int(problem.near[partition]))
    return reader


def _flow(problem: Problem, balance: Balance) -> Ints:
    """Return how many partitions of each family go to each crowd, as near as may be to what is held."""
    crowds = len(problem.sizes())
    held = np.flatnonzero(problem.owner != NOBODY)
    keys = problem.pair_family * crowds + problem.pair_crowd
    pair = np.searchsorted(keys, problem.family[held] * crowds + problem.crowd[problem.owner[held]])
    counts = np.bincount(pair, minlength=len(keys))
    pairs = problem.pair_family, problem.pair_crowd
    return from_held(balance, pairs, problem.supply(), problem.sizes(), counts)


def _rooms(problem: Problem, flow: Ints) -> Ints:
    """Return how much each member gets: the larger share goes to those that hold the most."""
    sizes = problem.sizes()
    load = np.bincount(problem.pair_crowd, flow, len(sizes)).astype(np.int64)
    whole, rest = np.divmod(load, sizes)
    owners = problem.owner[problem.owner != NOBODY]
    holds = np.bincount(owners, minlength=len(problem.crowd))
    order = np.lexsort((np.arange(len(holds)), -holds, problem.crowd))
    crowd = problem.crowd[order]
    rank = np.arange(len(order)) - np.searchsorted(crowd, crowd, "left")
    room = np.empty(len(order), np.int64)
    room[order] = whole[crowd] + (rank < rest[crowd])
    return room


class _Rest:
    """What is left to be given, and who has room for it."""

    def __init__(self, problem: Problem, left: Ints, room: Ints, pair_of: dict[int, int]) -> None:
        self._left, self._room, self._pair_of, self._cost = left, room, pair_of, problem.cost
        self._crowds = len(problem.sizes())
        self._queues: dict[tuple[int, int], deque[int]] = {}
        for member, (crowd, rack) in enumerate(zip(problem.crowd.tolist(), problem.rack.tolist(), strict=True)):
            if room[member]:
                self._queues.setdefault((crowd, rack), deque()).append(member)
        self._readers: dict[tuple[int, int], deque[int]] = {}
        for family, crowd in zip(problem.pair_family.tolist(), problem.pair_crowd.tolist(), strict=True):
            for rack in range(problem.cost.shape[1]):
                if (crowd, rack) in self._queues:
                    self._readers.setdefault((family, rack), deque()).append(crowd)

    def nearest(self, family: int, near: int) -> int:
        """Take the cheapest room there is for a partition."""
        for rack in np.argsort(self._cost[near], kind="stable").tolist():
            crowds = self._readers.get((family, rack), deque())
            while crowds:
                pair, queue = self._pair_of[family * self._crowds + crowds[0]], self._queues[crowds[0], rack]
                # Neither ever grows, so what is used up here is used up for good.
                while queue and not self._room[queue[0]]:
                    queue.popleft()
                if not queue or not self._left[pair]:
                    crowds.popleft()
                    continue
                member = queue[0]
                queue.rotate(-1)
                self._left[pair] -= 1
                self._room[member] -= 1
                return member
        raise AssertionError("flows and rooms add up, so there is one")
