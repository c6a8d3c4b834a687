"""Greedy assignment without a min-cost flow: balanced, and as sticky and local as one partition at a time allows.

Balance is exact here too, because it needs no costs. Owners keep the partitions that fit, whatever they cost: a group
that moves them without a proof could find another such assignment with each rebalance. Each other partition goes to the
cheapest member that has capacity left. A group gets this assignment if the flow exceeds its budget or its deadline, or
fails its check.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rackassign.solver.assignment_network import Shares, ranges
from rackassign.solver.balance import BalanceConstraints, TopicBalance, compute_topic_balance, stickiest_flow
from rackassign.solver.network_flow import Ints, uncharged
from rackassign.solver.problem import NO_MEMBER, Problem, factorize

_MOST_READERS = 5_000_000
"""Limit of the number of pairs of a class of partitions and a kind of members, of which each is a row of ten arrays.
Beyond it an assignment begins without racks."""

_GOLDEN = (5**0.5 - 1) / 2


def nearest_flow(problem: Problem, partitions: Ints) -> Ints:
    """Return how many of the partitions each class pair has if each goes to its cheapest readers, whatever their loads.

    Partitions are shared among equally cheap readers, in proportion to how many members these are.
    """
    rows, racks = problem.cost.shape
    flow = np.zeros(len(problem.edge_topic_class), np.int64)
    classes, class_of = factorize(problem.topic_class[partitions] * rows + problem.cost_row[partitions])
    kinds, kind_of = factorize(problem.subscription_class * racks + problem.rack)
    # For each pair the kinds of members of its subscription class, and for each class of partitions those of its pairs.
    first = kinds.searchsorted(problem.edge_subscription_class * racks)
    offset, pair = ranges(kinds.searchsorted((problem.edge_subscription_class + 1) * racks) - first)
    kind = first[pair] + offset
    first = problem.edge_topic_class[pair].searchsorted(classes // rows)
    count = problem.edge_topic_class[pair].searchsorted(classes // rows, "right") - first
    if not len(classes) or int(count.sum()) > _MOST_READERS:
        return flow
    offset, class_ = ranges(count)
    reader = first[class_] + offset
    cost = problem.cost[classes[class_] % rows, kinds[kind[reader]] % racks]
    starts = count.cumsum() - count
    cheapest = cost == np.minimum.reduceat(cost, starts)[class_]
    members = np.where(cheapest, np.bincount(kind_of)[kind[reader]], 0)
    # Systematic sampling: shares are rounded such that their sum is exact, and another way for each class.
    upto = members.cumsum()
    upto -= (upto - members)[starts][class_]
    total = np.add.reduceat(members, starts)[class_]
    turn = (np.arange(len(classes)) * _GOLDEN % 1)[class_]
    supply = np.bincount(class_of)[class_]
    share = np.floor(upto / total * supply + turn) - np.floor((upto - members) / total * supply + turn)
    flow += np.bincount(pair[reader], share, len(flow)).astype(np.int64)
    return flow


def greedy(problem: Problem, balance: BalanceConstraints) -> Ints:
    held, pair_of = problem.current()
    pairs = problem.edge_topic_class, problem.edge_subscription_class
    owned = np.bincount(pair_of, minlength=len(pairs[0]))
    # Without owned partitions the flow of the balance is used, which began with the same.
    wanted = nearest_flow(problem, np.flatnonzero(problem.owner == NO_MEMBER)) if len(held) else owned
    left = stickiest_flow(balance, pairs, problem.supply(), problem.sizes(), owned, wanted=wanted)
    capacity = _capacities(problem, left)
    reader = np.full(len(problem.topic_class), NO_MEMBER)
    for partition, pair, member in zip(held.tolist(), pair_of.tolist(), problem.owner[held].tolist(), strict=True):
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

    Members that own more than the fixed count of a topic class keep an extra of it as far as the totals allow.
    """
    pairs = problem.edge_topic_class, problem.edge_subscription_class
    held, _ = problem.current()
    shares = Shares(problem, problem.subscription_class, pairs, balance.whole[problem.edge_topic_class], held)
    again = compute_topic_balance(problem.supply(), problem.sizes(), *pairs, uncharged, held=shares.keeping())
    # Any rack may get all of them.
    room = np.full((1, problem.cost.shape[1]), len(problem.topic_class))
    return shares.assign(shares.counts(again.extras), 0 * problem.topic_class, room)


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
        # For each topic class and rack the class pairs with capacity left.
        self._readers: dict[int, dict[int, deque[tuple[int, int]]]] = {}
        # Hundreds of thousands of class pairs may exist; those with partitions left to assign are few.
        for pair in np.flatnonzero(left).tolist():
            topic_class, subscription_class = topic_classes[pair], subscription_classes[pair]
            for rack in racks_of.get(subscription_class, ()):
                readers = self._readers.setdefault(topic_class, {}).setdefault(rack, deque())
                readers.append((pair, subscription_class))
        # For each topic class its racks, ascending, and for each of its rows of costs the cheapest of them.
        self._racks = {topic_class: np.asarray(sorted(readers)) for topic_class, readers in self._readers.items()}
        self._nearest: dict[tuple[int, int], int] = {}

    def nearest(self, topic_class: int, near: int) -> int:
        """Use the cheapest remaining capacity for a partition, and return its member."""
        open_ = self._readers[topic_class]
        while open_:
            rack = self._nearest.get((topic_class, near))
            if rack is None or rack not in open_:
                racks = self._racks[topic_class]
                rack = int(racks[self._cost[near, racks].argmin()])
                self._nearest[topic_class, near] = rack
            readers = open_[rack]
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
            del open_[rack]
            self._racks[topic_class] = np.asarray(sorted(open_), np.int64)
        raise AssertionError("flows and capacities add up, so there is a member with capacity")
