"""The sticky strategies: balance, then locality, then as few moves as possible, then leaders, all of it exact.

`sticky` assigns everything at once: its members revoked their partitions before they joined. Members of
`cooperative-sticky` keep their partitions, so a partition is assigned to a new reader only if no other member claims
it; until then it is *withheld*. Its owner revokes it and rejoins, and the next rebalance assigns it. That rebalance
finds nothing to move: the target of the first is still optimal, and has no moves. So two rebalances are always enough.

With weights of partitions the sums of weights are balanced, which cannot be exact; see `rackassign.solver.weighted`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rackassign.model import Explanation, Group, Partitions, Plan, PlanObjective, StrategyName
from rackassign.solver import Objective, Problem, SolveBudget, solve, solve_weighted, spread_topics
from rackassign.solver.network_flow import Ints
from rackassign.strategies import Options
from rackassign.strategies.copartition import MergedGroup
from rackassign.strategies.explain import explain
from rackassign.strategies.indexed_group import IndexedGroup


def plan_sticky(group: Group, options: Options | None = None) -> Plan:
    """Assign for the eager protocol: all members have revoked everything, and keep all but what must move.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: Options; the defaults if omitted.

    Raises:
        ConfigError: If there are weights, and an option that counts partitions.
    """
    return plan_as("sticky", group, options or Options())


def plan_cooperative(group: Group, options: Options | None = None) -> Plan:
    """Assign for the cooperative protocol (KIP-429): partitions that other members claim are withheld.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: Options; the defaults if omitted.

    Raises:
        ConfigError: If there are weights, and an option that counts partitions.
    """
    return plan_as("cooperative-sticky", group, options or Options())


def explain_as(group: Group, options: Options, name: StrategyName, plan: Plan) -> Explanation:
    skewed = None
    if name in {"sticky", "cooperative-sticky"} and not group.weights and options.balance == "total":
        wider = replace(options, max_skew=options.max_skew + 1)
        skewed = wider.max_skew, partial(plan_as, name, options=wider)
    return explain(group, plan, partial(plan_as, name, options=options), skewed)


def plan_as(name: StrategyName, group: Group, options: Options) -> Plan:
    """Assign optimally; the plan has this name."""
    begun = time.monotonic()
    merged = MergedGroup.of(group)
    plan = merged.expand(plan_units(merged, options, name, begun=begun))
    explained = partial(explain_as, group, options, name)
    return replace(plan, seconds=time.monotonic() - begun, explain_fn=explained)


def plan_units(merged: MergedGroup, options: Options, name: StrategyName, *, begun: float | None = None) -> Plan:
    """Assign the units of a merged group, which the plan names like partitions."""
    # `begun` is when the time limit began, on the clock of `time.monotonic`; now if omitted.
    begun = time.monotonic() if begun is None else begun
    indexed = IndexedGroup.of(merged.group, options.locality, merged.parts)
    problem = indexed.to_problem(per_topic=options.balance == "topic")
    until = math.inf
    if options.time_limit_s is not None:
        # The way from numbers to names takes no longer than that from names to numbers. Nor does a plan past the
        # deadline, which is slow only if nearly each partition has costs of its own.
        different = len(problem.cost) / max(1, len(problem.cost_row))
        until = begun + options.time_limit_s - (1 + different) * (time.monotonic() - begun)
    decided = _solve(problem, indexed, options, SolveBudget(options.work, until))
    target = indexed.decode_assignment(decided.assignment)
    assignment: Mapping[str, Partitions] = target
    withheld: Partitions = {}
    if name == "cooperative-sticky":
        assignment, withheld = indexed.split_withheld(
            target, decided.assignment, indexed.claims.withheld(decided.assignment)
        )
    return Plan(
        strategy=name,
        locality=options.locality,
        assignment=assignment,
        target=target,
        withheld=withheld,
        moved=indexed.claims.moved(decided.assignment),
        optimal=bool(decided.proven) and not decided.note,
        seconds=0.0,
        proven=tuple(_NAMES[objective] for objective in decided.proven),
        optimality_note=decided.note,
        optimality_gap=decided.gap,
        weight_loads=decided.loads,
    )


_LARGEST = sys.float_info.max

_NAMES: Mapping[Objective, PlanObjective] = {
    "topic-balance": "topic-balance",
    "balance": "balance",
    "cost": "locality",
    "moves": "moves",
    "ties": "leaders",
}


@dataclass(frozen=True, slots=True)
class _Solution:
    assignment: Ints
    proven: tuple[Objective, ...]
    note: str
    gap: float | None = None
    loads: tuple[float, float] | None = None


def _solve(problem: Problem, indexed: IndexedGroup, options: Options, work: SolveBudget) -> _Solution:
    per_topic = options.balance == "topic"
    if not indexed.group.weights:
        solution = solve(problem, max_skew=options.max_skew, per_topic=per_topic, work=work)
        return _Solution(spread_topics(problem, solution.assignment, work), solution.proven, solution.note)
    options.check_weights()
    return _weighted(problem, indexed, options.tolerance, work)


def _weighted(problem: Problem, indexed: IndexedGroup, tolerance: float, work: SolveBudget) -> _Solution:
    weight = indexed.weights()
    if len(set(weight.tolist())) <= 1:
        # Equal weights have no effect, so the exact solution is possible.
        solution = solve(problem, work=work)
        reader, proven, note, gap = (
            spread_topics(problem, solution.assignment, work),
            solution.proven,
            solution.note,
            0.0,
        )
    else:
        solved = solve_weighted(problem, weight, indexed.claims.unresolved(), tolerance=tolerance, work=work)
        reader, proven, note, gap = solved.assignment, (), solved.note, solved.gap
    loads = np.bincount(reader, weight, len(problem.subscription_class))
    between = (float(loads.min()), float(loads.max())) if len(loads) else (0.0, 0.0)
    # Sums of the largest floats would be infinite, which JSON cannot represent.
    between = (min(between[0], _LARGEST), min(between[1], _LARGEST))
    return _Solution(reader, proven, note, gap, between)
