"""The range strategy: equal to Java's on all recorded cases, and right on all others.

Leaders are the last objective: what members read from leaders is in their rack where nothing else decides.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign import scenario
from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, Partitions, Plan, Topology
from rackassign.strategies import Options, plan_cooperative, plan_range, plan_sticky
from rackassign.strategies.indexed_group import IndexedGroup
from tests.helpers.generators.groups import groups
from tests.helpers.generators.small_groups import Planner
from tests.helpers.recorded_groups import group_of, recorded
from tests.helpers.reference_solver import reclaimed

VECTORS = recorded("java_range.json")["vectors"]


def spelled(plan: Plan) -> dict[str, set[str]]:
    return {
        member: {f"{topic}-{p}" for topic, partitions in owned.items() for p in partitions}
        for member, owned in plan.assignment.items()
    }


def test_all_recorded_cases_are_there() -> None:
    assert len(VECTORS) == 100
    assert sum("RackAware" in v["id"] or "CoPartitioned" in v["id"] for v in VECTORS) >= 52


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["id"] for vector in VECTORS])
def test_equals_java(vector: dict[str, Any]) -> None:
    group = group_of(vector)
    plan = plan_range(group)
    assert spelled(plan) == {member: set(partitions) for member, partitions in vector["expected"].items()}
    if vector["mismatches"] is not None:
        # Java counts a partition whose racks are all unknown as a mismatch; none of these cases has one.
        assert Locality.of(group, plan).cross == vector["mismatches"]


@given(groups())
def test_every_partition_has_exactly_one_owner_who_subscribes(group: Group) -> None:
    plan = plan_range(group)
    topics_of = {member.id: member.topics for member in group.members}
    assert plan.assignment.keys() == topics_of.keys()
    given_out = [
        (topic, p)
        for member, owned in plan.assignment.items()
        for topic, partitions in owned.items()
        for p in partitions
    ]
    subscribed = frozenset[str]().union(*topics_of.values())
    wanted = [
        (t, p) for t, partitions in group.topology.topics.items() if t in subscribed for p in range(len(partitions))
    ]
    assert sorted(given_out) == sorted(wanted)
    assert all(topic in topics_of[member] for member, owned in plan.assignment.items() for topic in owned)


@given(groups())
def test_of_each_topic_members_get_the_same_number_give_or_take_one(group: Group) -> None:
    plan = plan_range(group)
    for topic in group.topology.topics:
        sizes = [len(plan.assignment[m.id].get(topic, ())) for m in group.members if topic in m.topics]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(groups())
def test_co_partitioned_topics_stay_together(group: Group) -> None:
    plan = plan_range(group)
    families: dict[tuple[frozenset[str], int], set[tuple[tuple[int, ...], ...]]] = {}
    for topic, partitions in group.topology.topics.items():
        members = [member.id for member in group.members if topic in member.topics]
        dealt = tuple(plan.assignment[member].get(topic, ()) for member in members)
        families.setdefault((frozenset(members), len(partitions)), set()).add(dealt)
    alone = {key: {topic for topic in group.topology.topics if _family(group, topic) == key} for key in families}
    assert all(len(dealt) == 1 for key, dealt in families.items() if len(alone[key]) > 1)


def _family(group: Group, topic: str) -> tuple[frozenset[str], int]:
    members = frozenset(member.id for member in group.members if topic in member.topics)
    return members, len(group.topology.topics[topic])


@given(groups(), st.randoms(use_true_random=False))
def test_order_of_members_brokers_and_topics_plays_no_part(group: Group, order: random.Random) -> None:
    members, brokers = list(group.members), list(group.topology.brokers)
    topics = list(group.topology.topics.items())
    order.shuffle(members)
    order.shuffle(brokers)
    order.shuffle(topics)
    other = Group(Topology(tuple(brokers), dict(topics)), tuple(members))
    first, second = plan_range(group), plan_range(other)
    assert json.dumps(first.assignment) == json.dumps(second.assignment)
    assert first.moved == second.moved


@given(groups())
def test_without_racks_it_is_the_plain_deal(group: Group) -> None:
    bare = replace(group, members=tuple(replace(member, rack=None) for member in group.members))
    dark = replace(group, topology=replace(group.topology, brokers=()))
    assert plan_range(bare).assignment == plan_range(dark).assignment


def test_leader_mode_looks_at_leaders_only() -> None:
    topology = Topology((Broker(1, "a"), Broker(2, "b")), {"t": (Partition((1, 2), 2), Partition((2, 1), 1))})
    group = Group(topology, (Member("m1", frozenset({"t"}), "a"), Member("m2", frozenset({"t"}), "b")))
    assert plan_range(group).assignment == {"m1": {"t": (0,)}, "m2": {"t": (1,)}}
    plan = plan_range(group, Options(locality="leader"))
    assert plan.assignment == {"m1": {"t": (1,)}, "m2": {"t": (0,)}}
    assert Locality.of(group, plan) == Locality(local=2, cross=0, unknown=0)


def test_moved_counts_partitions_that_leave_a_valid_owner() -> None:
    topology = Topology((), {"t": (Partition(()),) * 4})
    subscribed = frozenset({"t"})
    group = Group(
        topology,
        (
            Member("m1", subscribed, owned={"t": (0, 3), "gone": (0,)}, generation=2),  # 3 leaves it
            Member("m2", subscribed, owned={"t": (0, 1, 2, 7)}, generation=1),  # 1 leaves it; 0 is a stale claim
            Member("m3", frozenset(), owned={"t": (2,)}, generation=5),  # the newest claim, but unsubscribed
        ),
    )
    assert plan_range(group).moved == 2


@given(groups())
def test_moves_are_counted_as_the_optimal_strategies_count_them(group: Group) -> None:
    plan = plan_range(group)
    indexed = IndexedGroup.of(group, "any-replica")
    assert plan.moved == indexed.claims.moved(indexed.encode_assignment(plan.target))


def test_the_answer_is_the_same_under_another_hash_seed(tmp_path: Path) -> None:
    seeded = random.Random(881)
    racks = ["a", "b", "c", None]
    topology = Topology(
        tuple(Broker(i, seeded.choice(racks)) for i in range(6)),
        {f"t{i}": tuple(Partition((seeded.randrange(7),)) for _ in range(seeded.randrange(9))) for i in range(8)},
    )
    topics = list(topology.topics)
    members = tuple(
        Member(f"m{i}", frozenset(seeded.sample(topics, seeded.randrange(8))), seeded.choice(racks)) for i in range(9)
    )
    file = tmp_path / "group.json"
    file.write_text(json.dumps(scenario.write_group(Group(topology, members))))
    answers = set()
    for seed in ("0", "1", "2"):
        run = subprocess.run(
            [sys.executable, "-m", "rackassign", "plan", str(file)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        answers.add(json.dumps({key: value for key, value in json.loads(run.stdout).items() if key != "seconds"}))
    assert len(answers) == 1


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
