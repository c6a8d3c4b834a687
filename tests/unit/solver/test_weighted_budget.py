"""Weights past the budget of a plan: searches end, groups settle, and members that join get partitions."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.solver import weighted_search
from rackassign.solver.network_flow import SolveBudget
from rackassign.strategies import DEFAULT_WORK, Options, plan_cooperative
from tests.helpers.examples import seeds
from tests.helpers.generators.small_groups import check_settles, with_weights
from tests.helpers.reference_solver import big_group, check_plan, reclaimed
from tests.helpers.weighted_oracle import loads_of

T = frozenset({"t"})


def one_topic(members: int, partitions: int, seed: int) -> Group:
    """A group of one topic on three racks, with two replicas of each partition, whose members own what was planned."""
    rng = random.Random(seed)
    replicas = [Partition((p % 3, (p + 1) % 3), p % 3) for p in range(partitions)]
    group = Group(
        Topology(tuple(Broker(i, rack) for i, rack in enumerate("abc")), {"t": tuple(replicas)}),
        tuple(Member(f"m{i:03}", T, "abc"[i % 3]) for i in range(members)),
        {"t": tuple(rng.lognormvariate(0, 1) for _ in range(partitions))},
    )
    return reclaimed(group, plan_cooperative(group).target, 5)


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_groups_settle_within_two_rebalances(seed: int) -> None:
    group, options = big_group(seed)
    rng = random.Random(seed)
    group = with_weights(group, lambda: rng.choice([1, 2.5, rng.paretovariate(1.2)]))
    check_settles(group, Options(options.locality, work=(0, 10, 50, 200, 500)[seed % 5]))


@pytest.mark.parametrize("work", [0, 20, 400])
def test_a_member_that_joins_gets_partitions(work: int) -> None:
    group = one_topic(60, 1200, seed=2)
    joined = replace(group, members=(*group.members, Member("new", T, "a")))
    plan = plan_cooperative(joined, Options(work=work))
    share = sum(group.weights["t"]) / 61
    assert "budget" in plan.optimality_note
    assert share / 2 < loads_of(joined, plan.target)["new"] < 1.1 * share
    assert plan.moved <= 40


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_search_ends_with_the_budget(seed: int) -> None:
    """With weights that have all changed by a half, thousands of partitions are compared to relieve each member."""
    group = one_topic(100, 5000, seed)
    rng = random.Random(seed)
    changed = replace(group, weights={"t": tuple(each * rng.uniform(0.5, 1.5) for each in group.weights["t"])})
    options = Options(work=4_000)
    plan = plan_cooperative(changed, options)
    check_plan(changed, options, plan)
    assert "budget" in plan.optimality_note
    assert plan.optimality_gap is not None
    assert plan.optimality_gap <= 0.06
    after = plan_cooperative(reclaimed(changed, plan.assignment, 6), options)
    assert (after.moved, after.withheld) == (0, {})
    # With the whole budget fewer are moved.
    assert plan.moved >= plan_cooperative(changed, Options(work=100 * DEFAULT_WORK)).moved


def test_partitions_follow_their_replicas_past_the_budget() -> None:
    """What members own is even, but in other racks: a group that begins to be aware of racks."""
    group = one_topic(30, 900, seed=4)
    turned = replace(group, topology=replace(group.topology, brokers=tuple(Broker(i, r) for i, r in enumerate("bca"))))
    options = Options(work=600)
    plan = plan_cooperative(turned, options)
    assert "budget" in plan.optimality_note
    rack = {member.id: member.rack for member in group.members}
    local = sum(
        turned.weights["t"][p]
        for member, owned in plan.target.items()
        for p in owned.get("t", ())
        if rack[member] in {"bca"[p % 3], "bca"[(p + 1) % 3]}
    )
    assert local >= 0.99 * sum(turned.weights["t"])


def test_the_time_limit_ends_what_is_done_for_members_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One member owns all, and many have come: each of them is looked at, and each look takes long."""
    group = one_topic(40, 400, 1)
    everything = {"t": tuple(range(400))}
    members = [replace(member, owned=everything if not i else {}) for i, member in enumerate(group.members)]
    looks, original = list[int](), weighted_search._shift

    def shift(loads: Any, member: int, level: float) -> int | None:
        looks.append(member)
        return original(loads, member, level)

    monkeypatch.setattr(weighted_search, "_shift", shift)
    # Late from the first of these looks on.
    monkeypatch.setattr(SolveBudget, "late", lambda _: bool(looks))
    started = replace(group, members=tuple(members))
    check_plan(started, Options(), plan_cooperative(started))
    assert len(looks) <= 1


def test_while_many_partitions_have_to_leave_the_heaviest_do() -> None:
    group = one_topic(20, 3000, 2)
    everything = {"t": tuple(range(3000))}
    members = tuple(replace(member, owned=everything if not i else {}) for i, member in enumerate(group.members))
    started = replace(group, members=members)
    plan = plan_cooperative(started)
    check_plan(started, Options(), plan)
    assert plan.optimality_gap is not None
    assert plan.optimality_gap < 0.06
