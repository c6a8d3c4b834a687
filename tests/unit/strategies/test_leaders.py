"""Leaders are the last objective: what members read from leaders is in their rack where nothing else decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from rackassign.model import Broker, Group, Member, Partition, Partitions, Topology
from rackassign.strategies import Options, plan_cooperative, plan_range, plan_sticky
from tests.helpers.generators.small_groups import Planner
from tests.helpers.reference_solver import reclaimed

RACKS = "abc"
BROKERS = tuple(Broker(number, rack) for number, rack in enumerate(RACKS))


def partitions(count: int, factor: int) -> tuple[Partition, ...]:
    """Partitions whose leaders are in the racks in turn, each with followers in the next racks."""
    return tuple(Partition(tuple((p + i) % 3 for i in range(factor)), p % 3) for p in range(count))


def group(count: int, factor: int, members: str = RACKS, **owned: Partitions) -> Group:
    joined = tuple(
        Member(name, frozenset({"t"}), name[0], owned=owned.get(name, {}), generation=1) for name in members.split()
    )
    return Group(Topology(BROKERS, {"t": partitions(count, factor)}), joined)


def led_elsewhere(of: Group, target: Mapping[str, Partitions]) -> int:
    racks = {member.id: member.rack for member in of.members}
    led = {broker.id: broker.rack for broker in of.topology.brokers}
    return sum(
        led.get(of.topology.topics[topic][p].leader or 0) != racks[member]
        for member, owned in target.items()
        for topic, ids in owned.items()
        for p in ids
    )


@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize("planner", [plan_sticky, plan_cooperative])
@pytest.mark.parametrize("options", [Options(), Options(balance="topic"), Options(max_skew=1)])
def test_a_fresh_group_reads_from_leaders_in_its_racks(factor: int, planner: Planner, options: Options) -> None:
    fresh = group(12, factor, "a b c")
    plan = planner(fresh, options)
    assert plan.optimal is True
    assert plan.proven[-1] == "leaders"
    assert led_elsewhere(fresh, plan.target) == 0
    assert sorted(sum(map(len, owned.values())) for owned in plan.target.values()) == [4, 4, 4]


def test_members_keep_their_partitions_wherever_the_leaders_are() -> None:
    # Each has the partitions whose leader is in the next rack; followers are in its own.
    owned = {name: {"t": tuple(p for p in range(12) if p % 3 == (i + 1) % 3)} for i, name in enumerate(RACKS)}
    settled = group(12, 3, "a b c", **owned)
    plan = plan_cooperative(settled)
    assert (plan.moved, plan.target) == (0, owned)
    assert led_elsewhere(settled, plan.target) == 12


def test_of_the_partitions_that_must_move_those_are_chosen_whose_leaders_are_near() -> None:
    # The member that joins gets 3 of 12, which is no choice; which ones and of whom is one.
    before = group(12, 3, "a1 b1 c1")
    then = reclaimed(before, plan_cooperative(before).target, 1)
    joined = replace(then, members=(*then.members, Member("a2", frozenset({"t"}), "a")))
    plan = plan_cooperative(joined)
    assert plan.moved == 3
    # Of 12 leaders 4 are in rack a and belong to a1, which must keep at least 3.
    assert led_elsewhere(joined, plan.target) == 2


def test_leaders_come_after_locality_and_moves() -> None:
    # The only replica in rack a is no leader.
    known = {"t": (Partition((1, 0), 1), Partition((1, 2), 1))}
    fresh = Group(Topology(BROKERS, known), tuple(Member(rack, frozenset({"t"}), rack) for rack in "ab"))
    assert plan_sticky(fresh).target == {"a": {"t": (0,)}, "b": {"t": (1,)}}


def test_a_leader_that_is_not_known_is_in_no_rack() -> None:
    known = {"t": tuple(Partition((0, 1), leader) for leader in (None, 0, 1, None))}
    fresh = Group(Topology(BROKERS, known), tuple(Member(rack, frozenset({"t"}), rack) for rack in "ab"))
    target = plan_sticky(fresh).target
    assert 1 in target["a"]["t"]
    assert 2 in target["b"]["t"]


@pytest.mark.parametrize(
    ("options", "proven"),
    [
        (Options(), ("balance", "locality", "moves", "leaders")),
        (Options(locality="leader"), ("balance", "locality", "moves")),
        (Options(balance="topic"), ("topic-balance", "balance", "locality", "moves", "leaders")),
        (Options(max_skew=1), ("locality", "balance", "moves", "leaders")),
    ],
)
def test_a_plan_lists_its_objectives_in_their_order(options: Options, proven: tuple[str, ...]) -> None:
    plan = plan_cooperative(group(5, 2, "a b"), options)
    assert (plan.proven, plan.optimal) == (proven, True)


def test_weights_and_range_prove_nothing() -> None:
    weighted = replace(group(3, 2, "a b"), weights={"t": (1.0, 2.0, 3.0)})
    assert (plan_sticky(weighted).proven, plan_sticky(weighted).optimal) == ((), False)
    assert (plan_range(weighted).proven, plan_range(weighted).optimal) == ((), None)
    equal = replace(weighted, weights={"t": (2.0, 2.0, 2.0)})
    assert plan_sticky(equal).proven == ("balance", "locality", "moves", "leaders")


@pytest.mark.parametrize(
    ("options", "proven"),
    [
        (Options(work=0), ("balance",)),
        (Options(work=0, balance="topic"), ("topic-balance", "balance")),
        (Options(work=0, max_skew=1), ()),
        (Options(work=2), ("balance",)),
    ],
)
def test_past_the_budget_only_balance_is_proven(options: Options, proven: tuple[str, ...]) -> None:
    plan = plan_cooperative(group(12, 3, "a b c"), options)
    assert (plan.proven, plan.optimal) == (proven, False)
    assert plan.optimality_note


def test_a_group_that_is_too_large_for_leaders_is_optimal_in_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    # Leaders not in turn, but one rack after the other.
    known = tuple(Partition(tuple((p // 4 + i) % 3 for i in range(3)), p // 4) for p in range(12))
    fresh = replace(group(12, 3, "a b c"), topology=Topology(BROKERS, {"t": known}))
    best = plan_cooperative(fresh)
    monkeypatch.setattr("rackassign.solver.lexicographic.TIE_STEPS", 0)
    plan = plan_cooperative(fresh)
    assert (plan.proven, plan.optimal) == (("balance", "locality", "moves"), False)
    assert plan.optimality_note == "the group is too large for the last objective"
    assert led_elsewhere(fresh, plan.target) > led_elsewhere(fresh, best.target) == 0


def test_a_budget_that_ends_with_the_leaders_leaves_the_other_objectives_proven() -> None:
    fresh = group(12, 2, "a1 a2 b1 c1", a1={"t": (0, 1, 2, 3)}, c1={"t": (4, 5)})
    plans = [plan_cooperative(fresh, Options(work=work)) for work in range(60)]
    partly = [plan for plan in plans if plan.proven == ("balance", "locality", "moves")]
    assert partly
    best = plan_cooperative(fresh)
    for plan in partly:
        assert (plan.optimal, plan.optimality_note) == (False, "the budget of the plan is used up")
        assert plan.moved == best.moved
