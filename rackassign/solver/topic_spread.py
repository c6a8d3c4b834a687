"""Each topic over its readers as evenly as the other objectives allow, by exchanges of two partitions.

Which of a member's partitions move is free in all objectives, and so is which of two members reads which of two
partitions that cost both the same. If these choices follow the order of topics, the readers of a busy topic become few
while members come and go, although all have equally many partitions (KAFKA-16277).

An exchange gives a partition of a topic to a member that has two less of it, for one of another topic in return. Loads
stay as they are; cost, moves and ties may not increase, and the sum of the squared counts of both topics decreases. The
search ends when there is no such exchange, or with its part of the budget. The result is not proven, since exchanges of
three members are not tried. Over random changes of small groups 236 of 240 results were as even as can be.

At least one of the two partitions *moves*: it is not with its owner, before the exchange and after it. Otherwise there
would be two moves more. So only partitions that move are looked at, and what owners of these keep. In large groups in
which nothing is owned all partitions would be looked at for little: they are spread over the members in order already.
"""

from __future__ import annotations

import numpy as np

from rackassign.solver.network_flow import Bools, Ints, SolveBudget, split_at
from rackassign.solver.problem import NO_MEMBER, Problem

_STEPS = 400
"""Limit of the steps, as a part of the budget: topics that are less even are hardly worse."""

_MOST_UNOWNED = 100
"""Limit of the partitions of groups in which nothing is owned."""

_KINDS_TRIED = 16
"""How many partitions of a topic, which differ in costs or owner, are offered for one exchange."""

_MOST_COUNTS = 20_000_000
"""Limit of topics x members, whose counts are held."""


def spread_topics(problem: Problem, reader: Ints, work: SolveBudget) -> Ints:
    """Return an assignment that is as good in all objectives, with topics at least as even.

    Args:
        problem: The problem; without topics nothing is exchanged.
        reader: Member of each partition.
        work: Budget. The steps used are deducted.
    """
    topic, members = problem.topic, len(problem.subscription_class)
    if topic is None or (reader == problem.owner).all():
        return reader
    if len(topic) > _MOST_UNOWNED and (problem.owner == NO_MEMBER).all():
        return reader
    uneven = _uneven_topics(problem, topic, reader)
    topics = int(topic.max()) + 1
    if not len(uneven) or topics * members > _MOST_COUNTS or work.late():
        return reader
    left = min(_STEPS, work.left)
    own = SolveBudget(left, work.until)
    exchanges = _Exchanges(problem, topic, reader, topics)
    exchanges.run(uneven.tolist(), own)
    work.left -= left - own.left
    return exchanges.reader


def _uneven_topics(problem: Problem, topic: Ints, reader: Ints) -> Ints:
    """Return the topics of which one reader has at least two partitions more than another, the most uneven first."""
    members = len(problem.subscription_class)
    pairs, count = np.unique(topic * members + reader, return_counts=True)
    topics = int(topic.max()) + 1
    of_pair = pairs // members
    most = np.zeros(topics, np.int64)
    np.maximum.at(most, of_pair, count)
    least = np.full(topics, len(topic))
    np.minimum.at(least, of_pair, count)
    # Readers without a partition of the topic are no pairs.
    readers = np.bincount(
        problem.edge_topic_class, problem.sizes()[problem.edge_subscription_class], problem.topic_classes
    )
    class_of_topic = np.zeros(topics, np.int64)
    class_of_topic[topic] = problem.topic_class
    least[np.bincount(of_pair, minlength=topics) < readers[class_of_topic]] = 0
    spread = most - least
    uneven: Ints = (spread > 1).nonzero()[0]
    most_first: Ints = uneven[(-spread[uneven]).argsort(kind="stable")]
    return most_first


