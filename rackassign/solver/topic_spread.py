"""Each topic over its readers as evenly as the other objectives allow, by exchanges of two partitions.

Which of a member's partitions move is free in all objectives, and so is which of two members reads which of two
partitions that cost both the same. If these choices follow the order of topics, the readers of a busy topic become few
while members come and go, although all have equally many partitions (KAFKA-16277).

An exchange gives a partition of a topic to a member that has two less of it, for one of another topic in return. Loads
stay as they are; cost, moves and ties may not increase, and the sum of the squared counts of both topics decreases. The
search ends when there is no such exchange, or with its part of the budget. The result is not proven, since exchanges of
three members are not tried. Over random changes of small groups 236 of 240 results were as even as can be.
"""

from __future__ import annotations

import numpy as np

from rackassign.solver.min_cost_flow import SolveBudget
from rackassign.solver.problem import Problem
from rackassign.solver.types import Bools, Ints

_STEPS = 400
"""Limit of the steps, as a part of the budget: topics that are less even are hardly worse."""

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
    topic = problem.topic
    members = len(problem.subscription_class)
    if topic is None or not len(topic) or members < 2:  # noqa: PLR2004 - an exchange takes two
        return reader
    uneven = _uneven_topics(problem, topic, reader)
    topics = int(topic.max()) + 1
    if not len(uneven) or topics * members > _MOST_COUNTS or work.late():
        return reader
    exchanges = _Exchanges(problem, topic, reader, topics)
    left = min(_STEPS, work.left)
    own = SolveBudget(left, work.until)
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
    uneven: Ints = np.flatnonzero(spread > 1)
    most_first: Ints = uneven[np.argsort(-spread[uneven], kind="stable")]
    return most_first


class _Exchanges:
    """The search.

    Args:
        problem: The problem.
        topic: Topic of each partition.
        reader: Member of each partition.
        topics: Number of topics.

    Attributes:
        reader: The assignment as exchanged.
    """

    def __init__(self, problem: Problem, topic: Ints, reader: Ints, topics: int) -> None:
        self._problem, self._topic = problem, topic
        self.reader: Ints = reader.copy()
        members = len(problem.subscription_class)
        self._count = np.bincount(topic * members + reader, minlength=topics * members).reshape(topics, members)
        order = np.argsort(reader, kind="stable")
        self._parts = np.split(order, np.searchsorted(reader[order], np.arange(1, members)))
        self._class_of_topic = np.zeros(topics, np.int64)
        self._class_of_topic[topic] = problem.topic_class
        subscriptions = len(problem.sizes())
        self._pairs = problem.edge_topic_class * subscriptions + problem.edge_subscription_class

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
        readers = np.flatnonzero(self._reads(self._class_of_topic[[topic]])[0])
        count = self._count[topic, readers]
        order = np.argsort(count, kind="stable")
        readers, count = readers[order], count[order]
        for giver, many in zip(readers[::-1].tolist(), count[::-1].tolist(), strict=True):
            takers = readers[: np.searchsorted(count, many - 2, "right")]
            if not len(takers) or work.end():
                return False
            taken = np.concatenate([self._parts[taker] for taker in takers.tolist()])
            work.spend(4 * (len(self._parts[giver]) + len(taken)))
            if self._exchange(topic, giver, taken):
                return True
        return False

    def _reads(self, topic_class: Ints) -> Bools:
        """Return for each topic class (row) whether each member (column) reads it."""
        subscriptions = len(self._problem.sizes())
        key = topic_class[:, None] * subscriptions + np.arange(subscriptions)
        place = np.minimum(np.searchsorted(self._pairs, key), len(self._pairs) - 1)
        reads: Bools = (self._pairs[place] == key)[:, self._problem.subscription_class]
        return reads

    def _exchange(self, topic: int, giver: int, taken: Ints) -> bool:
        """Give a partition of a topic for one of another topic, if that makes both together more even.

        Args:
            topic: The topic.
            giver: The member that gives a partition of it.
            taken: Partitions of members that have less of it.

        Returns:
            Whether there was such an exchange.
        """
        other, takers = self._topic[taken], self.reader[taken]
        # Half of what the sum of squares increases by.
        loss = self._count[other, giver] - self._count[other, takers] + 1
        loss += self._count[topic, takers] - self._count[topic, giver] + 1
        possible = (loss < 0) & (other != topic)
        if len(self._problem.sizes()) > 1:
            possible &= self._reads(self._problem.topic_class[taken])[:, giver]
        best_first = np.flatnonzero(possible)
        best_first = best_first[np.argsort(loss[best_first], kind="stable")]
        taken, takers = taken[best_first], takers[best_first]
        if not len(taken):
            return False
        back = self._changes(taken, takers, np.full(len(taken), giver))
        given = self._parts[giver]
        for partition in self._one_of_each_kind(given[self._topic[given] == topic]).tolist():
            same = np.full(len(taken), partition)
            sums = back + self._changes(same, np.full(len(taken), giver), takers)
            fits = (sums <= 0).all(axis=0)
            if fits.any():
                first = int(np.argmax(fits))
                self._swap(partition, giver, int(taken[first]), int(takers[first]))
                return True
        return False

    def _one_of_each_kind(self, partitions: Ints) -> Ints:
        """Return the first of all partitions that are equal in costs and owner."""
        problem = self._problem
        rows = [problem.cost_row[partitions], problem.owner[partitions]]
        if problem.ties is not None:
            rows.append(problem.ties.row[partitions])
        kinds: Ints = partitions[np.sort(np.unique(np.stack(rows), axis=1, return_index=True)[1])]
        return kinds[:_KINDS_TRIED]

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

    def _swap(self, first: int, giver: int, second: int, taker: int) -> None:
        """Exchange two partitions of these members."""
        for partition, other, loser, winner in ((first, second, giver, taker), (second, first, taker, giver)):
            self.reader[partition] = winner
            self._parts[loser][self._parts[loser] == partition] = other
            self._count[self._topic[partition], loser] -= 1
            self._count[self._topic[partition], winner] += 1
