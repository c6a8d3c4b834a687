"""Rebalances between descriptions of a group, with generations and without."""

from __future__ import annotations

from dataclasses import replace

from rackassign.monitoring.live_groups import GroupDescription
from rackassign.monitoring.rebalance_counter import RebalanceCounter
from tests.helpers.builders import group, member

NONE: frozenset[str] = frozenset()
ONE, TWO = {"t": [0]}, {"t": [1]}


def at(generation: int | None, *owned: dict[str, list[int]]) -> GroupDescription:
    """Return a group whose members send a generation, or none."""
    found = group(*(member(f"m{i}", "a", each) for i, each in enumerate(owned)))
    if generation is None:
        return found
    members = tuple(
        replace(each, subscription=replace(each.subscription, generation=generation)) if each.subscription else each
        for each in found.members
    )
    return replace(found, members=members)


def counted(*seen: GroupDescription) -> int:
    counter = RebalanceCounter()
    for each in seen:
        counter.take([each], NONE)
    return counter.totals()[seen[0].name]


def test_generations_count_each_rebalance() -> None:
    assert counted(at(4, ONE), at(4, ONE), at(9, ONE)) == 5
    # It is not known yet what is sent after the change.
    assert counted(at(4, ONE), at(4, TWO)) == 1
    assert counted(at(4, ONE), at(6, TWO), at(6, TWO)) == 2


def test_without_generations_a_change_counts_as_one() -> None:
    assert counted(at(None, ONE), at(None, ONE)) == 0
    assert counted(at(None, ONE), at(None, ONE, TWO), at(None, ONE, TWO), at(None, TWO, ONE)) == 2


def test_generations_that_begin_again_count_as_one() -> None:
    assert counted(at(40, ONE), at(1, TWO), at(2, TWO)) == 2
    assert counted(at(40, ONE), at(None), at(1, ONE)) == 2


def test_a_hidden_group_goes_on_and_a_deleted_one_begins_again() -> None:
    counter, seen = RebalanceCounter(), at(4, ONE)
    counter.take([seen], NONE)
    counter.take([], frozenset({seen.name}))
    counter.take([at(7, TWO)], NONE)
    assert counter.totals() == {seen.name: 3}
    counter.take([], NONE)
    assert counter.totals() == {}
    counter.take([at(9, TWO)], NONE)
    assert counter.totals() == {seen.name: 0}
