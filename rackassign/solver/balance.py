"""The balance of a group: how full each member must be, before anybody asks where it stands.

Rules: this file knows families of partitions (those with one set of readers), crowds of members (those with one
subscription), and how many there are of each. It knows no racks, no owners and no solver.

Theory
------
The loads that are lexicographically least, sorted from large to small, are those with the least sum of squares
(dec-min = square-sum for M-convex sets; Frank and Murota, "Decreasing minimization on M-convex sets", 2022). A
member's k-th partition costs 2k - 1, and a family sends what it has to the cheapest members it may.

Their canonical partition says more: crowds fall into *parts*, each with one ceiling. In every optimal assignment
all members of a part hold `max_load` or `ceiling - 1`, and a family never reaches above the lowest ceiling among
its readers. The other way round, every assignment that keeps to both is optimal. So two numbers per crowd and a
mask over family-crowd pairs describe all optimal assignments at once, and whatever comes later, racks and owners,
is free to choose within them.

How it is found: families are poured over their crowds like water, a few times over, which is nearly always right
already. Then, starting with all crowds as one part: what stands above the part's mean, rounded up, is drained into
what stands below, as a maximum flow. If something must stay above, it and all it could exchange with is a part of
its own, and the rest another. The same one lower, from the other side. A part that splits no more is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rackassign.solver.types import Bools, Ints

_POURINGS = 8


@dataclass(frozen=True, slots=True)
class BalanceConstraints:
    """All assignments of least balance, described.

    Args:
        max_load: For each crowd the larger of the two loads its members may have.
        allowed: For each family-crowd pair whether a partition of the family may be in the crowd.
    """

    max_load: Ints
    allowed: Bools


def compute_balance(supply: Ints, sizes: Ints, family: Ints, crowd: Ints) -> BalanceConstraints:
    """Find the loads of least balance.

    Args:
        supply: Partitions of each family.
        sizes: Members of each crowd, 1 or more.
        family: Family of each pair, ascending; every family has a pair.
        crowd: Crowd of each pair.
    """
    water = _ConvexFlow(supply, sizes, family, crowd)
    water.pour()
    ceiling = np.zeros(len(sizes), np.int64)
    parts = [np.ones(len(sizes), bool)] if len(sizes) else []
    while parts:
        part = parts.pop()
        mean = -(-int(water.load[part].sum()) // int(sizes[part].sum()))
        level = max(1, mean)
        above = water.drain(part, level * sizes)
        if not above.any():
            above = water.drain(part, (level - 1) * sizes)
            if not (part & ~above & (water.load < (level - 1) * sizes)).any():
                ceiling[part] = level
                continue
        # Neither is empty: the mean lies between what both would have.
        parts += [above, part & ~above]
    lowest = np.minimum.reduceat(ceiling[crowd], water.first) if len(family) else ceiling[:0]
    return BalanceConstraints(ceiling, ceiling[crowd] == lowest[family])


def stickiest_flow(
    balance: BalanceConstraints, pairs: tuple[Ints, Ints], supply: Ints, sizes: Ints, held: Ints
) -> Ints:
    """Return flows of the same balance that keep as much of what is held as draining one crowd after the other does.

    What nobody holds is moved first. If that is enough, all that is held stays.

    Args:
        balance: What to keep to.
        pairs: Families and crowds, as for `compute_balance`.
        supply: As for `compute_balance`.
        sizes: The same.
        held: For each pair how many partitions of the family the crowd holds.
    """
    family, crowd = pairs
    water = _ConvexFlow(supply, sizes, family, crowd)
    held = np.where(balance.allowed, held, 0)
    left = supply - np.bincount(family, held, len(supply)).astype(np.int64)
    # The rest goes anywhere it may, and from there where there is room.
    allowed = np.flatnonzero(balance.allowed)
    water.flow[allowed[np.searchsorted(family[allowed], np.arange(len(supply)))]] = left
    water.load = np.bincount(crowd, water.flow + held, len(sizes)).astype(np.int64)
    for added in (np.zeros(len(held), np.int64), held):
        water.flow = water.flow + added
        for ceiling in np.unique(balance.max_load).tolist():
            part = balance.max_load == ceiling
            water.drain(part, ceiling * sizes)
            water.drain(part, (ceiling - 1) * sizes)
    return water.flow


class _ConvexFlow:
    """Flows on family-crowd pairs, and the loads they make."""

    def __init__(self, supply: Ints, sizes: Ints, family: Ints, crowd: Ints) -> None:
        self._supply, self._sizes, self._family, self._crowd = supply, sizes, family, crowd
        self.first = np.searchsorted(family, np.arange(len(supply)))
        self._end = np.append(self.first[1:], len(family))
        self.flow = np.zeros(len(family), np.int64)
        self.load = np.zeros(len(sizes), np.int64)

    def pour(self) -> None:
        """Spread each family over its crowds as evenly as what the others have left there allows."""
        # Families with few readers first: they have the least choice.
        readers = np.add.reduceat(self._sizes[self._crowd], self.first) if len(self._family) else self.first
        order = np.argsort(readers, kind="stable")
        for _ in range(_POURINGS):
            changed = False
            for f in order.tolist():
                pairs = slice(int(self.first[f]), int(self._end[f]))
                crowds = self._crowd[pairs]
                others = self.load[crowds] - self.flow[pairs]
                poured = _fill(int(self._supply[f]), others, self._sizes[crowds])
                if not np.array_equal(poured, self.flow[pairs]):
                    changed = True
                    self.flow[pairs] = poured
                    self.load[crowds] = others + poured
            if not changed or len(order) == 1:
                break

    def drain(self, active: Bools, brim: Ints) -> Bools:
        """Move what stands above the brim of active crowds to those below theirs.

        Returns:
            The crowds that stay above, with all that they could exchange partitions with.
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
        """Return how many exchanges each active crowd is away from the sources, -1 if out of reach."""
        depth = np.where(sources, 0, -1)
        seen = np.zeros(len(self._supply), bool)
        frontier = sources
        step = 0
        while frontier.any():
            step += 1
            touched = np.zeros(len(self._supply), bool)
            touched[self._family[frontier[self._crowd] & (self.flow > 0)]] = True
            touched &= ~seen
            seen |= touched
            reached = np.zeros(len(depth), bool)
            reached[self._crowd[touched[self._family]]] = True
            frontier = reached & (depth < 0) & active
            depth[frontier] = step
        return depth

    def _push(self, depth: Ints, excess: Ints) -> None:
        """Push a blocking flow along exchanges that lead one step deeper (Dinic)."""
        pushed = _BlockingFlow(depth, excess, self._family, self._crowd, self.flow)
        pushed.push()
        self.flow = np.asarray(pushed.flow, np.int64)
        self.load += np.asarray(pushed.room, np.int64) - excess


