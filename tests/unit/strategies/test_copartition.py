"""Co-partitioned topics: partitions of one number are on one member, whatever was before."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.model import (
    BALANCE_MODES,
    BalanceMode,
    Broker,
    Group,
    Member,
    Partition,
    Plan,
    TopicPartition,
    Topology,
)
from rackassign.strategies import Options, plan_cooperative, plan_sticky
from rackassign.strategies.copartition import MergedGroup, exceptions
from rackassign.strategies.standby import StandbyOptions, assign_standbys
from tests.helpers.copartition_checks import check_units, tps, unit_numbers
from tests.helpers.examples import examples
from tests.helpers.reference_solver import owners

RACKS = ("a", "b", "c")
BROKERS = tuple(Broker(number, rack) for number, rack in enumerate(RACKS, 1))
PAIR = (("orders", "payments"),)
TOPICS = ("orders", "payments", "visits")


def rows(*replicas: tuple[int, ...]) -> tuple[Partition, ...]:
    return tuple(Partition(each, each[0]) for each in replicas)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Members that subscribe to all topics, and claim anything: parts of units, with old generations, twice."""
    size = draw(st.integers(1, 5))
    sizes = {
        "orders": size,
        "payments": draw(st.sampled_from([size, size, size, size + 1, max(1, size - 1), 0])),
        "visits": draw(st.integers(0, 3)),
    }
    replicas = st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2, unique=True).map(tuple)
    known = {t: rows(*(draw(replicas) for _ in range(n))) for t, n in sizes.items() if n}
    members = []
    for number in range(draw(st.integers(1, 4))):
        owned = {
            topic: tuple(p for p in range(len(partitions)) if draw(st.integers(0, 3)) == 0)
            for topic, partitions in known.items()
        }
        members.append(
            Member(
                f"m{number}",
                frozenset(TOPICS),
                draw(st.sampled_from([*RACKS, None])),
                owned={topic: ids for topic, ids in owned.items() if ids},
                generation=draw(st.sampled_from([None, 4, 5])),
            )
        )
    return Group(Topology(BROKERS, known), tuple(members), copartition=PAIR)


def next_round(group: Group, plan: Plan, generation: int) -> Group:
    members = (replace(m, owned=plan.assignment[m.id], generation=generation) for m in group.members)
    return replace(group, members=tuple(members))


@given(groups(), st.integers(0, 99), st.sampled_from(BALANCE_MODES))
@settings(max_examples=examples(400), deadline=None)
def test_units_are_whole_and_the_group_comes_to_rest(group: Group, seed: int, balance: BalanceMode) -> None:
    options = Options(balance=balance)
    plan = plan_cooperative(group, options)
    check_units(group, plan)
    shuffled = list(group.members)
    random.Random(seed).shuffle(shuffled)
    again = plan_cooperative(replace(group, members=tuple(shuffled)), options)
    assert (again.assignment, again.target, again.withheld) == (plan.assignment, plan.target, plan.withheld)
    for generation in (6, 7, 8):
        group = next_round(group, plan, generation)
        plan = plan_cooperative(group, options)
        check_units(group, plan)
    assert (plan.assignment, plan.moved, plan.withheld) == (plan.target, 0, {})
    sizes = [len(group.topology.topics.get(topic, ())) for topic in PAIR[0]]
    loads = [len(unit_numbers(group, theirs)) for theirs in plan.target.values()]
    if "visits" not in group.topology.topics and min(sizes):
        assert max(loads) - min(loads) <= 1


@given(groups())
@settings(max_examples=examples(150), deadline=None)
def test_without_claims_each_partition_is_assigned_at_once(group: Group) -> None:
    group = replace(group, members=tuple(replace(member, owned={}) for member in group.members))
    for plan in (
        plan_cooperative(group),
        plan_sticky(group),
        assign_standbys(group, {}, StandbyOptions(1)).plan,
    ):
        check_units(group, plan)
        assert plan.assignment == plan.target


def two_topics(size: int, *members: Member) -> Group:
    known = {topic: rows(*[(1, 2)] * size) for topic in PAIR[0]}
    return Group(Topology(BROKERS, known), members, copartition=PAIR)


def test_a_unit_of_which_another_member_has_a_part_is_withheld_as_a_whole() -> None:
    topics = frozenset(PAIR[0])
    group = two_topics(
        2,
        Member("m", topics, owned={"orders": (0, 1), "payments": (0,)}, generation=1),
        Member("n", topics, owned={"payments": (1,)}, generation=1),
    )
    plan = plan_cooperative(group)
    (owner,) = (member for member, theirs in plan.target.items() if 1 in theirs["orders"])
    other = {"m": "n", "n": "m"}[owner]
    assert plan.target[owner]["payments"] == plan.target[owner]["orders"]
    # What it has of the unit already it keeps; the rest waits for the other member.
    assert 1 not in plan.assignment[other].get("orders", ())
    assert 1 not in plan.assignment[other].get("payments", ())
    assert tps(plan.withheld) <= {TopicPartition("payments", 1), TopicPartition("orders", 1)}


