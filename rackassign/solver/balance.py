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

Algorithm: each topic class is distributed over its subscription classes by water-filling, a few times over. The result
is nearly always optimal already. Then, starting with all subscription classes as one part, the excess above the part's
mean, rounded up, is moved to the classes below it, as a maximum flow. Classes that must stay above the mean, with all
that they could exchange partitions with, become a part of their own, and the rest another part. Then the mean rounded
down is used in the same way from below. A part that is not split any further is final.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rackassign.solver.types import Bools, Ints

_POURINGS = 8


@dataclass(frozen=True, slots=True)
class BalanceConstraints:
    """Description of all assignments of optimal balance.

    Args:
        max_load: For each subscription class the larger of the two loads that its members may have.
        allowed: For each class pair whether partitions of the topic class may be assigned to the subscription class.
    """

    max_load: Ints
    allowed: Bools


def compute_balance(supply: Ints, sizes: Ints, topic_class: Ints, subscription_class: Ints) -> BalanceConstraints:
    """Compute the loads of optimal balance.

    Args:
        supply: Number of partitions of each topic class.
        sizes: Number of members of each subscription class, 1 or more.
        topic_class: Topic class of each pair, ascending; every topic class has a pair.
        subscription_class: Subscription class of each pair.
    """
    water = ConvexFlow(supply, sizes, topic_class, subscription_class)
    ceiling = water.balance()
    lowest = np.minimum.reduceat(ceiling[subscription_class], water.first) if len(topic_class) else ceiling[:0]
    return BalanceConstraints(ceiling, ceiling[subscription_class] == lowest[topic_class])


def stickiest_flow(
    balance: BalanceConstraints, pairs: tuple[Ints, Ints], supply: Ints, sizes: Ints, held: Ints
) -> Ints:
    """Return flows of equal balance that keep as many owned partitions as draining one class after the other does.

    Unowned partitions are moved first. If that is sufficient, all owned partitions stay.

    Args:
        balance: Constraints to satisfy.
        pairs: Topic classes and subscription classes, as for `compute_balance`.
        supply: As for `compute_balance`.
        sizes: As for `compute_balance`.
        held: For each pair the number of partitions of the topic class that the subscription class owns.
    """
    topic_class, subscription_class = pairs
    water = ConvexFlow(supply, sizes, topic_class, subscription_class)
    held = np.where(balance.allowed, held, 0)
    left = supply - np.bincount(topic_class, held, len(supply)).astype(np.int64)
    # The rest goes to any allowed class, and from there to one with capacity.
    allowed = np.flatnonzero(balance.allowed)
    water.flow[allowed[np.searchsorted(topic_class[allowed], np.arange(len(supply)))]] = left
    water.load = np.bincount(subscription_class, water.flow + held, len(sizes)).astype(np.int64)
    for added in (np.zeros(len(held), np.int64), held):
        water.flow = water.flow + added
        for ceiling in np.unique(balance.max_load).tolist():
            part = balance.max_load == ceiling
            water.drain(part, ceiling * sizes)
            water.drain(part, (ceiling - 1) * sizes)
    return water.flow


