"""Balance of weights instead of counts: not exact, but with a bound on how far off it is.

Theory
------
To balance weights that cannot be split is NP-hard (it contains bin packing). What can be told exactly is how heavy
the heaviest load must be at least: as heavy as the heaviest partition, and as heavy as if weights were sand, which
is what `compute_balance` finds when it is given weights in fine units instead of counts. The *gap* is how much more,
relative to that, the heaviest load has.

The assignment starts from sand as well: a flow of least cost, then of most that stays, with loads at the level that
sand would have. Partitions are laid on it, owners' first and then the heaviest (`_WeightedInstance`). Last, the fullest
member gives to or swaps with another, as long as that makes the fuller of the two less full (`_LocalSearch`).

Weights are measurements and never twice the same. So what members own already, with what nobody owns laid on it, is
kept if it is *good*: nearly as even and as near, within `MIN_IMPROVEMENT`, as what is laid with nobody owning anything.

None of this is exact, and yet it must come to rest: where owners give up first, the next rebalance, in which what moves
is nobody's, has to decide the same. It does, by construction. `_StabilityPolicy` takes what is laid with nobody owning
anything (the reference, which is the same in every rebalance) whenever that moves nothing; else what is kept, if that
is good; else something new that would be kept and be good next time, which is tried out; and if none is found, the
reference, which moves nothing next time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackassign.solver.balance import compute_balance
from rackassign.solver.lexicographic import LexicographicResult, solve_lexicographic
from rackassign.solver.min_cost_flow import SolveBudget, SolverError
from rackassign.solver.problem import NOBODY, CompressedProblem, Problem
from rackassign.solver.types import Bools, Floats, Ints

BOUND_UNITS = 1 << 44
"""Into so many units the sum of all weights is cut to tell the bound."""

FLOW_UNITS = 1 << 24
"""The same for the flow: a solver counts in doubles, with tolerances that are absolute."""

MIN_IMPROVEMENT = 0.02
"""Loads that come closer by less than this share of one, or a cost that falls by less than this share of what it
could be at most, are not worth moves."""

_NOTHING = 1e-12

_ROUNDS_PER_MEMBER = 8

_MOST_COMPARED = 300
"""So many partitions of each of two members are held against each other for an exchange."""

_TRIES = 6


@dataclass(frozen=True, slots=True)
class WeightedSolution:
    """Who reads what, and how heavy that is.

    Args:
        assignment: For each partition a member.
        gap: By how much the heaviest load is heavier, relative, than the least that is provably needed.
        note: What went wrong on the way; for people.
    """

    assignment: Ints
    gap: float
    note: str = ""


def solve_weighted(problem: Problem, weight: Floats, waiting: Bools, *, work: SolveBudget) -> WeightedSolution:
    """Give every partition to a member, so that loads of weight are even.

    Args:
        problem: What to solve.
        weight: Of each partition, finite and 0 or more, not all 0.
        waiting: Partitions without owner that can be handed out in the next rebalance only.
        work: Budget and deadline; is drawn on.
    """
    # Seen from the heaviest, so that no sum is infinite and no unit 0; what vanishes beside it weighs nothing.
    weight = weight / float(weight.max())
    weight = np.where(weight < _NOTHING, 0.0, weight)
    level, least = _fractional_bound(problem, weight)
    deciding = _StabilityPolicy(_WeightedInstance(problem, weight, level, work), waiting)
    reader = deciding.decided()
    heaviest = float(np.bincount(reader, weight, len(level)).max())
    return WeightedSolution(reader, max(0.0, heaviest / least - 1.0), deciding.doubt)


class _StabilityPolicy:
    """What to keep and what to change.

    Args:
        ground: Members and partitions.
        waiting: Partitions without owner that can be handed out in the next rebalance only.
    """

    def __init__(self, ground: _WeightedInstance, waiting: Bools) -> None:
        self._ground, self._problem = ground, ground.problem
        self._waiting, self._work = waiting, ground.work
        self.doubt = ""
        self._reference = self._fresh(np.full(len(waiting), NOBODY))
        self._spread, self._cost = ground.spread(self._reference), ground.cost(self._reference)

    def decided(self) -> Ints:
        """Return the reader of each partition."""
        owner = self._problem.owner
        found: Ints | None = None
        if not self._work.late():
            reference = self._relabelled(owner)
            if _moves_nothing(owner, reference):
                return reference
            kept = self._kept(owner)
            found = self._settling(kept) if self._good(kept) else None
        if found is None and not self._work.late():
            found = self._settling(self._fresh(owner))
        if self._work.late():
            # Whatever was found by then was not made as even as it could be.
            self.doubt = "the time limit of the plan is over"
            return self._ground.kept_to_level(owner)
        return reference if found is None else found

    def _settling(self, target: Ints) -> Ints | None:
        """Return a target near this one that the next rebalance would complete and find good, if there is one."""
        owner, fallback = self._problem.owner, None
        for _ in range(_TRIES):
            # What nobody owned is handed out at once, what moves is nobody's until then.
            at_once = ((owner == NOBODY) & ~self._waiting) | (owner == target)
            then = self._kept(np.where(at_once, target, NOBODY))
            if self._good(then):
                if np.array_equal(then, target):
                    return target
                fallback = target if fallback is None else fallback
            target = then
        return fallback

    def _kept(self, owner: Ints) -> Ints:
        return self._ground.evened(self._ground.kept(owner), owner == NOBODY)

    def _fresh(self, owner: Ints) -> Ints:
        ground, staged = self._ground, None
        try:
            staged = _flow(replace(self._problem, owner=owner), ground.weight, self._work)
        except SolverError as error:
            self.doubt = str(error)
        return ground.evened(ground.laid(staged), np.ones(len(owner), bool))

    def _good(self, reader: Ints) -> bool:
        ground = self._ground
        even = ground.spread(reader) <= self._spread + float(ground.level.max()) * MIN_IMPROVEMENT
        return even and ground.cost(reader) <= self._cost + ground.dearest() * MIN_IMPROVEMENT

    def _relabelled(self, owner: Ints) -> Ints:
        """Return the reference with members of one kind exchanged, so that more of it stays with its owners.

        If there is a way to move nothing, this finds it: then no member owns something of two shares, and nothing
        of one share is owned by two.
        """
        crowd, rack = self._problem.subscription_class, self._problem.rack
        kind = (crowd * (int(rack.max()) + 1) + rack).tolist()
        overlap: dict[tuple[int, int], float] = {}
        for partition in np.flatnonzero(owner != NOBODY).tolist():
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
    return bool(((owner == NOBODY) | (owner == reader)).all())


def _fractional_bound(problem: Problem, weight: Floats) -> tuple[Floats, float]:
    """Return the level of each member if weights could be split, and the least that the heaviest load can be."""
    unit = float(weight.sum()) / BOUND_UNITS
    # Rounded down, so that the bound holds.
    grains = np.floor(weight / unit)
    supply = np.bincount(problem.topic_class, grains, problem.families).astype(np.int64)
    ceiling = compute_balance(
        supply, problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class
    ).max_load
    level: Floats = ceiling[problem.subscription_class].astype(np.float64) * unit
    return level, max(float(weight.max()), (int(ceiling.max()) - 1) * unit)


def _flow(problem: Problem, weight: Floats, work: SolveBudget) -> LexicographicResult:
    """Return flows of sand: at its level, of least cost, then of most that stays."""
    grains = np.rint(weight * (FLOW_UNITS / float(weight.sum())))
    supply = np.bincount(problem.topic_class, grains, problem.families).astype(np.int64)
    sand = compute_balance(supply, problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class)
    counted = CompressedProblem.of(problem, sand.allowed)
    classes, stays = len(counted.class_family), len(counted.stay_class)
    grouped = replace(
        counted,
        class_supply=np.bincount(counted.class_of, grains, classes).astype(np.int64),
        stay_size=np.bincount(counted.hold_stay[counted.hold_of], grains[counted.current], stays).astype(np.int64),
    )
    return solve_lexicographic(grouped, sand.max_load - 1, sand.max_load, work)


class _WeightedInstance:
    """Members, how full they should be, and partitions to lay on them.

    Args:
        problem: Whose; its owners play no part here.
        weight: Of each partition.
        level: Of each member.
        work: Is drawn on.
    """

    def __init__(self, problem: Problem, weight: Floats, level: Floats, work: SolveBudget) -> None:
        self.problem, self.weight, self.level, self.work = problem, weight, level, work
        self.reads = np.zeros((problem.families, len(problem.sizes())), bool)
        self.reads[problem.edge_topic_class, problem.edge_subscription_class] = True
        self.readers: list[Ints] = [np.flatnonzero(row[problem.subscription_class]) for row in self.reads]

    def loads(self, reader: Ints) -> Floats:
        """Return the weight of each member's partitions."""
        given = reader != NOBODY
        return np.bincount(reader[given], self.weight[given], len(self.level)).astype(np.float64)

    def kept(self, owner: Ints) -> Ints:
        """Return all partitions with these owners, the others laid where there is most room."""
        return self._laid(owner.copy(), {})

    def kept_to_level(self, owner: Ints) -> Ints:
        """Return as many partitions with these owners as begin below their level, the others laid on who has room."""
        held = np.flatnonzero(owner != NOBODY)
        held = held[np.lexsort((held, -self.weight[held], owner[held]))]
        whose = owner[held]
        before = np.cumsum(self.weight[held]) - self.weight[held]
        before -= before[np.searchsorted(whose, whose, "left")]
        kept = held[before < self.level[whose]]
        reader = np.full(len(owner), NOBODY)
        reader[kept] = owner[kept]
        return self._laid(reader, {})

    def laid(self, staged: LexicographicResult | None) -> Ints:
        """Return partitions laid where the flow would have them; without one, where there is most room."""
        reader = np.full(len(self.weight), NOBODY)
        if staged is None:
            return self._laid(reader, {})
        grouped, layout = staged.grouped, staged.layout
        stays, to_hub, *_ = layout.split(staged.flow)
        unit = float(self.weight.sum()) / FLOW_UNITS
        order = np.lexsort((grouped.current, -self.weight[grouped.current], grouped.hold_of))
        # Each hold of a stay keeps the same share of what it has.
        kept = stays / np.maximum(grouped.stay_size, 1)
        left = (
            np.bincount(grouped.hold_of, self.weight[grouped.current], len(grouped.hold_stay)) * kept[grouped.hold_stay]
        )
        for place in order.tolist():
            partition, hold = int(grouped.current[place]), int(grouped.hold_of[place])
            # What is more than half on the flow is on it.
            if left[hold] >= self.weight[partition] / 2:
                reader[partition] = grouped.problem.owner[partition]
                left[hold] -= self.weight[partition]
        wanted: dict[tuple[int, int], dict[int, float]] = {}
        arcs = layout.hub_arcs
        for arc in np.flatnonzero(to_hub).tolist():
            class_ = arcs.tail[arc]
            key = int(grouped.class_family[class_]), int(grouped.class_near[class_])
            wanted.setdefault(key, {})[int(layout.hub_rack[arcs.head[arc]])] = float(to_hub[arc]) * unit
        return self._laid(reader, wanted)

    def _laid(self, reader: Ints, wanted: dict[tuple[int, int], dict[int, float]]) -> Ints:
        """Lay what is left, the heaviest first: in the rack that wants most of it, on who has most room there."""
        problem = self.problem
        load = self.loads(reader)
        count = np.bincount(reader[reader != NOBODY], minlength=len(self.level))
        at_home: dict[tuple[int, int], Ints] = {}
        free = np.flatnonzero(reader == NOBODY)
        for partition in free[np.lexsort((free, -self.weight[free]))].tolist():
            family, near = int(problem.topic_class[partition]), int(problem.cost_row[partition])
            racks = wanted.get((family, near), {})
            candidates = self.readers[family]
            if racks:
                rack = max(racks, key=lambda r: (racks[r], -r))
                racks[rack] -= self.weight[partition]
                if (family, rack) not in at_home:
                    at_home[family, rack] = candidates[problem.rack[candidates] == rack]
                candidates = at_home[family, rack]
            full = load[candidates] - self.level[candidates]
            # What weighs nothing is spread by number over all of them.
            emptiest = candidates[full == full.min()] if self.weight[partition] else candidates
            fewest = emptiest[count[emptiest] == count[emptiest].min()]
            member = int(fewest[np.argmin(problem.cost[near, problem.rack[fewest]])])
            count[member] += 1
            reader[partition] = member
            load[member] += self.weight[partition]
        return reader

    def evened(self, reader: Ints, movable: Bools) -> Ints:
        """Return the same with the fullest members relieved as far as single gifts and swaps go."""
        return _LocalSearch(self, reader, movable).run()

    def spread(self, reader: Ints) -> float:
        """Return how far members are apart, each seen from its level."""
        return float(np.ptp(self.loads(reader) - self.level))

    def cost(self, reader: Ints) -> float:
        """Return what reading costs, per weight."""
        return float(self.problem.cost[self.problem.cost_row, self.problem.rack[reader]] @ self.weight)

    def dearest(self) -> float:
        """Return what it would cost if every partition were read at the highest cost there is."""
        return float(self.problem.cost.max(initial=0)) * float(self.weight.sum())


