"""The range strategy: equal to Java's on all recorded cases, and right on all others."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign import scenario
from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, Plan, Topology
from rackassign.strategies import Options, plan_range
from rackassign.strategies.indexed_group import IndexedGroup
from tests.helpers.generators.groups import groups

DATA = Path(__file__).parents[2] / "data"
VECTORS: list[dict[str, Any]] = json.loads((DATA / "java_range.json").read_text())["vectors"]


def group_of(vector: dict[str, Any]) -> Group:
    brokers = tuple(Broker(broker["id"], broker["rack"]) for broker in vector["brokers"])
    topics = {topic: tuple(Partition(tuple(r)) for r in partitions) for topic, partitions in vector["topics"].items()}
    members = tuple(
        Member(m["id"], frozenset(m["topics"]), rack=m["rack"], instance_id=m.get("group_instance_id"))
        for m in vector["members"]
    )
    return Group(Topology(brokers, topics), members)


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
