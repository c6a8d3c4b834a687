"""Locality before balance, within a bound on the skew of each subscription class.

Theory
------
Members of one subscription class may have loads from a base b to b + 1 + k. With fixed bases this is a flow as usual:
cost first, then the sum of squared loads (one arc per level), then moves. Only few bases can be feasible: classes of
one member need none, and a group with equal subscriptions has at most k + 2. The solver tries all combinations. If
there are too many (many overlapping subscription classes, a large k), it changes the base of one class at a time as
long as that improves the result, and does not call the result optimal.

Ties are broken for the bases whose result is not worse than the best one before, so the best of them is found as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from rackassign.solver.balance import BalanceConstraints
from rackassign.solver.lexicographic import LoadBounds, break_ties, solve_lexicographic
from rackassign.solver.min_cost_flow import BudgetExhaustedError, InfeasibleError, SolveBudget, SolverError
from rackassign.solver.problem import CompressedProblem, Problem
from rackassign.solver.types import Ints

MOST_BASES = 256
MOST_LEVELS = 2_000_000
"""Limit of the number of arcs for levels. Beyond it, a looser bound is not worth the memory."""


@dataclass(frozen=True, slots=True)
class SkewSolution:
    """An assignment within a bound on the skew.

    Args:
        assignment: Member of each partition.
        note: What is not proven, as text for users; empty if cost, balance and moves are optimal.
        tie_note: The same of ties.
    """

    assignment: Ints
    note: str
    tie_note: str


@dataclass(frozen=True, slots=True)
class _Tried:
    """Result for some bases.

    Args:
        score: Cost, loads from large to small, moves, and tie cost.
        assignment: Member of each partition.
    """

    score: tuple[int, tuple[int, ...], int, int]
    assignment: Ints


def solve_with_skew(problem: Problem, balance: BalanceConstraints, max_skew: int, work: SolveBudget) -> SkewSolution:
    """Return the assignment of lowest cost within the bound.

    Args:
        problem: Problem to solve.
        balance: Optimal balance, where the search begins.
        max_skew: How many partitions more than 1 the members of a subscription class may differ by.
        work: Budget. The steps used are deducted.

    Raises:
        SolverError: No choice of bases could be solved.
    """
    grouped = CompressedProblem.of(problem, np.ones(len(problem.edge_topic_class), bool))
    search = _Search(grouped, max_skew, work)
    ranges = search.ranges()
    # Of hundreds of subscription classes no float holds the number.
    combinations = math.prod(map(len, ranges))
    start = tuple(np.clip(balance.max_load - 1, [r[0] for r in ranges], [r[-1] for r in ranges]).tolist())
    search.try_bases(start)
    try:
        if combinations <= MOST_BASES:
            for bases in product(*ranges):
                if bases != start:
                    search.try_bases(bases)
        else:
            search.note = "there are too many combinations of base loads to try all of them"
            search.descend(start, ranges)
    except BudgetExhaustedError as error:
        search.note = str(error)
    if search.best is None:
        raise SolverError("no base load is feasible")
    return SkewSolution(search.best.assignment, search.note, search.tie_note)


class _Search:
    def __init__(self, grouped: CompressedProblem, max_skew: int, work: SolveBudget) -> None:
        self._grouped = grouped
        self._sizes = grouped.problem.sizes()
        self._total = len(grouped.problem.topic_class)
        self._width = np.where(self._sizes > 1, min(1 + max_skew, self._total), self._total)
        problem = grouped.problem
        self._reach = np.bincount(
            problem.edge_subscription_class, problem.supply()[problem.edge_topic_class], len(self._sizes)
        ).astype(np.int64)
        self._work = work
        self.best: _Tried | None = None
        self.note = self.tie_note = ""

    def ranges(self) -> list[range]:
        """Return the bases that can be feasible, by subscription class."""
        problem = self._grouped.problem
        only = np.bincount(problem.edge_topic_class, minlength=problem.topic_classes)[problem.edge_topic_class] == 1
        own = np.bincount(
            problem.edge_subscription_class[only], problem.supply()[problem.edge_topic_class[only]], len(self._sizes)
        )
        found: list[range] = []
        for size, width, most, least in zip(
            self._sizes.tolist(), self._width.tolist(), self._reach.tolist(), own.astype(int).tolist(), strict=True
        ):
            highest = most // size
            lowest = min(max(0, -(-least // size) - width), highest)
            found.append(range(lowest, highest + 1) if size > 1 else range(1))
        return found

    def try_bases(self, bases: tuple[int, ...]) -> bool:
        """Solve for these bases, if they are feasible; return whether the result is the best so far."""
        low = np.asarray(bases, np.int64)
        high = np.minimum(low + self._width, np.maximum(self._reach, low))
        levels = int((high - low)[self._grouped.problem.subscription_class].sum()) <= MOST_LEVELS
        try:
            result = solve_lexicographic(self._grouped, LoadBounds(low, high, levels), self._work)
        except InfeasibleError:
            return False
        self.note = self.note or ("" if levels else "there are too many possible loads to optimize their balance")
        self.note = self.note or result.note
        found = self._scored(result.assignment())
        if self.best is not None and found.score[:3] > self.best.score[:3]:
            return False
        better, tie_note = self.best is None or found.score[:3] < self.best.score[:3], ""
        try:
            found = self._scored(break_ties(result, self._work).assignment())
        except SolverError as error:
            tie_note = str(error)
        self.tie_note = tie_note if better else self.tie_note or tie_note
        if self.best is not None and found.score >= self.best.score:
            return False
        self.best = found
        return True

    def descend(self, start: tuple[int, ...], ranges: list[range]) -> None:
        """Change one base at a time as long as the score decreases."""
        at, improved = start, True
        while improved:
            improved = False
            for near in _neighbours(at, ranges):
                if self.try_bases(near):
                    at, improved = near, True

    def _scored(self, reader: Ints) -> _Tried:
        problem = self._grouped.problem
        loads = np.bincount(reader, minlength=len(problem.subscription_class))
        moves = int(((reader != problem.owner) & (problem.owner >= 0)).sum())
        ties = problem.tie_cost_of(reader)
        return _Tried((problem.cost_of(reader), tuple(np.sort(loads)[::-1].tolist()), moves, ties), reader)


def _neighbours(bases: tuple[int, ...], ranges: list[range]) -> Iterator[tuple[int, ...]]:
    for i, allowed in enumerate(ranges):
        for base in (bases[i] - 1, bases[i] + 1):
            if base in allowed:
                yield (*bases[:i], base, *bases[i + 1 :])
