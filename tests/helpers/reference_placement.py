"""Which placements of copies are valid and which are best, found by trying all, and cases to try."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rackassign.solver.placement import BrokerArrays, Constraints, Objectives, PartitionArrays, PlacementResult

UNTOUCHED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


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
