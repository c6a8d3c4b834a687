"""Relief of overloaded members with the least weight moved.

Theory
------
A member is overloaded if its load is above its limit. What leaves an overloaded member weighs at least its excess. So
the sum of what has to leave each of them is a lower bound of the weight that moves, and the moves of `relieve` are
compared with it.

`relieve` takes the most overloaded member first. While its excess is that of many partitions, it gives away the
heaviest (`_give_many`). Then it gives away partitions that together weigh at least the excess, and as little more as
possible (`_cover`), each to the cheapest reader with capacity. Where none has capacity, it swaps, and where no swap
helps, it packs several members again (`weighted_repack`).
Partitions that are not with an owner move for nothing, and are given away first.

`least_moves` is exact. It branches on one partition of the most overloaded member: it stays, or it goes to one of its
readers. A partition moves once. Branches whose moves and excesses weigh as much as the best result are cut. It is for
small groups: beyond a number of branches the best result is used, and its lower bound is that of the first excesses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.problem import NO_MEMBER
from rackassign.solver.types import Bools, Floats, Ints
from rackassign.solver.weighted_instance import ROUNDING, STARVED, WeightedInstance, moved_weight
from rackassign.solver.weighted_loads import ARCS_OF_A_LOOK, ARCS_OF_A_PAIR, Loads
from rackassign.solver.weighted_repack import repack

_BRANCHES = 6_000
"""Number of branches of `least_moves`."""

_SMALL = 400
"""Number of partitions times readers of a group that `least_moves` is used for."""

_CLOSE = 1.1
"""Ratio of moves to their lower bound that is not worth a search."""

_MOST_SUMS = 2_000
"""Number of sums of partitions that are compared to find the least that is sufficient."""

_MANY = 16
"""How many of the heaviest partitions have to leave at least, so that it does not matter yet which of them do."""

_ARCS_OF_A_SUM = 5
"""How many, in the time that it takes to add a partition to a sum of partitions."""

_STEPS_TO_FEED = 8_000
"""Limit of the steps of `fed`."""

_FED = 0.75
"""Share of its even level up to which a starved member gets partitions."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Limits of loads.

    Args:
        base: Limit of each member, before it is multiplied by a factor.
        trigger: Factor above which a member is overloaded.
        factor: Factor to which it is relieved, and to which other members may be filled.
    """

    base: Floats
    trigger: float
    factor: float


def relieve(
    ground: WeightedInstance, reader: Ints, owner: Ints, goal: Goal, *, movable: Bools | None = None
) -> Ints | None:
    """Return the assignment with all overloaded members relieved; None if some cannot be.

    Args:
        ground: Members and partitions.
        reader: Member of each partition.
        owner: Owner of each partition; moving partitions that are not with their owner moves nothing.
        goal: Limits.
        movable: Partitions that may be moved; all if omitted. With it, what cannot be relieved stays.
    """
    loads = Loads(ground, reader, owner, goal.base)
    over = np.flatnonzero(loads.excess(goal.trigger) > 0)
    for member in over[np.lexsort((over, -loads.excess(goal.trigger)[over]))].tolist():
        _give_many(loads, member, goal, movable)
        while loads.excess(goal.factor)[member] > 0:
            if not loads.ended(movable) and (
                _give(loads, member, goal, movable) or _swap(loads, member, goal, movable)
            ):
                continue
            if movable is None and not repack(loads, member, goal.base * goal.factor):
                return None
            break
    return np.asarray(loads.reader, np.int64)


def _give_many(loads: Loads, member: int, goal: Goal, movable: Bools | None) -> None:
    """Give away the heaviest partitions that fit elsewhere, while many have to leave whichever they are."""
    for partition in sorted(loads.held(member, movable), key=lambda p: (bool(loads.price(p)), -loads.weight[p], p)):
        if float(loads.excess(goal.factor)[member]) <= _MANY * loads.weight[partition] or loads.ended(movable):
            return
        taker = _taker(loads, partition, goal)
        if taker is not None:
            loads.move(partition, taker)


def _taker(loads: Loads, partition: int, goal: Goal) -> int | None:
    """Return the cheapest other reader with capacity for a partition; None if there is none."""
    others = loads.others(partition)
    room = loads.room(partition, others, goal.factor)
    if not len(others) or room.max() < 0:
        return None
    return int(others[np.lexsort((-room, loads.costs(partition, others), room < 0))[0]])


def _give(loads: Loads, member: int, goal: Goal, movable: Bools | None) -> bool:
    """Give away the first of the partitions that cover the excess and fit elsewhere."""
    fits: dict[int, int] = {}
    for partition in loads.held(member, movable):
        if loads.ended(movable):
            return False
        taker = _taker(loads, partition, goal)
        if taker is not None:
            fits[partition] = taker
    free = sorted((p for p in fits if not loads.price(p)), key=lambda p: (-loads.weight[p], p))
    owned = [p for p in fits if loads.price(p)]
    need = float(loads.excess(goal.factor)[member])
    chosen = _cover([(loads.weight[p], p) for p in (free or owned)], need, loads, movable)
    if chosen is None:
        return False
    loads.move(chosen, fits[chosen])
    return True


def _cover(weights: list[tuple[float, int]], need: float, loads: Loads, movable: Bools | None) -> int | None:
    """Return the heaviest of the partitions that together weigh the least that is sufficient; the heaviest if none do.

    Args:
        weights: Weight of each partition, and the partition.
        need: Weight that is needed.
        loads: The assignment, from whose budget the steps used are deducted; after its end the best so far is returned.
        movable: As for `relieve`.
    """
    if not weights:
        return None
    # The least sufficient sum, by all sums below the need while there are few, and then by some.
    sums: dict[float, int] = {0.0: NO_MEMBER}
    best: tuple[float, int] | None = None
    for weight, partition in sorted(weights, key=lambda each: (-each[0], each[1])):
        if loads.ended(movable):
            break
        loads.ground.work.spend_part(_ARCS_OF_A_SUM * len(sums))
        for before, first in sorted(sums.items()):
            found = before + weight, partition if first == NO_MEMBER else first
            if found[0] < need:
                if len(sums) < _MOST_SUMS:
                    sums.setdefault(*found)
            elif best is None or found[0] < best[0]:
                best = found
    return max(weights, key=lambda each: (each[0], -each[1]))[1] if best is None else best[1]


def _swap(loads: Loads, member: int, goal: Goal, movable: Bools | None) -> bool:
    """Swap one partition for a lighter one of another member that is not overloaded by it, for the least moves."""
    need = float(loads.excess(goal.factor)[member])
    own_class = int(loads.ground.problem.subscription_class[member])
    best: tuple[tuple[float, float, int, int], int] | None = None
    for give in loads.held(member, movable):
        if loads.ended(movable):
            break
        others = loads.others(give)
        short = -loads.room(give, others, goal.factor)
        # The members with the most capacity are sufficient.
        for other in others[np.lexsort((others, short))[:8]].tolist():
            lacks = -float(loads.room(give, np.asarray([other]), goal.factor)[0])
            loads.ground.work.spend_part(ARCS_OF_A_PAIR * len(loads.has[other]))
            for take in loads.has[other]:
                less = loads.weight[give] - loads.weight[take]
                if (
                    loads.weight[take] < lacks
                    or less <= need * ROUNDING
                    or not loads.ground.reads[loads.topic_class[take], own_class]
                    or (movable is not None and not movable[take])
                ):
                    continue
                price = loads.price(give) + loads.price(take)
                score = price / min(less, need), price, give, take
                if best is None or score < best[0]:
                    best = score, other
    if best is None:
        return False
    (_, _, give, take), other = best
    loads.move(give, other)
    loads.move(take, member)
    return True


def least_moves(ground: WeightedInstance, reader: Ints, owner: Ints, goal: Goal) -> tuple[Ints | None, float]:
    """Return the assignment with all members within their limits that moves the least weight, and a lower bound of it.

    Args:
        ground: Members and partitions.
        reader: Member of each partition.
        owner: Owner of each partition.
        goal: Limits.
    """
    loads = Loads(ground, reader, owner, goal.base)
    excess = loads.excess(goal.factor)
    bound = sum(
        _least_sum([loads.price(p) for p in loads.has[member]], float(excess[member]))
        for member in np.flatnonzero(excess > 0).tolist()
    )
    found = relieve(ground, reader, owner, goal)
    moved = float("inf") if found is None else moved_weight(ground.weight, owner, found)
    if moved <= bound * _CLOSE or len(reader) * len(ground.level) > _SMALL:
        return found, bound
    search = _Search(loads, goal, moved)
    search.run(0.0)
    if search.best is not None:
        found = np.asarray(search.best, np.int64)
    return found, search.moved if search.branches < _BRANCHES and found is not None else bound


def _least_sum(weights: list[float], need: float) -> float:
    """Return the least sum of some of these weights that is sufficient, or a lower bound of it."""
    if sum(weights) < need:
        # Unowned partitions are among what leaves, and move for nothing.
        return 0.0
    sums = {0.0}
    best = float("inf")
    for weight in sorted(weights, reverse=True):
        more = [total + weight for total in sums]
        best = min([best, *(total for total in more if total >= need)])
        sums.update(total for total in more if total < need)
        if len(sums) > _MOST_SUMS:
            return need
    return best


class _Search:
    """Branch and bound of `least_moves`."""

    def __init__(self, loads: Loads, goal: Goal, moved: float) -> None:
        self._loads, self._factor, self.moved = loads, goal.factor, moved
        self.best: list[int] | None = None
        self.branches = 0
        self._fixed: set[int] = set()

    def run(self, moved: float) -> None:
        """Search below an assignment that moves this weight."""
        self.branches += 1
        loads = self._loads
        excess = loads.excess(self._factor)
        rest = float(excess[excess > 0].sum())
        if self.branches >= _BRANCHES or loads.ground.work.end() or (moved + rest) * (1 + ROUNDING) >= self.moved:
            return
        if rest <= 0:
            self.moved, self.best = moved, list(loads.reader)
            return
        member = int(np.argmax(excess))
        free = [p for p in loads.has[member] if p not in self._fixed and loads.weight[p]]
        need = float(excess[member])
        if sum(loads.weight[p] for p in free) < need:
            return
        # First the lightest that is sufficient, or the heaviest.
        chosen = min(free, key=lambda p: (loads.weight[p] < need, abs(loads.weight[p] - need), p))
        self._fixed.add(chosen)
        price = loads.price(chosen)
        others = loads.others(chosen)
        room = loads.room(chosen, others, self._factor)
        for other in others[np.lexsort((-room, loads.costs(chosen, others), room < 0))].tolist():
            loads.move(chosen, other)
            self.run(moved + price)
            loads.move(chosen, member)
        self.run(moved)
        self._fixed.discard(chosen)


def fed(ground: WeightedInstance, reader: Ints, owner: Ints, goal: Goal) -> Ints:
    """Return the assignment with partitions for members that have less than half of their level.

    Each of them gets partitions of the fullest members until it has three quarters of its level, as long as the giver
    has more than the member that takes, by the tolerance. This has a budget of its own, since without it a member that
    joins may get nothing.

    Args:
        ground: Members and partitions.
        reader: Member of each partition.
        owner: Owner of each partition.
        goal: Limits.
    """
    loads, before = Loads(ground, reader, owner, goal.base), ground.work.left
    for member in np.flatnonzero(loads.load < ground.even_level * STARVED).tolist():
        while loads.load[member] < ground.even_level[member] * _FED:
            if ground.work.late() or before - ground.work.left > _STEPS_TO_FEED:
                return np.asarray(loads.reader, np.int64)
            gift = _gift(loads, member, ground.even_level[member])
            if gift is None:
                break
            loads.move(gift, member)
    return np.asarray(loads.reader, np.int64)


def starved(ground: WeightedInstance, reader: Ints) -> int:
    """Return how many members have less than half of their level and could get a partition of a fuller member.

    After the deadline all of them count.
    """
    hungry = np.flatnonzero(ground.loads(reader) < ground.even_level * STARVED).tolist()
    if not hungry:
        return 0
    loads = Loads(ground, reader, reader, ground.even_level)
    return sum(ground.work.late() or _gift(loads, member, ground.even_level[member]) is not None for member in hungry)


def _gift(loads: Loads, member: int, level: float) -> int | None:
    """Return the partition that this member should get from a fuller one, if there is one."""
    ground = loads.ground
    own_class = int(ground.problem.subscription_class[member])
    ground.work.spend_part(ARCS_OF_A_LOOK + len(loads.load))
    for giver in np.lexsort((np.arange(len(loads.load)), -loads.load)).tolist():
        if loads.load[giver] <= loads.load[member] * (1 + ground.tolerance):
            return None
        ground.work.spend_part(ARCS_OF_A_PAIR * len(loads.has[giver]))
        held = np.fromiter(loads.has[giver], np.int64, len(loads.has[giver]))
        weight, after = ground.weight[held], loads.load[member] + ground.weight[held]
        fitting = (
            (weight > 0)
            & ground.reads[ground.problem.topic_class[held], own_class]
            & (after * (1 + ground.tolerance) < loads.load[giver])
            & (loads.load[giver] - weight >= ground.even_level[giver] * STARVED)
        )
        if fitting.any():
            # The cheapest, then the heaviest that fits.
            gifts, weight, above = held[fitting], weight[fitting], after[fitting] > level
            problem = ground.problem
            costs = problem.cost[problem.cost_row[gifts], problem.rack[member]]
            return int(gifts[np.lexsort((gifts, -weight, above, costs))[0]])
    return None
