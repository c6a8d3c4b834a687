"""Who leads, where nothing moves: as even as any of all ways, with the fewest changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rackassign.solver.placement import (
    LEADER_GOALS,
    BrokerArrays,
    Constraints,
    Objectives,
    PartitionArrays,
    place_replicas,
    reorder_leaders,
)
from tests.helpers.examples import examples
from tests.helpers.reference_placement import UNTOUCHED, items_of, medium, nodes_of, small


def candidates(nodes: BrokerArrays, racks: frozenset[int] | None, held: Sequence[int]) -> list[int]:
    may = [node for node in held if nodes.leader_eligible[node]]
    inside = [node for node in may if racks is not None and int(nodes.rack[node]) in racks]
    return inside or may


def leading_score(
    nodes: BrokerArrays, items: PartitionArrays, goal: str, first: Sequence[int | None]
) -> tuple[int, ...]:
    led = Counter(first)
    per_node = [led[node] + int(base) for node, base in enumerate(nodes.leader_load)]
    per_rack = Counter({int(rack): 0 for rack in nodes.rack})
    for rack, count in zip(nodes.rack.tolist(), per_node, strict=True):
        per_rack[rack] += count
    of_nodes, of_racks = sum(count**2 for count in per_node), sum(count**2 for count in per_rack.values())
    grouped = Counter(zip(items.group.tolist(), first, strict=True))
    of_groups = sum(count**2 for (_, node), count in grouped.items() if node is not None)
    changed = sum(node is not None and held[0] != node for held, node in zip(items.current, first, strict=True))
    return (*((of_nodes, of_racks) if goal == "broker" else (of_racks, of_nodes)), of_groups, changed)


def next_score(nodes: BrokerArrays, items: PartitionArrays, lists: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """How evenly a loss is taken over, then how many lists change that keep their leader."""
    pairs = Counter(tuple(own[:2]) for own in lists if len(own) > 1 and nodes.leader_eligible[own[0]])
    led = Counter(own[0] for own in lists if own and nodes.leader_eligible[own[0]])
    idle = sum(count for (_, second), count in pairs.items() if not nodes.leader_eligible[second])
    spread_ = 0
    for (_, second), count in pairs.items():
        base = led[second] + int(nodes.leader_load[second])
        spread_ += (base + count) ** 2 - base**2
    changed = sum(
        own[0] == held[0] and tuple(own) != held for own, held in zip(lists, items.current, strict=True) if held
    )
    return idle, spread_, changed


def with_second(own: Sequence[int], second: int) -> tuple[int, ...]:
    return (own[0], second, *(node for node in own[1:] if node != second))


@st.composite
def placed_already(draw: st.DrawFn) -> tuple[PartitionArrays, BrokerArrays]:
    items, nodes = draw(small())
    count = len(nodes.rack)
    one = st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True)
    held = [draw(one) for _ in items.copies]
    eligible = draw(st.one_of(st.just([True] * count), st.lists(st.booleans(), min_size=count, max_size=count)))
    return replace(items, current=tuple(map(tuple, held))), replace(nodes, leader_eligible=np.asarray(eligible))


some_racks = st.sampled_from([None, None, frozenset({0}), frozenset({1, 2}), frozenset({7})])


@settings(max_examples=examples(300), deadline=None)
@given(case=placed_already(), goal=st.sampled_from(["broker", "rack"]), racks=some_racks, keep=st.booleans())
def test_leaders_are_as_even_as_any_with_the_fewest_changes(
    case: tuple[PartitionArrays, BrokerArrays], goal: Any, racks: frozenset[int] | None, *, keep: bool
) -> None:
    items, nodes = case
    found = reorder_leaders(items, nodes, Constraints(leader_racks=racks), Objectives(leaders=goal), keep=keep)
    assert [sorted(own) for own in found.nodes] == [sorted(held) for held in items.current]
    may: list[list[int | None]] = [[*candidates(nodes, racks, held)] or [None] for held in items.current]
    first = [own[0] if own[0] in of else None for own, of in zip(found.nodes, may, strict=True)]
    best = min(leading_score(nodes, items, goal, choice) for choice in product(*may))
    assert leading_score(nodes, items, goal, first) == best
    assert all(own == held for own, held, node in zip(found.nodes, items.current, first, strict=True) if node is None)
    inside = [node is None or racks is None or int(nodes.rack[node]) in racks for node in first]
    assert found.proven == all(inside)
    assert (found.moved, found.lower_bound) == (0, 0)
    kept = [own == held if own[0] == held[0] else None for own, held in zip(found.nodes, items.current, strict=True)]
    if keep:
        assert False not in kept
        return
    ways = [
        [own] if len(own) < 2 or node is None else [with_second(own, second) for second in own[1:]]
        for own, node in zip(found.nodes, first, strict=True)
    ]
    # A list that keeps both is as it was, behind them too.
    ways = [[held if way[:2] == held[:2] else way for way in of] for of, held in zip(ways, items.current, strict=True)]
    assert next_score(nodes, items, found.nodes) == min(next_score(nodes, items, lists) for lists in product(*ways))


@settings(max_examples=examples(60), deadline=None)
@given(case=medium(), goal=st.sampled_from(LEADER_GOALS), keep=st.booleans())
def test_a_second_time_no_list_changes(case: tuple[PartitionArrays, BrokerArrays], goal: Any, *, keep: bool) -> None:
    items, nodes = case
    first = reorder_leaders(items, nodes, goals=Objectives(leaders=goal), keep=keep)
    assert first.notes == ()
    again = reorder_leaders(replace(items, current=first.nodes), nodes, goals=Objectives(leaders=goal), keep=keep)
    assert again.nodes == first.nodes


@settings(max_examples=examples(40), deadline=None)
@given(medium())
# Two ways to lead are equally even by weight, 9/5 + 1/2 and 4/5 + 1/2 + 1/1, in the one group that there is.
@example((items_of([3, 3, 4, 3]), nodes_of([0] * 6, weight=[5, 2, 1, 1, 1, 1])))
def test_what_was_spread_needs_no_other_order(case: tuple[PartitionArrays, BrokerArrays]) -> None:
    items, nodes = case
    found = place_replicas(items, nodes)
    assert reorder_leaders(replace(items, current=found.nodes), nodes).nodes == found.nodes


def test_without_a_solver_leaders_are_near_even_and_sets_stay() -> None:
    @UNTOUCHED
    @given(placed_already(), some_racks)
    def check(case: tuple[PartitionArrays, BrokerArrays], racks: frozenset[int] | None) -> None:
        items, nodes = case
        found = reorder_leaders(items, nodes, Constraints(leader_racks=racks), work=0)
        assert [sorted(own) for own in found.nodes] == [sorted(held) for held in items.current]
        may = [candidates(nodes, racks, held) for held in items.current]
        led = nodes.leader_load + np.bincount(
            [own[0] for own, of in zip(found.nodes, may, strict=True) if of], minlength=len(nodes.rack)
        )
        for own, of in zip(found.nodes, may, strict=True):
            assert not of or own[0] in of
            assert all(led[own[0]] <= led[node] + 1 for node in of)
        assert found.proven == (not any(may))

    check()
    uneven = items_of([2] * 6, held=[(0, 1)] * 6)
    found = reorder_leaders(uneven, nodes_of([0, 1]), work=0)
    assert Counter(own[0] for own in found.nodes) == {0: 3, 1: 3}
    assert found.notes == ("leaders: the budget of the plan is used up",)
