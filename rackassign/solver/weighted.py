"""Balance of weights instead of counts: not exact, but with a bound on the gap to the optimum.

Theory
------
Balancing weights that cannot be split is NP-hard (it contains bin packing). A lower bound of the heaviest load can be
computed exactly: the weight of the heaviest partition, and the heaviest load if weights could be split, which
`compute_balance` computes when it gets weights in fine units instead of counts. The *gap* is how much more, relative to
that bound, the heaviest load has.

The assignment starts from split weights as well: a flow of lowest cost, then of fewest moves, with loads at the level
of the split weights. Partitions are assigned along it, those of owners first and then the heaviest
(`_WeightedInstance`). Last, the fullest member gives partitions to another member or swaps with it, as long as that
reduces the larger of the two loads (`_LocalSearch`).

Weights are measurements and never the same twice. So the current assignment, completed with the unowned partitions, is
kept if it is *good*: nearly as even and as local, within `MIN_IMPROVEMENT`, as an assignment computed without owners.

None of this is exact, and yet it must converge: in a cooperative rebalance owners revoke first, and the next rebalance,
in which the moved partitions have no owner, has to come to the same result. It does, by construction.
`_StabilityPolicy` chooses the assignment computed without owners (the reference, which is the same in every rebalance)
if that moves nothing. Otherwise it keeps the current assignment if that is good. Otherwise it chooses a new assignment
that would be kept and good in the next rebalance, which is tested. If there is none, it chooses the reference, which
moves nothing in the next rebalance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackassign.solver.balance import compute_balance
from rackassign.solver.lexicographic import LexicographicResult, LoadBounds, solve_lexicographic
from rackassign.solver.min_cost_flow import SolveBudget, SolverError
from rackassign.solver.problem import NO_MEMBER, CompressedProblem, Problem
from rackassign.solver.types import Bools, Floats, Ints

BOUND_UNITS = 1 << 44
"""Number of units into which the sum of all weights is divided to compute the bound."""

FLOW_UNITS = 1 << 24
"""Number of units for the flow. It is smaller because a solver computes in doubles, with absolute tolerances."""

MIN_IMPROVEMENT = 0.02
"""Threshold below which an improvement is not worth moves: the share of a load by which loads get closer, or the share
of the highest possible cost by which the cost decreases."""

_NOTHING = 1e-12

_ROUNDS_PER_MEMBER = 8

_MOST_COMPARED = 300
"""Number of partitions of each of two members that are compared for an exchange."""

_TRIES = 6


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


def solve_weighted(problem: Problem, weight: Floats, waiting: Bools, *, work: SolveBudget) -> WeightedSolution:
    """Assign every partition to a member, with balanced weights.

    Args:
        problem: Problem to solve.
        weight: Weight of each partition, finite and 0 or more, not all 0.
        waiting: Unowned partitions that can be assigned in the next rebalance only.
        work: Budget and deadline. The steps used are deducted.
    """
    # Relative to the heaviest, so that no sum is infinite and no unit 0. Negligible weights become 0.
    weight = weight / float(weight.max())
    weight = np.where(weight < _NOTHING, 0.0, weight)
    level, least = _fractional_bound(problem, weight)
    deciding = _StabilityPolicy(_WeightedInstance(problem, weight, level, work), waiting)
    reader = deciding.decided()
    heaviest = float(np.bincount(reader, weight, len(level)).max())
    return WeightedSolution(reader, max(0.0, heaviest / least - 1.0), deciding.note)


class _StabilityPolicy:
    """Decision between keeping and changing the current assignment.

    Args:
        ground: Members and partitions.
        waiting: Unowned partitions that can be assigned in the next rebalance only.
    """

    def __init__(self, ground: _WeightedInstance, waiting: Bools) -> None:
        self._ground, self._problem = ground, ground.problem
        self._waiting, self._work = waiting, ground.work
        self.note = ""
        self._reference = self._fresh(np.full(len(waiting), NO_MEMBER))
        self._spread, self._cost = ground.spread(self._reference), ground.cost(self._reference)

    def decided(self) -> Ints:
        """Return the member of each partition."""
        owner = self._problem.owner
        found: Ints | None = None
        if not self._work.late():
            reference = self._relabelled(owner)
            if _moves_nothing(owner, reference):
                return reference
            kept = self._kept(owner)
            found = self._settled_target(kept) if self._good(kept) else None
        if found is None and not self._work.late():
            found = self._settled_target(self._fresh(owner))
        if self._work.late():
            # The assignments found by then are not as even as they could be.
            self.note = "the time limit of the plan is exceeded"
            return self._ground.kept_to_level(owner)
        return reference if found is None else found

    def _settled_target(self, target: Ints) -> Ints | None:
        """Return a target close to this one that the next rebalance would complete and find good, if there is one."""
        owner, fallback = self._problem.owner, None
        for _ in range(_TRIES):
            # Unowned partitions are assigned at once; moved partitions have no owner until then.
            at_once = ((owner == NO_MEMBER) & ~self._waiting) | (owner == target)
            then = self._kept(np.where(at_once, target, NO_MEMBER))
            if self._good(then):
                if np.array_equal(then, target):
                    return target
                fallback = target if fallback is None else fallback
            target = then
        return fallback

    def _kept(self, owner: Ints) -> Ints:
        return self._ground.with_exchanges(self._ground.kept(owner), owner == NO_MEMBER)

    def _fresh(self, owner: Ints) -> Ints:
        ground, staged = self._ground, None
        try:
            staged = _flow(replace(self._problem, owner=owner), ground.weight, self._work)
        except SolverError as error:
            self.note = str(error)
        return ground.with_exchanges(ground.from_flow(staged), np.ones(len(owner), bool))

    def _good(self, reader: Ints) -> bool:
        ground = self._ground
        even = ground.spread(reader) <= self._spread + float(ground.level.max()) * MIN_IMPROVEMENT
        return even and ground.cost(reader) <= self._cost + ground.max_cost() * MIN_IMPROVEMENT

    def _relabelled(self, owner: Ints) -> Ints:
        """Return the reference with members of one kind exchanged, so that owners keep more of their partitions.

        If an exchange moves nothing, this finds it: then no member owns partitions of two shares, and no share has
        partitions of two owners.
        """
        subscription_class, rack = self._problem.subscription_class, self._problem.rack
        kind = (subscription_class * (int(rack.max()) + 1) + rack).tolist()
        overlap: dict[tuple[int, int], float] = {}
        for partition in np.flatnonzero(owner != NO_MEMBER).tolist():
            pair = int(owner[partition]), int(self._reference[partition])
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
        return np.asarray(who, np.int64)[self._reference]


def _moves_nothing(owner: Ints, reader: Ints) -> bool:
    return bool(((owner == NO_MEMBER) | (owner == reader)).all())


def _fractional_bound(problem: Problem, weight: Floats) -> tuple[Floats, float]:
    """Return the level of each member if weights could be split, and the lower bound of the heaviest load."""
    unit = float(weight.sum()) / BOUND_UNITS
    # Rounded down, so that the bound is valid.
    grains = np.floor(weight / unit)
    supply = np.bincount(problem.topic_class, grains, problem.topic_classes).astype(np.int64)
    ceiling = compute_balance(
        supply, problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class
    ).max_load
    level: Floats = ceiling[problem.subscription_class].astype(np.float64) * unit
    return level, max(float(weight.max()), (int(ceiling.max()) - 1) * unit)


def _flow(problem: Problem, weight: Floats, work: SolveBudget) -> LexicographicResult:
    """Return flows of split weights: at their level, of lowest cost, then of fewest moves."""
    grains = np.rint(weight * (FLOW_UNITS / float(weight.sum())))
    supply = np.bincount(problem.topic_class, grains, problem.topic_classes).astype(np.int64)
    sand = compute_balance(supply, problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class)
    counted = CompressedProblem.of(problem, sand.allowed)
    classes, stays = len(counted.class_topic_class), len(counted.stay_class)
    grouped = replace(
        counted,
        class_supply=np.bincount(counted.class_of, grains, classes).astype(np.int64),
        stay_size=np.bincount(counted.hold_stay[counted.hold_of], grains[counted.current], stays).astype(np.int64),
    )
    return solve_lexicographic(grouped, LoadBounds(sand.max_load - 1, sand.max_load), work)


class _WeightedInstance:
    """Members, their target loads, and partitions to assign.

    Args:
        problem: The problem; its owners are not used here.
        weight: Weight of each partition.
        level: Target load of each member.
        work: Budget. The steps used are deducted.
    """

    def __init__(self, problem: Problem, weight: Floats, level: Floats, work: SolveBudget) -> None:
        self.problem, self.weight, self.level, self.work = problem, weight, level, work
        self.reads = np.zeros((problem.topic_classes, len(problem.sizes())), bool)
        self.reads[problem.edge_topic_class, problem.edge_subscription_class] = True
        self.readers: list[Ints] = [np.flatnonzero(row[problem.subscription_class]) for row in self.reads]

    def loads(self, reader: Ints) -> Floats:
        """Return the sum of the weights of each member's partitions."""
        given = reader != NO_MEMBER
        return np.bincount(reader[given], self.weight[given], len(self.level)).astype(np.float64)

    def kept(self, owner: Ints) -> Ints:
        """Return an assignment with these owners, and the other partitions on the members with most capacity left."""
        return self._assign_by_quota(owner.copy(), {})

    def kept_to_level(self, owner: Ints) -> Ints:
        """Keep the partitions that begin below their owner's level; assign the others where capacity is left."""
        held = np.flatnonzero(owner != NO_MEMBER)
        held = held[np.lexsort((held, -self.weight[held], owner[held]))]
        whose = owner[held]
        before = np.cumsum(self.weight[held]) - self.weight[held]
        before -= before[np.searchsorted(whose, whose, "left")]
        kept = held[before < self.level[whose]]
        reader = np.full(len(owner), NO_MEMBER)
        reader[kept] = owner[kept]
        return self._assign_by_quota(reader, {})

    def from_flow(self, staged: LexicographicResult | None) -> Ints:
        """Assign partitions as the flow does; without one, to the members with most capacity left."""
        reader = np.full(len(self.weight), NO_MEMBER)
        if staged is None:
            return self._assign_by_quota(reader, {})
        grouped, layout = staged.grouped, staged.layout
        stays, to_hub, *_ = layout.split(staged.flow)
        unit = float(self.weight.sum()) / FLOW_UNITS
        order = np.lexsort((grouped.current, -self.weight[grouped.current], grouped.hold_of))
        # Each hold of a stay keeps the same share of its partitions.
        kept = stays / np.maximum(grouped.stay_size, 1)
        left = (
            np.bincount(grouped.hold_of, self.weight[grouped.current], len(grouped.hold_stay)) * kept[grouped.hold_stay]
        )
        for place in order.tolist():
            partition, hold = int(grouped.current[place]), int(grouped.hold_of[place])
            # A partition is on the flow if more than half of its weight is.
            if left[hold] >= self.weight[partition] / 2:
                reader[partition] = grouped.problem.owner[partition]
                left[hold] -= self.weight[partition]
        wanted: dict[tuple[int, int], dict[int, float]] = {}
        arcs = layout.hub_arcs
        for arc in np.flatnonzero(to_hub).tolist():
            class_ = arcs.tail[arc]
            key = int(grouped.class_topic_class[class_]), int(grouped.class_near[class_])
            wanted.setdefault(key, {})[int(layout.hub_rack[arcs.head[arc]])] = float(to_hub[arc]) * unit
        return self._assign_by_quota(reader, wanted)

    def _assign_by_quota(self, reader: Ints, wanted: dict[tuple[int, int], dict[int, float]]) -> Ints:
        """Assign the rest, heaviest first: to the rack that is to get most of it, and its member with most capacity."""
        problem = self.problem
        load = self.loads(reader)
        count = np.bincount(reader[reader != NO_MEMBER], minlength=len(self.level))
        in_rack: dict[tuple[int, int], Ints] = {}
        free = np.flatnonzero(reader == NO_MEMBER)
        for partition in free[np.lexsort((free, -self.weight[free]))].tolist():
            topic_class, near = int(problem.topic_class[partition]), int(problem.cost_row[partition])
            racks = wanted.get((topic_class, near), {})
            candidates = self.readers[topic_class]
            if racks:
                rack = max(racks, key=lambda r: (racks[r], -r))
                racks[rack] -= self.weight[partition]
                if (topic_class, rack) not in in_rack:
                    in_rack[topic_class, rack] = candidates[problem.rack[candidates] == rack]
                candidates = in_rack[topic_class, rack]
            full = load[candidates] - self.level[candidates]
            # Partitions of weight 0 are spread by number over all of them.
            emptiest = candidates[full == full.min()] if self.weight[partition] else candidates
            fewest = emptiest[count[emptiest] == count[emptiest].min()]
            member = int(fewest[np.argmin(problem.cost[near, problem.rack[fewest]])])
            count[member] += 1
            reader[partition] = member
            load[member] += self.weight[partition]
        return reader

    def with_exchanges(self, reader: Ints, movable: Bools) -> Ints:
        """Return the assignment with the fullest members relieved as far as single gifts and swaps can."""
        return _LocalSearch(self, reader, movable).run()

    def spread(self, reader: Ints) -> float:
        """Return the largest difference of two members' loads, each relative to its level."""
        return float(np.ptp(self.loads(reader) - self.level))

    def cost(self, reader: Ints) -> float:
        """Return the cost of reading, by weight."""
        return float(self.problem.cost[self.problem.cost_row, self.problem.rack[reader]] @ self.weight)

    def max_cost(self) -> float:
        """Return the cost of reading every partition at the highest cost."""
        return float(self.problem.cost.max(initial=0)) * float(self.weight.sum())