@pytest.mark.parametrize("owner_of_one", ["a", "n"])
def test_a_member_keeps_its_part_of_a_unit_whoever_has_the_others(owner_of_one: str) -> None:
    topics = frozenset(PAIR[0])
    members = (
        Member("m", topics, "a", owned={"orders": (1,), "payments": (0, 1)}, generation=1),
        Member(owner_of_one, topics, "b", owned={"orders": (0,)}, generation=1),
    )
    known = {topic: rows((2,), (1,)) for topic in PAIR[0]}
    group = Group(Topology(BROKERS, known), members, copartition=PAIR)
    plan = plan_cooperative(group)
    assert plan.target[owner_of_one] == {"orders": (0,), "payments": (0,)}
    assert plan.assignment[owner_of_one] == {"orders": (0,)}
    assert plan.withheld == {"payments": (0,)}
    again = plan_cooperative(next_round(group, plan, 2))
    assert (again.assignment, again.moved) == (plan.target, 0)


def test_a_claim_on_a_partition_that_does_not_exist_is_none_on_its_unit() -> None:
    one = rows((1,))
    topology = Topology(BROKERS, {"orders": one * 2, "payments": one * 4})
    group = Group(
        topology,
        (
            Member("m0", frozenset(TOPICS[:2]), owned={"orders": (0, 2, 3)}, generation=1),
            Member("m1", frozenset(TOPICS[:2]), owned={"payments": (2, 3)}, generation=1),
        ),
        copartition=PAIR,
    )
    plan = plan_cooperative(group)
    assert plan.target["m1"] == {"payments": (2, 3)}
    assert plan.withheld == {}


def test_a_unit_is_local_where_all_its_parts_are() -> None:
    topics = frozenset(PAIR[0])
    known = {"orders": rows((1, 2)), "payments": rows((2, 3))}
    members = tuple(Member(rack, topics, rack) for rack in RACKS)
    group = Group(Topology(BROKERS, known), members, copartition=PAIR)
    plan = plan_cooperative(group)
    assert plan.target["b"] == {"orders": (0,), "payments": (0,)}


@pytest.mark.parametrize("part", ["orders", "payments"])
def test_a_set_of_which_a_member_reads_a_part_is_not_merged(part: str) -> None:
    group = two_topics(3, Member("m", frozenset(PAIR[0])), Member("n", frozenset({part})))
    assert MergedGroup.of(group).group == replace(group, copartition=())
    reason = "orders, payments are not kept together, because 1 member subscribes to a part of them: n"
    assert list(exceptions(group)) == [(PAIR[0], reason)]
    plan = plan_cooperative(group)
    check_complete(group, plan)


@pytest.mark.parametrize(
    ("subscribed", "missing"), [({"orders"}, "payments"), (set[str](), "orders, payments")], ids=["one", "none"]
)
def test_a_topic_that_no_member_subscribes_to_is_named(subscribed: set[str], missing: str) -> None:
    group = two_topics(3, Member("m", frozenset(subscribed)), Member("n", frozenset(subscribed)))
    reason = f"orders, payments are not kept together, because no member subscribes to {missing}"
    assert list(exceptions(group)) == [(PAIR[0], reason)]
    assert list(exceptions(replace(group, members=()))) == []


def check_complete(group: Group, plan: Plan) -> None:
    given = Counter(tp for theirs in plan.target.values() for tp in tps(theirs))
    assert given == Counter(
        TopicPartition(t, p) for t, known in group.topology.topics.items() for p in range(len(known))
    )


def test_copies_are_of_units_and_the_next_owner_of_one_gets_all_of_it() -> None:
    topics = frozenset(PAIR[0])
    members = [Member(name, topics, tags={"zone": name}) for name in RACKS]
    group = two_topics(6, *members)
    options = StandbyOptions(1, ("zone",))
    first = assign_standbys(group, {}, options)
    check_units(group, first.plan)
    assert {topic for theirs in first.standbys.values() for topic in theirs} == {"orders"}
    copies = {
        name: {TopicPartition("orders", p): 0 for p in (*first.standbys[name].get("orders", ()),)} for name in RACKS
    }
    # One member is gone; each of its units goes to the member with the copy, with all its topics.
    left = replace(
        group,
        members=tuple(
            replace(member, owned=first.plan.target[member.id], generation=1) for member in members if member.id != "a"
        ),
    )
    second = assign_standbys(left, {name: copies[name] for name in "bc"}, options)
    check_units(left, second.plan)
    for unit in first.plan.target["a"]["orders"]:
        (holder,) = (name for name in "bc" if unit in first.standbys[name].get("orders", ()))
        assert {TopicPartition(topic, unit) for topic in topics} <= tps(second.plan.assignment[holder])


