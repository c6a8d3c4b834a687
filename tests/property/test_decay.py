"""Hundreds of changes, each settled before the next: what was best stays best, and the bench would see it if not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from benchmarks.long_run import STEPS, Churn, KafkaPython, Ours, keep_together, lived_through, summed_up
from benchmarks.quality import Quality, unevenness
from rackassign.locality import Locality
from rackassign.model import BALANCE_MODES, BalanceMode, Group, Partitions
from rackassign.strategies import Options, plan_cooperative
from tests.helpers.copartition_checks import check_units, unit_numbers
from tests.helpers.examples import examples
from tests.helpers.reference_solver import MILLION, Puzzle, by_flow

SEED = 11
FEW = 50
MANY = examples(STEPS)

MIXED = pytest.mark.parametrize("mixed", [False, True], ids=["equal", "mixed"])


@pytest.mark.long
@MIXED
@pytest.mark.parametrize("balance", BALANCE_MODES)
def test_nothing_is_lost_in_hundreds_of_changes(balance: BalanceMode, *, mixed: bool) -> None:
    options = Options(balance=balance)
    # The reference of topics takes five times as long.
    steps = list(Churn(SEED, mixed=mixed).steps(MANY if balance == "total" else MANY // 4))
    done = lived_through(Ours(options), steps)
    assert len(done) == len(steps)
    for step, settled in zip(steps, done, strict=True):
        puzzle = Puzzle.of(settled.before, options)
        best = by_flow(puzzle)
        assert puzzle.score_of(settled.after) == best
        # Also on the way nothing has left an owner that need not have.
        assert settled.quality.moves == best.moves
        # To have a history costs no locality.
        fresh = plan_cooperative(step.group, options)
        assert settled.quality.cross * MILLION == best.cost == Locality.of(step.group, fresh).cross * MILLION
        assert settled.settled
        assert settled.rebalances <= 2
        assert settled.unowned == 0


@pytest.mark.long
@pytest.mark.parametrize("balance", BALANCE_MODES)
def test_co_partitioned_topics_lose_nothing_either(balance: BalanceMode) -> None:
    options = Options(balance=balance)
    # Topics grow one after the other, so that their numbers of partitions differ nearly always.
    steps = [
        replace(step, group=replace(step.group, copartition=(("topic0", "topic1", "topic3"),)))
        for step in Churn(SEED, mixed=False).steps(MANY)
    ]
    done = lived_through(Ours(options), steps)
    for step, settled in zip(steps, done, strict=True):
        plan = plan_cooperative(settled.before, options)
        check_units(settled.before, plan)
        # Nothing leaves an owner in the second rebalance that did not have to in the first.
        assert settled.quality.moves == Quality.of(settled.before, plan.target).moves
        assert settled.settled
        assert settled.rebalances <= 2
        assert settled.unowned == 0
        # To have a history costs neither balance nor locality.
        fresh = plan_cooperative(step.group, options)
        assert loads(settled.before, settled.after) == loads(step.group, fresh.target)
        assert settled.quality.cross == Locality.of(step.group, fresh).cross


def loads(group: Group, target: Mapping[str, Partitions]) -> list[int]:
    """Return the members' numbers of units, where a partition of another topic is a unit too."""
    together = set(group.copartition[0])
    return sorted(
        len(unit_numbers(group, owned)) + sum(len(ids) for topic, ids in owned.items() if topic not in together)
        for owned in target.values()
    )


@pytest.mark.release
@MIXED
def test_what_the_other_assignors_lose_is_seen(*, mixed: bool) -> None:
    for leader in KafkaPython.both():
        lost = summed_up(leader.name, lived_through(leader, Churn(SEED, mixed=mixed).steps(FEW)))
        assert lost.mean > 0, leader.name
        assert lost.unanswered == 0, leader.name


@MIXED
def test_topics_that_are_less_even_than_they_could_be_are_seen(*, mixed: bool) -> None:
    steps = list(Churn(SEED, mixed=mixed).steps(FEW))
    lost, kept = (
        summed_up("", lived_through(Ours(options), steps, Options(balance="topic")))
        for options in (Options(), Options(balance="topic"))
    )
    assert lost.uneven > 0
    assert kept.uneven == 0


def test_co_partitioned_units_count_once() -> None:
    for step in keep_together(Churn(SEED, mixed=False).steps(FEW)):
        target = plan_cooperative(step.group).target
        assert unevenness(step.group, target, "total") == (0, sum(load**2 for load in loads(step.group, target)))


def test_a_history_is_the_same_for_everybody() -> None:
    first, second = (list(Churn(SEED, mixed=True).steps(FEW)) for _ in range(2))
    assert first == second
    happened = {step.what for step in first}
    assert {"join", "leave", "restart", "replicas move", "growth", "rack loss", "rack back"} <= happened
