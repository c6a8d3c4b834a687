"""What a group gets when the budget of the plan is used up, or a flow does not hold."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.solver.network_flow import Ints, PrimalDual
from rackassign.strategies import Options, plan_cooperative, plan_sticky
from rackassign.strategies.copartition import MergedGroup
from rackassign.strategies.indexed_group import IndexedGroup
from tests.helpers.generators.groups import groups
from tests.helpers.reference_solver import Puzzle, big_group, check_plan, optimum, reclaimed

BALANCES = pytest.mark.parametrize("balance", ["total", "topic"])
UNTOUCHED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


def without_work(options: Options) -> Options:
    return replace(options, max_skew=0, work=0)


def check_balanced(group: Group, options: Options) -> None:
    options = without_work(options)
    plan = plan_sticky(group, options)
    check_plan(group, options, plan)
    loads = sorted((sum(map(len, owned.values())) for owned in plan.target.values()), reverse=True)
    best = optimum(group, options)
    assert tuple(loads) == best.loads
    assert Puzzle.of(group, options).score_of(plan.target).by_topic == best.by_topic
    if any(loads):
        assert (plan.optimal, plan.optimality_note) == (False, "the budget of the plan is used up")


@UNTOUCHED
@BALANCES
@given(groups())
def test_any_group_is_balanced_all_the_same(balance: Any, group: Group) -> None:
    check_balanced(group, Options(balance=balance))


@pytest.mark.parametrize(
    ("balance", "seeds"), [("total", 20), pytest.param("total", 100, marks=pytest.mark.long), ("topic", 20)]
)
def test_big_groups_are_balanced_all_the_same(balance: Any, seeds: int) -> None:
    for seed in range(seeds):
        group, options = big_group(seed)
        check_balanced(replace(group, weights={}), replace(options, max_skew=0, balance=balance))


@pytest.mark.parametrize("seed", range(100))
def test_it_is_sticky_and_settles_in_two_rebalances(seed: int) -> None:
    check_settles(seed, Options(), 2)


@pytest.mark.parametrize("seed", range(100))
def test_with_topics_balanced_first_it_settles_in_three(seed: int) -> None:
    check_settles(seed, Options(balance="topic"), 3)


def check_settles(seed: int, options: Options, rebalances: int) -> None:
    group, locality = big_group(seed)
    options = without_work(replace(options, locality=locality.locality))
    for generation in range(rebalances):
        plan = plan_cooperative(group, options)
        group = reclaimed(group, plan.assignment, 10 + generation)
    assert (plan.moved, plan.withheld) == (0, {})
    again = plan_cooperative(group, options)
    assert (again.moved, again.target) == (0, plan.target)


def test_near_and_sticky_as_far_as_it_goes() -> None:
    """Not the optimum, but nothing like a deal that looks at neither."""
    shortfalls = []
    for seed in range(100):
        group, options = big_group(seed)
        group, options = replace(group, weights={}, costs={}), without_work(options)
        plan, best = plan_sticky(group, options), optimum(group, options)
        moved, owned = plan.moved - best.moves, sum(len(p) for m in group.members for p in m.owned.values())
        shortfalls.append(moved / max(1, owned))
    assert sum(shortfalls) / len(shortfalls) < 0.05


@BALANCES
def test_a_member_that_joins_moves_little_whatever_the_subscriptions(balance: Any) -> None:
    options = Options(work=0, balance=balance)
    rng = random.Random(3)
    names = [f"t{i:02d}" for i in range(60)]
    topology = Topology((), {name: (Partition(()),) * 10 for name in names})
    members = tuple(Member(f"m{i:03d}", frozenset(rng.sample(names, 20))) for i in range(120))
    group = Group(topology, members)
    settled = reclaimed(group, plan_sticky(group, options).target, 5)
    joined = replace(settled, members=(*settled.members, Member("x", members[7].topics)))
    # Each has five; the optimum is four.
    assert plan_sticky(joined, options).moved <= 10


@pytest.mark.parametrize("skew", [0, 1])
def test_a_flow_that_does_not_hold_is_not_taken(monkeypatch: pytest.MonkeyPatch, skew: int) -> None:
    """As from a solver with a defect: one unit too many somewhere."""
    sound = PrimalDual.result

    def off_by_one(self: PrimalDual) -> tuple[Ints, Ints]:
        flow, price = sound(self)
        flow = flow.copy()
        flow[:1] += 1
        return flow, price

    monkeypatch.setattr(PrimalDual, "result", off_by_one)
    group, options = big_group(3)
    options = replace(options, max_skew=skew)
    plan = plan_sticky(replace(group, weights={}), options)
    check_plan(replace(group, weights={}), replace(options, max_skew=0), plan)
    assert plan.optimal is False
    assert "failed the check in integers" in plan.optimality_note


def test_the_work_of_balance_is_not_taken_from_what_follows() -> None:
    """Balance is computed in any case. Of thousands of topics with readers of their own it took a whole budget."""
    dice = random.Random(1)
    brokers = tuple(Broker(i, rack) for i, rack in enumerate("abc"))
    topics = {f"t{i}": (Partition((broker := dice.randrange(3),), broker),) for i in range(1_000)}
    members = tuple(Member(f"m{i}", frozenset(dice.sample([*topics], 200)), "abc"[i % 3]) for i in range(30))
    plan = plan_sticky(Group(Topology(brokers, topics), members), Options(work=1_000))
    assert "locality" in plan.proven


def test_the_time_limit_covers_the_way_from_names_to_numbers_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    group = replace(big_group(1)[0], weights={})
    assert plan_sticky(group, Options(time_limit_s=100)).proven
    to_problem = IndexedGroup.to_problem

    def slow(self: IndexedGroup, *, per_topic: bool = False) -> Any:
        time.sleep(0.2)
        return to_problem(self, per_topic=per_topic)

    # As long again is kept for the way back, so nothing is left.
    monkeypatch.setattr(IndexedGroup, "to_problem", slow)
    assert plan_sticky(group, Options(time_limit_s=0.3)).optimality_note == "the time limit of the plan is exceeded"
    of = MergedGroup.of

    def slow_merge(original: Group) -> MergedGroup:
        time.sleep(0.2)
        return of(original)

    monkeypatch.setattr(IndexedGroup, "to_problem", to_problem)
    monkeypatch.setattr(MergedGroup, "of", slow_merge)
    assert plan_sticky(group, Options(time_limit_s=0.3)).optimality_note == "the time limit of the plan is exceeded"