def test_weights_of_a_unit_are_those_of_its_parts() -> None:
    group = two_topics(3, Member("m", frozenset(PAIR[0])), Member("n", frozenset(PAIR[0])))
    group = replace(group, weights={"orders": (1.0, 1.0, 5.0), "payments": (0.0, 1.0, 9.0)})
    merged = MergedGroup.of(group).group
    assert merged.weights == {"orders": (1.0, 2.0, 14.0)}
    plan = plan_cooperative(group)
    assert sorted(len(theirs["orders"]) for theirs in plan.target.values()) == [1, 2]


def test_topics_of_different_sizes_are_reported_with_the_rule() -> None:
    known = {"orders": rows((1,), (2,)), "payments": rows((1,))}
    group = Group(Topology(BROKERS, known), (Member("m", frozenset(PAIR[0])),), copartition=PAIR)
    reason = (
        "co-partitioned topics have different numbers of partitions: orders 2, payments 1; partitions of one number"
        " are kept together where they exist"
    )
    assert list(exceptions(group)) == [(PAIR[0], reason)]
    assert list(exceptions(two_topics(2, Member("m", frozenset(PAIR[0]))))) == []


def score(group: Group, balance: BalanceMode, reader: dict[tuple[str, int], str]) -> tuple[Any, ...]:
    """Return the objectives of an assignment of units: what comes first decides first."""
    racks = {broker.id: broker.rack for broker in group.topology.brokers}
    members = {member.id: member for member in group.members}
    counts = Counter(reader.values())
    per_topic = [
        sorted((sum(who == m and name == topic for (name, _), who in reader.items()) for m in members), reverse=True)
        for topic in sorted({name for name, _ in reader})
    ]
    cross = from_leaders = 0
    for (name, unit), who in reader.items():
        for topic in PAIR[0] if name == PAIR[0][0] else (name,):
            partitions = group.topology.topics.get(topic, ())
            home = members[who].rack
            if unit < len(partitions) and home is not None:
                cross += home not in {racks[broker] for broker in partitions[unit].replicas}
                from_leaders += home != racks[partitions[unit].replicas[0]]
    owner = owners(MergedGroup.of(group).group)
    moves = sum(owner.get(TopicPartition(*unit), who) != who for unit, who in reader.items())
    loads = sorted((counts[m] for m in members), reverse=True)
    return per_topic if balance == "topic" else 0, loads, cross, moves, from_leaders


@given(groups(), st.sampled_from(BALANCE_MODES))
@settings(max_examples=examples(300), deadline=None)
def test_units_are_assigned_as_well_as_they_can_be(group: Group, balance: BalanceMode) -> None:
    sizes = {topic: len(partitions) for topic, partitions in group.topology.topics.items()}
    first = {"orders": max(sizes.get(topic, 0) for topic in PAIR[0]), "visits": sizes.get("visits", 0)}
    keys = [(name, unit) for name, size in first.items() for unit in range(size)]
    names = [member.id for member in group.members]
    if len(names) ** len(keys) > 2000:
        return
    plan = plan_cooperative(group, Options(balance=balance))
    given = {
        (min(PAIR[0]) if topic in PAIR[0] else topic, p): member
        for member, theirs in plan.target.items()
        for topic, ids in theirs.items()
        for p in ids
    }
    best = min(score(group, balance, dict(zip(keys, each, strict=True))) for each in product(names, repeat=len(keys)))
    assert score(group, balance, {key: given[key] for key in keys}) == best
    assert plan.optimal is True


def test_a_partition_without_a_weight_weighs_one_in_its_unit() -> None:
    group = two_topics(2, Member("m", frozenset(PAIR[0])))
    group = replace(group, weights={"payments": (4.0,)})
    assert MergedGroup.of(group).group.weights == {"orders": (5.0, 2.0)}


@given(groups())
@settings(max_examples=examples(150), deadline=None)
def test_eager_members_get_everything_at_once(group: Group) -> None:
    plan = plan_sticky(group)
    assert (plan.assignment, plan.withheld) == (plan.target, {})


def test_members_with_equal_subscriptions_share_one_set_in_the_merged_group() -> None:
    # With a set for each of 10,000 members of 1,000 topics it would take 300 MB.
    topology = Topology(BROKERS, {topic: rows((1,), (2,)) for topic in TOPICS})
    members = tuple(Member(f"m{i}", frozenset(TOPICS)) for i in range(5))
    merged = MergedGroup.of(Group(topology, members, copartition=PAIR)).group
    assert len({id(member.topics) for member in merged.members}) == 1
    assert merged.members[0].topics == {"orders", "visits"}
