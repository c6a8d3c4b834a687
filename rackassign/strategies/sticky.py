"""The sticky strategies: balance, then locality, then as few moves as possible, all of it exact.

`sticky` hands everything out at once: its members gave up what they had before they joined. `cooperative-sticky`
has members that go on with what they own, so a partition is handed to a new reader only when nobody else claims it;
until then it is *withheld*. Whoever holds it gives it up, joins again, and the next rebalance hands it over. That
one finds nothing to move: the target of the first is still an optimum, and it costs no move. So two are enough,
always.

With weights of partitions the balance is of weights, which cannot be exact; see `rackassign.solver.weighted`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rackassign.errors import ConfigError
from rackassign.model import Explanation, Group, Partitions, Plan, StrategyName
from rackassign.solver import Problem, SolveBudget, solve, solve_weighted
from rackassign.solver.types import Ints
from rackassign.strategies.explain import explain
from rackassign.strategies.indexed_group import IndexedGroup
from rackassign.strategies.options import Options


def plan_sticky(group: Group, options: Options | None = None) -> Plan:
    """Assign for the eager protocol: everybody has given up everything, and gets it all back but what must move.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: How; the default ones if left out.

    Raises:
        ConfigError: If there are weights and `max_skew`, which counts partitions.
    """
    return _explained(group, options or Options(), "sticky")


def plan_cooperative(group: Group, options: Options | None = None) -> Plan:
    """Assign for the cooperative protocol (KIP-429): what somebody else still claims is withheld for now.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: How; the default ones if left out.

    Raises:
        ConfigError: If there are weights and `max_skew`, which counts partitions.
    """
    return _explained(group, options or Options(), "cooperative-sticky")


def _explained(group: Group, options: Options, name: StrategyName) -> Plan:
    return replace(_plan(group, options, name), explain_fn=partial(_explain, group, options, name))


def _explain(group: Group, options: Options, name: StrategyName, plan: Plan) -> Explanation:
    wider = replace(options, max_skew=options.max_skew + 1)
    skewed = None if group.weights else (wider.max_skew, partial(_plan, options=wider, name=name))
    return explain(group, plan, partial(_plan, options=options, name=name), skewed)


def _plan(group: Group, options: Options, name: StrategyName) -> Plan:
    start = time.perf_counter()
    limit = math.inf if options.time_limit_s is None else options.time_limit_s
    work = SolveBudget(options.work, time.monotonic() + limit)
    door = IndexedGroup.of(group, options.locality)
    decided = _decided(door, options, work)
    target = door.decode_assignment(decided.assignment)
    assignment: Mapping[str, Partitions] = target
    withheld: Partitions = {}
    if name == "cooperative-sticky":
        assignment, withheld = door.split_withheld(target, decided.assignment, door.claims.withheld(decided.assignment))
    return Plan(
        strategy=name,
        locality=options.locality,
        assignment=assignment,
        target=target,
        withheld=withheld,
        moved=door.claims.moved(decided.assignment),
        optimal=decided.optimal,
        seconds=time.perf_counter() - start,
        optimality_note=decided.note,
        optimality_gap=decided.gap,
        weight_loads=decided.loads,
    )


_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class _Decided:
    assignment: Ints
    optimal: bool
    note: str
    gap: float | None = None
    loads: tuple[float, float] | None = None


def _decided(door: IndexedGroup, options: Options, work: SolveBudget) -> _Decided:
    problem = door.to_problem()
    if not door.group.weights:
        solution = solve(problem, max_skew=options.max_skew, work=work)
        return _Decided(solution.assignment, solution.proven, solution.note)
    if options.max_skew:
        raise ConfigError("max_skew counts partitions: it cannot be used together with weights")
    return _weighted(problem, door, work)


def _weighted(problem: Problem, door: IndexedGroup, work: SolveBudget) -> _Decided:
    weight = door.weights()
    if len(set(weight.tolist())) <= 1:
        # Weights that are all the same are none, and the exact answer is to be had.
        solution = solve(problem, work=work)
        reader, optimal, doubt, gap = solution.assignment, solution.proven, solution.note, 0.0
    else:
        found = solve_weighted(problem, weight, door.claims.unresolved(), work=work)
        reader, optimal, doubt, gap = found.assignment, False, found.note, found.gap
    loads = np.bincount(reader, weight, len(problem.subscription_class))
    between = (float(loads.min()), float(loads.max())) if len(loads) else (0.0, 0.0)
    # Sums of the largest numbers there are would be infinite, which JSON cannot say.
    between = (min(between[0], _LARGEST), min(between[1], _LARGEST))
    return _Decided(reader, optimal, doubt, gap, between)
