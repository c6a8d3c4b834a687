"""Solver: compute assignments and replica placements exactly, on integers and arrays.

Rules of this package:

* It is independent of Kafka: partitions, members, racks and topics are numbers, and it imports no other package of
  rackassign.
* A result is either proven or marked as not proven. Flows and prices are checked in integers (`min_cost_flow`),
  whatever computed them. A plan is called optimal only if it passed this check.
* There is always a result. Beyond the budget of steps the result is still balanced, and as sticky and local as
  assigning one partition at a time makes it (`greedy`). The caller gets the reason.
* Equal arrays give equal results, on any machine and in any process, unless a deadline passes meanwhile.

Theory of operation
-------------------
There are three objectives. Each is optimized within the optima of the one before:

1. *Balance* (`balance`): depends only on topic classes (partitions with the same set of readers) and subscription
   classes (members with the same subscription). Its result is the set of all balanced assignments rather than one of
   them: two neighbouring loads per subscription class, and which topic classes each may read.
2. *Cost*, then 3. *moves* (`lexicographic`, `assignment_network`, `min_cost_flow`): a min-cost flow from classes of
   interchangeable partitions to members. Its size grows with the numbers of classes, racks and owned partitions, not
   with partitions x members.

Balance can be that of each topic first (`topic_balance`). Then every topic is a topic class, and the flow has bounds
for each pair of a topic class and a member.

With a bound on the skew instead, cost comes first, and balance is optimized within that bound (`skew`). Weights cannot
be balanced exactly in useful time; for them the solver computes a bound (`weighted`). `assignment_network.expand_flow`
converts flows back into partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackassign.solver.assignment_network import TopicBounds
from rackassign.solver.balance import compute_balance
from rackassign.solver.greedy import greedy, greedy_per_topic
from rackassign.solver.lexicographic import solve_lexicographic
from rackassign.solver.min_cost_flow import SolveBudget, SolverError
from rackassign.solver.problem import NO_MEMBER, CompressedProblem, Problem
from rackassign.solver.skew import solve_with_skew
from rackassign.solver.topic_balance import compute_topic_balance
from rackassign.solver.types import Ints
from rackassign.solver.weighted import WeightedSolution, solve_weighted

__all__ = ["NO_MEMBER", "Problem", "Solution", "SolveBudget", "WeightedSolution", "solve", "solve_weighted"]


@dataclass(frozen=True, slots=True)
class Solution:
    """An assignment, and whether it is proven optimal.

    Args:
        assignment: Member of each partition.
        proven: Whether it is proven optimal in all three objectives.
        note: Reason why it is not proven, as text for users.
    """

    assignment: Ints
    proven: bool
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
    if not len(problem.topic_class):
        return Solution(problem.topic_class, proven=True)
    if per_topic:
        return _solve_per_topic(problem, work)
    balanced = compute_balance(
        problem.supply(), problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class
    )
    try:
        if max_skew:
            reader, note = solve_with_skew(problem, balanced, max_skew, work)
        else:
            grouped = CompressedProblem.of(problem, balanced.allowed)
            staged = solve_lexicographic(grouped, balanced.max_load - 1, balanced.max_load, work)
            reader, note = staged.assignment(), ""
        return Solution(reader, not note, note)
    except SolverError as error:
        return Solution(greedy(problem, balanced), proven=False, note=str(error))


def _solve_per_topic(problem: Problem, work: SolveBudget) -> Solution:
    balanced = compute_topic_balance(
        problem.supply(), problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class
    )
    allowed = balanced.high > 0
    topics = TopicBounds(balanced.low[allowed], balanced.high[allowed])
    try:
        grouped = CompressedProblem.of(problem, allowed)
        staged = solve_lexicographic(grouped, balanced.max_load - 1, balanced.max_load, work, topics=topics)
        return Solution(staged.assignment(), proven=True)
    except SolverError as error:
        return Solution(greedy_per_topic(problem, balanced), proven=False, note=str(error))
