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
from rackassign.solver.topic_balance import TopicBalance
from rackassign.solver.types import Ints


def greedy(problem: Problem, balance: BalanceConstraints) -> Ints:
    """Return the reader of each partition."""
    held, pairs = problem.current()
    left = _flow(problem, balance, pairs)
    capacity = _capacities(problem, left)
    reader = np.full(len(problem.topic_class), NO_MEMBER)
    for partition, pair, member in zip(held.tolist(), pairs.tolist(), problem.owner[held].tolist(), strict=True):
        if left[pair] and capacity[member]:
            reader[partition] = member
            left[pair] -= 1
            capacity[member] -= 1
    rest = _RemainingCapacity(problem, left, capacity)
    for partition in np.flatnonzero(reader == NO_MEMBER).tolist():
        reader[partition] = rest.nearest(int(problem.topic_class[partition]), int(problem.cost_row[partition]))
    return reader


def greedy_per_topic(problem: Problem, balance: TopicBalance) -> Ints:
    """Return the reader of each partition, with each topic class balanced first.

    Of members that have equally many extras, those that own more than the fixed count of a topic class get its extras.
    """
    reader = np.full(len(problem.topic_class), NO_MEMBER)
    extras_of = np.zeros(len(problem.subscription_class), np.int64)
    members_of = [np.flatnonzero(problem.subscription_class == c) for c in range(len(problem.sizes()))]
    pairs = np.split(np.arange(len(balance.low)), np.flatnonzero(np.diff(problem.edge_topic_class)) + 1)
    partitions = np.split(np.argsort(problem.topic_class, kind="stable"), np.cumsum(problem.supply())[:-1])
    whole = problem.supply() // np.bincount(
        problem.edge_topic_class, problem.sizes()[problem.edge_subscription_class], problem.topic_classes
    ).astype(np.int64)
    for topic_class, (of_pairs, here) in enumerate(zip(pairs, partitions, strict=True)):
        owned = np.bincount(problem.owner[here][problem.owner[here] != NO_MEMBER], minlength=len(extras_of))
        left: dict[int, int] = {}
        for pair in of_pairs.tolist():
            members = members_of[problem.edge_subscription_class[pair]]
            over = owned[members] > whole[topic_class]
            chosen = members[np.lexsort((members, ~over, extras_of[members]))[: balance.extras[pair]]]
            extras_of[chosen] += 1
            left |= dict.fromkeys(members.tolist(), int(whole[topic_class]))
            left |= dict.fromkeys(chosen.tolist(), int(whole[topic_class]) + 1)
        _deal(problem, here, left, reader)
    return reader


def _deal(problem: Problem, partitions: Ints, left: dict[int, int], reader: Ints) -> None:
    """Assign the partitions of a topic class: owners keep what they may, the rest goes to the cheapest racks."""
    loose = []
    for partition in partitions.tolist():
        owner = int(problem.owner[partition])
        if left.get(owner):
            left[owner] -= 1
            reader[partition] = owner
        else:
            loose.append(partition)
    queues: dict[int, deque[int]] = {}
    for member in sorted(left):
        if left[member]:
            queues.setdefault(int(problem.rack[member]), deque()).append(member)
    for partition in loose:
        row = problem.cost[problem.cost_row[partition]]
        rack = min(queues, key=lambda rack: (row[rack], rack))
        member = queues[rack][0]
        queues[rack].rotate(-1)
        reader[partition] = member
        left[member] -= 1
        if not left[member]:
            queues[rack].remove(member)
            if not queues[rack]:
                del queues[rack]


def _flow(problem: Problem, balance: BalanceConstraints, held: Ints) -> Ints:
    """Return the number of partitions by topic class and subscription class, as close to the owned ones as possible."""
    pairs = problem.edge_topic_class, problem.edge_subscription_class
    return stickiest_flow(balance, pairs, problem.supply(), problem.sizes(), np.bincount(held, minlength=len(pairs[0])))


def _capacities(problem: Problem, flow: Ints) -> Ints:
    """Return the number of partitions of each member: members that own the most get the larger share."""
    sizes = problem.sizes()
    load = np.bincount(problem.edge_subscription_class, flow, len(sizes)).astype(np.int64)
    whole, rest = np.divmod(load, sizes)
    owners = problem.owner[problem.owner != NO_MEMBER]
    holds = np.bincount(owners, minlength=len(problem.subscription_class))
    order = np.lexsort((np.arange(len(holds)), -holds, problem.subscription_class))
    subscription_class = problem.subscription_class[order]
    rank = np.arange(len(order)) - np.searchsorted(subscription_class, subscription_class, "left")
    capacity = np.empty(len(order), np.int64)
    capacity[order] = whole[subscription_class] + (rank < rest[subscription_class])
    return capacity


class _RemainingCapacity:
    """The partitions left to assign, and the capacity left on members."""

    def __init__(self, problem: Problem, left: Ints, capacity: Ints) -> None:
        self._left, self._capacity, self._cost = left, capacity, problem.cost
        of_pairs = zip(problem.edge_topic_class.tolist(), problem.edge_subscription_class.tolist(), strict=True)
        self._pair_of = {pair: i for i, pair in enumerate(of_pairs)}
        self._queues: dict[tuple[int, int], deque[int]] = {}
        for member, (subscription_class, rack) in enumerate(
            zip(problem.subscription_class.tolist(), problem.rack.tolist(), strict=True)
        ):
            if capacity[member]:
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
                while queue and not self._capacity[queue[0]]:
                    queue.popleft()
                if not queue or not self._left[pair]:
                    subscription_classes.popleft()
                    continue
                member = queue[0]
                queue.rotate(-1)
                self._left[pair] -= 1
                self._capacity[member] -= 1
                return member
        raise AssertionError("flows and capacities add up, so there is a member with capacity")
