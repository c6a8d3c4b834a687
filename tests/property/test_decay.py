"""Hundreds of changes, each settled before the next: what was best stays best, and the bench would see it if not."""

from __future__ import annotations

import pytest

from benchmarks.group_churn import Churn
from benchmarks.leaders import KafkaPython, Ours
from benchmarks.long_run import STEPS, lived_through, summed_up
from rackassign.locality import Locality
from rackassign.strategies import Options, plan_cooperative
from tests.helpers.reference_solver import MILLION, Puzzle, by_flow

SEED = 11
FEW = 50

MIXED = pytest.mark.parametrize("mixed", [False, True], ids=["equal", "mixed"])


@pytest.mark.long
@MIXED
def test_nothing_is_lost_in_500_changes(*, mixed: bool) -> None:
    options = Options()
    steps = list(Churn(SEED, mixed=mixed).steps(STEPS))
    done = lived_through(Ours(), steps)
    assert len(done) == STEPS + 1
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


@MIXED
def test_what_the_other_assignors_lose_is_seen(*, mixed: bool) -> None:
    for leader in KafkaPython.both():
        lost = summed_up(leader.name, lived_through(leader, Churn(SEED, mixed=mixed).steps(FEW)))
        assert lost.mean > 0, leader.name
        assert lost.unanswered == 0, leader.name


def test_a_history_is_the_same_for_everybody() -> None:
    first, second = (list(Churn(SEED, mixed=True).steps(FEW)) for _ in range(2))
    assert first == second
    happened = {step.what for step in first}
    assert {"join", "leave", "restart", "replicas move", "growth", "rack loss", "rack back"} <= happened
