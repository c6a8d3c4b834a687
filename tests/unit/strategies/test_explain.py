"""Why what is not local is not, and that advice gains what it says."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, Plan, Recommendation, Topology
from rackassign.scenario import write_plan
from rackassign.strategies import STRATEGIES, Options, plan_sticky
from tests.helpers.examples import seeds
from tests.helpers.reference_solver import big_group


def group(brokers: dict[int, str | None], partitions: list[list[int]], members: dict[str, str | None]) -> Group:
    return Group(
        Topology(
            tuple(Broker(i, rack) for i, rack in brokers.items()),
            {"t": tuple(Partition(tuple(replicas), replicas[0]) for replicas in partitions)},
        ),
        tuple(Member(name, frozenset({"t"}), rack=rack) for name, rack in members.items()),
    )


def reasons(plan: Plan) -> dict[int, str]:
    return {entry.partition: entry.reason for entry in plan.explain().not_local}


def test_each_reason() -> None:
    made = group({1: "a", 2: "b", 3: None}, [[1], [1], [1], [2], [3], [3]], {"m1": "a", "m2": "c"})
    plan = plan_sticky(made)
    found = reasons(plan)
    # Balance gives each member three. Of rack a's one goes to m2 unless the partitions of unknown rack do.
    assert sorted(found.values()) == ["no-member-in-replica-racks", "unknown-rack", "unknown-rack"]
    crowded = plan_sticky(group({1: "a", 2: "b"}, [[1], [1], [1], [1]], {"m1": "a", "m2": "b"}))
    assert set(reasons(crowded).values()) == {"members-full"}
    rackless = plan_sticky(group({1: "a"}, [[1]], {"m1": None}))
    assert reasons(rackless) == {0: "unknown-rack"}


def test_all_local_needs_no_words() -> None:
    explanation = plan_sticky(group({1: "a"}, [[1]], {"m1": "a"})).explain()
    assert (explanation.not_local, explanation.advice) == ((), ())


def test_a_further_member_is_to_subscribe_to_topics_without_partitions_as_well() -> None:
    made = group({1: "a", 2: "b"}, [[2], [2]], {"m1": "a"})
    later = tuple(replace(member, topics=frozenset({"t", "to-come"})) for member in made.members)
    more = replace(made, members=later, topology=replace(made.topology, topics={**made.topology.topics, "to-come": ()}))
    (advice,) = (each for each in plan_sticky(more).explain().advice if each.kind == "member")
    assert advice.topics == ("t", "to-come")


def advised(made: Group, options: Options, advice: Recommendation) -> tuple[Group, Options]:
    """Take the advice, in another way than it was worked out."""
    if advice.kind == "max-skew":
        assert advice.max_skew is not None
        return made, replace(options, max_skew=advice.max_skew)
    if advice.kind == "member":
        joining = Member("zzzz-new", frozenset(advice.topics), rack=advice.rack)
        return replace(made, members=(*made.members, joining)), options
    topics = {topic: list(partitions) for topic, partitions in made.topology.topics.items()}
    broker = next(broker.id for broker in made.topology.brokers if broker.rack == advice.rack)
    for topic, ids in advice.partitions.items():
        for i in ids:
            leader = broker if options.locality == "leader" else topics[topic][i].leader
            topics[topic][i] = Partition((*topics[topic][i].replicas, broker), leader)
    return replace(made, topology=replace(made.topology, topics={k: tuple(v) for k, v in topics.items()})), options


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_advice_gains_what_it_says(seed: int) -> None:
    made, options = big_group(seed)
    made = replace(made, costs={}, weights={})
    plan = plan_sticky(made, options)
    cross = Locality.of(made, plan).cross
    explanation = plan.explain()
    assert len(explanation.not_local) == cross + Locality.of(made, plan).unknown
    for advice in explanation.advice:
        then, how = advised(made, options, advice)
        assert cross - Locality.of(then, plan_sticky(then, how)).cross == advice.gain > 0
        assert advice.cost_gain == advice.gain
    assert cross == 0 or explanation.advice == tuple(
        sorted(explanation.advice, key=lambda advice: (-advice.cost_gain, advice.kind, advice.rack or ""))
    )


def test_advice_is_found_whenever_there_is_something_to_cross() -> None:
    plans = [(made, plan_sticky(made, options)) for made, options in map(big_group, range(40))]
    crossing = [plan.explain() for made, plan in plans if Locality.of(made, plan).cross and not made.costs]
    assert len(crossing) > 5
    assert all(explanation.advice for explanation in crossing)


def test_with_costs_the_gain_is_in_their_unit() -> None:
    made = replace(
        group({1: "a", 2: "b"}, [[1], [1], [1], [1]], {"m1": "a", "m2": "b"}),
        costs={"b": {"a": 20.0}, "a": {"b": 20.0}},
    )
    advice = plan_sticky(made).explain().advice
    assert advice
    assert all(entry.cost_gain == 20 * entry.gain for entry in advice)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_explains_itself(strategy: Any) -> None:
    made = group({1: "a", 2: "b"}, [[1], [1], [1], [1]], {"m1": "a", "m2": "b"})
    plan = STRATEGIES[strategy](made, Options())
    written = write_plan(made, plan, plan.explain())
    assert [entry["reason"] for entry in written["not_local"]] == ["members-full"] * 2
    changes = {entry["change"] for entry in written["advice"]}
    assert changes == ({"member", "replicas"} if strategy == "range" else {"member", "replicas", "max-skew"})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plan_travels_to_another_process_and_still_explains_itself(strategy: Any) -> None:
    plan = STRATEGIES[strategy](group({1: "a", 2: "b"}, [[1], [1], [1], [1]], {"m1": "a", "m2": "b"}), Options())
    assert pickle.loads(pickle.dumps(plan)).explain() == plan.explain()  # noqa: S301 - our own
