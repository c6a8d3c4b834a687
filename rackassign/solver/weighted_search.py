"""Searches for assignments of weighted partitions: repacking of a few members, relief with least moves, even loads.

Repacking
---------
The partitions of a few members are distributed again, where no single shift or swap makes loads more even.

With different subscriptions the heaviest member can often be relieved only if others change at the same time: its
partition fits where two lighter ones leave, and each of them fits somewhere else. So a set of members, the heaviest and
those it can exchange partitions with, is packed again: a depth-first search over their partitions, the heaviest first,
looks for an assignment among them with each load within its limit. The sets are pairs, then triples, then larger and
larger neighborhoods. Each search has a limit of nodes, and finds what there is if the set has few partitions.

Loads are compared in lexicographic order, as in `balance`: the heaviest load of all first. A member may get more as
long as it stays below the load that is relieved, whatever its level is; one with a heavier load gets nothing more.

Relief
------
Overloaded members are relieved with the least weight moved.

A member is overloaded if its load is above its limit. What leaves an overloaded member weighs at least its excess. So
the sum of what has to leave each of them is a lower bound of the weight that moves, and the moves of `relieve` are
compared with it.

`relieve` takes the most overloaded member first. Of an excess of many partitions it gives away the heaviest, and then
the partition or the two that together weigh at least the excess, and as little more as possible (`_give`), each to the
cheapest reader with capacity. Where none has capacity, it swaps, and where no swap helps, it packs several members
again.
Partitions that are not with an owner move for nothing, and are given away first.

Even loads
----------
A local search, for assignments without regard to owners: the fullest member gives partitions to another one, or swaps.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from rackassign.solver.network_flow import Bools, Floats, Ints
from rackassign.solver.problem import NO_MEMBER
from rackassign.solver.weighted_instance import (
    ARCS_OF_A_LOOK,
    ARCS_OF_A_PAIR,
    ROUNDING,
    STARVED,
    Loads,
    WeightedInstance,
)

_NODES = 500
"""Number of nodes of one search; more find hardly anything more."""

_MOST_PARTITIONS = 200
"""Number of partitions of a set of members; with more, shifts and swaps make loads even."""

_PAIRS = 12
_NEAR = 6
"""How many of the members with the most capacity are in pairs, and how many in triples."""

_LARGEST = 8
"""Number of members of the largest neighborhood."""

_REPACKED_ABOVE = 0.01
_REPACKED_OF_TOLERANCE = 0.2
"""Share of its bound by which a load may be above it without being relieved, or this part of the tolerance."""

_LEAST_STEP = 0.001
"""Share of the heaviest load by which it has to become less."""

_ROUNDS_PER_MEMBER = 8

_STEPS = 8_000
"""Limit of the steps of `with_repacking`."""

_READS_PER_ARC = 20
"""How many pairs of a topic class and a subscription class can be looked at in the time of an arc of a flow."""

_ARCS_OF_A_NODE = 300
"""How many arcs of a flow can be looked at in the time that a node of the search takes."""


def with_repacking(ground: WeightedInstance, reader: Ints) -> Ints:
    """Relieve the heaviest members as far as repacking of some can, in an assignment that disregards owners."""
    work, before = ground.work, ground.work.left
    enough = 1 + min(_REPACKED_ABOVE, ground.tolerance * _REPACKED_OF_TOLERANCE)
    loads = Loads(ground, reader, np.full(len(reader), NO_MEMBER), ground.bound * enough)
    part = np.unique(ground.level, return_inverse=True)[1]
    stuck = np.zeros(int(part.max()) + 1, bool)
    for _ in range(_ROUNDS_PER_MEMBER * len(part)):
        uneven = (loads.excess() > 0) & ~stuck[part]
        if not uneven.any() or before - work.left > _STEPS or work.end():
            break
        heaviest = int(np.argmax(np.where(uneven, loads.load, -np.inf)))
        below = float(loads.load[heaviest]) * (1 - _LEAST_STEP)
        moves = repack(loads, heaviest, np.full(len(part), below))
        stuck[part[[heaviest, *(member for _, member in moves)]]] = not moves
    return np.asarray(loads.reader, np.int64)


def repack(loads: Loads, member: int, limit: Floats) -> list[tuple[int, int]]:
    """Move partitions so that this member is within its limit; return the moves, or nothing if none were found."""
    # Another member that is above its limit may stay there, and gets no heavier.
    least, limit = limit[member], np.maximum(limit, loads.load)
    limit[member] = least
    for members in _sets(loads, member, limit):
        if loads.ground.work.end():
            break
        moves = _Packing(loads, members, limit).moves()
        if moves:
            for partition, receiver in moves:
                loads.move(partition, receiver)
            return moves
    return []


def _sets(loads: Loads, member: int, limit: Floats) -> Iterator[tuple[int, ...]]:
    """Yield sets of members that could exchange partitions with this one, smaller ones first."""
    near = _neighbors(loads, member, limit)
    yield from ((member, other) for other in near[:_PAIRS])
    neighbors = {other: _neighbors(loads, other, limit) for other in near[:_NEAR]}
    seen: set[frozenset[int]] = set()
    for other, others in neighbors.items():
        for third in [*near[:_NEAR], *others[:_NEAR]]:
            three = frozenset((member, other, third))
            if third not in (member, other) and three not in seen:
                seen.add(three)
                yield member, other, third
    nearest = [member]
    for at in range(_LARGEST):
        if at < len(nearest) < _LARGEST:
            beyond = neighbors.get(nearest[at]) or _neighbors(loads, nearest[at], limit)
            nearest += [other for other in beyond if other not in nearest]
    yield from (tuple(nearest[:size]) for size in range(4, min(_LARGEST, len(nearest)) + 1))


def _neighbors(loads: Loads, member: int, limit: Floats) -> list[int]:
    """Return some members that can get partitions of this one, those with the most capacity first."""
    ground = loads.ground
    reads = ground.reads[sorted({loads.topic_class[p] for p in loads.held(member)})]
    subscribes = np.logical_or.reduce(reads, axis=0)
    subscribers = np.flatnonzero(subscribes[ground.problem.subscription_class])
    subscribers = subscribers[subscribers != member]
    ground.work.spend_part(2 * ARCS_OF_A_LOOK + len(ground.level) + reads.size // _READS_PER_ARC)
    order = np.lexsort((subscribers, loads.load[subscribers] - limit[subscribers]))
    nearest: list[int] = subscribers[order][:_PAIRS].tolist()
    return nearest


class _Packing:
    """Depth-first search for an assignment of the partitions of some members among them."""

    def __init__(self, loads: Loads, members: tuple[int, ...], limit: Floats) -> None:
        ground = loads.ground
        self._loads, self._work = loads, ground.work
        self._room = {member: float(limit[member]) * (1 + ROUNDING) for member in members}
        self._subscription_class = {member: int(ground.problem.subscription_class[member]) for member in members}
        held = [p for member in members for p in loads.held(member)]
        held.sort(key=lambda p: (-loads.weight[p], p))
        self._free: list[tuple[int, float, list[int]]] = []
        for partition in held:
            reads = ground.reads[loads.topic_class[partition]]
            readers = [member for member in members if reads[self._subscription_class[member]]]
            if len(readers) == 1:
                self._room[readers[0]] -= loads.weight[partition]
            else:
                self._free.append((partition, loads.weight[partition], self._in_order(partition, readers)))
        self._rest = np.cumsum([0.0, *(weight for _, weight, _ in reversed(self._free))])[::-1].tolist()
        self._nodes = _NODES
        self._chosen: list[int] = []

    def _in_order(self, partition: int, readers: list[int]) -> list[int]:
        """Return readers of a partition as they are tried if their capacities are equal: its owner, then the cheapest.

        Those with the most capacity are tried first, since more is found that way.
        """
        loads = self._loads
        costs = dict(zip(readers, loads.costs(partition, np.asarray(readers)).tolist(), strict=True))
        owner = loads.owner[partition]
        return sorted(readers, key=lambda member: (member != owner, costs[member], member))

    def moves(self) -> list[tuple[int, int]]:
        """Return the partitions that change their member, and their new member; empty if nothing is found."""
        if not self._free or len(self._free) > _MOST_PARTITIONS or min(self._room.values()) < 0:
            return []
        packed = self._search(0)
        self._work.spend_part(_ARCS_OF_A_NODE * (_NODES - self._nodes + len(self._free)))
        if not packed:
            return []
        pairs = zip(self._free, self._chosen, strict=True)
        return [(partition, member) for (partition, _, _), member in pairs if member != self._loads.reader[partition]]

    def _search(self, at: int) -> bool:
        """Assign the partitions from this one on; return whether they fit."""
        if at == len(self._free):
            return True
        self._nodes -= 1
        if self._nodes < 0 or self._rest[at] > sum(self._room.values()):
            return False
        _, weight, readers = self._free[at]
        tried: set[tuple[int, float]] = set()
        for member in sorted(readers, key=lambda member: -self._room[member]):
            # Members with equal subscriptions and capacities are alike.
            alike = self._subscription_class[member], self._room[member]
            if self._room[member] < weight or alike in tried:
                continue
            tried.add(alike)
            self._room[member] -= weight
            self._chosen.append(member)
            if self._search(at + 1):
                return True
            self._chosen.pop()
            self._room[member] += weight
        return False


_ARCS_OF_A_COVER = 30
"""How many, in the time that it takes to find the best partner of a partition to cover an excess."""

_STEPS_TO_FEED = 8_000
"""Limit of the steps of `lift_starved`."""

_FILLED = 0.75
"""Share of its even level up to which a starved member gets partitions."""


def relieve(
    ground: WeightedInstance, reader: Ints, owner: Ints, limits: tuple[Floats, float], *, movable: Bools | None = None
) -> Ints | None:
    """Return the assignment with all overloaded members relieved; None if some cannot be."""
    # A member above its base by more than the tolerance is overloaded. It is relieved to the factor of it, and others
    # may be filled to that. Moving a partition that is not with its owner costs nothing. With `movable`, what cannot
    # be relieved stays.
    base, factor = limits
    loads = Loads(ground, reader, owner, base * factor)
    above = loads.load - base * ((1 + ground.tolerance) * (1 + ROUNDING))
    over = np.flatnonzero(above > 0)
    for member in over[np.lexsort((over, -above[over]))].tolist():
        while loads.excess()[member] > 0:
            if not loads.ended(movable) and (_give(loads, member, movable) or _swap(loads, member, movable)):
                continue
            if movable is None and not repack(loads, member, loads.limit):
                return None
            break
    return np.asarray(loads.reader, np.int64)


def _receiver(loads: Loads, partition: int) -> int | None:
    """Return the cheapest other reader with capacity for a partition; None if there is none."""
    candidates = loads.others(partition)
    room = loads.room(partition, candidates)
    if not len(candidates) or room.max() < 0:
        return None
    return int(candidates[np.lexsort((-room, loads.costs(partition, candidates), room < 0))[0]])


def _give(loads: Loads, member: int, movable: Bools | None) -> bool:
    """Give away the partition that covers the excess with the least weight and fits elsewhere; return whether one does.

    Of an excess of many partitions the heaviest are given away.
    """
    excess = float(loads.excess()[member])
    held = loads.held(member, movable)
    loads.ground.work.spend_part(_ARCS_OF_A_COVER * len(held))
    given = False
    for owned in (False, True):
        for partition in _by_cover(loads, [p for p in held if bool(loads.price(p)) is owned], excess):
            if loads.ended(movable):
                return given
            receiver = _receiver(loads, partition)
            if receiver is None:
                continue
            loads.move(partition, receiver)
            given = True
            # While no two of the others cover the rest, the next one is the heaviest again.
            if float(loads.excess()[member]) <= 2 * loads.weight[partition]:
                return True
        if given:
            return True
    return False


def _by_cover(loads: Loads, partitions: list[int], need: float) -> list[int]:
    """Sort partitions by the least weight that covers the need with them, as single ones or as the heavier of two.

    Those that do not cover it with another one come last, the heaviest first.
    """
    ascending = sorted((loads.weight[p], p) for p in partitions)

    def order(place: int) -> tuple[float, float, int]:
        weight, partition = ascending[place]
        other = bisect_left(ascending, (need - weight, -1), hi=place)
        if weight < need:
            weight += ascending[other][0] if other < place else math.inf
        return weight, -ascending[place][0], partition

    return [ascending[place][1] for place in sorted(range(len(ascending)), key=order)]


def _swap(loads: Loads, member: int, movable: Bools | None) -> bool:
    """Swap one partition for a lighter one of another member that is not overloaded by it, for the least moves."""
    need = float(loads.excess()[member])
    own_class = int(loads.ground.problem.subscription_class[member])
    best: tuple[tuple[float, float, int, int], int] | None = None
    for give in loads.held(member, movable):
        if loads.ended(movable):
            break
        candidates = loads.others(give)
        short = -loads.room(give, candidates)
        # The members with the most capacity are sufficient.
        for other in candidates[np.lexsort((candidates, short))[:8]].tolist():
            lacks = -float(loads.room(give, np.asarray([other]))[0])
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


def least_to_move(ground: WeightedInstance, reader: Ints, owner: Ints, limit: Floats) -> float:
    """Return a lower bound of the weight that moves until all members are within these limits, by owned partitions."""
    loads = Loads(ground, reader, owner, limit)
    excess = loads.excess()
    # What leaves a member weighs at least its excess, and at least as much as its lightest partition.
    lightest = {member: min(map(loads.price, loads.held(member))) for member in np.flatnonzero(excess > 0).tolist()}
    return sum(max(float(excess[member]), price) for member, price in lightest.items())


def lift_starved(ground: WeightedInstance, reader: Ints) -> Ints:
    """Return the assignment with partitions for members that have less than half of their level.

    Each of them gets partitions of the fullest members until it has three quarters of its level, as long as the donor
    has more than the member that takes, by the tolerance. This has a budget of its own, since without it a member that
    joins may get nothing.
    """
    loads, before = Loads(ground, reader, reader, ground.even_level), ground.work.left
    for member in np.flatnonzero(loads.load < ground.even_level * STARVED).tolist():
        while loads.load[member] < ground.even_level[member] * _FILLED:
            if ground.work.late() or before - ground.work.left > _STEPS_TO_FEED:
                return np.asarray(loads.reader, np.int64)
            shift = _shift(loads, member, ground.even_level[member])
            if shift is None:
                break
            loads.move(shift, member)
    return np.asarray(loads.reader, np.int64)


def starved(ground: WeightedInstance, reader: Ints) -> int:
    """Return how many members have less than half of their level and could get more; after the deadline all of them."""
    hungry = np.flatnonzero(ground.loads(reader) < ground.even_level * STARVED).tolist()
    if not hungry:
        return 0
    loads = Loads(ground, reader, reader, ground.even_level)
    return sum(ground.work.late() or _shift(loads, member, ground.even_level[member]) is not None for member in hungry)


def _shift(loads: Loads, member: int, level: float) -> int | None:
    """Return the partition that this member should get from a fuller one, if there is one."""
    ground = loads.ground
    own_class = int(ground.problem.subscription_class[member])
    ground.work.spend_part(ARCS_OF_A_LOOK + len(loads.load))
    for donor in np.lexsort((np.arange(len(loads.load)), -loads.load)).tolist():
        if loads.load[donor] <= loads.load[member] * (1 + ground.tolerance):
            return None
        ground.work.spend_part(ARCS_OF_A_PAIR * len(loads.has[donor]))
        owned = np.fromiter(loads.has[donor], np.int64, len(loads.has[donor]))
        weight, after = ground.weight[owned], loads.load[member] + ground.weight[owned]
        fitting = (
            (weight > 0)
            & ground.reads[ground.problem.topic_class[owned], own_class]
            & (after * (1 + ground.tolerance) < loads.load[donor])
            & (loads.load[donor] - weight >= ground.even_level[donor] * STARVED)
        )
        if fitting.any():
            # The cheapest, then the heaviest that fits.
            shifts, weight, above = owned[fitting], weight[fitting], after[fitting] > level
            problem = ground.problem
            costs = problem.cost[problem.cost_row[shifts], problem.rack[member]]
            return int(shifts[np.lexsort((shifts, -weight, above, costs))[0]])
    return None


_MOST_COMPARED = 300
"""Number of partitions of each of two members that are compared for an exchange."""

_EVEN_ENOUGH = 0.001
"""Share of its level by which a load may be above it without being relieved, or `_OF_TOLERANCE` if that is less."""

_OF_TOLERANCE = 0.02
"""Share of the tolerance. An assignment that is kept may be above the best one by fifty times as much."""

_ARCS_OF_A_ROUND = 400
"""How many arcs of a flow can be looked at in the time that a round takes without its exchanges."""

_ARCS_OF_AN_EXCHANGE = 300
"""How many, in the time that the exchanges of one topic class take, however few they are."""

_ARCS_OF_A_PARTITION = 12
"""How many, in the time that it takes to choose whether a partition is compared."""


def with_exchanges(ground: WeightedInstance, reader: Ints) -> Ints:
    """Return the assignment with the fullest members relieved as far as single shifts and swaps can.

    Each of them reduces the larger of two loads. They end when loads are even, no member can be relieved, or the limit
    of rounds is reached.
    """
    level, work = ground.level, ground.work
    loads = Loads(ground, reader, np.full(len(reader), NO_MEMBER), level)
    even_enough = level * min(_EVEN_ENOUGH, ground.tolerance * _OF_TOLERANCE)
    stuck = np.zeros(len(level), bool)
    for _ in range(_ROUNDS_PER_MEMBER * len(stuck)):
        over = loads.load - level
        if stuck.all() or (over <= even_enough).all() or work.end():
            break
        work.spend_part(_ARCS_OF_A_ROUND + len(stuck) // 16)
        fullest = int(np.argmax(np.where(stuck, -np.inf, over)))
        found = _best_exchange(loads, fullest, over)
        if found is None:
            stuck[fullest] = True
            continue
        give, take, other = found
        loads.move(give, other)
        if take is not None:
            loads.move(take, fullest)
        stuck[[fullest, other]] = False
    return np.asarray(loads.reader, np.int64)


def _best_exchange(loads: Loads, donor: int, over: Floats) -> tuple[int, int | None, int] | None:
    """Return what to give, what to take for it (if anything) and the other member; avoid a higher cost."""
    # `over`: by how much each load is above its level.
    best: tuple[tuple[bool, float, int, int], tuple[int, int | None, int]] | None = None
    topic_classes: dict[int, list[int]] = {}
    for partition in loads.has[donor]:
        topic_classes.setdefault(loads.topic_class[partition], []).append(partition)
    for topic_class, shifts in topic_classes.items():
        readers = loads.ground.readers[topic_class]
        other = int(readers[np.argmin(over[readers])])
        difference = float(over[donor] - over[other])
        # Two loads that differ only by rounding are equal.
        if difference <= ROUNDING * float(loads.ground.level.max()):
            continue
        for give, take, moved in _exchanges(loads, shifts, other, donor, difference):
            dearer = _dearer(loads, give, donor, other) + (0 if take is None else _dearer(loads, take, other, donor))
            score = (dearer > 0, abs(difference / 2 - moved), give, -1 if take is None else take)
            if best is None or score < best[0]:
                best = score, (give, take, other)
    return None if best is None else best[1]


def _exchanges(
    loads: Loads, shifts: list[int], other: int, donor: int, difference: float
) -> list[tuple[int, int | None, float]]:
    """Return exchanges that move more than nothing and less than the whole difference."""
    loads.ground.work.spend_part(_ARCS_OF_AN_EXCHANGE + _ARCS_OF_A_PARTITION * (len(shifts) + len(loads.has[other])))
    shifts = _sample(loads, shifts)
    subscription_class, weight = loads.ground.problem.subscription_class[donor], loads.ground.weight
    reads = loads.ground.reads[:, subscription_class]
    back = _sample(loads, [q for q in loads.has[other] if reads[loads.topic_class[q]]])
    loads.ground.work.spend_part(len(shifts) * len(back) // 6)
    taken: list[int | None] = [None, *back]
    moved = weight[shifts][:, None] - np.append(0.0, weight[back])[None, :]
    fits = (moved > difference * ROUNDING) & (moved < difference * (1 - ROUNDING))
    rows, columns = np.nonzero(fits)
    # The best few are sufficient: one of them is taken.
    nearest = np.argsort(np.abs(moved[rows, columns] - difference / 2), kind="stable")[:4]
    return [(shifts[rows[i]], taken[columns[i]], float(moved[rows[i], columns[i]])) for i in nearest.tolist()]


def _sample(loads: Loads, partitions: list[int]) -> list[int]:
    """Return all of them, or if they are many, some of every weight."""
    if len(partitions) <= _MOST_COMPARED:
        return partitions
    ordered = sorted(partitions, key=lambda partition: (loads.weight[partition], partition))
    return [ordered[i * len(ordered) // _MOST_COMPARED] for i in range(_MOST_COMPARED)]


def _dearer(loads: Loads, partition: int, donor: int, receiver: int) -> int:
    at_receiver, at_donor = loads.costs(partition, np.asarray((receiver, donor)))
    return int(at_receiver - at_donor)
