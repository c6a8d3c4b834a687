"""Greedy assignment without a min-cost flow: balanced, and as sticky and local as one partition at a time allows.

Balance is exact here too, because it needs no costs. Owners keep the partitions that fit. Each other partition goes to
the cheapest member that has capacity left. A group gets this assignment if the flow exceeds its budget or its deadline,
or fails its check.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rackassign.solver.balance import BalanceConstraints, stickiest_flow
from rackassign.solver.blocking_flow import Charge
from rackassign.solver.problem import NO_MEMBER, Problem
from rackassign.solver.topic_balance import TopicBalance, compute_topic_balance
from rackassign.solver.types import Bools, Ints


def greedy(problem: Problem, balance: BalanceConstraints, charge: Charge) -> Ints:
    """Return the reader of each partition.

    Args:
        problem: Problem to solve.
        balance: Constraints to satisfy.
        charge: Called with the work.
    """
    held, pairs = problem.current()
    left = _flow(problem, balance, pairs, charge)
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


def greedy_per_topic(problem: Problem, balance: TopicBalance, charge: Charge) -> Ints:
    """Return the reader of each partition, with each topic class balanced first.

    Members that own more than the fixed count of a topic class keep an extra of it as far as the totals allow.

    Args:
        problem: Problem to solve.
        balance: Constraints to satisfy.
        charge: Called with the work.
    """
    shares = _Shares(problem, balance.whole)
    held = np.bincount(shares.pair, shares.owned > shares.whole, len(balance.extras)).astype(np.int64)
    again = compute_topic_balance(
        problem.supply(),
        problem.sizes(),
        problem.edge_topic_class,
        problem.edge_subscription_class,
        charge,
        held=held,
    )
    left = shares.whole + shares.with_extra(again.extras)
    reader = np.full(len(problem.topic_class), NO_MEMBER)
    owners = np.flatnonzero(problem.owner != NO_MEMBER)
    share = shares.of(problem.topic_class[owners], problem.owner[owners])
    order = np.argsort(share, kind="stable")
    rank = np.arange(len(order)) - np.searchsorted(share[order], share[order], "left")
    kept = order[rank < left[share[order]]]
    reader[owners[kept]] = problem.owner[owners[kept]]
    left = left - np.bincount(share[kept], minlength=len(left))
    loose = np.flatnonzero(reader == NO_MEMBER)
    for topic_class in np.unique(problem.topic_class[loose]).tolist():
        first, end = np.searchsorted(shares.topic_class, [topic_class, topic_class + 1]).tolist()
        places = first + np.flatnonzero(left[first:end])
        capacity = dict(zip(shares.member[places].tolist(), left[places].tolist(), strict=True))
        _deal(problem, loose[problem.topic_class[loose] == topic_class], capacity, reader)
    return reader


class _Shares:
    """Pairs of a topic class and a member that reads it, ordered by both.

    Args:
        problem: The problem.
        whole: For each topic class what all its readers have.
    """

    def __init__(self, problem: Problem, whole: Ints) -> None:
        order = np.argsort(problem.subscription_class, kind="stable")
        sizes = problem.sizes()
        size = sizes[problem.edge_subscription_class]
        pair = np.repeat(np.arange(len(size)), size)
        step = np.arange(len(pair)) - np.repeat(np.cumsum(size) - size, size)
        member = order[(np.cumsum(sizes) - sizes)[problem.edge_subscription_class[pair]] + step]
        key = problem.edge_topic_class[pair] * len(order) + member
        by_key = np.argsort(key)
        self._key, self._members, self._sizes = key[by_key], len(order), size
        self._subscription_class = problem.edge_subscription_class
        self.pair, self.member = pair[by_key], member[by_key]
        self.topic_class = problem.edge_topic_class[self.pair]
        self.whole = whole[self.topic_class]
        held = problem.owner != NO_MEMBER
        share = self.of(problem.topic_class[held], problem.owner[held])
        self.owned = np.bincount(share, minlength=len(self.pair))

    def of(self, topic_class: Ints, member: Ints) -> Ints:
        """Return the share of each of these pairs."""
        return np.searchsorted(self._key, topic_class * self._members + member)

    def with_extra(self, extras: Ints) -> Bools:
        """Return which shares get an extra, so that members of a subscription class have equally many, or one more.

        Args:
            extras: Number of extras of each class pair.
        """
        chosen: Bools = (extras == self._sizes)[self.pair]
        some = np.flatnonzero((extras > 0) & (extras < self._sizes))
        order = np.argsort(self.pair, kind="stable")
        first = np.searchsorted(self.pair[order], np.arange(len(extras)))
        for subscription_class in np.unique(self._subscription_class[some]).tolist():
            pairs = some[self._subscription_class[some] == subscription_class]
            # A row for each pair, a column for each member.
            table = order[first[pairs][:, None] + np.arange(self._sizes[pairs[0]])]
            over = self.owned[table] > self.whole[table]
            given = _extras_of_owners(over, extras[pairs])
            chosen[table] = _extras_in_turn(extras[pairs], over.shape) if given is None else given
        return chosen


def _extras_of_owners(over: Bools, extras: Ints) -> Bools | None:
    """Deal extras (rows) to members (columns), first to those that own one; None if that does not come out even.

    Args:
        over: Which members own more than the fixed count.
        extras: Number of extras of each row.
    """
    whole, rest = divmod(int(extras.sum()), over.shape[1])
    # Those that own the most may have one more.
    most = np.lexsort((np.arange(over.shape[1]), -over.sum(axis=0)))
    left = np.full(over.shape[1], whole)
    left[most[:rest]] += 1
    given = np.zeros(over.shape, bool)
    for row, amount in enumerate(extras.tolist()):
        keeping = np.flatnonzero(over[row] & (left > 0))[:amount]
        given[row, keeping] = True
        left[keeping] -= 1
    for row, amount in enumerate((extras - given.sum(axis=1)).tolist()):
        free = np.flatnonzero(~given[row] & (left > 0))
        if len(free) < amount:
            return None
        best = free[np.argsort(-left[free], kind="stable")[:amount]]
        given[row, best] = True
        left[best] -= 1
    return given


def _extras_in_turn(extras: Ints, shape: tuple[int, ...]) -> Bools:
    """Deal extras (rows) to members (columns) in turn, where the row before has ended."""
    first = (np.cumsum(extras) - extras)[:, None]
    in_turn: Bools = (np.arange(shape[1])[None, :] - first) % shape[1] < extras[:, None]
    return in_turn


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


def _flow(problem: Problem, balance: BalanceConstraints, pair: Ints, charge: Charge) -> Ints:
    """Return the number of partitions by topic class and subscription class, as close to the owned ones as possible."""
    pairs = problem.edge_topic_class, problem.edge_subscription_class
    held = np.bincount(pair, minlength=len(pairs[0]))
    return stickiest_flow(balance, pairs, problem.supply(), problem.sizes(), held, charge=charge)


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
        topic_classes, subscription_classes = (
            problem.edge_topic_class.tolist(),
            problem.edge_subscription_class.tolist(),
        )
        self._queues: dict[tuple[int, int], deque[int]] = {}
        racks_of: dict[int, list[int]] = {}
        for member, (subscription_class, rack) in enumerate(
            zip(problem.subscription_class.tolist(), problem.rack.tolist(), strict=True)
        ):
            if capacity[member]:
                if (subscription_class, rack) not in self._queues:
                    racks_of.setdefault(subscription_class, []).append(rack)
                self._queues.setdefault((subscription_class, rack), deque()).append(member)
        self._readers: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        # Hundreds of thousands of class pairs may exist; those with partitions left to assign are few.
        for pair in np.flatnonzero(left).tolist():
            topic_class, subscription_class = topic_classes[pair], subscription_classes[pair]
            for rack in racks_of.get(subscription_class, ()):
                self._readers.setdefault((topic_class, rack), deque()).append((pair, subscription_class))

    def nearest(self, topic_class: int, near: int) -> int:
        """Use the cheapest remaining capacity for a partition, and return its member."""
        for rack in np.argsort(self._cost[near], kind="stable").tolist():
            readers = self._readers.get((topic_class, rack), deque())
            while readers:
                pair, subscription_class = readers[0]
                queue = self._queues[subscription_class, rack]
                # Neither ever grows, so what is used up here stays used up.
                while queue and not self._capacity[queue[0]]:
                    queue.popleft()
                if not queue or not self._left[pair]:
                    readers.popleft()
                    continue
                member = queue[0]
                queue.rotate(-1)
                self._left[pair] -= 1
                self._capacity[member] -= 1
                return member
        raise AssertionError("flows and capacities add up, so there is a member with capacity")
