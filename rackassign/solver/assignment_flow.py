"""Amounts as flows on the network of an assignment, and flows as the members of partitions again."""

from __future__ import annotations

import numpy as np

from rackassign.solver.assignment_network import NetworkLayout, ranges
from rackassign.solver.problem import CompressedProblem, Problem
from rackassign.solver.types import Bools, Floats, Ints


def flow_of(
    grouped: CompressedProblem, layout: NetworkLayout, kept: Ints, others: tuple[Ints, Ints, Ints] | None = None
) -> Ints:
    """Return the flow that given amounts make. That on levels is left out.

    Args:
        grouped: Problem of the network.
        layout: The network.
        kept: Flow of each stay.
        others: Class, node and size of other amounts.
    """
    class_, node, amount = others or (kept[:0], kept[:0], kept[:0])
    kind, topic_class = grouped.node_kind[node], grouped.class_topic_class[class_]
    racks, hubs, nodes = grouped.problem.cost.shape[1], len(layout.hub_rack), len(grouped.node_kind)
    key = layout.hub_topic_class * racks + layout.hub_rack
    hub = np.searchsorted(key, topic_class * racks + grouped.kind_rack[kind])
    arcs = layout.hub_arcs
    to_hub = _sums(arcs.tail * hubs + arcs.head, class_ * hubs + hub, amount)
    if layout.share_topic_class is None:
        kinds = len(grouped.kind_rack)
        # Like shares, these arcs are ordered by topic class first.
        key = layout.hub_topic_class[layout.middle_arcs.tail] * kinds + layout.middle_arcs.head
        to_middle = _sums(key, topic_class * kinds + kind, amount)
        to_node = np.bincount(node, amount, nodes)
    else:
        to_middle = _sums(layout.share_topic_class * nodes + layout.share_node, topic_class * nodes + node, amount)
        stays = np.bincount(layout.sticky_arcs.head, kept, len(layout.node_arcs.tail))
        to_node = to_middle[layout.share_row >= 0] + stays
    return np.concatenate([kept, to_hub, to_middle, to_node.astype(np.int64), 0 * layout.to_sink.tail])


def _sums(keys: Ints, given: Ints, amount: Ints) -> Ints:
    """Return for each of these ascending keys the sum of the amounts given for it."""
    return np.bincount(np.searchsorted(keys, given), amount, len(keys)).astype(np.int64)


def expand_flow(grouped: CompressedProblem, layout: NetworkLayout, flow: Ints) -> Ints:
    """Convert flows to the member of each partition.

    A flow may leave open which partitions of a class it means. Each member then gets partitions spread over the whole
    list, so that the partitions of one topic do not end up together.
    """
    stay, to_hub, to_middle, to_node, _ = layout.split(flow)
    reader = np.full(len(grouped.problem.topic_class), -1)
    even = _EvenSplit(grouped, layout, stay, to_middle, to_node)
    kept = _first_of_pools(grouped.hold_of, even.kept, _turn_in_topic(grouped.problem, grouped.current))
    reader[grouped.current[kept]] = grouped.problem.owner[grouped.current[kept]]
    loose = np.flatnonzero(reader < 0)
    hub = layout.hub_arcs.head[_distribute(grouped.class_of[loose], layout.hub_arcs.tail, to_hub)]
    pool = _distribute(hub, layout.middle_arcs.tail, to_middle)
    if layout.share_topic_class is None:
        pool = layout.node_arcs.head[_distribute(layout.middle_arcs.head[pool], layout.node_arcs.tail, to_node)]
    reader[loose] = even.member[_distribute(pool, even.pool, even.amount)]
    return reader


def _turn_in_topic(problem: Problem, current: Ints) -> Floats:
    """Return the order in which owners keep their partitions, so that they keep an equal part of each topic."""
    if problem.topic is None:
        return np.zeros(len(current))
    topic = problem.topic[current]
    topics = int(problem.topic.max(initial=0)) + 1
    rank = _rank_in_pool(problem.owner[current] * topics + topic)
    return (2 * rank + 1) / np.bincount(problem.topic, minlength=topics)[topic]


