r"""The network of a compressed problem: its arcs, amounts as flows on them, and flows as members of partitions again.

The arcs, left to right::

    class --------------- keep arc ---------------> member class -> levels -> sink
      \--> hub (topic class, rack) --> kind --> /

If each topic class has bounds of its own, a *share* (topic class, member class) takes the place of a kind, and keep
arcs enter it::

    class ---- keep arc ----> share -> member class -> levels -> sink
      \--> hub ----------> /

A share that no keep arc enters is a single arc from its hub to its member class. These are nearly all of them.

All cost is on the arcs out of classes. A hub joins all arcs that lead to the readers of a topic class in one rack. So
costs are on classes x racks arcs, a few hundred, instead of on classes x members: the solver needs seconds for the
former and minutes for the latter.

The network has levels if loads may differ by more than one, so that more even loads can be an objective.

Shares: how many partitions of a topic class each of its readers gets, and which ones.

For assignments whose counts are fixed for classes of members (subscription classes or kinds), and that keep owners
where these counts allow it. This takes no flow, so it is for groups whose network of topic classes and members is too
large.

Members of a class are interchangeable but for what they own: each has the whole part of a count, and as many as the
rest of the division have an *extra*. Extras are dealt so that totals within a class differ by at most one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from rackassign.solver.network_flow import Bools, Charge, Floats, Ints, Network, changes, split_at, stable_order
from rackassign.solver.problem import NO_MEMBER, CompressedProblem, Problem, factorize


@dataclass(frozen=True, slots=True)
class Arcs:
    """Arcs of one layer."""

    # Rows of this layer and of the next one.
    tail: Ints
    head: Ints
    lower: Ints
    upper: Ints


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """Bounds of a member's number of partitions of each topic class."""

    # For each allowed class pair.
    low: Ints
    high: Ints


@dataclass(frozen=True, slots=True)
class _Middle:
    """The layer between hubs and member classes: kinds, or shares."""

    # Number of its rows: all kinds, or the shares that keep arcs enter.
    rows: int
    # Of each share the topic class (None of kinds), member class, and row or -1; of a kind the kind itself.
    topic_class: Ints | None
    member_class: Ints
    row: Ints
    # Arcs from hubs. Nodes are the rows after this layer.
    enter: Arcs
    leave: Arcs
    # Row that each keep arc enters: a share, or else a member class.
    keep_arc_head: Ints


@dataclass(frozen=True, slots=True)
class NetworkLayout:
    """The layers of a network and the objectives on them."""

    network: Network
    # From classes to member classes or shares, and from classes to hubs.
    sticky_arcs: Arcs
    hub_arcs: Arcs
    # From hubs to kinds, or one for each share.
    middle_arcs: Arcs
    # From kinds, or shares with a row, to member classes.
    member_class_arcs: Arcs
    # From member classes to the sink, one for each level; none without levels.
    to_sink: Arcs
    # Cost of a partition on each arc, and by how much one on each arc to the sink increases the sum of squared loads.
    cost: Ints
    level_cost: Ints
    # Numbers of classes, hubs, kinds or shares with a row, member classes and sinks.
    rows: tuple[int, ...]
    hub_topic_class: Ints
    hub_rack: Ints
    # Shares are ordered by topic class (None if there are kinds), then member class. A single arc has the row -1.
    share_topic_class: Ints | None
    share_member_class: Ints
    share_row: Ints

    @property
    def _layers(self) -> tuple[Arcs, ...]:
        return self.sticky_arcs, self.hub_arcs, self.middle_arcs, self.member_class_arcs, self.to_sink

    def split(self, flow: Ints) -> list[Ints]:
        """Return the flows on keep arcs, to hubs, to kinds or shares, to member classes and to the sink."""
        return split_at(flow, [*accumulate(len(layer.tail) for layer in self._layers[:-1])])

    def kept(self, flow: Ints) -> Ints:
        return flow[: len(self.sticky_arcs.tail)]

    def reading(self) -> Ints:
        return self.cost

    def squares(self) -> Ints:
        """Return the objective: sum of squared loads, less a constant; all 0 without levels."""
        squares = 0 * self.cost
        squares[len(squares) - len(self.level_cost) :] = self.level_cost
        return squares

    def moves(self) -> Ints:
        """Return the objective: number of moves, less the number of owned partitions."""
        found = 0 * self.cost
        found[: len(self.sticky_arcs.tail)] = -1
        return found

    def tie_cost(self, grouped: CompressedProblem, cost: Ints) -> Ints:
        """Return the objective: tie cost, from costs by row of class and rack."""
        hubs = self.hub_arcs
        keep_arc_rack = grouped.kind_rack[grouped.member_class_kind[grouped.keep_arc_member_class]]
        return _costs_out_of_classes(
            len(self.network.tail),
            cost[grouped.class_near[grouped.keep_arc_class], keep_arc_rack],
            cost[grouped.class_near[hubs.tail], self.hub_rack[hubs.head]],
        )