class ConvexFlow:
    """Flows on class pairs, and the loads that result.

    Args:
        supply: Number of partitions of each topic class.
        sizes: Number of members of each subscription class.
        topic_class: Topic class of each pair, ascending.
        subscription_class: Subscription class of each pair.
        base: Load of each subscription class that is not part of the flow.
        limit: Upper bound of the flow of each pair; none if omitted.
    """

    def __init__(
        self,
        supply: Ints,
        sizes: Ints,
        topic_class: Ints,
        subscription_class: Ints,
        *,
        base: Ints | None = None,
        limit: Ints | None = None,
    ) -> None:
        self._supply, self._sizes, self._topic_class, self._subscription_class = (
            supply,
            sizes,
            topic_class,
            subscription_class,
        )
        self._limit = supply[topic_class] if limit is None else limit
        self.first = np.searchsorted(topic_class, np.arange(len(supply)))
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
        before = np.cumsum(amount) - amount
        sums: Ints = before - before[self.first[self._topic_class]]
        return sums

    def balance(self, *, pour: bool = True) -> Ints:
        """Compute flows of optimal balance, and return the ceiling of each subscription class.

        Args:
            pour: False to keep the present flows as far as balance allows.
        """
        if pour:
            self.pour()
        ceiling = np.zeros(len(self._sizes), np.int64)
        parts = [np.ones(len(self._sizes), bool)] if len(self._sizes) else []
        while parts:
            part = parts.pop()
            mean = -(-int(self.load[part].sum()) // int(self._sizes[part].sum()))
            level = max(1, mean)
            above = self.drain(part, level * self._sizes)
            if not above.any():
                above = self.drain(part, (level - 1) * self._sizes)
                if not (part & ~above & (self.load < (level - 1) * self._sizes)).any():
                    ceiling[part] = level
                    continue
            # Neither is empty: the mean is between the means of the two.
            parts += [above, part & ~above]
        return ceiling

    def pour(self) -> None:
        """Spread each topic class over its subscription classes as evenly as the load of the others allows."""
        # Topic classes with few readers first: they have the least choice.
        readers = (
            np.add.reduceat(self._sizes[self._subscription_class], self.first) if len(self._topic_class) else self.first
        )
        order = np.argsort(readers, kind="stable")
        for _ in range(_POURINGS):
            changed = False
            for f in order.tolist():
                pairs = slice(int(self.first[f]), int(self._end[f]))
                subscription_classes = self._subscription_class[pairs]
                others = self.load[subscription_classes] - self.flow[pairs]
                poured = _fill_limited(
                    int(self._supply[f]), others, self._sizes[subscription_classes], self._limit[pairs]
                )
                if not np.array_equal(poured, self.flow[pairs]):
                    changed = True
                    self.flow[pairs] = poured
                    self.load[subscription_classes] = others + poured
            if not changed or len(order) == 1:
                break

    def drain(self, active: Bools, brim: Ints) -> Bools:
        """Move the excess above the limit of active subscription classes to those below their limit.

        Returns:
            The subscription classes that stay above, with all that they could exchange partitions with.
        """
        while True:
            excess = np.where(active, self.load - brim, 0)
            if not (excess > 0).any():
                return np.zeros(len(self.load), bool)
            depth = self._depths(active, excess > 0)
            if not (excess[depth >= 0] < 0).any():
                return depth >= 0
            self._push(depth, excess)

    def _depths(self, active: Bools, sources: Bools) -> Ints:
        """Return the number of exchanges from the sources to each active class, -1 if it cannot be reached."""
        depth = np.where(sources, 0, -1)
        seen = np.zeros(len(self._supply), bool)
        frontier = sources
        step = 0
        while frontier.any():
            step += 1
            touched = np.zeros(len(self._supply), bool)
            touched[self._topic_class[frontier[self._subscription_class] & (self.flow > 0)]] = True
            touched &= ~seen
            seen |= touched
            reached = np.zeros(len(depth), bool)
            reached[self._subscription_class[touched[self._topic_class] & (self.flow < self._limit)]] = True
            frontier = reached & (depth < 0) & active
            depth[frontier] = step
        return depth

    def _push(self, depth: Ints, excess: Ints) -> None:
        """Push a blocking flow along exchanges that lead one step deeper (Dinic)."""
        pushed = _BlockingFlow(
            depth, excess, self._topic_class, self._subscription_class, flow=self.flow, limit=self._limit
        )
        pushed.push()
        self.flow = np.asarray(pushed.flow, np.int64)
        self.load += np.asarray(pushed.excess, np.int64) - excess


class _BlockingFlow:
    """One phase of Dinic's algorithm: a search along increasing depths that enters no dead end twice.

    An exchange takes a partition from a pair of one subscription class and gives it to a pair of the same topic class
    one level deeper.

    Args:
        depth: Depth of each subscription class, -1 if it cannot be reached.
        excess: Excess of each subscription class above its limit; below 0, its remaining capacity.
        topic_class: Topic class of each pair, ascending.
        subscription_class: Subscription class of each pair.
        flow: Flow of each pair.
        limit: Upper bound of the flow of each pair.
    """

    def __init__(
        self, depth: Ints, excess: Ints, topic_class: Ints, subscription_class: Ints, *, flow: Ints, limit: Ints
    ) -> None:
        self.flow: list[int] = flow.tolist()
        self._limit: list[int] = limit.tolist()
        self.excess: list[int] = excess.tolist()
        self._depth: list[int] = depth.tolist()
        self._topic_class: list[int] = topic_class.tolist()
        self._subscription_class: list[int] = subscription_class.tolist()
        self._pairs: dict[int, list[int]] = {}
        self._givers: dict[int, list[int]] = {}
        for pair, (f, c) in enumerate(zip(self._topic_class, self._subscription_class, strict=True)):
            self._pairs.setdefault(f, []).append(pair)
            if self.flow[pair] and self._depth[c] >= 0:
                self._givers.setdefault(c, []).append(pair)
        self._exchanges: dict[int, Iterator[tuple[int, int]]] = {}
        self._next: dict[int, tuple[int, int] | None] = {}

    def push(self) -> None:
        """Move as many partitions as paths of this depth can."""
        for subscription_class in range(len(self.excess)):
            while self.excess[subscription_class] > 0 and self._descend(subscription_class):
                pass

    def _descend(self, source: int) -> bool:
        """Find one path from the source to a subscription class with capacity, and push along it."""
        path: list[tuple[int, int]] = []
        at = source
        while self.excess[at] >= 0:
            exchange = self._current(at)
            if exchange is not None:
                path.append(exchange)
                at = self._subscription_class[exchange[1]]
            elif path:
                # A dead end: never visit it again.
                at = self._subscription_class[path.pop()[0]]
                self._advance(at)
            else:
                return False
        amount = min(self.excess[source], -self.excess[at], *(self._possible(exchange) for exchange in path))
        for pair, to in path:
            self.flow[pair] -= amount
            self.flow[to] += amount
        self.excess[source] -= amount
        self.excess[at] += amount
        return True

    def _current(self, subscription_class: int) -> tuple[int, int] | None:
        """Return the exchange to try next; skip those for which nothing is left."""
        if subscription_class not in self._exchanges:
            self._exchanges[subscription_class] = self._out_of(subscription_class)
            self._advance(subscription_class)
        while (exchange := self._next[subscription_class]) is not None and not self._possible(exchange):
            self._advance(subscription_class)
        return exchange

    def _possible(self, exchange: tuple[int, int]) -> int:
        """Return how many partitions an exchange can move."""
        pair, to = exchange
        return min(self.flow[pair], self._limit[to] - self.flow[to])

    def _advance(self, subscription_class: int) -> None:
        self._next[subscription_class] = next(self._exchanges[subscription_class], None)

    def _out_of(self, subscription_class: int) -> Iterator[tuple[int, int]]:
        deeper = self._depth[subscription_class] + 1
        for pair in self._givers.get(subscription_class, ()):
            for to in self._pairs[self._topic_class[pair]]:
                if self._depth[self._subscription_class[to]] == deeper:
                    yield pair, to


def _fill_limited(amount: int, base: Ints, sizes: Ints, limit: Ints) -> Ints:
    """Distribute an amount as `_fill` does, with an upper bound for each subscription class."""
    poured = np.zeros(len(base), np.int64)
    left = np.arange(len(base))
    while len(left):
        share = _fill(amount, base[left], sizes[left])
        full = share >= limit[left]
        if not (share > limit[left]).any():
            poured[left] = share
            break
        # The level of the others only rises when these get less, so these stay full.
        poured[left[full]] = limit[left[full]]
        amount -= int(limit[left[full]].sum())
        left = left[~full]
    return poured


def _fill(amount: int, base: Ints, sizes: Ints) -> Ints:
    """Distribute an amount over subscription classes with loads `base`, to as equal loads per member as possible."""
    if len(base) == 1:
        return np.asarray([amount], np.int64)
    order = np.lexsort((np.arange(len(base)), base / sizes))
    b, k = base[order], sizes[order]
    held, members = np.cumsum(b), np.cumsum(k)
    level = (amount + held) / members
    # The first class at which the level is no higher than the base of the next class.
    fits = level[:-1] <= (b / k)[1:]
    last = int(np.argmax(fits)) if fits.any() else len(b) - 1
    whole = int((amount + int(held[last])) // int(members[last]))
    poured = np.zeros(len(b), np.int64)
    poured[: last + 1] = np.maximum(0, whole * k[: last + 1] - b[: last + 1])
    rest = amount - int(poured.sum())
    for i in range(last + 1):
        if rest <= 0:
            break
        more = min(rest, int(max(0, (whole + 1) * k[i] - b[i] - poured[i])))
        poured[i] += more
        rest -= more
    # If two levels are equal except for rounding, `last` may be one too small.
    poured[0] += rest
    out = np.empty_like(poured)
    out[order] = poured
    return out
