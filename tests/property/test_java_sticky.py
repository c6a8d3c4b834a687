"""Sticky and cooperative-sticky beside Java's: never worse, and right where Java's are not."""

from __future__ import annotations

from collections import Counter
from math import comb
from typing import Any

import pytest

from rackassign.model import Partitions, Plan
from rackassign.strategies import Options, strategy
from tests.helpers import reference_solver
from tests.helpers.recorded_groups import group_of, recorded
from tests.helpers.reference_solver import Puzzle, check_plan, reclaimed

DATA = recorded("java_sticky.json")
VECTORS, QUIRKS = DATA["vectors"], DATA["quirks"]

# More load vectors than this are too many to count all optima.
MOST_LOADS = 5000


def strategy_of(vector: dict[str, Any]) -> str:
    name: str = vector["id"].partition("/")[0]
    return name


def plan_of(vector: dict[str, Any]) -> Plan:
    return strategy(strategy_of(vector))(group_of(vector), Options())


def java_target(vector: dict[str, Any]) -> dict[str, Partitions] | None:
    """Return what Java's group reaches once nothing is withheld; None where that was not recorded."""
    target: dict[str, dict[str, list[int]]] = {
        m["id"]: dict(vector["expected"].get(m["id"], {})) for m in vector["members"]
    }
    # Java's eager strategy names those that change hands too, but hands them out.
    withheld = vector["transferring"] if strategy_of(vector) == "cooperative-sticky" else None
    for name, member in (withheld or {}).items():
        topic, _, partition = name.rpartition("-")
        target[member][topic] = [*target[member].get(topic, ()), int(partition)]
    spelled: dict[str, Partitions] = {
        m: {t: tuple(sorted(ids)) for t, ids in sorted(owned.items()) if ids} for m, owned in target.items()
    }
    given = sum(len(ids) for owned in spelled.values() for ids in owned.values())
    return spelled if given == len(Puzzle.of(group_of(vector), Options()).partitions) else None


def complete(vectors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [vector for vector in vectors if java_target(vector) is not None]


def test_all_recorded_cases_are_there() -> None:
    by_strategy = Counter(map(strategy_of, VECTORS))
    assert by_strategy == {"sticky": 197, "cooperative-sticky": 227}
    assert sum("RackAware" in vector["id"] for vector in VECTORS) == 91
    assert len(QUIRKS) == 15


def test_of_few_cases_java_did_not_say_what_it_withheld() -> None:
    unknown = [vector for vector in VECTORS if java_target(vector) is None]
    assert len(unknown) == 5
    assert all(vector["transferring"] is None for vector in unknown)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["id"] for vector in VECTORS])
def test_reaches_the_optimum(vector: dict[str, Any]) -> None:
    group, plan = group_of(vector), plan_of(vector)
    check_plan(group, Options(), plan)
    assert plan.optimal is True
    assert Puzzle.of(group, Options()).score_of(plan.target) == reference_solver.optimum(group, Options())


COMPLETE = complete(VECTORS)


@pytest.mark.parametrize("vector", COMPLETE, ids=[vector["id"] for vector in COMPLETE])
def test_is_never_worse_than_java_and_equal_where_only_one_plan_is_best(vector: dict[str, Any]) -> None:
    puzzle, plan, java = Puzzle.of(group_of(vector), Options()), plan_of(vector), java_target(vector)
    assert java is not None
    ours, theirs = puzzle.score_of(plan.target), puzzle.score_of(java)
    assert ours <= theirs
    if ours == theirs and count_is_bearable(puzzle) and reference_solver.by_loads(puzzle)[1] == 1:
        assert plan.target == java


def count_is_bearable(puzzle: Puzzle) -> bool:
    members, partitions = len(puzzle.members), len(puzzle.partitions)
    return members > 0 and comb(partitions + members - 1, members - 1) <= MOST_LOADS


def test_many_cases_have_only_one_best_plan() -> None:
    puzzles = [Puzzle.of(group_of(vector), Options()) for vector in COMPLETE]
    unique = [puzzle for puzzle in puzzles if count_is_bearable(puzzle) and reference_solver.by_loads(puzzle)[1] == 1]
    assert len(unique) == 209


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize("quirk", QUIRKS, ids=[quirk["id"] for quirk in QUIRKS])
def test_what_breaks_java_gets_the_optimum_and_settles(quirk: dict[str, Any], name: str) -> None:
    group, plan = group_of(quirk), strategy(name)
    first = plan(group, Options())
    check_plan(group, Options(), first)
    assert first.optimal is True
    assert Puzzle.of(group, Options()).score_of(first.target) == reference_solver.optimum(group, Options())
    second = plan(reclaimed(group, first.assignment, 100), Options())
    assert second.assignment == second.target
    third = plan(reclaimed(group, second.assignment, 101), Options())
    assert (second.moved, third.moved) == (0, 0)
    assert third.assignment == second.assignment
