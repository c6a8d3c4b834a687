"""A balanced assignment without a solver: as sticky and as near as taking one partition at a time gets.

Balance is exact here too, for it needs no solver. Owners keep what fits, then each partition goes to the cheapest
member that has room. It is what a group gets when HiGHS is missing, fails or runs out of work.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rackassign.solver.balance import BalanceConstraints, stickiest_flow
from rackassign.solver.problem import NOBODY, Problem
from rackassign.solver.types import Ints


def greedy(problem: Problem, balance: BalanceConstraints) -> Ints:
    """Return the reader of each partition."""
    held, pairs = problem.current()
    left = _flow(problem, balance, pairs)
    room = _rooms(problem, left)
    reader = np.full(len(problem.topic_class), NOBODY)
    for partition, pair, member in zip(held.tolist(), pairs.tolist(), problem.owner[held].tolist(), strict=True):
        if left[pair] and room[member]:
            reader[partition] = member
            left[pair] -= 1
            room[member] -= 1
    rest = _RemainingCapacity(problem, left, room)
    for partition in np.flatnonzero(reader == NOBODY).tolist():
        reader[partition] = rest.nearest(int(problem.topic_class[partition]), int(problem.cost_row[partition]))
    return reader


def _flow(problem: Problem, balance: BalanceConstraints, held: Ints) -> Ints:
    """Return how many partitions of each family go to each crowd, as near as may be to these pairs of what is held."""
    pairs = problem.edge_topic_class, problem.edge_subscription_class
    return stickiest_flow(balance, pairs, problem.supply(), problem.sizes(), np.bincount(held, minlength=len(pairs[0])))


def _rooms(problem: Problem, flow: Ints) -> Ints:
    """Return how much each member gets: the larger share goes to those that hold the most."""
    sizes = problem.sizes()
    load = np.bincount(problem.edge_subscription_class, flow, len(sizes)).astype(np.int64)
    whole, rest = np.divmod(load, sizes)
    owners = problem.owner[problem.owner != NOBODY]
    holds = np.bincount(owners, minlength=len(problem.subscription_class))
    order = np.lexsort((np.arange(len(holds)), -holds, problem.subscription_class))
    crowd = problem.subscription_class[order]
    rank = np.arange(len(order)) - np.searchsorted(crowd, crowd, "left")
    room = np.empty(len(order), np.int64)
    room[order] = whole[crowd] + (rank < rest[crowd])
    return room


class _RemainingCapacity:
    """What is left to be given, and who has room for it."""

    def __init__(self, problem: Problem, left: Ints, room: Ints) -> None:
        self._left, self._room, self._cost = left, room, problem.cost
        of_pairs = zip(problem.edge_topic_class.tolist(), problem.edge_subscription_class.tolist(), strict=True)
        self._pair_of = {pair: i for i, pair in enumerate(of_pairs)}
        self._queues: dict[tuple[int, int], deque[int]] = {}
        for member, (crowd, rack) in enumerate(
            zip(problem.subscription_class.tolist(), problem.rack.tolist(), strict=True)
        ):
            if room[member]:
                self._queues.setdefault((crowd, rack), deque()).append(member)
        self._readers: dict[tuple[int, int], deque[int]] = {}
        for family, crowd in self._pair_of:
            for rack in range(problem.cost.shape[1]):
                if (crowd, rack) in self._queues:
                    self._readers.setdefault((family, rack), deque()).append(crowd)

    def nearest(self, family: int, near: int) -> int:
        """Take the cheapest room there is for a partition."""
        for rack in np.argsort(self._cost[near], kind="stable").tolist():
            crowds = self._readers.get((family, rack), deque())
            while crowds:
                pair, queue = self._pair_of[family, crowds[0]], self._queues[crowds[0], rack]
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
