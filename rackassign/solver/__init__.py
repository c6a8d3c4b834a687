"""The optimum: who reads which partition, exactly, as integers and arrays.

Rules of this room:

* It knows no Kafka: partitions, members, racks and topics are numbers here, and nothing of ours is imported.
* It answers with a proof or says that it has none. Flows and prices come out of floating point, are rounded and
  then checked in integers (`linear`); a plan that is called optimal has passed.
* It always answers. Without a solver, or past the budget of work, the result is balanced all the same and as sticky
  and near as one partition at a time gets (`fallback`), and the caller is told why.
* The same arrays give the same answer, on any machine and in any process, unless a deadline passes meanwhile.

Theory of operation
-------------------
Three objectives, each within the optima of the last:

1. *Balance* (`balance`): from families of partitions and crowds of members alone. Its result is not an assignment
   but all of them: two neighbouring loads per crowd, and which families may go where.
2. *Cost*, then 3. *moves* (`stages`, `network`, `linear`): a flow of least cost from classes of interchangeable
   partitions to members. Its size grows with classes, racks and what is held, not with partitions x members.

With a bound on the skew instead, cost comes first and balance within (`skew`). Weights cannot be balanced exactly in
any useful time; they get a bound instead (`weights`). Flows become partitions again in
`network.expand_classes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackassign.solver.balance import compute_balance
from rackassign.solver.greedy import greedy
from rackassign.solver.lexicographic import solve_lexicographic
from rackassign.solver.min_cost_flow import SolveBudget, SolverError
from rackassign.solver.problem import NOBODY, CompressedProblem, Problem
from rackassign.solver.skew import solve_with_skew
from rackassign.solver.types import Ints
from rackassign.solver.weighted import WeightedSolution, solve_weighted

__all__ = ["NOBODY", "Problem", "Solution", "SolveBudget", "WeightedSolution", "solve", "solve_weighted"]


@dataclass(frozen=True, slots=True)
class Solution:
    """Who reads what.

    Args:
        assignment: For each partition a member.
        proven: Whether it is proven best in all three objectives.
        note: Why not, if not; for people.
    """

    assignment: Ints
    proven: bool
    note: str = ""


def solve(problem: Problem, *, max_skew: int = 0, work: SolveBudget) -> Solution:
    """Give every partition to a member.

    Args:
        problem: What to solve.
        max_skew: 0: balance, then cost, then moves. k > 0: members of a crowd differ by up to 1 + k, and cost comes
            before balance.
        work: Budget and deadline; is drawn on.
    """
    if not len(problem.topic_class):
        return Solution(problem.topic_class, proven=True)
    balanced = compute_balance(
        problem.supply(), problem.sizes(), problem.edge_topic_class, problem.edge_subscription_class
    )
    try:
        if max_skew:
            reader, doubt = solve_with_skew(problem, balanced, max_skew, work)
        else:
            grouped = CompressedProblem.of(problem, balanced.allowed)
            staged = solve_lexicographic(grouped, balanced.max_load - 1, balanced.max_load, work)
            reader, doubt = staged.assignment(), ""
        return Solution(reader, not doubt, doubt)
    except SolverError as error:
        return Solution(greedy(problem, balanced), proven=False, note=str(error))