class _Exchanges:
    """The search, and the assignment as exchanged: `reader`."""

    def __init__(self, problem: Problem, topic: Ints, reader: Ints, topics: int) -> None:
        self._problem, self._topic = problem, topic
        self.reader: Ints = reader.copy()
        members = len(problem.subscription_class)
        self._count = np.bincount(topic * members + reader, minlength=topics * members).reshape(topics, members)
        order = reader.argsort(kind="stable")
        self._parts = split_at(order, reader[order].searchsorted(np.arange(1, members)).tolist())
        self._moving: Ints = (reader != problem.owner).nonzero()[0]
        self._class_of_topic = np.zeros(topics, np.int64)
        self._class_of_topic[topic] = problem.topic_class
        self._subscriptions = len(problem.sizes())
        self._pairs = problem.edge_topic_class * self._subscriptions + problem.edge_subscription_class

    def run(self, uneven: list[int], work: SolveBudget) -> None:
        """Exchange partitions of these topics until no exchange makes them more even, or the budget ends."""
        improved = True
        while improved:
            improved = False
            for topic in uneven:
                while self._improve(topic, work):
                    improved = True
                if work.end():
                    return

    def _improve(self, topic: int, work: SolveBudget) -> bool:
        """Make one exchange: of a member with the most partitions of a topic, with one that has two less of it."""
        topic_class = self._class_of_topic[topic]
        subscriptions = np.arange(self._subscriptions)
        readers = self._is_read(topic_class, subscriptions)[self._problem.subscription_class].nonzero()[0]
        count = self._count[topic, readers]
        order = count.argsort(kind="stable")
        readers, count = readers[order], count[order]
        for donor, many in zip(readers[::-1].tolist(), count[::-1].tolist(), strict=True):
            less = readers[: count.searchsorted(many - 2, "right")]
            if not len(less) or work.end():
                return False
            given = self._parts[donor]
            given = given[self._topic[given] == topic]
            taken = self._candidates(given, donor, less)
            work.spend(4 * (len(self._moving) + len(taken)))
            if len(taken) and self._exchange(given, donor, taken):
                return True
        return False

    def _is_read(self, topic_class: Ints, subscription_class: Ints) -> Bools:
        key = topic_class * self._subscriptions + subscription_class
        found: Bools = self._pairs[np.minimum(self._pairs.searchsorted(key), len(self._pairs) - 1)] == key
        return found

    def _candidates(self, given: Ints, donor: int, receivers: Ints) -> Ints:
        """Return the partitions of receivers that a donor may get for one of these without more moves.

        For one that it keeps it gets one that it owns. For one that moves it gets another one that moves, or one that
        is kept by the owner of the first.
        """
        owner = self._problem.owner
        moving = given[owner[given] != donor]
        taking = np.zeros(len(self._parts), bool)
        taking[receivers] = True
        back: Ints = self._moving[taking[self.reader[self._moving]]]
        if not len(moving):
            own: Ints = back[owner[back] == donor]
            return own
        owners = sorted({member for member in owner[moving].tolist() if member != NO_MEMBER and taking[member]})
        kept = (parts[owner[parts] == receiver] for receiver in owners for parts in (self._parts[receiver],))
        return np.concatenate([back, *kept])

    def _exchange(self, given: Ints, donor: int, taken: Ints) -> bool:
        """Give a partition of a topic for one of `taken`, whose members have less of it, if that evens both topics."""
        topic = int(self._topic[given[0]])
        other, receivers = self._topic[taken], self.reader[taken]
        # Half of what the sum of squares increases by.
        loss = self._count[other, donor] - self._count[other, receivers] + 1
        loss += self._count[topic, receivers] - self._count[topic, donor] + 1
        possible = (loss < 0) & (other != topic)
        subscription = self._problem.subscription_class[donor]
        if self._subscriptions > 1:
            possible &= self._is_read(self._problem.topic_class[taken], subscription)
        best_first = possible.nonzero()[0]
        if not len(best_first):
            return False
        best_first = best_first[loss[best_first].argsort(kind="stable")]
        taken, receivers = taken[best_first], receivers[best_first]
        donors = np.full(len(taken), donor)
        back = self._changes(taken, receivers, donors)
        for partition in self._one_of_each_kind(given):
            fits = (back + self._changes(np.full(len(taken), partition), donors, receivers) <= 0).all(axis=0)
            if fits.any():
                first = int(np.argmax(fits))
                self._swap(partition, donor, int(taken[first]), int(receivers[first]))
                return True
        return False

    def _one_of_each_kind(self, partitions: Ints) -> list[int]:
        """Return the first of all partitions that are equal in costs and owner."""
        problem, first = self._problem, dict[tuple[int, ...], int]()
        rows = (problem.cost_row, problem.owner, *(() if problem.ties is None else (problem.ties.row,)))
        kinds = zip(*(row[partitions].tolist() for row in rows), strict=True)
        for kind, partition in zip(kinds, partitions.tolist(), strict=True):
            first.setdefault(kind, partition)
        return list(first.values())[:_KINDS_TRIED]

    def _changes(self, partitions: Ints, before: Ints, after: Ints) -> Ints:
        """Return by how much cost, moves and ties (rows) increase if these partitions go to other members."""
        problem = self._problem
        old, new = problem.rack[before], problem.rack[after]
        row, owner = problem.cost_row[partitions], problem.owner[partitions]
        changes = [problem.cost[row, new] - problem.cost[row, old], (owner == before) * 1 - (owner == after)]
        if problem.ties is not None:
            row = problem.ties.row[partitions]
            changes.append(problem.ties.cost[row, new] - problem.ties.cost[row, old])
        return np.stack(changes)

    def _swap(self, first: int, donor: int, second: int, receiver: int) -> None:
        for partition, other, loser, winner in ((first, second, donor, receiver), (second, first, receiver, donor)):
            self.reader[partition] = winner
            self._parts[loser][self._parts[loser] == partition] = other
            self._count[self._topic[partition], loser] -= 1
            self._count[self._topic[partition], winner] += 1
        self._moving = (self.reader != self._problem.owner).nonzero()[0]
