"""Leaders and their successors: choices within the nodes of an item, as flows.

A leader is chosen for each item so that nodes, racks and the nodes of each group lead evenly, in the given order, and
as many leaders as possible stay. Then a successor is chosen, so that the leaders of a lost node move to as many other
nodes as possible, evenly with the items that these lead themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.network_flow import Ints, SolveBudget, SolverError
from rackassign.solver.placement.local_search import greedy_leads
from rackassign.solver.placement.network_builder import (
    Builder,
    CostSegments,
    inverse_weights,
    on_unit_segments,
    segment_loads,
    shift_by_median,
    solve,
)
from rackassign.solver.placement.problem import (
    DEFAULT_WORK,
    BrokerArrays,
    Constraints,
    Objectives,
    PartitionArrays,
    PlacementResult,
    Problem,
)

_SINGLE = 2
_ROUNDS = 24
NO_NODE = -1
MIXES = 4
MOST_CELLS = 6_000
"""Limit of classes x racks and of groups x nodes. Beyond it, groups are no part of flows."""

MOST_MIXED = 2_000
"""Limit of items. With more of them leaders mix by themselves."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Classes of items that choose among the same nodes."""

    # Class of each item; -1 for one that has no choice.
    of: list[int]
    size: Ints
    # Of each class, the key by which the segments of groups or pairs are counted.
    key: Ints
    # Rows of class, node, and 1 if it is the current node of the items.
    arcs: Ints


def group_choices(offers: list[tuple[int, tuple[int, ...], int]]) -> Choices:
    """Group items into classes; an item offers its key, its nodes in order, and its current node."""
    choices: dict[tuple[int, tuple[int, ...], int], int] = {}
    of = [choices.setdefault(offer, len(choices)) if offer[1] else NO_NODE for offer in offers]
    arcs = [(class_, node, int(node == now)) for (_, nodes, now), class_ in choices.items() for node in nodes]
    return Choices(
        of,
        np.bincount([class_ for class_ in of if class_ != NO_NODE], minlength=len(choices)).astype(np.int64),
        np.asarray([key for key, _, _ in choices], np.int64),
        np.asarray(arcs, np.int64).reshape(-1, 3),
    )


def _fair_shares(choices: Choices) -> Ints:
    """Return a flow of arcs that divides each class among its nodes, which gives every node about its fair share.

    Flows that begin here are optimal with the fewest changes, and leave the leaders of a class mixed. If all of a class
    had one leader, the loss of a node would load few others.
    """
    class_ = choices.arcs[:, 0]
    first = np.searchsorted(class_, np.arange(len(choices.size)))
    count = np.bincount(class_, minlength=len(choices.size))[class_]
    # Similar classes give what cannot be divided to different nodes.
    turn = (np.arange(len(class_)) - first[class_] + class_) % count
    shares: Ints = choices.size[class_] // count + (turn < choices.size[class_] % count)
    return shares


def distribute(choices: Choices, flow: Ints) -> list[int]:
    """Return the node of each item; -1 for one that has no choice."""
    left: dict[int, list[int]] = {}
    for (class_, node, _), count in zip(choices.arcs.tolist(), flow.tolist(), strict=True):
        left.setdefault(class_, []).extend([node] * count)
    for nodes in left.values():
        nodes.reverse()
    return [left[class_].pop() if class_ != NO_NODE else NO_NODE for class_ in choices.of]


@dataclass(frozen=True, slots=True)
class LeaderChoice:
    """Leaders and their successors."""

    sets: list[list[int]]
    # Leader and successor of each item; -1 for none.
    first: list[int]
    second: list[int]
    # The most a node leads once another is lost, by its weight, and how uneven that is over all losses.
    imbalance: tuple[float, int]
    # What is not proven.
    note: str = ""


def choose_leaders(problem: Problem, sets: list[list[int]], work: SolveBudget, *, keep: bool = False) -> LeaderChoice:
    """Return each item's leader and its successor; no flow optimizes both, so a few equally good leaders are tried."""
    # With `keep`, items that keep their nodes and their leader keep the successor as well.
    best: LeaderChoice | None = None
    for mix in range(MIXES if len(sets) <= MOST_MIXED else 1):
        first, note = leaders(problem, sets, work, mix=mix)
        second, other = choose_successors(problem, sets, first, work, keep=keep)
        choice = LeaderChoice(sets, first, second, _burden(first, second, problem.nodes), note or other)
        if best is None or (not choice.note and choice.imbalance < best.imbalance):
            best = choice
        if choice.note:
            break
    assert best is not None  # noqa: S101 - there is at least one round
    return best