def _rank_in_pool(pool: Ints, order: Ints | None = None) -> Ints:
    """Return the place of each item in its pool, by their order or by this one."""
    order = np.argsort(pool, kind="stable") if order is None else order
    ordered = pool[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.empty(len(pool), np.int64)
    rank[order] = np.arange(len(pool)) - np.repeat(first, np.diff(np.append(first, len(pool))))
    return rank


def _first_of_pools(pool: Ints, amount: Ints, turn: Floats) -> Bools:
    """Return which items are among the first `amount` of their pool, by their turn and then by their order."""
    return _rank_in_pool(pool, np.lexsort((turn, pool))) < amount[pool]


class _EvenSplit:
    """Distribution of the partitions of nodes among their members, as evenly as possible.

    Each amount is distributed over the members of its node in turn, and the next amount continues after the last member
    served. So members differ by at most one partition in total, and in each sequence of amounts. The amounts of a topic
    class, if it has shares, are such a sequence.

    Args:
        grouped: The problem.
        layout: The network.
        stay: Flow of each stay.
        to_middle: Flow to kinds or shares, without what stays.
        to_node: Flow from these to nodes.

    Attributes:
        kept: Number of partitions that remain of each hold.
        pool: Node or share of each pair of one and a member that gets a partition of it.
        member: Member of each pair.
        amount: Number of partitions of the pool that the member gets.
    """

    def __init__(
        self, grouped: CompressedProblem, layout: NetworkLayout, stay: Ints, to_middle: Ints, to_node: Ints
    ) -> None:
        self._size = grouped.node_size
        order = np.argsort(grouped.node_of, kind="stable")
        whose = grouped.node_of[order]
        rank = np.empty(len(whose), np.int64)
        rank[order] = np.arange(len(whose)) - np.searchsorted(whose, whose, "left")
        if layout.share_topic_class is None:
            stay_topic_class = 0 * grouped.stay_class
            pool_node = np.arange(len(self._size))
            pool_topic_class = 0 * pool_node
            loose = np.bincount(layout.node_arcs.head, to_node, len(pool_node)).astype(np.int64)
        else:
            stay_topic_class = grouped.class_topic_class[grouped.stay_class]
            pool_node = layout.share_node
            pool_topic_class = layout.share_topic_class
            loose = to_middle
        # What stays of a topic class before the rest of it.
        node = np.concatenate([grouped.stay_node, pool_node])
        sequence = np.lexsort((np.concatenate([stay_topic_class, pool_topic_class]), node))
        first = self._first_turns(node[sequence], np.concatenate([stay, loose])[sequence])
        turn = np.empty(len(first), np.int64)
        turn[sequence] = first
        self.kept = self._share(
            stay[grouped.hold_stay],
            grouped.stay_node[grouped.hold_stay],
            turn[grouped.hold_stay],
            rank[grouped.hold_member],
        )
        used = np.flatnonzero(loose)
        # A member that gets nothing of a pool needs no pair: most have fewer partitions than their node has members.
        step, at = ranges(np.minimum(loose[used], self._size[pool_node[used]]))
        pool = used[at]
        served = (turn[len(stay) + pool] + step) % self._size[pool_node[pool]]
        by_member = np.lexsort((served, pool))
        self.pool, served = pool[by_member], served[by_member]
        pairs_node = pool_node[self.pool]
        self.member = order[np.searchsorted(whose, pairs_node) + served]
        self.amount = self._share(loose[self.pool], pairs_node, turn[len(stay) + self.pool], served)

    def _first_turns(self, node: Ints, amount: Ints) -> Ints:
        """Return whose turn it is at the beginning of each amount; the amounts are ordered by node."""
        rest = amount % self._size[node]
        before = np.cumsum(rest) - rest
        turns: Ints = before - before[np.searchsorted(node, node, "left")]
        return turns

    def _share(self, amount: Ints, node: Ints, turn: Ints, rank: Ints) -> Ints:
        """Return the part of an amount that the member of this rank in its node gets."""
        whole, rest = np.divmod(amount, self._size[node])
        shares: Ints = whole + ((rank - turn) % self._size[node] < rest)
        return shares


def _distribute(pool: Ints, tail: Ints, amount: Ints) -> Ints:
    """Distribute items over arcs.

    Args:
        pool: Pool of each item.
        tail: Pool of each arc.
        amount: Number of items that each arc takes from its pool. The amounts add up to the pools' sizes.

    Returns:
        The arc of each item. The items of an arc are spread evenly over its pool.
    """
    used = np.flatnonzero(amount)
    step, whose = ranges(amount[used])
    arc = used[whose]
    position = (2 * step + 1) / (2 * amount[arc])
    slots = arc[np.lexsort((arc, position, tail[arc]))]
    dealt = np.empty(len(pool), np.int64)
    dealt[np.argsort(pool, kind="stable")] = slots
    return dealt
