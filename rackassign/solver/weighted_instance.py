"""Weighted partitions: bounds and limits of loads, assignment by quota, and loads that change.

Rules: this module measures and completes assignments. It decides neither what is kept nor what is moved.

`Loads` is an assignment that changes, one partition after the other. It has neither limits nor a search; that is
`weighted_search`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rackassign.solver.balance import compute_balance
from rackassign.solver.lexicographic import LexicographicResult, LoadBounds, solve_lexicographic
from rackassign.solver.network_flow import Bools, Floats, Ints, SolveBudget
from rackassign.solver.problem import NO_MEMBER, CompressedProblem, Problem

BOUND_UNITS = 1 << 44
"""Number of units into which the sum of all weights is divided to compute the bound."""

FLOW_UNITS = 1 << 24
"""Number of units for the flow. It is smaller because a solver computes in doubles, with absolute tolerances."""

_ARCS_OF_A_CHOICE = 250
"""How many arcs of a flow can be looked at in the time that it takes to choose the member of a partition."""

STARVED = 0.5
"""Share of its even level below which a member is starved."""

ROUNDING = 1e-9
"""Relative difference of two sums that are equal but for rounding."""


class WeightedInstance:
    """Members, their target loads, and partitions to assign."""

    def __init__(self, problem: Problem, weight: Floats, tolerance: float, work: SolveBudget) -> None:
        # Owners are not used. A weight is 1 at most, `tolerance` the share of its limit by which a load may be above.
        self.problem, self.weight, self.tolerance, self.work = problem, weight, tolerance, work
        self.reads = np.zeros((problem.topic_classes, len(problem.sizes())), bool)
        self.reads[problem.edge_topic_class, problem.edge_subscription_class] = True
        # Members that may get partitions of each topic class.
        self.readers: list[Ints] = [np.flatnonzero(row[problem.subscription_class]) for row in self.reads]
        unit = float(weight.sum()) / BOUND_UNITS
        # Rounded down, so that the bound is valid.
        supply = np.bincount(problem.topic_class, np.floor(weight / unit), problem.topic_classes).astype(np.int64)
        balance = compute_balance(
            supply, problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class, work.spend
        )
        self._flow, ceiling = balance.flow, balance.max_load
        # Load of each member if weights could be split.
        self.level: Floats = ceiling[problem.subscription_class].astype(np.float64) * unit
        self.least_heaviest = max(float(weight.max()), (int(ceiling.max()) - 1) * unit)
        first = np.searchsorted(problem.edge_topic_class, np.arange(problem.topic_classes))
        lowest = np.minimum.reduceat(ceiling[problem.edge_subscription_class], first)
        # Of each member: a lower bound of the heaviest load in its part, and its level without partitions that are
        # heavier than it, and a member for each.
        self.bound: Floats
        self.even_level: Floats
        self.bound, self.even_level = self._parts(ceiling[problem.subscription_class], lowest[problem.topic_class])

    def _parts(self, of_member: Ints, of_partition: Ints) -> tuple[Floats, Floats]:
        """Return the bound and the even level of each member; members and partitions of one ceiling are a part."""
        bound, even = self.level.copy(), np.zeros(len(of_member))
        for ceiling in np.unique(of_member).tolist():
            inside = of_member == ceiling
            heavy = np.sort(self.weight[of_partition == ceiling])[::-1]
            # What is left for each member if the heaviest are left out, the first k with k members.
            sums = float(heavy.sum()) - np.append(0.0, np.cumsum(heavy))
            left = int(inside.sum()) - np.arange(len(sums))
            alone = (left[:-1] > 1) & (heavy * left[:-1] > sums[:-1] * (1 + ROUNDING))
            k = int(np.argmin(np.append(alone, False)))
            even[inside] = max(0.0, sums[k]) / left[k]
            bound[inside] = np.maximum(bound[inside], heavy[0] if len(heavy) else 0.0)
        return bound, even

    def loads(self, reader: Ints) -> Floats:
        given = reader != NO_MEMBER
        return np.bincount(reader[given], self.weight[given], len(self.level)).astype(np.float64)

    def reached(self, reader: Ints) -> Floats:
        """Return for each member the heaviest load of its part in this assignment, or the bound if that is higher."""
        load = self.loads(reader)
        reached: Floats = self.bound.copy()
        for level in np.unique(self.level).tolist():
            inside = self.level == level
            reached[inside] = np.maximum(reached[inside], load[inside].max())
        return reached

    def within(self, reader: Ints, base: Floats) -> bool:
        return bool((self.loads(reader) <= base * (1 + self.tolerance) * (1 + ROUNDING)).all())

    def costs(self, reader: Ints) -> Ints:
        """Return the cost of each partition, per weight."""
        found: Ints = self.problem.cost[self.problem.cost_row, self.problem.rack[reader]]
        return found

    def least_costs(self) -> Ints:
        problem = self.problem
        found = np.empty(len(self.weight), np.int64)
        for topic_class, readers in enumerate(self.readers):
            racks = np.unique(problem.rack[readers])
            inside = problem.topic_class == topic_class
            found[inside] = problem.cost[problem.cost_row[inside]][:, racks].min(axis=1)
        return found

    def costs_within(self, costs: Ints, reference: Ints) -> bool:
        """Return whether costs of partitions are within the tolerance of these.

        They are if their sum is not higher. They also are if, of each amount, the weight that is read at that cost or
        more exceeds that of the reference by the tolerance at most, as a share of all weight, and the heaviest
        partition, but by no more than three times the tolerance.
        """
        if float((costs - reference) @ self.weight) <= 0:
            return True
        amounts = np.unique(np.append(costs, reference))
        tolerated = float(self.weight.sum()) * self.tolerance
        allowed = (tolerated + min(2 * tolerated, float(self.weight.max()))) * (1 + ROUNDING)
        above = self._weight_from(amounts, costs) - self._weight_from(amounts, reference)
        return bool((above <= allowed).all())

    def _weight_from(self, amounts: Ints, costs: Ints) -> Floats:
        by_amount = np.bincount(np.searchsorted(amounts, costs), self.weight, len(amounts))
        found: Floats = np.cumsum(by_amount[::-1])[::-1].astype(np.float64)
        return found

    def completed(self, owner: Ints) -> Ints:
        """Return an assignment with these owners; other partitions go to the cheapest members that have capacity.

        Capacity ends at half of the tolerance, so that other weights in the next rebalance find it within. Starved
        members come first, or what others have revoked for a member that joins would go back to them.
        """
        problem, weight, goal = self.problem, self.weight, 1 + self.tolerance / 2
        reader: Ints = owner.copy()
        load = self.loads(owner)
        count = np.bincount(owner[owner != NO_MEMBER], minlength=len(self.level))
        free = np.flatnonzero(owner == NO_MEMBER)
        self.work.spend_part(4 * _ARCS_OF_A_CHOICE * len(free))
        starving = self.even_level * STARVED
        for partition in free[np.lexsort((free, -weight[free]))].tolist():
            candidates = self.readers[int(problem.topic_class[partition])]
            cost = problem.cost[problem.cost_row[partition]]
            # Partitions of weight 0 are spread by number.
            if not weight[partition]:
                candidates = _lowest(candidates, count[candidates])
                candidates = _lowest(candidates, cost[problem.rack[candidates]])
            else:
                limit = np.maximum(self.even_level[candidates], weight[partition]) * goal
                fitting = candidates[load[candidates] + weight[partition] <= limit * (1 + ROUNDING)]
                if len(fitting):
                    starved = fitting[load[fitting] < starving[fitting]]
                    fitting = starved if len(starved) else fitting
                    fitting = _lowest(fitting, cost[problem.rack[fitting]])
                    candidates = _lowest(fitting, load[fitting] - self.level[fitting])
                else:
                    candidates = _lowest(candidates, load[candidates] - self.level[candidates])
                    candidates = _lowest(candidates, cost[problem.rack[candidates]])
            member = int(candidates[0])
            count[member] += 1
            reader[partition] = member
            load[member] += weight[partition]
        return reader

    def kept_to_limit(self, owner: Ints) -> Ints:
        """Keep the partitions that begin below their owner's level, or end within the tolerance; complete the rest.

        Then once more, for members that have got a heavy partition on top of theirs.
        """
        return self.completed(self._up_to_limit(self.completed(self._up_to_limit(owner))))

    def _up_to_limit(self, reader: Ints) -> Ints:
        assigned = np.flatnonzero(reader != NO_MEMBER)
        assigned = assigned[np.lexsort((assigned, -self.weight[assigned], reader[assigned]))]
        whose = reader[assigned]
        before = np.cumsum(self.weight[assigned]) - self.weight[assigned]
        before -= before[np.searchsorted(whose, whose, "left")]
        limit = self.bound * (1 + self.tolerance)
        kept = assigned[(before < self.level[whose]) | (before + self.weight[assigned] <= limit[whose])]
        found = np.full(len(reader), NO_MEMBER)
        found[kept] = reader[kept]
        return found

    def flow(self, owner: Ints, tolerance: float) -> LexicographicResult:
        """Return flows of split weights: within `tolerance` of their level, of lowest cost, then of fewest moves."""
        problem = replace(self.problem, owner=owner)
        grains = np.rint(self.weight * (FLOW_UNITS / float(self.weight.sum())))
        supply = np.bincount(problem.topic_class, grains, problem.topic_classes).astype(np.int64)
        sand = compute_balance(
            supply,
            problem.sizes(),
            problem.edge_topic_class,
            problem.edge_subscription_class,
            self.work.spend,
            start=self._flow // (BOUND_UNITS // FLOW_UNITS),
        )
        counted = CompressedProblem.of(problem, sand.allowed)
        classes, keep_arcs = len(counted.class_topic_class), len(counted.keep_arc_class)
        grouped = replace(
            counted,
            class_supply=np.bincount(counted.class_of, grains, classes).astype(np.int64),
            keep_arc_size=np.bincount(
                counted.owned_keep_arc[counted.owned_of], grains[counted.current], keep_arcs
            ).astype(np.int64),
        )
        slack = np.floor(sand.max_load * tolerance).astype(np.int64)
        return solve_lexicographic(
            grouped, LoadBounds(np.maximum(0, sand.max_load - 1 - slack), sand.max_load + slack), self.work
        )

    def from_flow(self, staged: LexicographicResult | None) -> Ints:
        """Assign partitions as the flow does; without one, to the members with most capacity left."""
        reader = np.full(len(self.weight), NO_MEMBER)
        if staged is None:
            return self._assign_by_quota(reader, {})
        grouped, layout = staged.grouped, staged.layout
        keep_arcs, to_hub, *_ = layout.split(staged.flow)
        unit = float(self.weight.sum()) / FLOW_UNITS
        order = np.lexsort((grouped.current, -self.weight[grouped.current], grouped.owned_of))
        # Each owned set of a keep arc keeps the same share of its partitions.
        kept = keep_arcs / np.maximum(grouped.keep_arc_size, 1)
        left = (
            np.bincount(grouped.owned_of, self.weight[grouped.current], len(grouped.owned_keep_arc))
            * kept[grouped.owned_keep_arc]
        )
        for place in order.tolist():
            partition, owned_set = int(grouped.current[place]), int(grouped.owned_of[place])
            # A partition is on the flow if more than half of its weight is.
            if left[owned_set] >= self.weight[partition] / 2:
                reader[partition] = grouped.problem.owner[partition]
                left[owned_set] -= self.weight[partition]
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
        above = self.loads(reader) - self.level
        count = np.bincount(reader[reader != NO_MEMBER], minlength=len(self.level))
        in_rack: dict[tuple[int, int], Ints] = {}
        free = np.flatnonzero(reader == NO_MEMBER)
        self.work.spend_part(_ARCS_OF_A_CHOICE * len(free))
        order = free[np.lexsort((free, -self.weight[free]))]
        # Single numbers are read from lists, which is faster than from arrays: this runs once for each partition.
        columns = (order, problem.topic_class[order], problem.cost_row[order], self.weight[order])
        for partition, topic_class, near, weight in zip(*(each.tolist() for each in columns), strict=True):
            racks = wanted.get((topic_class, near))
            candidates = self.readers[topic_class]
            if racks:
                rack = max(racks, key=lambda r: (racks[r], -r))
                racks[rack] -= weight
                if (topic_class, rack) not in in_rack:
                    in_rack[topic_class, rack] = candidates[problem.rack[candidates] == rack]
                candidates = in_rack[topic_class, rack]
            # Partitions of weight 0 are spread by number over all of them.
            if weight:
                capacity = above.take(candidates)
                lowest = int(capacity.argmin())
                alike = capacity == capacity[lowest]
                candidates = candidates[lowest : lowest + 1] if np.count_nonzero(alike) == 1 else candidates[alike]
            if len(candidates) > 1:
                candidates = _lowest(candidates, count[candidates])
            if len(candidates) > 1:
                candidates = _lowest(candidates, problem.cost[near, problem.rack[candidates]])
            member = int(candidates[0])
            count[member] += 1
            reader[partition] = member
            above[member] += weight
        return reader


def _lowest(members: Ints, values: Ints | Floats) -> Ints:
    found: Ints = members[values == values.min()]
    return found


def moved_weight(weight: Floats, owner: Ints, reader: Ints) -> float:
    moved: Bools = (owner != NO_MEMBER) & (owner != reader)
    return float(weight[moved].sum())


ARCS_OF_A_LOOK = 700
"""How many arcs of a flow can be looked at in the time that it takes to find the best other member of a partition."""

ARCS_OF_A_PAIR = 15
"""How many, in the time that it takes to compare two partitions, or to copy one."""


class Loads:
    """Partitions and load of each member."""

    def __init__(self, ground: WeightedInstance, reader: Ints, owner: Ints, limit: Floats) -> None:
        problem = ground.problem
        self.ground, self.limit = ground, limit
        self.weight: list[float] = ground.weight.tolist()
        self.topic_class: list[int] = problem.topic_class.tolist()
        self.reader: list[int] = reader.tolist()
        self.owner: list[int] = owner.tolist()
        # Dicts, as partitions are removed by the thousand, and in order.
        self.has: list[dict[int, None]] = [{} for _ in ground.level]
        for partition, member in enumerate(self.reader):
            self.has[member][partition] = None
        ground.work.spend_part(ARCS_OF_A_PAIR * len(self.reader))
        self.load = ground.loads(reader)

    def held(self, member: int, movable: Bools | None = None) -> list[int]:
        """Return the member's partitions with a weight; with `movable` only those of them."""
        return [p for p in self.has[member] if self.weight[p] and (movable is None or movable[p])]

    def price(self, partition: int) -> float:
        """Return the weight that moves if this partition is given away."""
        return self.weight[partition] if self.owner[partition] == self.reader[partition] else 0.0

    def move(self, partition: int, member: int) -> None:
        donor, weight = self.reader[partition], self.weight[partition]
        del self.has[donor][partition]
        self.has[member][partition] = None
        self.load[donor] -= weight
        self.load[member] += weight
        self.reader[partition] = member

    def excess(self) -> Floats:
        """Return by how much each load is above its limit, negative if it is below."""
        return self.load - self.limit * (1 + ROUNDING)

    def room(self, partition: int, members: Ints) -> Floats:
        """Return how much capacity these members have left with this partition."""
        found: Floats = self.limit[members] * (1 + ROUNDING) - self.load[members] - self.weight[partition]
        return found

    def costs(self, partition: int, members: Ints) -> Ints:
        problem = self.ground.problem
        found: Ints = problem.cost[problem.cost_row[partition], problem.rack[members]]
        return found

    def ended(self, movable: Bools | None) -> bool:
        """Return whether to stop: with `movable`, which have to be distributed in any case, only at the deadline."""
        work = self.ground.work
        return bool(work.end()) if movable is None else work.late()

    def others(self, partition: int) -> Ints:
        readers = self.ground.readers[self.topic_class[partition]]
        self.ground.work.spend_part(ARCS_OF_A_LOOK + len(readers))
        found: Ints = readers[readers != self.reader[partition]]
        return found
