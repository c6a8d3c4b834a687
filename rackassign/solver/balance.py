"""Balance of a group: how many partitions each member gets, before racks are considered.

Rules: this module works on topic classes (partitions with one set of readers), subscription classes (members with one
subscription), and their sizes. It uses no racks, no owners and no solver.

Theory
------
The loads that are lexicographically least, sorted from large to small, are those with the least sum of squares
(dec-min = square-sum for M-convex sets; Frank and Murota, "Decreasing minimization on M-convex sets", 2022). The k-th
partition of a member costs 2k - 1, and a topic class sends its partitions to the cheapest members that may read it.

Their canonical partition gives more: subscription classes fall into *parts*, each with one ceiling. In every optimal
assignment all members of a part have `max_load` or `ceiling - 1` partitions, and a topic class is never assigned above
the lowest ceiling among its readers. Conversely, every assignment that satisfies both conditions is optimal. So two
numbers per subscription class and a mask over class pairs describe all optimal assignments at once. The later
objectives, racks and owners, choose freely among them.

Algorithm: each topic class is distributed over its subscription classes by water-filling, twice over. The result
is close to optimal. Then, starting with all subscription classes as one part, the excess above the part's
mean, rounded up, is moved to the classes below it, as a maximum flow. Classes that must stay above the mean, with all
that they could exchange partitions with, become a part of their own, and the rest another part. Then the mean rounded
down is used in the same way from below. A part that is not split any further is final.

Balance of each topic first
---------------------------
Topic classes come first, and the totals second.

The counts of a topic class alone are lexicographically least, sorted from large to small, if its readers have equal
numbers of its partitions, and as many as the rest of the division have one more: an *extra*. Topic classes do not
limit each other in that, so all assignments of this kind are: a fixed count for each reader and topic class, plus
extras, each to a different reader.

The totals depend on the extras only. They are a convex flow like that of `balance`, with what is fixed as base loads
and the number of members of a subscription class as the limit of its extras of one topic class. Within a subscription
class extras can be dealt in turn, so that its members differ by at most one in each topic class and in total.

The parts and ceilings of the theory of `balance` hold with limits too, with one difference: a topic class has extras
in a part only if all its readers in parts with lower ceilings have one. So each topic class has one ceiling at which
its extras are free. Below it each reader has an extra, above it none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.network_flow import Bools, Charge, Ints, blocking_flow, depths, uncharged

_POURINGS = 2
"""More of them take longer than the maximum flows that they spare."""

_ARCS_OF_A_POURING = 1_000
"""How many arcs take as long as distributing one topic class, however few its readers are."""


@dataclass(frozen=True, slots=True)
class BalanceConstraints:
    """Description of all assignments of optimal balance."""

    # For each subscription class the larger of the two loads that its members may have.
    max_load: Ints
    # For each class pair whether partitions of the topic class may be assigned to the subscription class, and the
    # flows of one such assignment.
    allowed: Bools
    flow: Ints


def compute_balance(
    supply: Ints,
    sizes: Ints,
    topic_class: Ints,
    subscription_class: Ints,
    charge: Charge,
    *,
    start: Ints | None = None,
) -> BalanceConstraints:
    # `supply` is by topic class, `sizes` (1 or more) by subscription class. Pairs are ascending by topic class, each of
    # which has one. A `start` close to such an assignment saves time, and changes nothing but `flow`.
    convex = ConvexFlow(supply, sizes, topic_class, subscription_class, charge)
    if start is not None:
        convex.start_from(start)
    ceiling = convex.balance(fill=start is None)
    lowest = np.minimum.reduceat(ceiling[subscription_class], convex.first) if len(topic_class) else ceiling[:0]
    return BalanceConstraints(ceiling, ceiling[subscription_class] == lowest[topic_class], convex.flow)


def stickiest_flow(
    balance: BalanceConstraints, pairs: tuple[Ints, Ints], supply: Ints, sizes: Ints, held: Ints, *, wanted: Ints
) -> Ints:
    """Return flows of equal balance that keep as many owned partitions as evening one class after the other does.

    Without owned partitions these are the flows of `balance`. Unowned partitions are moved first. If that is
    sufficient, all owned partitions stay. By pair, `held` are the owned partitions, and `wanted` unowned ones where
    they should be as far as balance allows; all 0 for any.
    """
    topic_class, subscription_class = pairs
    held = np.where(balance.allowed, held, 0)
    if not held.any():
        fresh: Ints = balance.flow.copy()
        return fresh
    left = supply - np.bincount(topic_class, held, len(supply)).astype(np.int64)
    load = np.bincount(subscription_class, held, len(sizes)).astype(np.int64)
    room = np.where(balance.allowed, left[topic_class], 0)
    rest = ConvexFlow(left, sizes, topic_class, subscription_class, uncharged, base=load, limit=room)
    if wanted.any():
        rest.start_from(wanted)
    else:
        rest.water_fill()
    convex = ConvexFlow(supply, sizes, topic_class, subscription_class, uncharged, base=rest.load)
    convex.flow = rest.flow
    for added in (np.zeros(len(held), np.int64), held):
        convex.flow = convex.flow + added
        for ceiling in np.unique(balance.max_load).tolist():
            part = balance.max_load == ceiling
            convex.push_excess(part, ceiling * sizes)
            convex.push_excess(part, (ceiling - 1) * sizes)
    return convex.flow


class ConvexFlow:
    """Flows on class pairs, and the loads that result."""

    def __init__(
        self,
        supply: Ints,
        sizes: Ints,
        topic_class: Ints,
        subscription_class: Ints,
        charge: Charge,
        *,
        base: Ints | None = None,
        limit: Ints | None = None,
    ) -> None:
        # As for `compute_balance`. `base` is load that is no part of the flow, `limit` bounds the flow of each pair.
        self._supply, self._sizes, self._topic_class, self._subscription_class = (
            supply,
            sizes,
            topic_class,
            subscription_class,
        )
        self._charge = charge
        self._limit = supply[topic_class] if limit is None else limit
        self.first = topic_class.searchsorted(np.arange(len(supply)))
        self._end = np.append(self.first[1:], len(topic_class))
        self.flow = np.zeros(len(topic_class), np.int64)
        self.load = np.zeros(len(sizes), np.int64) if base is None else base.copy()

    def start_from(self, held: Ints) -> None:
        """Begin with these flows, as far as supply and limits allow, and assign the rest to any pair with room."""
        flow = np.minimum(held, self._limit)
        room = self._supply[self._topic_class]
        # Of too many the first ones are held, and of the rest the first ones that have room.
        flow = np.clip(room - self._before(flow), 0, flow)
        left = self._limit - flow
        rest = (self._supply - np.bincount(self._topic_class, flow, len(self._supply)).astype(np.int64))[
            self._topic_class
        ]
        self.flow = flow + np.clip(rest - self._before(left), 0, left)
        self.load = self.load + np.bincount(self._subscription_class, self.flow, len(self.load)).astype(np.int64)

    def _before(self, amount: Ints) -> Ints:
        """Return for each pair the sum of an amount over the pairs of its topic class in front of it."""
        before = amount.cumsum() - amount
        sums: Ints = before - before[self.first[self._topic_class]]
        return sums

    def balance(self, *, fill: bool = True) -> Ints:
        """Compute flows of optimal balance, from present ones unless `fill`; return subscription classes' ceilings."""
        if fill:
            self.water_fill()
        ceiling = np.zeros(len(self._sizes), np.int64)
        parts = [np.ones(len(self._sizes), bool)] if len(self._sizes) else []
        while parts:
            part = parts.pop()
            mean = -(-int(self.load[part].sum()) // int(self._sizes[part].sum()))
            level = max(1, mean)
            above = self.push_excess(part, level * self._sizes)
            if not above.any():
                above = self.push_excess(part, (level - 1) * self._sizes)
                if not (part & ~above & (self.load < (level - 1) * self._sizes)).any():
                    ceiling[part] = level
                    continue
            # Neither is empty: the mean is between the means of the two.
            parts += [above, part & ~above]
        return ceiling

    def water_fill(self) -> None:
        """Spread each topic class over its subscription classes as evenly as the load of the others allows."""
        # Topic classes with few readers first: they have the least choice.
        readers = (
            np.add.reduceat(self._sizes[self._subscription_class], self.first) if len(self._topic_class) else self.first
        )
        order = readers.argsort(kind="stable")
        # Those that one subscription class reads have none at all, and there may be thousands of them.
        fixed = self._end - self.first == 1
        self._charge(len(order))
        pairs = self.first[fixed]
        more = self._supply[fixed] - self.flow[pairs]
        self.flow[pairs] += more
        self.load += np.bincount(self._subscription_class[pairs], more, len(self.load)).astype(np.int64)
        order = order[~fixed[order]]
        for _ in range(_POURINGS):
            changed = False
            for f in order.tolist():
                pairs = slice(int(self.first[f]), int(self._end[f]))
                self._charge(_ARCS_OF_A_POURING + pairs.stop - pairs.start)
                subscription_classes = self._subscription_class[pairs]
                load_of_others = self.load[subscription_classes] - self.flow[pairs]
                filled = _fill_limited(
                    int(self._supply[f]), load_of_others, self._sizes[subscription_classes], self._limit[pairs]
                )
                if not np.array_equal(filled, self.flow[pairs]):
                    changed = True
                    self.flow[pairs] = filled
                    self.load[subscription_classes] = load_of_others + filled
            if not changed or len(order) <= 1:
                break

    def push_excess(self, active: Bools, limit: Ints) -> Bools:
        """Move the excess above the limit of active subscription classes to those below their limit.

        An exchange takes a partition from one subscription class and gives it to another one that reads it too. In the
        flow these are two arcs: one into the row of the topic class, and one out of it. Returned are the subscription
        classes that stay above, with all that they could exchange partitions with.
        """
        classes = len(self.load)
        # Topic classes pass partitions on, and have neither excess nor deficit.
        passed_on = np.zeros(len(self._supply), np.int64)
        receivers = active[self._subscription_class].nonzero()[0]
        while True:
            self._charge(len(self.flow) // 4)
            excess = np.where(active, self.load - limit, 0)
            if not (excess > 0).any():
                return np.zeros(classes, bool)
            give = self.flow.nonzero()[0]
            take = receivers[self.flow[receivers] < self._limit[receivers]]
            tail = np.concatenate([self._subscription_class[give], classes + self._topic_class[take]])
            head = np.concatenate([classes + self._topic_class[give], self._subscription_class[take]])
            over = np.concatenate([excess, passed_on])
            depth = depths(tail, head, over > 0, self._charge)
            if not ((depth >= 0) & (over < 0)).any():
                return depth[:classes] >= 0
            room = np.concatenate([self.flow[give], self._limit[take] - self.flow[take]])
            moved, left = blocking_flow((tail, head), depth, room, over, self._charge)
            self.flow[give] -= moved[: len(give)]
            self.flow[take] += moved[len(give) :]
            self.load += left[:classes] - excess


def _fill_limited(amount: int, base: Ints, sizes: Ints, limit: Ints) -> Ints:
    """Distribute an amount as `_fill` does, with an upper bound for each subscription class."""
    filled = np.zeros(len(base), np.int64)
    left = np.arange(len(base))
    while len(left):
        share = _fill(amount, base[left], sizes[left])
        full = share >= limit[left]
        if not (share > limit[left]).any():
            filled[left] = share
            break
        # The level of the others only rises when these get less, so these stay full.
        filled[left[full]] = limit[left[full]]
        amount -= int(limit[left[full]].sum())
        left = left[~full]
    return filled


def _fill(amount: int, base: Ints, sizes: Ints) -> Ints:
    """Distribute an amount over subscription classes with loads `base`, to as equal loads per member as possible."""
    if len(base) == 1:
        return np.asarray([amount], np.int64)
    order = (base / sizes).argsort(kind="stable")
    b, k = base[order], sizes[order]
    held, members = b.cumsum(), k.cumsum()
    level = (amount + held) / members
    # The first class at which the level is no higher than the base of the next class.
    fits = level[:-1] <= (b / k)[1:]
    last = int(fits.argmax()) if fits.any() else len(b) - 1
    whole = int((amount + int(held[last])) // int(members[last]))
    filled = np.zeros(len(b), np.int64)
    filled[: last + 1] = np.maximum(0, whole * k[: last + 1] - b[: last + 1])
    rest = amount - int(filled.sum())
    room = np.maximum(0, (whole + 1) * k[: last + 1] - b[: last + 1] - filled[: last + 1])
    more = np.minimum(np.maximum(rest - (room.cumsum() - room), 0), room)
    filled[: last + 1] += more
    # If two levels are equal except for rounding, `last` may be one too small.
    filled[0] += rest - int(more.sum())
    out = np.empty_like(filled)
    out[order] = filled
    return out


@dataclass(frozen=True, slots=True)
class TopicBalance:
    """Description of all assignments that balance each topic class, and then the totals."""

    # For each class pair the least and the greatest number of partitions of the topic class that a member may have.
    low: Ints
    high: Ints
    # For each subscription class the larger of the two loads that its members may have.
    max_load: Ints
    # For each topic class what all its readers have, and for each class pair the extras in one such assignment.
    whole: Ints
    extras: Ints


def compute_topic_balance(
    supply: Ints,
    sizes: Ints,
    topic_class: Ints,
    subscription_class: Ints,
    charge: Charge,
    *,
    held: Ints | None = None,
) -> TopicBalance:
    # As for `compute_balance`. `held` of a pair's members would keep an extra; `extras` changes as little as possible.
    size = sizes[subscription_class]
    readers = np.bincount(topic_class, size, len(supply)).astype(np.int64)
    whole, extras = np.divmod(supply, readers)
    base = np.bincount(subscription_class, whole[topic_class] * size, len(sizes)).astype(np.int64)
    convex = ConvexFlow(extras, sizes, topic_class, subscription_class, charge, base=base, limit=size)
    if held is not None:
        convex.start_from(held)
    ceiling = convex.balance(fill=held is None)
    below, within = _room(ceiling[subscription_class], topic_class, size)
    # Extras of the topic class that its readers at lower ceilings do not take, and at this ceiling do.
    reached = below < extras[topic_class]
    exceeded = below + within <= extras[topic_class]
    low = whole[topic_class]
    return TopicBalance(low + exceeded, low + reached, ceiling, whole, convex.flow)


def _room(ceiling: Ints, topic_class: Ints, size: Ints) -> tuple[Ints, Ints]:
    """Return for each pair how many readers its topic class has at lower ceilings, and at the ceiling of the pair."""
    order = np.lexsort((ceiling, topic_class))
    key = np.stack([topic_class[order], ceiling[order]], axis=1)
    starts = np.any(np.diff(key, axis=0, prepend=-1) != 0, axis=1).nonzero()[0]
    group = np.zeros(len(order), np.int64)
    group[starts] = 1
    group = group.cumsum() - 1
    room = np.bincount(group, size[order]).astype(np.int64)
    before = room.cumsum() - room
    first = topic_class[order][starts].searchsorted(np.arange(len(np.unique(topic_class))))
    before -= before[first][topic_class[order][starts]]
    below, within = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    below[order], within[order] = before[group], room[group]
    return below, within