class _LocalSearch:
    """Gifts and swaps between members, each of which reduces the larger of two loads."""

    def __init__(self, ground: _WeightedInstance, reader: Ints, movable: Bools) -> None:
        problem, weight, level = ground.problem, ground.weight, ground.level
        self._topic_class, self._weight, self._level, self._readers = problem.topic_class, weight, level, ground.readers
        self._cost, self._near, self._rack = problem.cost, problem.cost_row, problem.rack
        self._subscription_class, self._reads = problem.subscription_class, ground.reads
        self._reader: Ints = reader.copy()
        self._has: list[list[int]] = [[] for _ in level]
        for partition in np.flatnonzero(movable).tolist():
            self._has[int(reader[partition])].append(partition)
        self._over = ground.loads(reader) - level
        self._work = ground.work

    def run(self) -> Ints:
        """Relieve the fullest member that can be relieved, until there is none or the limit of rounds is reached."""
        stuck = np.zeros(len(self._level), bool)
        for _ in range(_ROUNDS_PER_MEMBER * len(stuck)):
            if stuck.all() or self._work.late():
                break
            fullest = int(np.argmax(np.where(stuck, -np.inf, self._over)))
            found = self._best(fullest)
            if found is None:
                stuck[fullest] = True
                continue
            give, take, other = found
            self._move(give, fullest, other)
            if take is not None:
                self._move(take, other, fullest)
            stuck[[fullest, other]] = False
        return self._reader

    def _move(self, partition: int, giver: int, taker: int) -> None:
        self._has[giver].remove(partition)
        self._has[taker].append(partition)
        self._over[giver] -= self._weight[partition]
        self._over[taker] += self._weight[partition]
        self._reader[partition] = taker

    def _best(self, giver: int) -> tuple[int, int | None, int] | None:
        """Return what to give, what to take for it (if anything) and the other member; avoid a higher cost."""
        best: tuple[tuple[bool, float, int, int], tuple[int, int | None, int]] | None = None
        topic_classes: dict[int, list[int]] = {}
        for partition in self._has[giver]:
            topic_classes.setdefault(int(self._topic_class[partition]), []).append(partition)
        for topic_class, gifts in topic_classes.items():
            readers = self._readers[topic_class]
            other = int(readers[np.argmin(self._over[readers])])
            difference = float(self._over[giver] - self._over[other])
            # Two loads that differ only by rounding are equal.
            if difference <= 1e-9 * float(self._level.max()):
                continue
            for give, take, moved in self._exchanges(gifts, other, giver, difference):
                dearer = self._dearer(give, giver, other) + (0 if take is None else self._dearer(take, other, giver))
                score = (dearer > 0, abs(difference / 2 - moved), give, -1 if take is None else take)
                if best is None or score < best[0]:
                    best = score, (give, take, other)
        return None if best is None else best[1]

    def _exchanges(
        self, gifts: list[int], other: int, giver: int, difference: float
    ) -> list[tuple[int, int | None, float]]:
        """Return exchanges that move more than nothing and less than the whole difference."""
        gifts = self._sample(gifts)
        subscription_class = int(self._subscription_class[giver])
        back = self._sample([q for q in self._has[other] if self._reads[int(self._topic_class[q]), subscription_class]])
        taken: list[int | None] = [None, *back]
        given = self._weight[gifts][:, None] - np.append(0.0, self._weight[back])[None, :]
        fits = (given > difference * 1e-9) & (given < difference * (1 - 1e-9))
        rows, columns = np.nonzero(fits)
        # The best few are sufficient: one of them is taken.
        nearest = np.argsort(np.abs(given[rows, columns] - difference / 2), kind="stable")[:4]
        return [(gifts[rows[i]], taken[columns[i]], float(given[rows[i], columns[i]])) for i in nearest.tolist()]

    def _sample(self, partitions: list[int]) -> list[int]:
        """Return all of them, or if they are many, some of every weight."""
        if len(partitions) <= _MOST_COMPARED:
            return partitions
        ordered = sorted(partitions, key=lambda partition: (self._weight[partition], partition))
        return [ordered[i * len(ordered) // _MOST_COMPARED] for i in range(_MOST_COMPARED)]

    def _dearer(self, partition: int, giver: int, taker: int) -> int:
        row = self._cost[self._near[partition]]
        return int(row[self._rack[taker]] - row[self._rack[giver]])
