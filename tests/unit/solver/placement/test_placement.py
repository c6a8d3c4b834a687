"""Copies are spread as well as any of all ways to spread them, and limits are kept to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import highspy
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from rackassign.solver import min_cost_flow
from rackassign.solver import placement as room
from rackassign.solver.placement import (
    LEADER_GOALS,
    PRIMARY_OBJECTIVES,
    SHORTAGES,
    BrokerArrays,
    Constraints,
    Objectives,
    PartitionArrays,
    PlacementResult,
    ShortageError,
    place_replicas,
    reorder_leaders,
)

UNTOUCHED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def nodes_of(racks: Sequence[int], **others: Any) -> BrokerArrays:
    arrays = {name: np.asarray(value) for name, value in others.items()}
    return replace(BrokerArrays.plain(np.asarray(racks, np.int64)), **arrays)


def items_of(
    copies: Sequence[int], group: Sequence[int] | None = None, held: Sequence[Sequence[int]] | None = None
) -> PartitionArrays:
    return PartitionArrays(
        np.asarray(copies, np.int64),
        np.asarray([0] * len(copies) if group is None else group, np.int64),
        tuple(map(tuple, held)) if held is not None else ((),) * len(copies),
    )


# What is valid, and what is best, said once more and in another way.


def rooms(nodes: BrokerArrays, held: Sequence[int]) -> list[int]:
    return [node for node in range(len(nodes.rack)) if nodes.assignable[node] or node in held]


def counts(nodes: BrokerArrays, chosen: Sequence[int]) -> Counter[int]:
    return Counter(int(nodes.rack[node]) for node in chosen)


def fits(nodes: BrokerArrays, limits: Constraints, chosen: Sequence[int], wanted: int) -> bool:
    """Whether one item may have these nodes, as far as hard limits go."""
    in_rack = counts(nodes, chosen)
    most = limits.max_per_rack
    if most == "even":
        most = wanted if limits.counted_racks is None else -(-wanted // limits.counted_racks)
    return (
        max(in_rack.values(), default=0) <= most
        and (limits.max_racks is None or len(in_rack) <= limits.max_racks)
        and (limits.min_racks is None or len(in_rack) + (wanted - len(chosen)) >= min(limits.min_racks, wanted))
        and (limits.leader_racks is None or not chosen or bool(set(in_rack) & limits.leader_racks))
    )


def best_sets(nodes: BrokerArrays, limits: Constraints, wanted: int, held: Sequence[int]) -> list[tuple[int, ...]]:
    """All sets of an item that have as many copies as can be, spread as they should be."""
    for count in range(wanted, -1, -1):
        found = [c for c in combinations(rooms(nodes, held), count) if fits(nodes, limits, c, wanted)]
        if not found:
            continue
        if limits.max_per_rack == "even" and limits.counted_racks is None and count == wanted:
            # As even as can be: the fullest rack as empty as possible, and so on.
            shapes = {chosen: sorted(counts(nodes, chosen).values(), reverse=True) for chosen in found}
            return [chosen for chosen in found if shapes[chosen] == min(shapes.values())]
        if limits.min_racks is None:
            widest = max(len(counts(nodes, chosen)) for chosen in found)
            return [chosen for chosen in found if len(counts(nodes, chosen)) == widest]
        return found
    return [()]


def score(
    nodes: BrokerArrays, items: PartitionArrays, goals: Objectives, sets: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    load = Counter(node for chosen in sets for node in chosen)
    squares = sum((load[node] + int(base)) ** 2 for node, base in enumerate(nodes.load))
    moves = sum(len(set(chosen) - set(held)) for chosen, held in zip(sets, items.current, strict=True))
    grouped = Counter((g, node) for g, chosen in zip(items.group.tolist(), sets, strict=True) for node in chosen)
    group = sum(count**2 for count in grouped.values())
    reluctant = sum(load[node] for node in range(len(nodes.rack)) if nodes.last_resort[node])
    coverage: tuple[int, ...] = ()
    if goals.coverage is not None:
        per_rack = counts(nodes, [node for chosen in sets for node in chosen])
        weights = dict(enumerate(goals.coverage.tolist()))
        # Where nobody reads as little as can be, and elsewhere by weight; 6 is a multiple of all weights here.
        unread = sum(count for rack, count in per_rack.items() if not weights[rack])
        read = sum(count**2 * 6 // weights[rack] for rack, count in per_rack.items() if weights[rack])
        coverage = (unread, read) if any(weights.values()) else ()
    order = {
        "balance": (*coverage, squares, moves, group),
        "moves": (moves, *coverage, squares, group),
        "group": (group, *coverage, squares, moves),
        "coverage": (*coverage, moves, squares, group),
    }
    return (reluctant, *order[goals.first])


def leads(spreading: PlacementResult) -> Counter[int]:
    return Counter(chosen[0] for chosen in spreading.nodes if chosen and chosen[0] >= 0)


def squares(numbers: Sequence[int]) -> int:
    return sum(number**2 for number in numbers)


def filled(base: Sequence[int], more: int) -> list[int]:
    """Loads that are as even as so many more make them, each of them wherever there is least."""
    found = list(base)
    for _ in range(more):
        found[found.index(min(found))] += 1
    return found


def check_valid(items: PartitionArrays, nodes: BrokerArrays, limits: Constraints, found: PlacementResult) -> None:
    for wanted, held, listed in zip(items.copies.tolist(), items.current, found.nodes, strict=True):
        own, missing = [node for node in listed if node >= 0], [node for node in listed if node < 0]
        assert len(listed) == wanted
        assert missing == list(range(-1, -len(missing) - 1, -1))
        assert len(set(own)) == len(own)
        assert tuple(sorted(own)) in best_sets(nodes, limits, wanted, held)
    moves = sum(
        len({n for n in own if n >= 0} - set(held)) for own, held in zip(found.nodes, items.current, strict=True)
    )
    assert found.moved == moves >= found.lower_bound


def every(items: PartitionArrays, nodes: BrokerArrays, limits: Constraints) -> Iterator[tuple[tuple[int, ...], ...]]:
    yield from product(
        *(best_sets(nodes, limits, n, held) for n, held in zip(items.copies.tolist(), items.current, strict=True))
    )


@st.composite
def small(draw: st.DrawFn) -> tuple[PartitionArrays, BrokerArrays]:
    racks = draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
    racks = [sorted(set(racks)).index(rack) for rack in racks]
    count = len(racks)
    size = draw(st.integers(1, 4))
    copies = draw(st.lists(st.integers(1, min(3, count)), min_size=size, max_size=size))
    held = [draw(st.lists(st.integers(0, count - 1), max_size=3, unique=True)) for _ in range(size)]
    several = st.lists(st.booleans(), min_size=count, max_size=count)
    nodes = nodes_of(
        racks,
        load=draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)),
        leader_load=draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)),
        last_resort=draw(st.one_of(st.just([False] * count), several)),
    )
    group = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    return items_of(copies, group, held if draw(st.booleans()) else None), nodes


@settings(max_examples=300, deadline=None)
@given(
    small(),
    st.sampled_from(PRIMARY_OBJECTIVES),
    st.one_of(st.none(), st.just([1, 1, 1]), st.lists(st.integers(0, 3), min_size=3, max_size=3)),
)
def test_small_layouts_get_the_best_there_is(
    case: tuple[PartitionArrays, BrokerArrays], first: Any, coverage: list[int] | None
) -> None:
    items, nodes = case
    racks = int(nodes.rack.max()) + 1
    goals = Objectives(first, coverage=None if coverage is None else np.asarray(coverage[:racks], np.int64))
    everything = list(every(items, nodes, Constraints()))
    assume(len(everything) <= 3000)
    found = place_replicas(items, nodes, goals=goals)
    check_valid(items, nodes, Constraints(), found)
    # Where other sets might let leads be more even, nothing is said of that.
    led = sorted(leads(found)[node] + int(base) for node, base in enumerate(nodes.leader_load))
    assert found.leads_proven == (squares(led) == squares(filled(nodes.leader_load.tolist(), len(items.copies))))
    assert found.notes == ()
    best = min(score(nodes, items, goals, sets) for sets in everything)
    groups = len(set(items.group.tolist())) > 1 or first == "group"
    mine = score(nodes, items, goals, found.nodes)
    # A single group is even when nodes are, as far as what they carry otherwise allows.
    assert mine == best if groups else mine[:-1] == best[:-1]
    assert found.moved >= found.lower_bound


limits_of = st.builds(
    Constraints,
    max_per_rack=st.sampled_from(["even", "even", 1, 2]),
    min_racks=st.sampled_from([None, None, 1, 2, 3]),
    max_racks=st.sampled_from([None, None, 3]),
    counted_racks=st.sampled_from([None, None, 3, 4]),
    leader_racks=st.sampled_from([None, None, frozenset({0}), frozenset({1, 2})]),
    on_shortage=st.sampled_from(SHORTAGES),
)


@settings(max_examples=300, deadline=None)
@given(small(), limits_of)
def test_limits_hold_or_the_shortage_is_told(case: tuple[PartitionArrays, BrokerArrays], limits: Constraints) -> None:
    items, nodes = case
    racks = int(nodes.rack.max()) + 1
    placeholder = replace(limits, on_shortage="placeholder")
    if limits.leader_racks is not None and not any(rack < racks for rack in limits.leader_racks):
        limits = replace(limits, leader_racks=None)
        placeholder = replace(placeholder, leader_racks=None)
    short = any(
        len(best_sets(nodes, placeholder, wanted, held)[0]) < wanted
        for wanted, held in zip(items.copies.tolist(), items.current, strict=True)
    )
    if short and limits.on_shortage == "error":
        with pytest.raises(ShortageError):
            place_replicas(items, nodes, limits)
        return
    found = place_replicas(items, nodes, limits)
    if short and limits.on_shortage == "relax":
        assert all(min(listed) >= 0 and len(set(listed)) == len(listed) for listed in found.nodes)
        assert "limits had to give way" in found.notes
        return
    check_valid(items, nodes, limits, found)
    assert bool(short) == any(min(listed) < 0 for listed in found.nodes)
    if limits.leader_racks is not None:
        assert all(int(nodes.rack[own[0]]) in limits.leader_racks for own in found.nodes if own[0] >= 0)


@settings(max_examples=150, deadline=None)
@given(small(), st.lists(st.booleans(), min_size=5, max_size=5))
def test_closed_nodes_keep_what_they_hold_and_get_nothing(
    case: tuple[PartitionArrays, BrokerArrays], closed: list[bool]
) -> None:
    items, nodes = case
    open_ = ~np.asarray(closed[: len(nodes.rack)])
    nodes = replace(nodes, assignable=open_, leader_eligible=open_, last_resort=0 * open_ > 0)
    limits = Constraints(on_shortage="placeholder")
    found = place_replicas(items, nodes, limits)
    check_valid(items, nodes, limits, found)
    for own, held in zip(found.nodes, items.current, strict=True):
        assert all(open_[node] or node in held for node in own if node >= 0)
        if any(node >= 0 and open_[node] for node in own):
            assert open_[own[0]]


@pytest.mark.parametrize("racks", [[0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3, 3, 3]])
@pytest.mark.parametrize("copies", [2, 3, 4])
def test_fewer_racks_than_there_could_be(racks: list[int], copies: int) -> None:
    limits = Constraints(max_per_rack=2, min_racks=2, max_racks=2)
    items, nodes = items_of([copies] * 12), nodes_of(racks)
    found = place_replicas(items, nodes, limits)
    check_valid(items, nodes, limits, found)
    patterns = Counter(tuple(sorted(counts(nodes, own))) for own in found.nodes)
    if len(patterns) > 1:
        assert found.notes == ("racks were chosen one item after the other",)
        assert max(patterns.values()) - min(patterns.values()) <= 1


# The joint optimum, by a solver that is told of replicas and leaders at once.


class Joint:
    """Sets and leaders in one integer program: squares of loads first, then squares of leads."""

    def __init__(self, racks: Sequence[int], copies: Sequence[int]) -> None:
        self._racks, self._copies, self._count = racks, copies, len(racks)
        self._model = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0}.items():
            self._model.setOptionValue(option, value)
        self._in = [[self._binary() for _ in racks] for _ in copies]
        self._led = [[self._binary() for _ in racks] for _ in copies]
        self._loads = [[self._binary() for _ in copies] for _ in racks]
        self._leads = [[self._binary() for _ in copies] for _ in racks]

    def _binary(self) -> int:
        self._model.addVar(0.0, 1.0)
        column = self._model.getNumCol() - 1
        self._model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        return column

    def _row(self, low: float, high: float, columns: list[int], factors: list[float]) -> None:
        self._model.addRow(low, high, len(columns), np.asarray(columns, np.int32), np.asarray(factors, np.float64))

    def best(self) -> tuple[int, int]:
        racks = sorted(set(self._racks))
        for item, wanted in enumerate(self._copies):
            self._row(wanted, wanted, self._in[item], [1.0] * self._count)
            self._row(1, 1, self._led[item], [1.0] * self._count)
            sizes = [self._racks.count(rack) for rack in racks]
            most = next(t for t in range(1, wanted + 1) if sum(min(n, t) for n in sizes) >= wanted)
            for rack, size in zip(racks, sizes, strict=True):
                inside = [self._in[item][node] for node in range(self._count) if self._racks[node] == rack]
                self._row(min(size, most - 1), min(size, most), inside, [1.0] * len(inside))
            for node in range(self._count):
                self._row(-1, 0, [self._led[item][node], self._in[item][node]], [1.0, -1.0])
        places = range(len(self._copies))
        for node in range(self._count):
            for chosen, steps in ((self._in, self._loads), (self._led, self._leads)):
                columns = [chosen[item][node] for item in places] + steps[node]
                self._row(0, 0, columns, [1.0] * len(places) + [-1.0] * len(places))
        loads = self._minimised(self._loads)
        columns, factors = self._squares(self._loads)
        self._row(0, loads, columns, factors)
        return loads, self._minimised(self._leads)

    def _squares(self, steps: list[list[int]]) -> tuple[list[int], list[float]]:
        return (
            [column for columns in steps for column in columns],
            [2.0 * k + 1 for columns in steps for k in range(len(columns))],
        )

    def _minimised(self, steps: list[list[int]]) -> int:
        for column in range(self._model.getNumCol()):
            self._model.changeColCost(column, 0.0)
        for column, factor in zip(*self._squares(steps), strict=True):
            self._model.changeColCost(column, factor)
        self._model.run()
        assert self._model.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return round(self._model.getInfo().objective_function_value)


JOINT = [
    ([0, 0, 0, 1, 1, 1, 2, 2, 2], [3] * 9),
    ([0, 0, 1, 1, 2, 2], [2] * 7),
    ([0, 0, 1, 1, 2, 2], [3] * 8),
    ([0, 0, 0, 1, 1, 2], [2] * 9),
    ([0, 0, 0, 1, 1, 2], [3] * 8),
    ([0, 0, 0, 0, 0, 1, 1, 1], [3] * 8),
    ([0, 0, 0, 0, 0, 1, 1, 1], [4] * 6),
    ([0, 0, 0, 0, 1, 1, 1, 1, 2], [2] * 10),
    ([0, 1, 2, 3], [1, 2, 3, 4, 1, 2]),
]


@pytest.mark.parametrize(("racks", "copies"), JOINT)
def test_nested_flows_lead_as_evenly_as_the_joint_optimum(racks: list[int], copies: list[int]) -> None:
    found = place_replicas(items_of(copies), nodes_of(racks))
    assert found.proven
    loads = Counter(node for own in found.nodes for node in own)
    mine = sum(n**2 for n in loads.values()), sum(n**2 for n in leads(found).values())
    assert mine == Joint(racks, copies).best()


# What is the same for all sizes.


@st.composite
def medium(draw: st.DrawFn) -> tuple[PartitionArrays, BrokerArrays]:
    rng = random.Random(draw(st.integers(0, 10**6)))
    racks = [rng.randrange(draw(st.integers(1, 5))) for _ in range(draw(st.integers(1, 12)))]
    racks = [sorted(set(racks)).index(rack) for rack in racks]
    size = draw(st.integers(1, 60))
    most = min(len(racks), draw(st.integers(1, 6)))
    held = [tuple(rng.sample(range(len(racks)), rng.randint(0, most))) for _ in range(size)]
    return (
        items_of(
            [rng.randint(1, most) for _ in range(size)],
            [rng.randrange(draw(st.integers(1, 4))) for _ in range(size)],
            held if draw(st.booleans()) else None,
        ),
        nodes_of(racks, weight=[rng.choice([1, 1, 2, 5]) for _ in racks]),
    )


def check_spread(items: PartitionArrays, nodes: BrokerArrays, found: PlacementResult) -> None:
    sizes = Counter(nodes.rack.tolist())
    for wanted, own in zip(items.copies.tolist(), found.nodes, strict=True):
        assert len(set(own)) == len(own) == wanted
        in_rack = counts(nodes, own)
        assert len(in_rack) == min(wanted, len(sizes))
        most = max(in_rack.values())
        assert all(in_rack[rack] >= min(size, most - 1) for rack, size in sizes.items())


@settings(max_examples=150, deadline=None)
@given(medium(), st.sampled_from(PRIMARY_OBJECTIVES), st.sampled_from(LEADER_GOALS))
def test_copies_are_in_as_many_racks_as_can_be(
    case: tuple[PartitionArrays, BrokerArrays], first: Any, leaders: Any
) -> None:
    items, nodes = case
    found = place_replicas(items, nodes, goals=Objectives(first, leaders))
    check_spread(items, nodes, found)
    assert found.notes == ()


@settings(max_examples=60, deadline=None)
@given(medium())
def test_a_second_time_nothing_moves_and_leaders_stay_even(case: tuple[PartitionArrays, BrokerArrays]) -> None:
    items, nodes = case
    first = place_replicas(items, nodes)
    again = place_replicas(replace(items, current=first.nodes), nodes)
    assert (again.moved, again.lower_bound) == (0, 0)
    assert sorted(leads(again).values()) == sorted(leads(first).values()) or len(set(nodes.weight.tolist())) > 1


@settings(max_examples=60, deadline=None)
@given(medium())
def test_as_few_moves_as_limits_ask_for_when_moves_come_first(case: tuple[PartitionArrays, BrokerArrays]) -> None:
    items, nodes = case
    few, even = place_replicas(items, nodes, goals=Objectives("moves")), place_replicas(items, nodes)
    assert few.moved <= even.moved
    assert few.lower_bound <= few.moved


def test_without_a_solver_copies_are_spread_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(min_cost_flow, "highspy", None)

    @UNTOUCHED
    @given(medium(), st.sampled_from(PRIMARY_OBJECTIVES))
    def check(case: tuple[PartitionArrays, BrokerArrays], first: Any) -> None:
        items, nodes = case
        found = place_replicas(items, nodes, goals=Objectives(first))
        check_spread(items, nodes, found)
        assert not found.proven
        assert "HiGHS (highspy) cannot be imported" in found.notes

    check()


def test_without_a_solver_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(min_cost_flow, "highspy", None)

    @UNTOUCHED
    @given(small(), limits_of.map(lambda limits: replace(limits, on_shortage="placeholder")))
    def check(case: tuple[PartitionArrays, BrokerArrays], limits: Constraints) -> None:
        items, nodes = case
        assume(limits.leader_racks is None or min(limits.leader_racks) <= int(nodes.rack.max()))
        check_valid(items, nodes, limits, place_replicas(items, nodes, limits))

    check()


@pytest.mark.parametrize("work", [0, 1, 5, 20, 100, 400])
def test_with_too_little_work_copies_are_spread_and_no_more_is_claimed(work: int) -> None:
    rng = random.Random(work)
    held = [rng.sample(range(9), 3) for _ in range(200)]
    items, nodes = items_of([3] * 200, [i // 20 for i in range(200)], held), nodes_of([i // 3 for i in range(9)])
    found, best = place_replicas(items, nodes, work=work), place_replicas(items, nodes)
    check_spread(items, nodes, found)
    assert not found.proven
    assert best.proven
    assert score(nodes, items, Objectives(), best.nodes) <= score(nodes, items, Objectives(), found.nodes)


def test_an_answer_that_does_not_hold_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = min_cost_flow._rounded

    def off_by_one(values: Any) -> Any:
        numbers = sound(values)
        numbers[:1] += 1
        return numbers

    monkeypatch.setattr(min_cost_flow, "_rounded", off_by_one)
    items, nodes = items_of([3] * 30), nodes_of([0, 0, 1, 1, 2, 2])
    found = place_replicas(items, nodes)
    check_spread(items, nodes, found)
    assert any("does not hold in integers" in doubt for doubt in found.notes)


def test_groups_past_the_size_are_dealt_evenly_and_the_doubt_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_CELLS", 0)
    items, nodes = items_of([3] * 180, [i // 9 for i in range(180)]), nodes_of([i // 3 for i in range(9)])
    found = place_replicas(items, nodes)
    check_spread(items, nodes, found)
    assert found.notes == ("there are too many groups to prove the replicas of each even",)
    per_group = Counter((i // 9, node) for i, own in enumerate(found.nodes) for node in own)
    assert max(per_group.values()) <= 4
    assert set(Counter(node for own in found.nodes for node in own).values()) == {60}


@pytest.mark.parametrize(
    ("copies", "racks", "limits", "words"),
    [
        (4, [0, 1, 2], Constraints(), "4 copies, but only 3 nodes"),
        (3, [0, 0, 1, 1], Constraints(max_per_rack=1), "at most 1 in a rack, but the 2 racks take only 2"),
        (3, [0, 0, 1, 1], Constraints(min_racks=3), "in 3 racks at least, but only 2 racks"),
        (2, [0, 0, 0], Constraints(counted_racks=2), "at most 1 in a rack"),
        (2, [0, 1], Constraints(leader_racks=frozenset()), "no rack in which leaders must be"),
    ],
)
def test_a_shortage_says_what_is_short(copies: int, racks: list[int], limits: Constraints, words: str) -> None:
    with pytest.raises(ShortageError, match=words):
        place_replicas(items_of([copies] * 2), nodes_of(racks), limits)


def test_copies_go_where_coverage_says() -> None:
    found = place_replicas(
        items_of([1] * 100), nodes_of([0, 0, 1, 1, 2, 2]), goals=Objectives(coverage=np.asarray([6, 3, 1], np.int64))
    )
    assert counts(nodes_of([0, 0, 1, 1, 2, 2]), [own[0] for own in found.nodes]) == {0: 60, 1: 30, 2: 10}


def test_nothing_to_spread() -> None:
    assert place_replicas(items_of([]), nodes_of([0, 1])).nodes == ()


@example(racks=[0, 1], copies=2, size=4)
@settings(max_examples=50, deadline=None)
@given(
    racks=st.lists(st.integers(0, 3), min_size=2, max_size=8).map(
        lambda racks: [sorted(set(racks)).index(r) for r in racks]
    ),
    copies=st.integers(1, 3),
    size=st.integers(1, 40),
)
def test_leaders_are_even_where_replicas_are(racks: list[int], copies: int, size: int) -> None:
    assume(copies <= len(racks))
    nodes = nodes_of(racks)
    found = place_replicas(items_of([copies] * size), nodes)
    loads = Counter(node for own in found.nodes for node in own)
    if len(loads) == len(racks) and max(loads.values()) == min(loads.values()):
        led = leads(found)
        assert max(led.values()) - min(led[node] for node in range(len(racks))) <= 1


# Who leads, where nothing moves.


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


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(case=medium(), goal=st.sampled_from(LEADER_GOALS), keep=st.booleans())
def test_a_second_time_no_list_changes(case: tuple[PartitionArrays, BrokerArrays], goal: Any, *, keep: bool) -> None:
    items, nodes = case
    first = reorder_leaders(items, nodes, goals=Objectives(leaders=goal), keep=keep)
    assert first.notes == ()
    again = reorder_leaders(replace(items, current=first.nodes), nodes, goals=Objectives(leaders=goal), keep=keep)
    assert again.nodes == first.nodes


@settings(max_examples=40, deadline=None)
@given(medium())
def test_what_was_spread_needs_no_other_order(case: tuple[PartitionArrays, BrokerArrays]) -> None:
    items, nodes = case
    found = place_replicas(items, nodes)
    assert reorder_leaders(replace(items, current=found.nodes), nodes).nodes == found.nodes


def test_without_a_solver_leaders_are_near_even_and_sets_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(min_cost_flow, "highspy", None)

    @UNTOUCHED
    @given(placed_already(), some_racks)
    def check(case: tuple[PartitionArrays, BrokerArrays], racks: frozenset[int] | None) -> None:
        items, nodes = case
        found = reorder_leaders(items, nodes, Constraints(leader_racks=racks))
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
    found = reorder_leaders(uneven, nodes_of([0, 1]))
    assert Counter(own[0] for own in found.nodes) == {0: 3, 1: 3}
    assert found.notes == ("leaders: HiGHS (highspy) cannot be imported",)


@pytest.mark.parametrize("first", PRIMARY_OBJECTIVES)
def test_of_copies_one_of_which_must_go_the_closed_one_does(first: Any) -> None:
    open_ = np.asarray([True, False, True, True])
    nodes = nodes_of([0, 0, 1, 1], assignable=open_, leader_eligible=open_)
    items = items_of([2] * 4, held=[(0, 1), (1, 0), (0, 1), (1, 0)])
    found = place_replicas(items, nodes, goals=Objectives(first))
    assert found.moved == 4
    if first in {"moves", "coverage"}:
        assert all(1 not in own for own in found.nodes)


def cluster_of(rng: random.Random, brokers: int, size: int) -> tuple[PartitionArrays, BrokerArrays]:
    """Items placed blind to racks."""
    held = [rng.sample(range(brokers), 3) for _ in range(size)]
    return items_of([3] * size, [0] * size, held), nodes_of([node % 3 for node in range(brokers)])


@pytest.mark.parametrize("seed", range(6))
def test_paths_even_as_the_flow_does_and_move_no_more(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    items, nodes = cluster_of(rng, 12, 150)
    keep = rng.choice([3, 3, 2])
    items = replace(items, copies=np.full(150, keep, np.int64), keep=(True,) * 150)
    nodes = replace(nodes, load=np.asarray([rng.randrange(9) for _ in nodes.load]), assignable=nodes.rack != seed - 3)
    by_flow = place_replicas(items, nodes, goals=Objectives("moves"), order=False)
    monkeypatch.setattr(room, "MOST_CELLS", 0)
    monkeypatch.setattr(min_cost_flow, "highspy", None)
    on_paths = place_replicas(items, nodes, goals=Objectives("moves"), order=False)
    assert (by_flow.proven, on_paths.proven) == (True, True)
    # The last figure is of the only group there is, whatever nodes carry otherwise.
    same = score(nodes, items, Objectives("moves"), by_flow.nodes)[:-1]
    assert score(nodes, items, Objectives("moves"), on_paths.nodes)[:-1] == same


@pytest.mark.parametrize("leader_racks", [None, frozenset({1})])
@pytest.mark.parametrize("most", ["even", 2])
def test_small_layouts_are_evened_on_paths_as_well_as_by_any(
    most: Any, leader_racks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_CELLS", 0)

    @UNTOUCHED
    @given(small())
    def check(case: tuple[PartitionArrays, BrokerArrays]) -> None:
        items, nodes = case
        assume(leader_racks is None or 1 in nodes.rack)
        items = replace(items, group=0 * items.group)
        limits = Constraints(max_per_rack=most, leader_racks=leader_racks, on_shortage="placeholder")
        everything = list(every(items, nodes, limits))
        assume(len(everything) <= 3000)
        found = place_replicas(items, nodes, limits, Objectives("moves"), order=False)
        check_valid(items, nodes, limits, found)
        sets = [[node for node in own if node >= 0] for own in found.nodes]
        best = min(score(nodes, items, Objectives("moves"), each)[:-1] for each in everything)
        assert score(nodes, items, Objectives("moves"), sets)[:-1] == best

    check()


@pytest.mark.parametrize("first", PRIMARY_OBJECTIVES)
@pytest.mark.parametrize("work", [1, 50, 200, 800, 2000])
def test_what_is_left_of_a_budget_is_no_worse_than_without_a_solver(
    first: Any, work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, nodes = cluster_of(random.Random(work), 9, 200)
    items = replace(items, group=np.asarray([item // 20 for item in range(200)]))
    goals = Objectives(first, coverage=np.asarray([3, 2, 1]) if first == "coverage" else None)
    short = place_replicas(items, nodes, goals=goals, work=work)
    monkeypatch.setattr(min_cost_flow, "highspy", None)
    without = place_replicas(items, nodes, goals=goals)
    assert score(nodes, items, goals, short.nodes) <= score(nodes, items, goals, without.nodes)


def test_a_copy_that_leads_is_given_up_only_where_none_else_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    items, nodes = cluster_of(random.Random(5), 9, 90)
    held = tuple((node, (node + 1) % 9, (node + 2) % 9) for node in range(9)) * 10
    items = replace(items, current=held, copies=np.full(90, 2, np.int64), keep=(True,) * 90)
    for _ in range(2):
        found = place_replicas(items, nodes, goals=Objectives("moves"), order=False)
        assert all(own[0] == was[0] for own, was in zip(found.nodes, held, strict=True))
        assert set(Counter(node for own in found.nodes for node in own).values()) == {20}
        monkeypatch.setattr(room, "MOST_CELLS", 0)
