"""Redistribution of the partitions of a few members at once, where no single gift or swap makes loads more even.

Theory
------
With different subscriptions the heaviest member can often be relieved only if others change at the same time: its
partition fits where two lighter ones leave, and each of them fits somewhere else. So a set of members, the heaviest and
those it can exchange partitions with, is packed again: a depth-first search over their partitions, the heaviest first,
looks for an assignment among them with each load within its limit. The sets are pairs, then triples, then larger and
larger neighborhoods. Each search has a limit of nodes, and finds what there is if the set has few partitions.

Loads are compared in lexicographic order, as in `balance`: the heaviest load of all first. A member may get more as
long as it stays below the load that is relieved, whatever its level is; one with a heavier load gets nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rackassign.solver.problem import NO_MEMBER
from rackassign.solver.types import Floats, Ints
from rackassign.solver.weighted_instance import ROUNDING, WeightedInstance
from rackassign.solver.weighted_loads import ARCS_OF_A_LOOK, Loads

_NODES = 500
"""Number of nodes of one search; more find hardly anything more."""

_MOST_PARTITIONS = 200
"""Number of partitions of a set of members; with more, gifts and swaps make loads even."""

_PAIRS = 12
_NEAR = 6
"""How many of the members with the most capacity are in pairs, and how many in triples."""

_LARGEST = 8
"""Number of members of the largest neighborhood."""

_EVEN_ENOUGH = 0.01
_OF_TOLERANCE = 0.2
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
    """Return the assignment with the heaviest members relieved as far as repacking of some members can.

    This is for assignments that are computed without regard to owners.

    Args:
        ground: Members and partitions.
        reader: Member of each partition.
    """
    work, before = ground.work, ground.work.left
    loads = Loads(ground, reader, np.full(len(reader), NO_MEMBER), ground.bound)
    part = np.unique(ground.level, return_inverse=True)[1]
    stuck = np.zeros(int(part.max()) + 1, bool)
    enough = 1 + min(_EVEN_ENOUGH, ground.tolerance * _OF_TOLERANCE)
    for _ in range(_ROUNDS_PER_MEMBER * len(part)):
        uneven = (loads.excess(enough) > 0) & ~stuck[part]
        if not uneven.any() or before - work.left > _STEPS or work.end():
            break
        heaviest = int(np.argmax(np.where(uneven, loads.load, -np.inf)))
        below = float(loads.load[heaviest]) * (1 - _LEAST_STEP)
        moves = repack(loads, heaviest, np.full(len(part), below))
        stuck[part[[heaviest, *(member for _, member in moves)]]] = not moves
    return np.asarray(loads.reader, np.int64)


def repack(loads: Loads, member: int, limit: Floats) -> list[tuple[int, int]]:
    """Move partitions so that this member is within its limit; return the moves, or nothing if none were found.

    Args:
        loads: The assignment, from whose budget the steps used are deducted.
        member: Member to relieve.
        limit: Limit of each load. Another member that is above its limit may stay there, and gets no heavier.
    """
    least, limit = limit[member], np.maximum(limit, loads.load)
    limit[member] = least
    for members in _sets(loads, member, limit):
        if loads.ground.work.end():
            break
        moves = _Packing(loads, members, limit).moves()
        if moves:
            for partition, taker in moves:
                loads.move(partition, taker)
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
    found = np.flatnonzero(subscribes[ground.problem.subscription_class])
    found = found[found != member]
    ground.work.spend_part(2 * ARCS_OF_A_LOOK + len(ground.level) + reads.size // _READS_PER_ARC)
    order = np.lexsort((found, loads.load[found] - limit[found]))
    nearest: list[int] = found[order][:_PAIRS].tolist()
    return nearest


class _Packing:
    """Depth-first search for an assignment of the partitions of some members among them.

    Args:
        loads: The assignment.
        members: Members that put their partitions together.
        limit: Limit of each load, of all members.
    """

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
