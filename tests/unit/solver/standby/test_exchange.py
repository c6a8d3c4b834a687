"""Copies over several dimensions: against all there is on small cases."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rackassign.solver.standby import set_switches
from rackassign.solver.standby.collisions import (
    NO_VALUE,
    Cells,
    CollisionBound,
    CollisionIndex,
    Dimension,
    ItemDemand,
    SearchBudget,
    Topology,
)
from rackassign.solver.standby.exchange import ExchangeGraph, StandbyPlacement, place_standbys
from tests.helpers.examples import examples

Sets = tuple[tuple[int, ...], ...]


@st.composite
def cases(draw: st.DrawFn, dimensions: int, *, strict: bool = False) -> tuple[list[ItemDemand], Topology]:
    nodes = draw(st.integers(1, 5))
    some = st.integers(0, nodes - 1)
    made = []
    for _ in range(draw(st.integers(0 if dimensions == 1 else dimensions, dimensions))):
        value = tuple(draw(st.lists(st.integers(NO_VALUE, 2), min_size=nodes, max_size=nodes)))
        seen = len(set(value) - {NO_VALUE})
        sizes = seen + draw(st.integers(0, 1)), draw(st.integers(0, 2)), draw(st.integers(0, 1))
        made.append(Dimension(value, *sizes, strict=strict and draw(st.booleans()), distinct=draw(st.booleans())))
    items = []
    for _ in range(draw(st.integers(1, 3))):
        fixed = draw(st.integers(-1, nodes - 1))
        held = tuple(draw(st.lists(some, unique=True, max_size=2)))
        items.append(ItemDemand(fixed, draw(st.integers(0, 2)), tuple(node for node in held if node != fixed)))
    loads = Counter(item.fixed for item in items)
    return items, Topology(
        tuple(draw(st.lists(st.integers(1, 2), min_size=nodes, max_size=nodes)))
        if draw(st.booleans())
        else (1,) * nodes,
        tuple(loads[node] + draw(st.integers(0, 1)) for node in range(nodes)),
        tuple(made),
    )


def collisions(item: ItemDemand, own: tuple[int, ...], field: Topology, *, strict: bool = False) -> int:
    """What the room says collisions are, once more and in another way; on all dimensions or on strict ones."""
    holders = [*own, *([item.fixed] if item.fixed >= 0 else [])]
    nodes = len(field.weight) - (item.fixed >= 0)
    copies = (item.copies if field.strict else min(item.copies, nodes)) + (item.fixed >= 0)
    total = 0
    for dimension in field.dimensions:
        if strict and not dimension.strict:
            continue
        values = [dimension.value[node] for node in holders if dimension.value[node] != NO_VALUE]
        most = dimension.max_per_value or -(-copies // max(1, dimension.values))
        total += sum(max(0, values.count(value) - most) for value in set(values))
        if dimension.max_unused:
            total += max(0, len(set(values)) - max(1, copies - dimension.max_unused))
    return total


def redundant(item: ItemDemand, own: tuple[int, ...], field: Topology) -> int:
    """Copies that add no value, over all dimensions where distinct values count."""
    holders = [*own, *([item.fixed] if item.fixed >= 0 else [])]
    return sum(
        len(holders) - len({dimension.value[node] for node in holders} - {NO_VALUE})
        for dimension in field.dimensions
        if dimension.distinct
    )


def uneven(sets: Sets, field: Topology) -> float:
    load = Counter(node for own in sets for node in own)
    return round(sum((field.load[node] + load[node]) ** 2 / weight for node, weight in enumerate(field.weight)), 6)


def kept(items: list[ItemDemand], sets: Sets) -> int:
    return sum(len(set(own).intersection(item.current)) for item, own in zip(items, sets, strict=True))


def choices(item: ItemDemand, field: Topology) -> list[tuple[int, ...]]:
    """All sets that are as many as can be, use as many values as can be, and collide least."""
    others = [node for node in range(len(field.weight)) if node != item.fixed]
    for copies in range(min(item.copies, len(others)), -1, -1):
        found = {
            own: (redundant(item, own, field), collisions(item, own, field))
            for own in combinations(others, copies)
            if not copies or not collisions(item, own, field, strict=True)
        }
        if found:
            least = min(found.values())
            return [own for own, each in found.items() if each == least]
    raise AssertionError


def check_sets(items: list[ItemDemand], field: Topology, placed: StandbyPlacement) -> None:
    for item, own, told, missing in zip(items, placed.nodes, placed.collisions, placed.missing, strict=True):
        allowed = choices(item, field)
        assert own in allowed
        assert missing == item.copies - len(own)
        if own:
            assert told == collisions(item, own, field)
    assert placed.kept == kept(items, placed.nodes)


@given(cases(1))
@settings(max_examples=examples(300))
def test_one_dimension_is_the_optimum(case: tuple[list[ItemDemand], Topology]) -> None:
    items, field = case
    # With a limit on the values of an item, its sets are no bases of a matroid.
    assume(not any(dimension.max_unused for dimension in field.dimensions))
    placed = place_standbys(items, field)
    check_sets(items, field, placed)
    assert placed.proven
    best = min((uneven(sets, field), -kept(items, sets)) for sets in product(*(choices(i, field) for i in items)))
    assert (uneven(placed.nodes, field), -placed.kept) == best


@given(cases(1) | cases(2) | cases(3))
@settings(max_examples=examples(200))
def test_with_any_dimensions_what_is_proven_is_the_optimum(case: tuple[list[ItemDemand], Topology]) -> None:
    items, field = case
    placed = place_standbys(items, field)
    check_sets(items, field, placed)
    best = min((uneven(sets, field), -kept(items, sets)) for sets in product(*(choices(i, field) for i in items)))
    assert uneven(placed.nodes, field) <= best[0] + 2
    assert not placed.proven or (uneven(placed.nodes, field), -placed.kept) == best


def grid(zones: int, clusters: int, items: int, copies: int, *, held: bool) -> tuple[list[ItemDemand], Topology]:
    """Return nodes of each zone in each cluster, with equally many items, whose copies are on some nodes if `held`."""
    rng, nodes = random.Random(items), zones * clusters
    dimensions = (
        Dimension(tuple(node % zones for node in range(nodes)), zones, distinct=True),
        Dimension(tuple(node // zones for node in range(nodes)), clusters, distinct=True),
    )
    former = [rng.sample(range(nodes), copies) if held else [] for _ in range(items * nodes)]
    demands = [
        ItemDemand(number % nodes, copies, tuple(node for node in own if node != number % nodes))
        for number, own in enumerate(former)
    ]
    return demands, Topology((1,) * nodes, (items,) * nodes, dimensions)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("items", [1, 2, 3, 5])
@pytest.mark.parametrize(("zones", "clusters"), [(2, 3), (3, 3), (3, 4), (4, 4), (4, 6)])
def test_regular_grids_are_even(zones: int, clusters: int, items: int, copies: int, held: bool) -> None:  # noqa: FBT001
    demands, field = grid(zones, clusters, items, copies, held=held)
    placed = place_standbys(demands, field)
    nodes = zones * clusters
    assert uneven(placed.nodes, field) == nodes * (items * (1 + copies)) ** 2
    # Without former copies the bound is that of even loads.
    assert placed.proven or held


def crowded(seed: int) -> tuple[list[ItemDemand], Topology]:
    """Return more items than nodes, with a copy each, of which many nodes have one: even loads need exchanges."""
    rng = random.Random(seed)
    nodes, items = rng.randrange(3, 5), []
    for _ in range(rng.randrange(4, 7)):
        fixed = rng.randrange(-1, nodes)
        held = rng.sample(range(nodes), rng.randrange(1, 3))
        items.append(ItemDemand(fixed, 1, tuple(node for node in held if node != fixed)))
    loads = Counter(item.fixed for item in items)
    return items, Topology((1,) * nodes, tuple(loads[node] + rng.randrange(3) for node in range(nodes)), ())


def test_copies_that_left_for_even_loads_return_along_cycles() -> None:
    for seed in range(130):
        items, field = crowded(seed)
        placed = place_standbys(items, field)
        check_sets(items, field, placed)
        assert placed.proven
        best = min((uneven(sets, field), -kept(items, sets)) for sets in product(*(choices(i, field) for i in items)))
        assert (uneven(placed.nodes, field), -placed.kept) == best, seed


def test_switches_that_are_too_many_or_late_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nine nodes in a grid: each item has two sets, that differ in both of their nodes.
    dimensions = tuple(Dimension(tuple(node // 3**number % 3 for node in range(9)), 3) for number in (0, 1))
    field, items = Topology((1,) * 9, (3,) * 9, dimensions), [ItemDemand(node % 9, 2) for node in range(27)]
    assert uneven(place_standbys(items, field).nodes, field) == 9 * 9**2
    late = place_standbys(items, field, until=time.monotonic())
    monkeypatch.setattr(set_switches, "MOST_LISTED", 10)
    large = place_standbys(items, field)
    for placed in (late, large):
        check_sets(items, field, placed)
        assert not placed.proven
        assert uneven(placed.nodes, field) > 9 * 9**2


@given(cases(1, strict=True) | cases(2, strict=True))
@settings(max_examples=examples(200))
def test_what_is_strict_never_collides(case: tuple[list[ItemDemand], Topology]) -> None:
    items, field = case
    placed = place_standbys(items, field)
    check_sets(items, field, placed)
    for item, own in zip(items, placed.nodes, strict=True):
        assert not own or collisions(item, own, field, strict=True) == 0


@given(cases(1) | cases(2) | cases(3), st.data())
@settings(max_examples=examples(200))
def test_what_is_begun_with_is_not_better_than_what_comes_out(
    case: tuple[list[ItemDemand], Topology], data: st.DataObject
) -> None:
    items, field = case
    start = tuple(data.draw(st.sampled_from(choices(item, field))) for item in items)
    placed = place_standbys(items, field, [start])
    check_sets(items, field, placed)
    alone = place_standbys(items, field)
    ranks = [(uneven(sets, field), -kept(items, sets)) for sets in (placed.nodes, alone.nodes, start)]
    assert ranks[0] == min(ranks)


def exchanges(items: list[ItemDemand], field: Topology, sets: list[set[int]]) -> list[tuple[int, int, int]]:
    """Every item, node it can give up, and node it can take for that."""
    allowed = [choices(item, field) for item in items]
    return [
        (number, source, target)
        for number, own in enumerate(sets)
        for source in sorted(own)
        for target in set(range(len(field.weight))) - own
        if tuple(sorted(own - {source} | {target})) in allowed[number]
    ]


@given(cases(1) | cases(2) | cases(3), st.lists(st.integers(0, 100), max_size=10))
@settings(max_examples=examples(200))
def test_the_exchange_graph_is_kept_up(case: tuple[list[ItemDemand], Topology], picks: list[int]) -> None:
    items, field = case
    rooms, nodes = CollisionIndex(field), range(len(field.weight))
    graph = ExchangeGraph(rooms, items, [rooms.least(item) for item in items])
    for pick in picks:
        possible = exchanges(items, field, graph.sets)
        for source in nodes:
            expected = [0, 0, 0]
            for number, giving, target in possible:
                held = items[number].current
                if giving == source:
                    expected[1 - (target in held) + (source in held)] |= 1 << target
            assert graph.arcs(source) == tuple(expected)
        if possible:
            assert graph.move([possible[pick % len(possible)]])
    loads = Counter(node for own in graph.sets for node in own)
    assert graph.count == [field.load[node] + loads[node] for node in nodes]


def test_two_exchanges_of_an_item_are_not_sound_if_they_only_are_one_by_one() -> None:
    # A zone has nodes 2 and 3, each of the others one; each zone is to have one copy.
    field = Topology((1,) * 4, (0,) * 4, (Dimension((0, 1, 2, 2), 3, 1),))
    rooms, item = CollisionIndex(field), ItemDemand(-1, 2)
    graph = ExchangeGraph(rooms, [item], [rooms.least(item)], [{0, 1}])
    assert not graph.move([(0, 0, 2), (0, 1, 3)])
    assert graph.sets == [{0, 1}]
    assert graph.move([(0, 0, 2)])
    assert graph.sets == [{1, 2}]


@pytest.mark.long
def test_a_search_that_is_cut_off_is_told() -> None:
    sizes, nodes = (2, 3, 4, 5), 60
    values = [tuple((node * 7919 + node**2 * size) % 101 % size for node in range(nodes)) for size in sizes]
    field = Topology(
        (1,) * nodes, (0,) * nodes, tuple(Dimension(v, size, 2, 1) for v, size in zip(values, sizes, strict=True))
    )
    items = [ItemDemand(0, 6), ItemDemand(1, 6)]
    rooms = CollisionIndex(field)
    assert list(rooms.sets(items[0], 6, 7, range(len(rooms.nodes)), bound=99, tries=SearchBudget(3))) == []
    assert not rooms.least(items[0]).proven
    placed = place_standbys(items, field)
    assert [collisions(*each, field) for each in zip(items, placed.nodes, strict=True)] == list(placed.collisions)
    assert [len(own) for own in placed.nodes] == [6, 6]
    # What another has found is not lost, even if the search does not come that far.
    poor = replace(rooms.least(items[0]), cost=99)
    assert rooms.lowered(items[0], poor, [placed.nodes[1], placed.nodes[0]]).cost == placed.collisions[0]


class Counted(tuple[int, ...]):  # noqa: SLOT001 - with a counter, for which a tuple has no slot
    """Weights of nodes, which count how many of them are looked at."""

    seen = 0

    def __iter__(self) -> Iterator[int]:
        for weight in super().__iter__():
            self.seen += 1
            yield weight

    def __getitem__(self, node: Any) -> Any:
        self.seen += 1
        return super().__getitem__(node)


def test_a_set_is_chosen_without_a_look_at_all_nodes() -> None:
    nodes, number = 300, 600
    weight = Counted((1,) * nodes)
    field = Topology(weight, (number // nodes,) * nodes, (Dimension(tuple(node % 3 for node in range(nodes)), 3),))
    rooms = CollisionIndex(field)
    items = [ItemDemand(each % nodes, 1, ((each + 7) % nodes,) if each % 2 else ()) for each in range(number)]
    least = [rooms.least(item) for item in items]
    weight.seen = 0
    graph = ExchangeGraph(rooms, items, least)
    assert max(graph.count) - min(graph.count) <= 2
    assert all(graph.is_feasible(each, own) for each, own in enumerate(graph.sets))
    assert weight.seen < 20 * (nodes + number)


def hosts(nodes: int) -> Topology:
    """Nodes with a host of their own each, in two racks that do not fit what hosts have in common otherwise."""
    rack = tuple(node % 2 for node in range(nodes))
    room = tuple(0 if node % 8 else 1 + node % 3 for node in range(nodes))
    return Topology(
        (1,) * nodes,
        (1,) * nodes,
        tuple(Dimension(each, 1 + max(each), distinct=True) for each in (rack, room, tuple(range(nodes)))),
    )


def test_hosts_that_differ_in_their_names_only_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[ItemDemand] = []
    search = CollisionIndex._search

    def noted(index: CollisionIndex, item: ItemDemand) -> CollisionBound:
        searched.append(item)
        return search(index, item)

    monkeypatch.setattr(CollisionIndex, "_search", noted)
    field = hosts(120)
    rooms = CollisionIndex(field)
    items = [ItemDemand(node, 2) for node in range(120)]
    found = [rooms.least(item) for item in items]
    assert len(searched) <= 8
    for item, bound in zip(items, found, strict=True):
        assert rooms.of[item.fixed] not in bound.cells
        assert rooms.cost(tuple(sorted((*bound.cells, rooms.of[item.fixed]))), 3) == bound.cost
        assert (bound.cost, bound.proven) == (search(rooms, item).cost, True)


@pytest.mark.parametrize("strict", [False, True])
def test_after_the_deadline_hardly_any_sets_are_tried(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    tried: list[Cells] = []
    cost = CollisionIndex.cost

    def noted(index: CollisionIndex, cells: Cells, copies: int) -> int:
        tried.append(cells)
        return cost(index, cells, copies)

    monkeypatch.setattr(CollisionIndex, "cost", noted)
    nodes = 120
    # Hosts with a node in each rack, so that no cell is the twin of another; in what they run few differ.
    runs = tuple(int(node % 3 == 0 and node % 2 == 1) for node in range(nodes))
    dimensions = (
        Dimension(tuple(node // 3 for node in range(nodes)), nodes // 3, 1, strict=strict, distinct=not strict),
        Dimension(tuple(node % 3 for node in range(nodes)), 3, distinct=True),
        Dimension(runs, 2, distinct=True),
    )
    items = [ItemDemand(node, 2) for node in range(nodes)]
    placed = place_standbys(items, Topology((1,) * nodes, (1,) * nodes, dimensions), until=0.0)
    assert placed.missing == (0,) * nodes
    assert not placed.proven
    assert len(tried) <= 60 * nodes
