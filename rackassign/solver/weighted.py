"""Balance of weights instead of counts: not exact, but with a bound on the gap to the optimum, and calm.

Theory
------
Balancing weights that cannot be split is NP-hard (it contains bin packing). A lower bound of the heaviest load can be
computed exactly: the weight of the heaviest partition, and the heaviest load if weights could be split, which
`compute_balance` computes when it gets weights in fine units instead of counts. The *gap* is how much more, relative to
that bound, the heaviest load has. With different subscriptions members fall into parts of one level each (`balance`),
and every part has a bound of its own: its level, or its heaviest partition.

The *reference* is an assignment computed without owners: a flow of lowest cost at the level of the split weights, along
which partitions are assigned, the heaviest first, then shifts and swaps of the fullest members (`weighted_search`),
then several members at once. It is the same in every rebalance with the same weights.

Weights are measurements and never the same twice. So the current assignment, completed with the unowned partitions, is
kept if it is *good*:

1. In each part the heaviest load is at most (1 + tolerance) times the bound, or times the heaviest load of the
   reference if that is above the bound. The bound may be out of reach, as of 3 equal partitions on 2 members; nothing
   would be kept if it were demanded.
2. It costs no more than the reference. Or of each amount, the weight that is read at that cost or more exceeds the
   reference's by at most the tolerance, as a share of all weight, and the heaviest partition, but by no more than three
   times the tolerance. The cost of the reference of a small group depends on chance: one partition more or less fits.
3. No more members than in the reference are *starved*. A member is starved if it has less than half of its even level,
   and another member has a partition for it, with which it would have less than the other one has with it, and without
   which the other one would not be starved. Otherwise a member that joins a large group would stay without partitions,
   since all others are within the tolerance.

An assignment that is not good is changed (`weighted_search`). The overloaded members give away little more than is
sufficient. They are brought down to half of the tolerance, so that the next noise does not start moves again, unless
that moves more than `_MOST_MOVES` times a lower bound of what has to move. If costs are not good then, the flow is
computed with owners: of lowest cost with loads within half of the tolerance, then of fewest moves.

It must converge: in a cooperative rebalance owners revoke first, and the next rebalance, in which the moved partitions
have no owner, has to find nothing to move. With equal weights this holds by construction. `_StabilityPolicy` chooses
an assignment only if the next rebalance would complete it and find it good, which is tested. If there is none, it
chooses the reference, and an assignment that moves nothing towards the reference is chosen in any case. With other
weights in the next rebalance it holds as far as they are within the margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from rackassign.solver.network_flow import Bools, Floats, Ints, SolveBudget, SolverError
from rackassign.solver.problem import NO_MEMBER, Problem
from rackassign.solver.weighted_instance import WeightedInstance, moved_weight
from rackassign.solver.weighted_search import (
    least_to_move,
    lift_starved,
    relieve,
    starved,
    with_exchanges,
    with_repacking,
)

_NOTHING = 1e-12

_TRIES = 6

_MOST_MOVES = 2.0
"""Ratio to the lower bound of what moves, up to which more is moved to be clearly within the tolerance."""


@dataclass(frozen=True, slots=True)
class WeightedSolution:
    """An assignment, and its gap to the optimum.

    Args:
        assignment: Member of each partition.
        gap: How much heavier the heaviest load is, relative to the lower bound.
        note: Problems of the computation, as text for users.
    """

    assignment: Ints
    gap: float
    note: str = ""


def solve_weighted(
    problem: Problem, weight: Floats, waiting: Bools, *, tolerance: float, work: SolveBudget
) -> WeightedSolution:
    """Assign every partition to a member, with balanced weights.

    Args:
        problem: Problem to solve.
        weight: Weight of each partition, finite and 0 or more, not all 0.
        waiting: Unowned partitions that can be assigned in the next rebalance only.
        tolerance: Share by which loads and costs may be above the best that was found before owned partitions move.
        work: Budget and deadline. The steps used are deducted.
    """
    # Relative to the heaviest, so that no sum is infinite and no unit 0. Negligible weights become 0.
    weight = weight / float(weight.max())
    weight = np.where(weight < _NOTHING, 0.0, weight)
    ground = WeightedInstance(problem, weight, tolerance, work)
    deciding = _StabilityPolicy(ground, waiting)
    reader = deciding.decided()
    heaviest = float(ground.loads(reader).max())
    return WeightedSolution(reader, max(0.0, heaviest / ground.least_heaviest - 1.0), deciding.note)


class _Reference:
    """The assignment computed without owners, and what an assignment is compared with."""

    def __init__(self, ground: WeightedInstance, reader: Ints) -> None:
        self._ground, self.base = ground, ground.reached(reader)
        self._costs, self._starved = ground.costs(reader), starved(ground, reader)

    def good(self, reader: Ints) -> bool:
        """Return whether an assignment is within the tolerance of this one, and starves no more members."""
        ground = self._ground
        return ground.within(reader, self.base) and self.cheap(reader) and starved(ground, reader) <= self._starved

    def cheap(self, reader: Ints) -> bool:
        """Return whether the costs of an assignment are within the tolerance of this one."""
        return self._ground.costs_within(self._ground.costs(reader), self._costs)


class _StabilityPolicy:
    """Decision between keeping and changing the current assignment."""

    def __init__(self, ground: WeightedInstance, waiting: Bools) -> None:
        # `waiting`: unowned partitions that can be assigned in the next rebalance only.
        self._ground, self._problem = ground, ground.problem
        self._waiting, self._work = waiting, ground.work
        self.note = ""

    def decided(self) -> Ints:
        owner, ground = self._problem.owner, self._ground
        begun = self._work.left, self._work.owed
        if (owner != NO_MEMBER).all() and self._obviously_good(owner):
            return owner
        # The next rebalance, in which some partitions have no owner, must find the same reference.
        self._work.left, self._work.owed = begun
        fresh = self._fresh()
        relabelled = fresh if (owner == NO_MEMBER).all() else self._relabelled(fresh)
        # With a budget that has ended the result is not as even as it could be, or moves more than it should.
        self.note = self._work.end() or self.note
        if ((owner == NO_MEMBER) | (owner == relabelled)).all():
            return relabelled
        found = self._changed(owner, _Reference(ground, fresh))
        self.note = self._work.end() or self.note
        if self._work.late():
            return ground.kept_to_limit(owner)
        return relabelled if found is None else found

    def _obviously_good(self, reader: Ints) -> bool:
        """Return whether an assignment is within the tolerance of the bounds, and with that of every reference."""
        ground = self._ground
        return (
            ground.within(reader, ground.bound)
            and ground.costs_within(ground.costs(reader), ground.least_costs())
            and not starved(ground, reader)
        )

    def _fresh(self) -> Ints:
        ground, staged = self._ground, None
        try:
            staged = ground.flow(np.full(len(self._waiting), NO_MEMBER), 0.0)
        except SolverError as error:
            self.note = str(error)
        return with_repacking(ground, with_exchanges(ground, ground.from_flow(staged)))

    def _changed(self, owner: Ints, reference: _Reference) -> Ints | None:
        """Return the current assignment, completed, if it is good; otherwise one that moves as little as possible."""
        for target in self._candidates(owner, self._completed(owner), reference):
            if self._work.late():
                return None
            found = self._settled_target(target, reference) if reference.good(target) else None
            if found is not None:
                return found
        return None

    def _candidates(self, owner: Ints, completed: Ints, reference: _Reference) -> Iterator[Ints]:
        """Yield assignments that move more and more; after the end of the budget those that take little work."""
        ground = self._ground
        yield completed
        if not self._work.end():
            yield self._relieved(completed, owner, reference)
        if not self._work.end():
            try:
                cheaper = ground.from_flow(ground.flow(owner, ground.tolerance / 2))
            except SolverError as error:
                self.note = str(error)
            else:
                yield self._relieved(cheaper, owner, reference)
        # Costs are hardly changed by it.
        if self._work.end() and reference.cheap(completed):
            yield lift_starved(ground, ground.kept_to_limit(owner))

    def _relieved(self, reader: Ints, owner: Ints, reference: _Reference) -> Ints:
        """Return the assignment with all loads within the tolerance, and clearly within if that moves little more."""
        ground, base = self._ground, reference.base
        outer, inner = 1 + ground.tolerance, 1 + ground.tolerance / 2
        relieved = relieve(ground, reader, owner, (base, outer))
        most = moved_weight(ground.weight, owner, reader)
        most += least_to_move(ground, reader, owner, base * outer) * _MOST_MOVES
        for limits in product((ground.bound, base), (inner, outer)):
            more = relieve(ground, reader, owner, limits)
            if more is not None and (relieved is None or moved_weight(ground.weight, owner, more) <= most):
                return lift_starved(ground, more)
        return lift_starved(ground, reader if relieved is None else relieved)

    def _completed(self, owner: Ints) -> Ints:
        """Return the assignment with these owners, with the other partitions where loads allow it."""
        ground = self._ground
        free = owner == NO_MEMBER
        reader = ground.completed(owner)
        if not free.any():
            return reader
        found = relieve(ground, reader, owner, (ground.bound, 1 + ground.tolerance / 2), movable=free)
        return reader if found is None else found

    def _settled_target(self, target: Ints, reference: _Reference) -> Ints | None:
        """Return a target close to this one that the next rebalance would complete and find good, if there is one."""
        owner, fallback = self._problem.owner, None
        for _ in range(_TRIES):
            # Unowned partitions are assigned at once; moved partitions have no owner until then.
            at_once = ((owner == NO_MEMBER) & ~self._waiting) | (owner == target)
            then = self._completed(np.where(at_once, target, NO_MEMBER))
            if reference.good(then):
                if np.array_equal(then, target):
                    return target
                fallback = target if fallback is None else fallback
            target = then
        return fallback

    def _relabelled(self, reference: Ints) -> Ints:
        """Return the reference with members of one kind exchanged, so that owners keep more of their partitions.

        If an exchange moves nothing, this finds it: then no member owns partitions of two shares, and no share has
        partitions of two owners.
        """
        subscription_class, rack, owner = self._problem.subscription_class, self._problem.rack, self._problem.owner
        kind = (subscription_class * (int(rack.max()) + 1) + rack).tolist()
        overlap: dict[tuple[int, int], float] = {}
        for partition in np.flatnonzero(owner != NO_MEMBER).tolist():
            pair = int(owner[partition]), int(reference[partition])
            if kind[pair[0]] == kind[pair[1]]:
                overlap[pair] = overlap.get(pair, 0.0) + float(self._ground.weight[partition])
        takes: dict[int, int] = {}
        taken: set[int] = set()
        for member, share in sorted(overlap, key=lambda pair: (-overlap[pair], pair)):
            if member not in taken and share not in takes:
                takes[share] = member
                taken.add(member)
        free: dict[int, list[int]] = {}
        for member in range(len(kind)):
            if member not in taken:
                free.setdefault(kind[member], []).append(member)
        who = [takes[share] if share in takes else free[kind[share]].pop(0) for share in range(len(kind))]
        return np.asarray(who, np.int64)[reference]
