"""Placement of copies on nodes in racks, within constraints and balanced.

This is the only constraint model for placements. It is independent of Kafka: items have copies, nodes have a rack (or
any other tag), constraints limit how many of an item's copies a rack may have, and objectives define what is optimal.

Rules, in addition to those of `rackassign.solver`:

* No two copies of an item are on one node, and all constraints are satisfied. Copies for which no node remains are
  reported: as an error, as an entry below 0, or, where constraints may be relaxed, as a note (`bounds_of`).
* In a result that is called proven, each objective is optimal given those before it, checked in integers
  (`min_cost_flow`).
* Items and nodes are numbers. The caller ensures that their order is deterministic.

Theory of operation
-------------------
1. *Bounds* (`bounds_of`, `Classes`): the bounds that constraints imply for an item are computed by counting, once for
   all equal items.
2. *Sets* (`replica_network`, `network_builder`): a flow determines how many copies of a class are on which node. Even
   loads are a convex cost. Copies that an item has already are arcs of their own, so that moves can be counted. The
   order of objectives is balance (coverage of racks, then nodes), moves, groups, unless configured otherwise. Flows are
   distributed over items (`expand_classes`) so that pairs of nodes mix.
3. *Order* (`leaders`): the leader of each set and then its successor are chosen, as flows again. `reorder_leaders` is
   this step alone, for copies that stay where they are. `leader_costs` chooses leaders by cost instead.

Each step is optimal given the one before. For even sets this loses nothing. If every node has its fair share of copies,
a fair share of leaders is possible too: taking 1/n of each of an item's n copies is a fair, if fractional, choice, and
flows are integral. Where sets cannot be even, another choice of equally good sets might allow more even leaders. So
`proven` refers to sets, and to leaders for these sets. It refers to leaders in general only if their counts are as even
as any numbers with that sum.

Groups multiply the size of the network of sets. Beyond a limit they are left to `expand_with_exchange`, which balances
new copies one at a time, and the result contains a note. Leaders are balanced by group in any case.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from rackassign.solver.network_flow import SolveBudget, SolverError
from rackassign.solver.placement.leader_costs import LeaderCosts, NewLeader, cheapest_leaders
from rackassign.solver.placement.leaders import (
    MOST_CELLS,
    MOST_MIXED,
    LeaderChoice,
    as_even_as_any,
    choose_leaders,
    leaders_outside_racks,
    reorder_leaders,
)
from rackassign.solver.placement.local_search import greedy, greedy_leads
from rackassign.solver.placement.problem import (
    DEFAULT_WORK,
    EVEN,
    LEADER_GOALS,
    PRIMARY_OBJECTIVES,
    SHORTAGES,
    BrokerArrays,
    Classes,
    Constraints,
    LeaderGoal,
    Objectives,
    PartitionArrays,
    PlacementResult,
    PrimaryObjective,
    Problem,
    RackChoice,
    Shortage,
    ShortageError,
    bounds_of,
    choose,
)
from rackassign.solver.placement.replica_network import expand_classes, expand_with_exchange, fair_share, flows

__all__ = [
    "DEFAULT_WORK",
    "EVEN",
    "LEADER_GOALS",
    "PRIMARY_OBJECTIVES",
    "SHORTAGES",
    "BrokerArrays",
    "Constraints",
    "LeaderCosts",
    "LeaderGoal",
    "NewLeader",
    "Objectives",
    "PartitionArrays",
    "PlacementResult",
    "PrimaryObjective",
    "Shortage",
    "ShortageError",
    "bounds_of",
    "cheapest_leaders",
    "place_replicas",
    "reorder_leaders",
]

_NO_NODE = -1


def place_replicas(
    items: PartitionArrays,
    nodes: BrokerArrays,
    limits: Constraints | None = None,
    goals: Objectives | None = None,
    *,
    order: bool = True,
    work: int = DEFAULT_WORK,
) -> PlacementResult:
    """Place the copies of every item.

    Args:
        items: Items to place.
        nodes: Nodes on which copies can be placed.
        limits: Constraints that every item has to satisfy.
        goals: Objectives.
        order: Whether to choose leaders and their successors. If not, copies that stay come first, in their order.
        work: Budget, in steps of the solver.

    Raises:
        ShortageError: Not all copies can be placed, and `on_shortage` is `error`.
    """
    limits = limits or Constraints()
    problem = Problem(items, nodes, limits, goals or Objectives())
    chosen = choose(problem)
    notes = [bounds.note for bounds in chosen.bounds if bounds.note]
    if limits.max_racks is not None and limits.max_racks < len(set(nodes.rack[nodes.assignable].tolist())):
        notes.append("racks were chosen one item after the other")
    budget = SolveBudget(work)
    dealt = _expanded(problem, chosen, budget, notes)
    led = (_place_with_leaders(problem, sets, budget) if order else _place_without_leaders(sets) for sets in dealt)
    best = min(led, key=lambda led: (bool(led.note), led.imbalance))
    lists = tuple(
        _ordered(own, leader, next_, current, bounds.missing)
        for own, leader, next_, current, bounds in zip(
            best.sets, best.first, best.second, items.current, chosen.bounds, strict=True
        )
    )
    moved = sum(len(set(own).difference(current)) for own, current in zip(best.sets, items.current, strict=True))
    away = leaders_outside_racks(best.first, nodes, limits.leader_racks) if order else ""
    all_notes = tuple(dict.fromkeys(note for note in (*notes, best.note, away) if note))
    even = order and not best.note and not away and as_even_as_any(problem, best.first)
    return PlacementResult(
        lists,
        moved,
        _min_new_copies(items, best.sets, nodes, chosen),
        proven=not all_notes,
        notes=all_notes,
        leads_proven=even,
    )


def _place_with_leaders(problem: Problem, sets: list[list[int]], work: SolveBudget) -> LeaderChoice:
    try:
        return choose_leaders(problem, sets, work)
    except SolverError as error:
        first, second = greedy_leads(problem, sets)
        return LeaderChoice(sets, first, second, (0.0, 0), f"leaders: {error}")


def _place_without_leaders(sets: list[list[int]]) -> LeaderChoice:
    none = [_NO_NODE] * len(sets)
    return LeaderChoice(sets, none, none, (0.0, 0))


def _expanded(problem: Problem, chosen: RackChoice, work: SolveBudget, notes: list[str]) -> list[list[list[int]]]:
    items, nodes, goals = problem.items, problem.nodes, problem.goals
    classes = Classes.made(items, nodes, chosen)
    groups = int(items.group.max(initial=0)) + 1
    cells = len(classes.size) * classes.racks + groups * len(nodes.rack)
    # With one group the balance of groups is that of nodes, unless it comes first.
    grouped = (groups > 1 or goals.first == "group") and cells <= MOST_CELLS
    if groups > 1 and not grouped:
        notes.append("there are too many groups to prove the balance of the replicas of each")
        classes = Classes.made(replace(items, group=0 * items.group), nodes, chosen)
    if goals.first == "moves" and goals.coverage is None and cells > MOST_CELLS:
        # Then loads are the only objective left, and paths balance them as exactly as a flow of such a size.
        sets, proven = greedy(problem, chosen)
        notes.append("" if proven else "paths that balance loads were left when the limit of paths was reached")
        return [expand_with_exchange(items, nodes, sets, chosen.usable, chosen.bounds)]
    try:
        centre = fair_share(sum(bounds.copies for bounds in chosen.bounds), nodes)
        if goals.first == "balance":
            bare = Classes.made(items, nodes, chosen, bare=True)
            centre = flows(bare, nodes, goals, work, centre=centre, grouped=False).load
        flow = flows(classes, nodes, goals, work, centre=centre, grouped=grouped)
    except SolverError as error:
        notes.append(str(error))
        return [greedy(problem, chosen)[0]]
    notes.append(flow.note)
    # Groups that were no part of the flow must come first. Otherwise both ways are tried if that is quick.
    alone = groups > 1 and not grouped
    ways = [True] if alone else [True, False] if len(items.current) <= MOST_MIXED else [False]
    dealt = [expand_classes(items, classes, nodes, flow, groups_first=way) for way in ways]
    if flow.note:
        # With its budget used up the solver's result is optimal in the first objectives, and arbitrary in the others.
        return [min([*dealt, greedy(problem, chosen)[0]], key=lambda sets: rank(problem, sets))]
    return dealt


def rank(problem: Problem, sets: list[list[int]]) -> tuple[float, ...]:
    """Return how good sets are by the objectives, one after the other; less is better."""
    items, nodes, goals = problem.items, problem.nodes, problem.goals
    count = len(nodes.rack)
    groups = int(items.group.max(initial=0)) + 1
    placed = np.zeros((groups, count), np.int64)
    for group, own in zip(items.group.tolist(), sets, strict=True):
        placed[group, own] += 1
    here = placed.sum(axis=0)
    even = [float(((nodes.load + here) ** 2 / nodes.weight).sum())]
    coverage: list[float] = []
    if goals.coverage is not None:
        wanted = goals.coverage > 0
        of_rack = np.bincount(nodes.rack, here, len(goals.coverage))
        coverage = [float(of_rack[~wanted].sum()), float((of_rack[wanted] ** 2 / goals.coverage[wanted]).sum())]
    moved = [float(sum(len(set(own).difference(held)) for own, held in zip(sets, items.current, strict=True)))]
    group = [float((placed**2 / nodes.weight).sum())]
    by_first = {
        "balance": [*coverage, *even, *moved, *group],
        "moves": [*moved, *coverage, *even, *group],
        "group": [*group, *coverage, *even, *moved],
        "coverage": [*coverage, *moved, *even, *group],
    }
    return float(here[nodes.last_resort].sum()), *by_first[goals.first]


def _min_new_copies(items: PartitionArrays, sets: list[list[int]], nodes: BrokerArrays, chosen: RackChoice) -> int:
    """Return a lower bound of the number of new copies: by constraints, item by item, and by loads, node by node."""
    rack, by_limits = nodes.rack.tolist(), 0
    more = [0] * len(rack)
    for own, held, bounds in zip(sets, items.current, chosen.bounds, strict=True):
        in_rack = Counter(rack[node] for node in held)
        kept = sum(min(count, bounds.high[number]) for number, count in in_rack.items())
        by_limits += max(0, bounds.copies - kept)
        for node in own:
            more[node] += 1
        for node in held:
            more[node] -= 1
    return max(by_limits, sum(count for count in more if count > 0))


def _ordered(own: list[int], leader: int, second: int, held: tuple[int, ...], missing: int) -> tuple[int, ...]:
    """Return the leader, its successor, the other kept copies in their order, new ones by number, and missing ones."""
    front = [node for node in (leader, second) if node != _NO_NODE]
    kept = [node for node in held if node in own and node not in front]
    rest = sorted(node for node in own if node not in front and node not in kept)
    return (*front, *kept, *rest, *range(-1, -missing - 1, -1))