class _BlockingFlow:
    """One phase of Dinic's algorithm: a walk down the depths, in which no dead end is entered twice.

    An exchange takes a partition from a pair of one crowd and gives it to a pair of the same family one deeper.

    Args:
        depth: Of each crowd, -1 if out of reach.
        room: How much each crowd stands above its brim; below 0, how much it can take.
        family: Of each pair, ascending.
        crowd: Of each pair.
        flow: Of each pair.
    """

    def __init__(self, depth: Ints, room: Ints, family: Ints, crowd: Ints, flow: Ints) -> None:
        self.flow: list[int] = flow.tolist()
        self.room: list[int] = room.tolist()
        self._depth: list[int] = depth.tolist()
        self._family: list[int] = family.tolist()
        self._crowd: list[int] = crowd.tolist()
        self._pairs: dict[int, list[int]] = {}
        self._givers: dict[int, list[int]] = {}
        for pair, (f, c) in enumerate(zip(self._family, self._crowd, strict=True)):
            self._pairs.setdefault(f, []).append(pair)
            if self.flow[pair] and self._depth[c] >= 0:
                self._givers.setdefault(c, []).append(pair)
        self._exchanges: dict[int, Iterator[tuple[int, int]]] = {}
        self._next: dict[int, tuple[int, int] | None] = {}

    def push(self) -> None:
        """Move as much as paths of this depth can."""
        for source in [crowd for crowd, above in enumerate(self.room) if above > 0]:
            while self.room[source] > 0 and self._descend(source):
                pass

    def _descend(self, source: int) -> bool:
        """Find one path from the source to a crowd with room and push along it."""
        path: list[tuple[int, int]] = []
        at = source
        while self.room[at] >= 0:
            exchange = self._current(at)
            if exchange is not None:
                path.append(exchange)
                at = self._crowd[exchange[1]]
            elif path:
                # A dead end: never come here again.
                at = self._crowd[path.pop()[0]]
                self._advance(at)
            else:
                return False
        amount = min(self.room[source], -self.room[at], *(self.flow[pair] for pair, _ in path))
        for pair, to in path:
            self.flow[pair] -= amount
            self.flow[to] += amount
        self.room[source] -= amount
        self.room[at] += amount
        return True

    def _current(self, crowd: int) -> tuple[int, int] | None:
        """Return the exchange to try next; one whose giver has run dry is done with."""
        if crowd not in self._exchanges:
            self._exchanges[crowd] = self._out_of(crowd)
            self._advance(crowd)
        while (exchange := self._next[crowd]) is not None and not self.flow[exchange[0]]:
            self._advance(crowd)
        return exchange

    def _advance(self, crowd: int) -> None:
        self._next[crowd] = next(self._exchanges[crowd], None)

    def _out_of(self, crowd: int) -> Iterator[tuple[int, int]]:
        deeper = self._depth[crowd] + 1
        for pair in self._givers.get(crowd, ()):
            for to in self._pairs[self._family[pair]]:
                if self._depth[self._crowd[to]] == deeper:
                    yield pair, to


def _fill(amount: int, base: Ints, sizes: Ints) -> Ints:
    """Pour an amount over crowds that hold `base`, to one level of load per member as nearly as it goes."""
    if len(base) == 1:
        return np.asarray([amount], np.int64)
    order = np.lexsort((np.arange(len(base)), base / sizes))
    b, k = base[order], sizes[order]
    held, members = np.cumsum(b), np.cumsum(k)
    level = (amount + held) / members
    # The first crowd at which the water stands no higher than the next crowd's floor.
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
    # Where two levels are equal but for rounding, `last` may be one short.
    poured[0] += rest
    out = np.empty_like(poured)
    out[order] = poured
    return out