def _burden(first: list[int], second: list[int], nodes: BrokerArrays) -> tuple[float, int]:
    count = len(nodes.rack)
    led = nodes.leader_load + np.bincount([node for node in first if node != NO_NODE], minlength=count)
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if b != NO_NODE]
    taken = np.zeros((count, count), np.int64)
    np.add.at(taken, tuple(np.asarray(pairs, np.int64).reshape(-1, 2).T), 1)
    after = np.where(taken > 0, led[None, :] + taken, 0)
    return float((after / nodes.weight).max(initial=0)), int((after**2).sum())


def leaders(problem: Problem, sets: list[list[int]], work: SolveBudget, *, mix: int = 0) -> tuple[list[int], str]:
    """Return each item's leader, -1 for none, and a note on what is not proven; `mix` numbers equally good choices."""
    items, nodes, leader_racks = problem.items, problem.nodes, problem.limits.leader_racks
    offers = []
    for group, own, current, kept in zip(items.group.tolist(), sets, items.current, items.leaders_kept(), strict=True):
        nodes_of = nodes.may_lead(own, leader_racks)
        now = current[0] if current and current[0] in nodes_of else NO_NODE
        nodes_of = (kept,) if kept in nodes_of else nodes_of
        offers.append((group, nodes_of, now))
    choices = group_choices(offers)
    if not len(choices.size):
        return [NO_NODE] * len(sets), ""
    flow, note = _Leading(choices, nodes, problem.goals).solved(work, mix)
    return distribute(choices, flow), note


def as_even_as_any(problem: Problem, first: list[int]) -> bool:
    """Return whether leaders are as even as any with that sum, for any nodes of items: by node, by rack, or by both."""
    nodes, goal, racks = problem.nodes, problem.goals.leaders, problem.limits.leader_racks
    may = nodes.leader_eligible if racks is None else nodes.leader_eligible & np.isin(nodes.rack, sorted(racks))
    led = np.bincount([node for node in first if node != NO_NODE], minlength=len(nodes.rack)).astype(np.int64)
    # Items without an eligible node have no leader; each other item is led by an eligible node.
    by_node = _as_even(led[may], nodes.leader_load[may], inverse_weights(nodes.weight)[may])
    count = int(nodes.rack.max(initial=-1)) + 1
    there = np.isin(np.arange(count), nodes.rack[may])
    rack_led, rack_base = (
        np.bincount(nodes.rack, what, count).astype(np.int64)[there] for what in (led, nodes.leader_load)
    )
    by_rack = _as_even(rack_led, rack_base, np.ones(int(there.sum()), np.int64))
    return {"broker": by_node, "rack": by_rack, "mixed": by_node and by_rack}[goal]


def _as_even(count: Ints, base: Ints, scale: Ints) -> bool:
    """Return whether no unit, taken from where it costs most, costs less elsewhere; costs are squares by scale."""
    if not count.any():
        return True
    less = (scale * (2 * (base + count) - 1))[count > 0].max()
    more = (scale * (2 * (base + count) + 1)).min()
    return bool(less <= more)


