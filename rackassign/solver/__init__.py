"""Solver: compute assignments and replica placements exactly, on integers and arrays.

Rules of this package:

* It is independent of Kafka: partitions, members, racks and topics are numbers, and it imports no other package of
  rackassign.
* A result is either proven or marked as not proven. Flows and prices are checked in integers (`min_cost_flow`),
  whatever computed them. A plan is called optimal only if it passed this check.
* There is always a result. If the budget of steps ends while moves are optimized, balance and cost are optimal and
  moves are few. If it ends before, the result is still balanced, and as sticky and local as assigning one partition at
  a time makes it (`greedy`). The caller gets the reason.
* Equal arrays give equal results, on any machine and in any process, unless a deadline passes meanwhile.

Theory of operation
-------------------
There are four objectives. Each is optimized within the optima of the one before:

1. *Balance* (`balance`): depends only on topic classes (partitions with the same set of readers) and subscription
   classes (members with the same subscription). Its result is the set of all balanced assignments rather than one of
   them: two neighbouring loads per subscription class, and which topic classes each may read.
2. *Cost*, then 3. *moves* (`lexicographic`, `assignment_network`, `min_cost_flow`): a min-cost flow from classes of
   interchangeable partitions to members. Its size grows with the numbers of classes, racks and owned partitions, not
   with partitions x members.
4. *Ties*: a second cost, if there is one, with the same method (`break_ties`).

Balance can be that of each topic first (`compute_topic_balance`). Then every topic is a topic class, and the flow has
bounds for each pair of a topic class and a member.

With a bound on the skew instead, cost comes first, and balance is optimized within that bound (`solve_with_skew`).
Weights cannot be balanced exactly in useful time; for them the solver computes a bound (`weighted`).
`assignment_network.expand_flow` converts flows back into partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rackassign.solver.assignment_network import TopicBounds
from rackassign.solver.balance import BalanceConstraints, compute_balance, compute_topic_balance
from rackassign.solver.greedy import greedy, greedy_per_topic, nearest_flow
from rackassign.solver.lexicographic import (
    TOO_LARGE_FOR_TIES,
    LoadBounds,
    break_ties,
    solve_lexicographic,
    solve_with_skew,
)
from rackassign.solver.network_flow import Ints, SolveBudget, SolverError, uncharged
from rackassign.solver.problem import NO_MEMBER, CompressedProblem, Problem, TieCosts
from rackassign.solver.topic_spread import spread_topics
from rackassign.solver.weighted import WeightedSolution, solve_weighted

__all__ = [
    "NO_MEMBER",
    "Objective",
    "Problem",
    "Solution",
    "SolveBudget",
    "TieCosts",
    "WeightedSolution",
    "solve",
    "solve_weighted",
    "spread_topics",
]

_EVEN_STEPS = 10_000
"""Steps for a balanced assignment, if a search with a skew has found nothing in all others."""

Objective: TypeAlias = Literal["topic-balance", "balance", "cost", "moves", "ties"]
"""An objective that a solution can be proven optimal in."""


@dataclass(frozen=True, slots=True)
class Solution:
    """An assignment, and the objectives in which it is proven optimal.

    Args:
        assignment: Member of each partition.
        proven: Objectives in which it is proven optimal, in their order. Each is optimal within the ones before it.
        note: Reason why an objective is not proven, as text for users; empty if all are.
    """

    assignment: Ints
    proven: tuple[Objective, ...]
    note: str = ""


def solve(problem: Problem, *, max_skew: int = 0, per_topic: bool = False, work: SolveBudget) -> Solution:
    """Assign every partition to a member.

    Args:
        problem: Problem to solve.
        max_skew: 0: balance, then cost, then moves. k > 0: members of a subscription class may differ by up to 1 + k,
            and cost comes before balance.
        per_topic: Whether each topic class is balanced before the totals. Not together with `max_skew`.
        work: Budget and deadline. The steps used are deducted.
    """
    order = _objectives(problem, max_skew, per_topic=per_topic)
    if not len(problem.topic_class):
        return Solution(problem.topic_class, order)
    if per_topic:
        return _solve_per_topic(problem, order, work)
    # Racks come first, and then what balance requires: it is found sooner, and if time runs out they are not forgotten.
    near = nearest_flow(problem, np.arange(len(problem.topic_class)))
    balance = compute_balance(
        *(problem.supply(), problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class, uncharged),
        start=near if near.any() else None,
    )
    try:
        if max_skew:
            return _solve_skewed(problem, balance, max_skew, order, work)
        bounds = LoadBounds(balance.max_load - 1, balance.max_load)
        return _solve_flow(CompressedProblem.of(problem, balance.allowed), bounds, order, work)
    except SolverError as error:
        # Balance is exact without a flow, but with a skew it is not what comes first.
        return Solution(greedy(problem, balance), () if max_skew else order[:1], str(error))


def _solve_skewed(
    problem: Problem, balance: BalanceConstraints, max_skew: int, order: tuple[Objective, ...], work: SolveBudget
) -> Solution:
    try:
        bounded = solve_with_skew(problem, balance, max_skew, work)
    except SolverError as error:
        if work.late():
            raise
        # Balanced loads are within the bound too, and their network is small.
        work.left = max(work.left, 0) + _EVEN_STEPS
        bounds = LoadBounds(balance.max_load - 1, balance.max_load)
        even = solve_lexicographic(CompressedProblem.of(problem, balance.allowed), bounds, work)
        return Solution(even.assignment(), (), str(error))
    proven = () if bounded.note else order[:-1] if bounded.tie_note else order
    return Solution(bounded.assignment, proven, bounded.note or bounded.tie_note)


def _objectives(problem: Problem, max_skew: int, *, per_topic: bool) -> tuple[Objective, ...]:
    last: tuple[Objective, ...] = ("moves", "ties") if problem.ties is not None else ("moves",)
    if max_skew:
        return "cost", "balance", *last
    return ("topic-balance", "balance", "cost", *last) if per_topic else ("balance", "cost", *last)


def _solve_per_topic(problem: Problem, order: tuple[Objective, ...], work: SolveBudget) -> Solution:
    balance = compute_topic_balance(
        problem.supply(), problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class, uncharged
    )
    allowed = balance.high > 0
    topics = TopicBounds(balance.low[allowed], balance.high[allowed])
    bounds = LoadBounds(balance.max_load - 1, balance.max_load, topics=topics)
    try:
        return _solve_flow(CompressedProblem.of(problem, allowed), bounds, order, work)
    except SolverError as error:
        return Solution(greedy_per_topic(problem, balance), order[:2], str(error))


def _solve_flow(
    grouped: CompressedProblem, bounds: LoadBounds, order: tuple[Objective, ...], work: SolveBudget
) -> Solution:
    result = solve_lexicographic(grouped, bounds, work)
    if result.note:
        reader = result.assignment()
        if not result.is_calmest(reader):
            return Solution(reader, order[: order.index("moves")], result.note)
        # If all partitions stay where they are, there is no choice.
        settled = grouped.problem.ties is None or bool((reader == grouped.problem.owner).all())
        return Solution(reader, order) if settled else Solution(reader, order[:-1], TOO_LARGE_FOR_TIES)
    try:
        return Solution(break_ties(result, work).assignment(), order)
    except SolverError as error:
        return Solution(result.assignment(), order[:-1], str(error))
