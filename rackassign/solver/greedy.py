"""Greedy assignment without a solver: balanced, and as sticky and local as one partition at a time allows.

Balance is exact here too, because it needs no solver. Owners keep the partitions that fit. Each other partition goes to
the cheapest member that has capacity left. A group gets this assignment if HiGHS is missing, fails or exceeds its
budget.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rackassign.solver.balance import BalanceConstraints, stickiest_flow
from rackassign.solver.problem import NO_MEMBER, Problem
from rackassign.solver.types import Ints


def greedy(problem: Problem, balance: BalanceConstraints) -> Ints:
    """Return the reader of each partition."""
    held, pairs = problem.current()
    left = _flow(problem, balance, pairs)
    room = _rooms(problem, left)
    reader = np.full(len(problem.topic_class), NO_MEMBER)
    for partition, pair, member in zip(held.tolist(), pairs.tolist(), problem.owner[held].tolist(), strict=True):
        if left[pair] and room[member]:
            reader[partition] = member
            left[pair] -= 1
            room[member] -= 1
    rest = _RemainingCapacity(problem, left, room)
    for partition in np.flatnonzero(reader == NO_MEMBER).tolist():
        reader[partition] = rest.nearest(int(problem.topic_class[partition]), int(problem.cost_row[partition]))
    return reader


def _flow(problem: Problem, balance: BalanceConstraints, held: Ints) -> Ints:
    """Return the number of partitions by topic class and subscription class, as close to the owned ones as possible."""
    pairs = problem.edge_topic_class, problem.edge_subscription_class
    return stickiest_flow(balance, pairs, problem.supply(), problem.sizes(), np.bincount(held, minlength=len(pairs[0])))


def _rooms(problem: Problem, flow: Ints) -> Ints:
    """Return the number of partitions of each member: members that own the most get the larger share."""
    sizes = problem.sizes()
    load = np.bincount(problem.edge_subscription_class, flow, len(sizes)).astype(np.int64)
    whole, rest = np.divmod(load, sizes)
    owners = problem.owner[problem.owner != NO_MEMBER]
    holds = np.bincount(owners, minlength=len(problem.subscription_class))
    order = np.lexsort((np.arange(len(holds)), -holds, problem.subscription_class))
    subscription_class = problem.subscription_class[order]
    rank = np.arange(len(order)) - np.searchsorted(subscription_class, subscription_class, "left")
    room = np.empty(len(order), np.int64)
    room[order] = whole[subscription_class] + (rank < rest[subscription_class])
    return room


class _RemainingCapacity:
    """The partitions left to assign, and the capacity left on members."""

    def __init__(self, problem: Problem, left: Ints, room: Ints) -> None:
        self._left, self._room, self._cost = left, room, problem.cost
        of_pairs = zip(problem.edge_topic_class.tolist(), problem.edge_subscription_class.tolist(), strict=True)
        self._pair_of = {pair: i for i, pair in enumerate(of_pairs)}
        self._queues: dict[tuple[int, int], deque[int]] = {}
        for member, (subscription_class, rack) in enumerate(
            zip(problem.subscription_class.tolist(), problem.rack.tolist(), strict=True)
        ):
            if room[member]:
                self._queues.setdefault((subscription_class, rack), deque()).append(member)
        self._readers: dict[tuple[int, int], deque[int]] = {}
        for topic_class, subscription_class in self._pair_of:
            for rack in range(problem.cost.shape[1]):
                if (subscription_class, rack) in self._queues:
                    self._readers.setdefault((topic_class, rack), deque()).append(subscription_class)

    def nearest(self, topic_class: int, near: int) -> int:
        """Use the cheapest remaining capacity for a partition, and return its member."""
        for rack in np.argsort(self._cost[near], kind="stable").tolist():
            subscription_classes = self._readers.get((topic_class, rack), deque())
            while subscription_classes:
                pair, queue = (
                    self._pair_of[topic_class, subscription_classes[0]],
                    self._queues[subscription_classes[0], rack],
                )
                # Neither ever grows, so what is used up here stays used up.
                while queue and not self._room[queue[0]]:
                    queue.popleft()
                if not queue or not self._left[pair]:
                    subscription_classes.popleft()
                    continue
                member = queue[0]
                queue.rotate(-1)
                self._left[pair] -= 1
                self._room[member] -= 1
                return member
        raise AssertionError("flows and capacities add up, so there is a member with capacity")
