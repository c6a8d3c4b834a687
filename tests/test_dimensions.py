"""Copies over several dimensions: against all there is on small cases."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.optimum.spread.dimensions import NO_VALUE, Dimension, Field, Wanted
from rackassign.optimum.spread.exchange import Placed, spread_over

Sets = tuple[tuple[int, ...], ...]


@st.composite
def cases(draw: st.DrawFn, dimensions: int, *, strict: bool = False) -> tuple[list[Wanted], Field]:
    nodes = draw(st.integers(1, 5))
    some = st.integers(0, nodes - 1)
    made = []
    for _ in range(draw(st.integers(0 if dimensions == 1 else dimensions, dimensions))):
        value = tuple(draw(st.lists(st.integers(NO_VALUE, 2), min_size=nodes, max_size=nodes)))
        seen = len(set(value) - {NO_VALUE})
        made.append(Dimension(value, seen + draw(st.integers(0, 1)), draw(st.integers(0, 2)), draw(st.integers(0, 1))))
    items = []
    for _ in range(draw(st.integers(1, 3))):
        fixed = draw(st.integers(-1, nodes - 1))
        held = tuple(draw(st.lists(some, unique=True, max_size=2)))
        items.append(Wanted(fixed, draw(st.integers(0, 2)), tuple(node for node in held if node != fixed)))
    loads = Counter(item.fixed for item in items)
    return items, Field(
        tuple(draw(st.lists(st.integers(1, 2), min_size=nodes, max_size=nodes)))
        if draw(st.booleans())
        else (1,) * nodes,
        tuple(loads[node] + draw(st.integers(0, 1)) for node in range(nodes)),
        tuple(made),
        strict,
    )


def collisions(item: Wanted, own: tuple[int, ...], field: Field) -> int:
    """What the room says collisions are, once more and in another way."""
    holders = [*own, *([item.fixed] if item.fixed >= 0 else [])]
    nodes = len(field.weight) - (item.fixed >= 0)
    copies = (item.copies if field.strict else min(item.copies, nodes)) + (item.fixed >= 0)
    total = 0
    for dimension in field.dimensions:
        values = [dimension.value[node] for node in holders if dimension.value[node] != NO_VALUE]
        most = dimension.most or -(-copies // max(1, dimension.values))
        total += sum(max(0, values.count(value) - most) for value in set(values))
        if dimension.fewer:
            total += max(0, len(set(values)) - max(1, copies - dimension.fewer))
    return total


def uneven(sets: Sets, field: Field) -> float:
    load = Counter(node for own in sets for node in own)
    return round(sum((field.load[node] + load[node]) ** 2 / weight for node, weight in enumerate(field.weight)), 6)


def kept(items: list[Wanted], sets: Sets) -> int:
    return sum(len(set(own).intersection(item.held)) for item, own in zip(items, sets, strict=True))


def choices(item: Wanted, field: Field) -> list[tuple[int, ...]]:
    """All sets that are as many as can be and collide least."""
    others = [node for node in range(len(field.weight)) if node != item.fixed]
    for copies in range(min(item.copies, len(others)), -1, -1):
        found = {own: collisions(item, own, field) for own in combinations(others, copies)}
        least = min(found.values())
        if not field.strict or least == 0 or not copies:
            return [own for own, each in found.items() if each == least]
    raise AssertionError


def check_sets(items: list[Wanted], field: Field, placed: Placed) -> None:
    for item, own, told, missing in zip(items, placed.nodes, placed.collisions, placed.missing, strict=True):
        allowed = choices(item, field)
        assert own in allowed
        assert missing == item.copies - len(own)
        if own:
            assert told == collisions(item, own, field)
    assert placed.kept == kept(items, placed.nodes)


@given(cases(1))
@settings(max_examples=300)
def test_one_dimension_is_the_optimum(case: tuple[list[Wanted], Field]) -> None:
    items, field = case
    placed = spread_over(items, field)
    check_sets(items, field, placed)
    assert placed.proven == (not any(dimension.fewer for dimension in field.dimensions))
    if placed.proven:
        best = min((uneven(sets, field), -kept(items, sets)) for sets in product(*(choices(i, field) for i in items)))
        assert (uneven(placed.nodes, field), -placed.kept) == best


@given(cases(2) | cases(3))
@settings(max_examples=200)
def test_with_more_dimensions_collisions_are_the_least(case: tuple[list[Wanted], Field]) -> None:
    items, field = case
    placed = spread_over(items, field)
    check_sets(items, field, placed)
    assert not placed.proven


@given(cases(1, strict=True) | cases(2, strict=True))
@settings(max_examples=200)
def test_what_is_strict_never_collides(case: tuple[list[Wanted], Field]) -> None:
    items, field = case
    placed = spread_over(items, field)
    check_sets(items, field, placed)
    for item, own in zip(items, placed.nodes, strict=True):
        assert not own or collisions(item, own, field) == 0