class _Leading:
    def __init__(self, choices: Choices, nodes: BrokerArrays, goals: Objectives) -> None:
        self._choices, self._nodes, self._goals = choices, nodes, goals
        count = len(nodes.rack)
        self._racks = int(nodes.rack.max(initial=-1)) + 1
        class_, node, _ = choices.arcs.T
        size = choices.size[class_]
        self._most = np.bincount(node, size, count).astype(np.int64)
        self._rack_most = np.bincount(nodes.rack, self._most, self._racks).astype(np.int64)
        # One group is balanced as well: nodes of unequal weights or loads can be equally even in unequal ways.
        self._groups = int(choices.key.max(initial=0)) + 1
        self._group_at = choices.key[class_] * count + node
        self._group_most = np.bincount(self._group_at, size, self._groups * count).astype(np.int64)

    def solved(self, work: SolveBudget, mix: int) -> tuple[Ints, str]:
        """Solve until every load is within its single segments."""
        nodes, count, total = self._nodes, len(self._nodes.rack), int(self._choices.size.sum())
        share = (total + nodes.leader_load.sum()) / max(1, int(nodes.weight[self._most > 0].sum()))
        centre = np.clip(np.rint(share * nodes.weight - nodes.leader_load), 0, self._most).astype(np.int64)
        of_group = np.rint(np.repeat(np.bincount(self._choices.key, self._choices.size, self._groups), count))
        of_group = np.clip(of_group // max(1, int((self._most > 0).sum())), 0, None).astype(np.int64)
        per_rack = np.bincount(nodes.rack, share * nodes.weight - nodes.leader_load, self._racks)
        of_rack = np.clip(np.rint(per_rack), 0, self._rack_most).astype(np.int64)
        for _ in range(_ROUNDS):
            flow, note, loads = self._round((centre, of_rack, of_group), work, mix)
            right = (
                on_unit_segments(loads[0], self._most, centre, _SINGLE).all()
                and on_unit_segments(loads[1], self._rack_most, of_rack, _SINGLE).all()
                and on_unit_segments(loads[2], self._group_most, of_group, _SINGLE).all()
            )
            if right:
                return flow, note
            centre, of_rack, of_group = loads
        raise SolverError("no segments of leader counts are the right ones")

    def _round(
        self, centres: tuple[Ints, Ints, Ints], work: SolveBudget, mix: int
    ) -> tuple[Ints, str, tuple[Ints, Ints, Ints]]:
        centre, of_rack, of_group = centres
        nodes, choices, count = self._nodes, self._choices, len(self._nodes.rack)
        base = np.bincount(nodes.rack, nodes.leader_load, self._racks).astype(np.int64)
        node_steps = segment_loads(self._most, centre, nodes.leader_load, inverse_weights(nodes.weight), _SINGLE)
        rack_steps = segment_loads(self._rack_most, of_rack, base, np.ones(self._racks, np.int64), _SINGLE)
        group_steps = segment_loads(self._group_most, of_group, 0 * self._group_most, 0 * self._group_most + 1, _SINGLE)
        builder = Builder()
        class_row = builder.add_rows(len(choices.size), choices.size)
        group_row = builder.add_rows(self._groups * count)
        node_row, rack_row = builder.add_rows(count), builder.add_rows(self._racks)
        sink = builder.add_rows(1, np.asarray([-int(choices.size.sum())]))
        class_, _, now = choices.arcs.T
        builder.add("choice", class_row + class_, group_row + self._group_at, choices.size[class_])
        builder.add("group", group_row + group_steps.owner, node_row + group_steps.owner % count, group_steps.width)
        builder.add("node", node_row + node_steps.owner, rack_row + nodes.rack[node_steps.owner], node_steps.width)
        builder.add("rack", rack_row + rack_steps.owner, np.full(len(rack_steps.owner), sink), rack_steps.width)
        objectives = [
            *self._evenness(builder, node_steps, rack_steps),
            builder.values(group=group_steps.cost),
            *([builder.values(choice=-now)] if now.any() else []),
            *([builder.values(choice=_costs_without_pattern(choices.arcs, mix))] if mix else []),
        ]
        parts, note = solve(builder, objectives, work, builder.values(choice=_fair_shares(choices)))
        loads = (
            np.bincount(node_steps.owner, parts["node"], count).astype(np.int64),
            np.bincount(rack_steps.owner, parts["rack"], self._racks).astype(np.int64),
            np.bincount(group_steps.owner, parts["group"], self._groups * count).astype(np.int64),
        )
        return parts["choice"], note, loads

    def _evenness(self, builder: Builder, node: CostSegments, rack: CostSegments) -> list[Ints]:
        of_nodes, of_racks = shift_by_median(node.cost), shift_by_median(rack.cost)
        if self._goals.leaders == "mixed":
            # Squares relative to the means of nodes and of racks: larger by the ratio of their numbers.
            nodes, racks = int((self._most > 0).sum()), int((self._rack_most > 0).sum())
            return [builder.values(node=of_nodes * nodes**2, rack=of_racks * racks**2)]
        both = [builder.values(node=of_nodes), builder.values(rack=of_racks)]
        return both if self._goals.leaders == "broker" else both[::-1]


def _costs_without_pattern(arcs: Ints, mix: int) -> Ints:
    """Return costs without a pattern, so that similar classes do not all make the same of several equal choices."""
    return (arcs[:, 0] * 7919 + arcs[:, 1] * 104_729 + mix) * (40_503 + 2 * mix) // 1024 % 16


def choose_successors(
    problem: Problem, sets: list[list[int]], leading: list[int], work: SolveBudget, *, keep: bool = False
) -> tuple[list[int], str]:
    """Return the successor of each leader, -1 if the item has no other node, and a note on what is not proven."""
    nodes = problem.nodes
    count = len(nodes.rack)
    offers = []
    for own, first, current in zip(sets, leading, problem.items.current, strict=True):
        followers = tuple(sorted(node for node in own if node != first)) if first != NO_NODE else ()
        # The current successor is worth keeping only if the whole list then stays as it is.
        stays = bool(followers) and current[:1] == (first,) and sorted(current) == sorted(own)
        now = current[1] if stays else NO_NODE
        followers = (now,) if stays and keep else followers
        offers.append((first, followers, now))
    choices = group_choices(offers)
    if not len(choices.size):
        return [NO_NODE] * len(sets), ""
    leads = nodes.leader_load + np.bincount([first for first in leading if first != NO_NODE], minlength=count)
    class_, node, now_ = choices.arcs.T
    pair, at = np.unique(choices.key[class_] * count + node, return_inverse=True)
    most = np.bincount(at.ravel(), choices.size[class_]).astype(np.int64)
    taking = pair % count
    scale = inverse_weights(nodes.weight)[taking]
    centre = np.clip(leads[pair // count] // max(1, count - 1), 0, most)

    idle = (~nodes.leader_eligible[node]).astype(np.int64)
    for _ in range(_ROUNDS):
        levels = segment_loads(most, centre, leads[taking], scale, _SINGLE)
        builder = Builder()
        class_row = builder.add_rows(len(choices.size), choices.size)
        pair_row = builder.add_rows(len(pair))
        sink = builder.add_rows(1, np.asarray([-int(choices.size.sum())]))
        builder.add("choice", class_row + class_, pair_row + at.ravel(), choices.size[class_])
        builder.add("pair", pair_row + levels.owner, np.full(len(levels.owner), sink), levels.width)
        objectives = [
            *([builder.values(choice=idle)] if idle.any() else []),
            builder.values(pair=shift_by_median(levels.cost)),
            *([builder.values(choice=-now_)] if now_.any() else []),
        ]
        parts, note = solve(builder, objectives, work, builder.values(choice=_fair_shares(choices)))
        load = np.bincount(levels.owner, parts["pair"], len(most)).astype(np.int64)
        if on_unit_segments(load, most, centre, _SINGLE).all():
            return distribute(choices, parts["choice"]), note
        centre = load
    raise SolverError("no segments of pairs are the right ones")


def reorder_leaders(
    items: PartitionArrays,
    nodes: BrokerArrays,
    limits: Constraints | None = None,
    goals: Objectives | None = None,
    *,
    keep: bool = False,
    work: int = DEFAULT_WORK,
) -> PlacementResult:
    """Choose the leader of each item and its successor, among its current nodes.

    Leaders are as even as possible, by node, rack and group according to the objectives. Then as few leaders change as
    possible. Then successors are balanced, and as few items change as possible. An item keeps its order if neither of
    the two changes, and if none of its nodes may lead.

    Args:
        items: Items with their nodes; their number of copies is not used.
        nodes: The nodes.
        limits: Racks in which leaders must be; no other constraint is used.
        goals: Objectives for leaders.
        keep: Whether the successor is unchanged if the leader does not change.
        work: Budget, in steps of the solver.
    """
    problem = Problem(items, nodes, limits or Constraints(), goals or Objectives())
    racks = problem.limits.leader_racks
    many = (int(items.group.max(initial=0)) + 1) * len(nodes.rack) > MOST_CELLS
    try:
        if many and any(items.keep) and problem.goals.leaders == "broker":
            # Few items have a choice, and none because of its group.
            first, second = greedy_leads(problem, items.current)
            choice = LeaderChoice(
                [], first, second, (0.0, 0), "there are too many groups to prove the balance of the leaders of each"
            )
        else:
            choice = choose_leaders(problem, [list(current) for current in items.current], SolveBudget(work), keep=keep)
    except SolverError as error:
        first, second = greedy_leads(problem, items.current)
        choice = LeaderChoice([], first, second, (0.0, 0), f"leaders: {error}")
    notes = tuple(note for note in (choice.note, leaders_outside_racks(choice.first, nodes, racks)) if note)
    lists = tuple(
        ordered(current, leader, next_, nodes)
        for current, leader, next_ in zip(items.current, choice.first, choice.second, strict=True)
    )
    return PlacementResult(lists, 0, 0, proven=not notes, notes=notes, leads_proven=not notes)


def leaders_outside_racks(leading: list[int], nodes: BrokerArrays, racks: frozenset[int] | None) -> str:
    """Return a note on items whose leader is outside the racks where leaders must be; empty if there is none."""
    count = 0 if racks is None else sum(node >= 0 and int(nodes.rack[node]) not in racks for node in leading)
    return f"{count} have no eligible leader in the racks where leaders must be" if count else ""


def ordered(held: tuple[int, ...], leader: int, second: int, nodes: BrokerArrays) -> tuple[int, ...]:
    """Return the nodes of an item in order: leader, successor, then the others, those that may not lead last."""
    front = tuple(node for node in (leader, second) if node != NO_NODE)
    if front == held[: len(front)]:
        return held
    rest = (node for node in held if node not in front)
    return (*front, *sorted(rest, key=lambda node: not nodes.leader_eligible[node]))