def _costs_out_of_classes(arcs: int, sticky: Ints, to_hub: Ints) -> Ints:
    """Return costs of all arcs, of which only the first two layers have one."""
    costs = np.zeros(arcs, np.int64)
    costs[: len(sticky)] = sticky
    costs[len(sticky) : len(sticky) + len(to_hub)] = to_hub
    return costs


def build_network(
    grouped: CompressedProblem,
    low: Ints,
    high: Ints,
    expect: Charge,
    *,
    levels: bool = False,
    topics: TopicBounds | None = None,
) -> NetworkLayout:
    # `low` and `high` bound a member's load, by subscription class. With levels there is an arc for each load between
    # them, so that even loads can be an objective. `expect` gets the number of arcs from classes to hubs, nearly all
    # that there are of many classes and racks, before arrays of that size are made.
    p = grouped.problem
    racks = p.cost.shape[1]
    # Hubs: a topic class and a rack in which it has readers.
    pair_of, kind = _pairs_of_equals(grouped.edge_subscription_class, grouped.kind_subscription_class)
    hubs, hub = factorize(grouped.edge_topic_class[pair_of] * racks + grouped.kind_rack[kind])
    expect(int(np.bincount(hubs // racks)[grouped.class_topic_class].sum()))
    class_, to_hub = _pairs_of_equals(grouped.class_topic_class, hubs // racks)
    subscription_class, size = grouped.kind_subscription_class[grouped.member_class_kind], grouped.member_class_size
    step, level_member_class = ranges((high - low)[subscription_class] * levels)
    keep_arc_rack = grouped.kind_rack[grouped.member_class_kind[grouped.keep_arc_member_class]]

    total = int(grouped.class_supply.sum())
    # Never reached. So no price depends on it, and the prices of one layout are valid in the other.
    plenty = total + 1
    middle = _kinds(grouped, hub, kind, plenty) if topics is None else _shares(grouped, hubs, topics, plenty)
    layers = (
        Arcs(grouped.keep_arc_class, middle.keep_arc_head, 0 * grouped.keep_arc_size, grouped.keep_arc_size),
        _unbounded_arcs(class_, to_hub, plenty),
        middle.enter,
        middle.leave,
        Arcs(level_member_class, 0 * step, 0 * step, size[level_member_class]),
    )
    rows = (len(grouped.class_supply), len(hubs), middle.rows, len(subscription_class), int(levels))
    at = [0, *accumulate(rows[:-1])]
    starts = [(at[0], at[3] if topics is None else at[2]), *pairwise(at)]
    between = np.zeros(at[3] - at[1], np.int64)
    least, most = low[subscription_class] * size, high[subscription_class] * size
    sink = np.full(int(levels), -total)
    network = Network(
        tail=np.concatenate([layer.tail + start for layer, (start, _) in zip(layers, starts, strict=True)]),
        head=np.concatenate([layer.head + start for layer, (_, start) in zip(layers, starts, strict=True)]),
        lower=np.concatenate([layer.lower for layer in layers]),
        upper=np.concatenate([layer.upper for layer in layers]),
        # With levels a member class keeps its lower bound and sends the rest to the sink.
        low=np.concatenate([grouped.class_supply, between, -(least if levels else most), sink]),
        high=np.concatenate([grouped.class_supply, between, -least, 0 * sink]),
    )
    cost = _costs_out_of_classes(
        len(network.tail),
        p.cost[grouped.class_near[grouped.keep_arc_class], keep_arc_rack],
        p.cost[grouped.class_near[class_], hubs[to_hub] % racks],
    )
    level_cost = 2 * (low[subscription_class][level_member_class] + step) + 1
    hub_pairs, shares = (hubs // racks, hubs % racks), (middle.member_class, middle.row)
    return NetworkLayout(network, *layers, cost, level_cost, rows, *hub_pairs, middle.topic_class, *shares)


def count_shares(grouped: CompressedProblem) -> int:
    member_classes = np.bincount(
        grouped.kind_subscription_class[grouped.member_class_kind], minlength=len(grouped.problem.sizes())
    )
    return int(member_classes[grouped.edge_subscription_class].sum())


def _kinds(grouped: CompressedProblem, hub: Ints, kind: Ints, plenty: int) -> _Middle:
    member_classes, kinds = np.arange(len(grouped.member_class_kind)), np.arange(len(grouped.kind_rack))
    return _Middle(
        len(kinds),
        None,
        kinds,
        kinds,
        _unbounded_arcs(hub, kind, plenty),
        _unbounded_arcs(grouped.member_class_kind, member_classes, plenty),
        grouped.keep_arc_member_class,
    )


def _shares(grouped: CompressedProblem, hubs: Ints, topics: TopicBounds, plenty: int) -> _Middle:
    subscription_class = grouped.kind_subscription_class[grouped.member_class_kind]
    pair, member_class = _pairs_of_equals(grouped.edge_subscription_class, subscription_class)
    key = grouped.edge_topic_class[pair] * len(subscription_class) + member_class
    # Kinds are in order already, and sorting takes longer than all else here.
    if (key[1:] < key[:-1]).any():
        order = key.argsort()
        pair, member_class = pair[order], member_class[order]
    topic_class, size = grouped.edge_topic_class[pair], grouped.member_class_size[member_class]
    rack = grouped.kind_rack[grouped.member_class_kind[member_class]]
    hub = hubs.searchsorted(topic_class * grouped.problem.cost.shape[1] + rack)
    member_classes = len(subscription_class)
    keep_arc = (topic_class * member_classes + member_class).searchsorted(
        grouped.class_topic_class[grouped.keep_arc_class] * member_classes + grouped.keep_arc_member_class
    )
    entered = np.zeros(len(member_class), bool)
    entered[keep_arc] = True
    shares = entered.nonzero()[0]
    row = np.where(entered, entered.cumsum() - 1, -1)
    low, high = topics.low[pair] * size, topics.high[pair] * size
    return _Middle(
        len(shares),
        topic_class,
        member_class,
        row,
        Arcs(
            hub,
            np.where(entered, row, len(shares) + member_class),
            np.where(entered, 0, low),
            np.where(entered, plenty, high),
        ),
        Arcs(row[shares], member_class[shares], low[shares], high[shares]),
        row[keep_arc],
    )


def _unbounded_arcs(tail: Ints, head: Ints, upper: int) -> Arcs:
    none = 0 * tail
    return Arcs(tail, head, none, none + upper)


def _pairs_of_equals(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return all pairs of indexes of equal values, ordered by the left index and then by the right one."""
    order = right.argsort(kind="stable")
    first = right[order].searchsorted(left, "left")
    count = right[order].searchsorted(left, "right") - first
    at = np.arange(len(left)).repeat(count)
    step = np.arange(len(at)) - (count.cumsum() - count).repeat(count)
    return at, order[first.repeat(count) + step]


def ranges(counts: Ints) -> tuple[Ints, Ints]:
    """Return 0, 1, .. up to each count, concatenated, and the index of the count that each belongs to."""
    whose = np.arange(len(counts)).repeat(counts)
    return np.arange(len(whose)) - (counts.cumsum() - counts).repeat(counts), whose


_EXCHANGES_TRIED = 32
"""With how many members an exchange is tried."""

_NEVER = 9


def expand_shares(grouped: CompressedProblem, layout: NetworkLayout, flow: Ints) -> Ints:
    """Convert a flow whose member classes are kinds to the member of each partition."""
    problem = grouped.problem
    keep_arc, to_hub, amount, to_member_class, _ = layout.split(flow)
    amount = amount.copy()
    amount[layout.share_row >= 0] = to_member_class
    room = np.zeros((len(grouped.class_supply), problem.cost.shape[1]), np.int64)
    room[layout.hub_arcs.tail, layout.hub_rack[layout.hub_arcs.head]] = to_hub
    np.add.at(room, (grouped.keep_arc_class, grouped.kind_rack[grouped.keep_arc_member_class]), keep_arc)
    current = grouped.current
    current = current[room[grouped.class_of[current], problem.rack[problem.owner[current]]] > 0]
    whole, extras = np.divmod(amount, grouped.member_class_size[layout.share_member_class])
    pairs = layout.hub_topic_class[layout.middle_arcs.tail], layout.share_member_class
    shares = Shares(problem, grouped.member_class_of, pairs, whole, current)
    return shares.assign(shares.counts(extras), grouped.class_of, room)


class Shares:
    """Members' counts of topic classes: for each pair of a topic class and a class of members, one after the other."""

    def __init__(self, problem: Problem, member_class: Ints, pairs: tuple[Ints, Ints], whole: Ints, held: Ints) -> None:
        # Pairs of a topic class and a member class are ascending. Of each, `whole` is the number of partitions that all
        # its members have. `held` are partitions that their owners may keep, whose pairs are all among these.
        self._problem, self._held, self._whole = problem, held, whole
        self._pair_topic_class, self._pair_class = pairs
        self._sizes = np.bincount(member_class)
        self._by_class = member_class.argsort(kind="stable")
        self._first_of_class = self._sizes.cumsum() - self._sizes
        self._rank = np.empty(len(member_class), np.int64)
        self._rank[self._by_class] = np.arange(len(member_class)) - self._first_of_class[member_class[self._by_class]]
        self._size = self._sizes[self._pair_class]
        self._first = self._size.cumsum() - self._size
        topic_class, owner = problem.topic_class[held], problem.owner[held]
        key = self._pair_topic_class * len(self._sizes) + self._pair_class
        pair = key.searchsorted(topic_class * len(self._sizes) + member_class[owner])
        self._share = self._first[pair] + self._rank[owner]
        # Shares that owners have are few; all of them would be topic classes x members.
        shares, at, count = np.unique(self._share, return_index=True, return_counts=True)
        over = count > whole[pair[at]]
        self._over, self._over_pair = shares[over], pair[at][over]

    def keeping(self) -> Ints:
        """Return for each pair how many members would keep an extra."""
        return np.bincount(self._over_pair, minlength=len(self._whole))

    def counts(self, extras: Ints) -> Ints:
        """Return the size of each share. A pair's extras are spread evenly, to owners of one where that is even."""
        # There may be ten million of them.
        counts = (self._whole + (extras == self._size)).astype(np.int32).repeat(self._size)
        some = ((extras > 0) & (extras < self._size)).nonzero()[0]
        for member_class in np.unique(self._pair_class[some]).tolist():
            pairs = some[self._pair_class[some] == member_class]
            over = np.zeros((len(pairs), self._sizes[member_class]), bool)
            mine = np.isin(self._over_pair, pairs)
            row = pairs.searchsorted(self._over_pair[mine])
            over[row, self._over[mine] - self._first[pairs[row]]] = True
            given = _extras_of_owners(over, extras[pairs])
            for first, members in zip(self._first[pairs].tolist(), given, strict=True):
                counts[first : first + len(members)] += members
        dealt: Ints = counts
        return dealt

    def assign(self, left: Ints, class_of: Ints, room: Ints) -> Ints:
        """Return the reader of each partition: its owner if possible, or else a member of the cheapest rack."""
        # `left`, by share, is used up. `room`, by class (row) and rack (column), is no less than counts need.
        problem, free = self._problem, room.tolist()
        reader = np.full(len(problem.topic_class), NO_MEMBER)
        owner = problem.owner[self._held]
        held = (self._held, self._share, owner, class_of[self._held], problem.rack[owner])
        for partition, share, member, class_, rack in zip(*(each.tolist() for each in held), strict=True):
            if left[share] and free[class_][rack]:
                left[share] -= 1
                free[class_][rack] -= 1
                reader[partition] = member
        loose = (reader == NO_MEMBER).nonzero()[0]
        loose = loose[problem.topic_class[loose].argsort(kind="stable")]
        topic_classes, sizes = np.unique(problem.topic_class[loose], return_counts=True)
        ends = sizes.cumsum()
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
        pairs = slice(*self._pair_topic_class.searchsorted([topic_class, topic_class + 1]).tolist())
        first, size = self._first[pairs], self._size[pairs]
        count = left[first[0] : first[-1] + size[-1]]
        used = count.nonzero()[0]
        pair = (first - first[0]).searchsorted(used, "right") - 1
        rank = used + first[0] - first[pair]
        members = self._by_class[self._first_of_class[self._pair_class[pairs][pair]] + rank]
        order = members.argsort()
        return members[order], count[used][order]


def _extras_of_owners(over: Bools, extras: Ints) -> Bools:
    """Deal extras (rows) to members (columns), first to those that own one; members differ by at most one in total."""
    # `over`: which members own more than the whole part. A row has fewer extras than there are members.
    whole, rest = divmod(int(extras.sum()), over.shape[1])
    # Those that own the most may have one more.
    most = np.lexsort((np.arange(over.shape[1]), -over.sum(axis=0)))
    left = np.full(over.shape[1], whole)
    left[most[:rest]] += 1
    has_extra = np.zeros(over.shape, bool)
    for row, amount in enumerate(extras.tolist()):
        keeping = (over[row] & (left > 0)).nonzero()[0][:amount]
        has_extra[row, keeping] = True
        left[keeping] -= 1
    for row, amount in enumerate((extras - has_extra.sum(axis=1)).tolist()):
        free = (~has_extra[row] & (left > 0)).nonzero()[0]
        best = free[(-left[free]).argsort(kind="stable")[:amount]]
        has_extra[row, best] = True
        left[best] -= 1
        for _ in range(amount - len(best)):
            short = int(np.argmax(left > 0))
            _exchange(has_extra, over, row, short)
            left[short] -= 1
    return has_extra


def _exchange(given: Bools, over: Bools, row: int, short: int) -> None:
    """Give an extra of a row to a member without one, which gives another of its extras to a member that is short.

    The member that is short has one of this row already. Every member without one has as many extras or more, so it has
    one in a row where the other has none.
    """
    # Rows and members (columns): those with an extra in `given`, which is changed, and owners of one in `over`.
    without_extra = (~given[row]).nonzero()[0][:_EXCHANGES_TRIED]
    possible = given[:, without_extra] & ~given[:, [short]]
    # What the one owns is gained, what the other owns is lost.
    gain = np.where(
        possible, over[:, [short]].astype(np.int64) - over[:, without_extra] + over[row, without_extra], -_NEVER
    )
    other_row, other = np.unravel_index(int(np.argmax(gain)), gain.shape)
    given[other_row, without_extra[other]] = False
    given[other_row, short] = given[row, without_extra[other]] = True


def flow_of(
    grouped: CompressedProblem, layout: NetworkLayout, kept: Ints, others: tuple[Ints, Ints, Ints] | None = None
) -> Ints:
    """Return the flow of keep arcs and of other amounts (class, member class, size). That on levels is left out."""
    class_, member_class, amount = others or (kept[:0], kept[:0], kept[:0])
    kind, topic_class = grouped.member_class_kind[member_class], grouped.class_topic_class[class_]
    racks, hubs, member_classes = grouped.problem.cost.shape[1], len(layout.hub_rack), len(grouped.member_class_kind)
    key = layout.hub_topic_class * racks + layout.hub_rack
    hub = key.searchsorted(topic_class * racks + grouped.kind_rack[kind])
    arcs = layout.hub_arcs
    to_hub = _sums(arcs.tail * hubs + arcs.head, class_ * hubs + hub, amount)
    if layout.share_topic_class is None:
        kinds = len(grouped.kind_rack)
        # Like shares, these arcs are ordered by topic class first.
        key = layout.hub_topic_class[layout.middle_arcs.tail] * kinds + layout.middle_arcs.head
        to_middle = _sums(key, topic_class * kinds + kind, amount)
        to_member_class = np.bincount(member_class, amount, member_classes)
    else:
        to_middle = _sums(
            layout.share_topic_class * member_classes + layout.share_member_class,
            topic_class * member_classes + member_class,
            amount,
        )
        keep_arcs = np.bincount(layout.sticky_arcs.head, kept, len(layout.member_class_arcs.tail))
        to_member_class = to_middle[layout.share_row >= 0] + keep_arcs
    return np.concatenate([kept, to_hub, to_middle, to_member_class.astype(np.int64), 0 * layout.to_sink.tail])


def _sums(keys: Ints, given: Ints, amount: Ints) -> Ints:
    """Return for each of these ascending keys the sum of the amounts given for it."""
    return np.bincount(keys.searchsorted(given), amount, len(keys)).astype(np.int64)


def expand_flow(grouped: CompressedProblem, layout: NetworkLayout, flow: Ints) -> Ints:
    """Convert flows to the member of each partition.

    A flow may leave open which partitions of a class it means. Each member then gets partitions spread over the whole
    list, so that the partitions of one topic do not end up together.
    """
    keep_arc, to_hub, to_middle, to_member_class, _ = layout.split(flow)
    reader = np.full(len(grouped.problem.topic_class), -1)
    even = _EvenSplit(grouped, layout, keep_arc, to_middle, to_member_class)
    if len(grouped.current):
        # By their turn, and then by their order.
        pool, turn = grouped.owned_of, _turn_in_topic(grouped.problem, grouped.current)
        kept = _rank_in_pool(pool, np.lexsort((turn, pool))) < even.kept[pool]
        reader[grouped.current[kept]] = grouped.problem.owner[grouped.current[kept]]
    loose = (reader < 0).nonzero()[0]
    hub = layout.hub_arcs.head[_distribute(grouped.class_of[loose], layout.hub_arcs.tail, to_hub)]
    pool = _distribute(hub, layout.middle_arcs.tail, to_middle)
    if layout.share_topic_class is None:
        pool = layout.member_class_arcs.head[
            _distribute(layout.middle_arcs.head[pool], layout.member_class_arcs.tail, to_member_class)
        ]
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
    order = stable_order(pool) if order is None else order
    ordered = pool[order]
    begins = changes(ordered)
    rank = np.empty(len(pool), np.int64)
    rank[order] = np.arange(len(pool)) - begins.nonzero()[0][begins.cumsum() - 1]
    return rank


class _EvenSplit:
    """Distribution of the partitions of member classes among their members, as evenly as possible.

    Each amount is distributed over the members of its class in turn, and the next amount continues after the last
    member served. So members differ by at most one partition in total, and in each sequence of amounts. The amounts of
    a topic class, if it has shares, are such a sequence.
    """

    def __init__(
        self, grouped: CompressedProblem, layout: NetworkLayout, keep_arc: Ints, to_middle: Ints, to_member_class: Ints
    ) -> None:
        # Flows of keep arcs, to kinds or shares without what stays, and from these to member classes.
        self._size = grouped.member_class_size
        order = grouped.member_class_of.argsort(kind="stable")
        whose = grouped.member_class_of[order]
        rank = np.empty(len(whose), np.int64)
        rank[order] = np.arange(len(whose)) - whose.searchsorted(whose, "left")
        if layout.share_topic_class is None:
            keep_arc_topic_class = 0 * grouped.keep_arc_class
            pool_member_class = np.arange(len(self._size))
            pool_topic_class = 0 * pool_member_class
            loose = np.bincount(layout.member_class_arcs.head, to_member_class, len(pool_member_class)).astype(np.int64)
        else:
            keep_arc_topic_class = grouped.class_topic_class[grouped.keep_arc_class]
            pool_member_class = layout.share_member_class
            pool_topic_class = layout.share_topic_class
            loose = to_middle
        # What stays of a topic class before the rest of it.
        member_class = np.concatenate([grouped.keep_arc_member_class, pool_member_class])
        sequence = np.lexsort((np.concatenate([keep_arc_topic_class, pool_topic_class]), member_class))
        first = self._first_turns(member_class[sequence], np.concatenate([keep_arc, loose])[sequence])
        turn = np.empty(len(first), np.int64)
        turn[sequence] = first
        # How many partitions remain of each owned set.
        self.kept = self._share(
            keep_arc[grouped.owned_keep_arc],
            grouped.keep_arc_member_class[grouped.owned_keep_arc],
            turn[grouped.owned_keep_arc],
            rank[grouped.owned_member],
        )
        used = loose.nonzero()[0]
        # A member that gets nothing of a pool needs no pair: most have fewer partitions than their class has members.
        step, at = ranges(np.minimum(loose[used], self._size[pool_member_class[used]]))
        pool = used[at]
        served = (turn[len(keep_arc) + pool] + step) % self._size[pool_member_class[pool]]
        by_member = np.lexsort((served, pool))
        # Pairs of a pool, a member class or share, and a member, with how many partitions of the pool the member gets.
        self.pool, served = pool[by_member], served[by_member]
        pairs_member_class = pool_member_class[self.pool]
        self.member = order[whose.searchsorted(pairs_member_class) + served]
        self.amount = self._share(loose[self.pool], pairs_member_class, turn[len(keep_arc) + self.pool], served)

    def _first_turns(self, member_class: Ints, amount: Ints) -> Ints:
        """Return whose turn it is at the beginning of each amount; the amounts are ordered by member class."""
        rest = amount % self._size[member_class]
        before = rest.cumsum() - rest
        turns: Ints = before - before[member_class.searchsorted(member_class, "left")]
        return turns

    def _share(self, amount: Ints, member_class: Ints, turn: Ints, rank: Ints) -> Ints:
        """Return the part of an amount that the member of this rank in its member class gets."""
        whole, rest = np.divmod(amount, self._size[member_class])
        shares: Ints = whole + ((rank - turn) % self._size[member_class] < rest)
        return shares


def _distribute(pool: Ints, tail: Ints, amount: Ints) -> Ints:
    """Distribute items of pools over arcs; return the arc of each. Those of an arc are spread evenly over its pool."""
    # `tail`: pool of each arc, from which it takes `amount`; together all items.
    used = amount.nonzero()[0]
    last = np.zeros(int(tail.max(initial=-1)) + 1, np.int64)
    last[tail[used]] = used
    if len(used) == np.count_nonzero(np.bincount(tail[used])):
        # Each pool has one arc, which takes all of it.
        return last[pool]
    step, whose = ranges(amount[used])
    arc = used[whose]
    # Arcs are in order, so by position and then by pool, both stable.
    slots = arc[((2 * step + 1) / (2 * amount[arc])).argsort(kind="stable")]
    slots = slots[stable_order(tail[slots])]
    dealt = np.empty(len(pool), np.int64)
    dealt[stable_order(pool)] = slots
    return dealt