class _LocalSearch:
    """Gifts and swaps between members, each of which makes the fuller of two less full."""

    def __init__(self, ground: _WeightedInstance, reader: Ints, movable: Bools) -> None:
        problem, weight, level = ground.problem, ground.weight, ground.level
        self._family, self._weight, self._level, self._readers = problem.topic_class, weight, level, ground.readers
        self._cost, self._near, self._rack = problem.cost, problem.cost_row, problem.rack
        self._crowd, self._reads = problem.subscription_class, ground.reads
        self._reader: Ints = reader.copy()
        self._has: list[list[int]] = [[] for _ in level]
        for partition in np.flatnonzero(movable).tolist():
            self._has[int(reader[partition])].append(partition)
        self._over = ground.loads(reader) - level
        self._work = ground.work

    def run(self) -> Ints:
        """Relieve the fullest member that can be, until none can or enough has been tried."""
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
        """Return what to give, what to take for it, if anything, and whom; dearer readings only if nothing else."""
        best: tuple[tuple[bool, float, int, int], tuple[int, int | None, int]] | None = None
        families: dict[int, list[int]] = {}
        for partition in self._has[giver]:
            families.setdefault(int(self._family[partition]), []).append(partition)
        for family, gifts in families.items():
            readers = self._readers[family]
            other = int(readers[np.argmin(self._over[readers])])
            room = float(self._over[giver] - self._over[other])
            # Two loads that differ by rounding alone are equal.
            if room <= 1e-9 * float(self._level.max()):
                continue
            for give, take, moved in self._exchanges(gifts, other, giver, room):
                dearer = self._dearer(give, giver, other) + (0 if take is None else self._dearer(take, other, giver))
                score = (dearer > 0, abs(room / 2 - moved), give, -1 if take is None else take)
                if best is None or score < best[0]:
                    best = score, (give, take, other)
        return None if best is None else best[1]

    def _exchanges(self, gifts: list[int], other: int, giver: int, room: float) -> list[tuple[int, int | None, float]]:
        """Return exchanges that move more than nothing and less than all of the difference."""
        gifts = self._few(gifts)
        crowd = int(self._crowd[giver])
        back = self._few([q for q in self._has[other] if self._reads[int(self._family[q]), crowd]])
        taken: list[int | None] = [None, *back]
        given = self._weight[gifts][:, None] - np.append(0.0, self._weight[back])[None, :]
        fits = (given > room * 1e-9) & (given < room * (1 - 1e-9))
        rows, columns = np.nonzero(fits)
        # The best few are enough: one of them is taken.
        nearest = np.argsort(np.abs(given[rows, columns] - room / 2), kind="stable")[:4]
        return [(gifts[rows[i]], taken[columns[i]], float(given[rows[i], columns[i]])) for i in nearest.tolist()]

    def _few(self, partitions: list[int]) -> list[int]:
        """Return them all, or if they are many, some of every weight."""
        if len(partitions) <= _MOST_COMPARED:
            return partitions
        ordered = sorted(partitions, key=lambda partition: (self._weight[partition], partition))
        return [ordered[i * len(ordered) // _MOST_COMPARED] for i in range(_MOST_COMPARED)]

    def _dearer(self, partition: int, giver: int, taker: int) -> int:
        row = self._cost[self._near[partition]]
        return int(row[self._rack[taker]] - row[self._rack[giver]])
