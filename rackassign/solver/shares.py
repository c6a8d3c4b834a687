"""Shares: how many partitions of a topic class each of its readers gets, and which ones.

For assignments whose counts are fixed for classes of members (subscription classes or kinds), and that keep owners
where these counts allow it. This takes no flow, so it is for groups whose network of topic classes and members is too
large.

Members of a class are interchangeable but for what they own: each has the whole part of a count, and as many as the
rest of the division have an *extra*. Extras are dealt so that totals within a class differ by at most one.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rackassign.solver.assignment_network import NetworkLayout
from rackassign.solver.problem import NO_MEMBER, CompressedProblem, Problem
from rackassign.solver.types import Bools, Ints

_EXCHANGES_TRIED = 32
"""With how many members an exchange is tried."""

_NEVER = 9


def expand_shares(grouped: CompressedProblem, layout: NetworkLayout, flow: Ints) -> Ints:
    """Convert a flow whose nodes are kinds to the member of each partition.

    Args:
        grouped: Problem of the network. Its original problem has the owners.
        layout: The network, with shares.
        flow: The flow.
    """
    problem = grouped.problem
    stay, to_hub, amount, to_node, _ = layout.split(flow)
    amount = amount.copy()
    amount[layout.share_row >= 0] = to_node
    room = np.zeros((len(grouped.class_supply), problem.cost.shape[1]), np.int64)
    room[layout.hub_arcs.tail, layout.hub_rack[layout.hub_arcs.head]] = to_hub
    np.add.at(room, (grouped.stay_class, grouped.kind_rack[grouped.stay_node]), stay)
    held = grouped.current
    held = held[room[grouped.class_of[held], problem.rack[problem.owner[held]]] > 0]
    whole, extras = np.divmod(amount, grouped.node_size[layout.share_node])
    pairs = layout.hub_topic_class[layout.middle_arcs.tail], layout.share_node
    shares = Shares(problem, grouped.node_of, pairs, whole, held)
    return shares.assign(shares.counts(extras), grouped.class_of, room)


class Shares:
    """Members' counts of topic classes: for each pair of a topic class and a class of members, one after the other.

    Args:
        problem: The problem.
        member_class: Class of each member.
        pairs: Topic classes and member classes that read them, ascending by topic class, then member class.
        whole: For each pair the number of partitions that all its members have.
        held: Partitions that their owners may keep, whose pairs are all among these.
    """

    def __init__(self, problem: Problem, member_class: Ints, pairs: tuple[Ints, Ints], whole: Ints, held: Ints) -> None:
        self._problem, self._held, self._whole = problem, held, whole
        self._pair_topic_class, self._pair_class = pairs
        self._sizes = np.bincount(member_class)
        self._by_class = np.argsort(member_class, kind="stable")
        self._first_of_class = np.cumsum(self._sizes) - self._sizes
        self._rank = np.empty(len(member_class), np.int64)
        self._rank[self._by_class] = np.arange(len(member_class)) - self._first_of_class[member_class[self._by_class]]
        self._size = self._sizes[self._pair_class]
        self._first = np.cumsum(self._size) - self._size
        topic_class, owner = problem.topic_class[held], problem.owner[held]
        key = self._pair_topic_class * len(self._sizes) + self._pair_class
        pair = np.searchsorted(key, topic_class * len(self._sizes) + member_class[owner])
        self._share = self._first[pair] + self._rank[owner]
        # Shares that owners have are few; all of them would be topic classes x members.
        shares, at, count = np.unique(self._share, return_index=True, return_counts=True)
        over = count > whole[pair[at]]
        self._over, self._over_pair = shares[over], pair[at][over]

    def keeping(self) -> Ints:
        """Return for each pair how many members would keep an extra."""
        return np.bincount(self._over_pair, minlength=len(self._whole))

    def counts(self, extras: Ints) -> Ints:
        """Return the number of partitions of each share, with extras for those that own one where that is even.

        Args:
            extras: Number of extras of each pair, which are spread evenly over each member class.
        """
        # There may be ten million of them.
        counts = np.repeat((self._whole + (extras == self._size)).astype(np.int32), self._size)
        some = np.flatnonzero((extras > 0) & (extras < self._size))
        for member_class in np.unique(self._pair_class[some]).tolist():
            pairs = some[self._pair_class[some] == member_class]
            over = np.zeros((len(pairs), self._sizes[member_class]), bool)
            mine = np.isin(self._over_pair, pairs)
            row = np.searchsorted(pairs, self._over_pair[mine])
            over[row, self._over[mine] - self._first[pairs[row]]] = True
            given = _extras_of_owners(over, extras[pairs])
            for first, members in zip(self._first[pairs].tolist(), given, strict=True):
                counts[first : first + len(members)] += members
        return counts

    def assign(self, left: Ints, class_of: Ints, room: Ints) -> Ints:
        """Return the reader of each partition: its owner if possible, or else a member of the cheapest rack.

        Args:
            left: Number of partitions of each share; it is used up.
            class_of: Class of each partition.
            room: Number of partitions of each class (row) that each rack (column) may get, no less than counts need.
        """
        problem, free = self._problem, room.tolist()
        reader = np.full(len(problem.topic_class), NO_MEMBER)
        owner = problem.owner[self._held]
        held = (self._held, self._share, owner, class_of[self._held], problem.rack[owner])
        for partition, share, member, class_, rack in zip(*(each.tolist() for each in held), strict=True):
            if left[share] and free[class_][rack]:
                left[share] -= 1
                free[class_][rack] -= 1
                reader[partition] = member
        loose = np.flatnonzero(reader == NO_MEMBER)
        loose = loose[np.argsort(problem.topic_class[loose], kind="stable")]
        topic_classes, sizes = np.unique(problem.topic_class[loose], return_counts=True)
        ends = np.cumsum(sizes)
        for topic_class, first, end in zip(topic_classes.tolist(), ends - sizes, ends, strict=True):
            members, capacity = self._readers(topic_class, left)
            queues: dict[int, deque[int]] = {}
            for member, rack in zip(members.tolist(), problem.rack[members].tolist(), strict=True):
                queues.setdefault(rack, deque()).append(member)
            capacity_of = dict(zip(members.tolist(), capacity.tolist(), strict=True))
            for partition in loose[first:end].tolist():
                row, places = problem.cost[problem.cost_row[partition]], free[class_of[partition]]
                rack = min((rack for rack in queues if places[rack]), key=lambda rack: (row[rack], rack))
                member = queues[rack].popleft()
                places[rack] -= 1
                reader[partition] = member
                capacity_of[member] -= 1
                if capacity_of[member]:
                    queues[rack].append(member)
                elif not queues[rack]:
                    del queues[rack]
        return reader

    def _readers(self, topic_class: int, left: Ints) -> tuple[Ints, Ints]:
        """Return the members that still get partitions of a topic class, ascending, and how many each."""
        pairs = slice(*np.searchsorted(self._pair_topic_class, [topic_class, topic_class + 1]).tolist())
        first, size = self._first[pairs], self._size[pairs]
        count = left[first[0] : first[-1] + size[-1]]
        used = np.flatnonzero(count)
        pair = np.searchsorted(first - first[0], used, "right") - 1
        rank = used + first[0] - first[pair]
        members = self._by_class[self._first_of_class[self._pair_class[pairs][pair]] + rank]
        order = np.argsort(members)
        return members[order], count[used][order]


def _extras_of_owners(over: Bools, extras: Ints) -> Bools:
    """Deal extras (rows) to members (columns), first to those that own one; members differ by at most one in total.

    Args:
        over: Which members own more than the whole part.
        extras: Number of extras of each row, less than there are members.
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
        best = free[np.argsort(-left[free], kind="stable")[:amount]]
        given[row, best] = True
        left[best] -= 1
        for _ in range(amount - len(best)):
            short = int(np.argmax(left > 0))
            _exchange(given, over, row, short)
            left[short] -= 1
    return given


def _exchange(given: Bools, over: Bools, row: int, short: int) -> None:
    """Give an extra of a row to a member without one, which gives another of its extras to a member that is short.

    The member that is short has one of this row already. Every member without one has as many extras or more, so it has
    one in a row where the other has none.

    Args:
        given: Which members (columns) have an extra of each row.
        over: Which members own one.
        row: Row whose extra is dealt.
        short: Member that has to get one more.
    """
    others = np.flatnonzero(~given[row])[:_EXCHANGES_TRIED]
    possible = given[:, others] & ~given[:, [short]]
    # What the one owns is gained, what the other owns is lost.
    gain = np.where(possible, over[:, [short]].astype(np.int64) - over[:, others] + over[row, others], -_NEVER)
    other_row, other = np.unravel_index(int(np.argmax(gain)), gain.shape)
    given[other_row, others[other]] = False
    given[other_row, short] = given[row, others[other]] = True
