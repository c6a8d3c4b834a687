"""Tiny groups for hypothesis, and what must hold for any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from rackassign.model import LOCALITY_MODES, Broker, Group, Member, Partition, Plan, Topology
from rackassign.strategies import Options, plan_cooperative, plan_sticky
from tests.helpers.reference_solver import AMOUNTS, RACKS, reclaimed

Planner = Callable[[Group, Options], Plan]
PLANNERS = pytest.mark.parametrize("planner", [plan_sticky, plan_cooperative])
options = st.builds(
    lambda locality, rest: Options(locality=locality, **rest),
    st.sampled_from(LOCALITY_MODES),
    st.sampled_from([{}, {}, {"balance": "topic"}, {"balance": "topic"}, {"max_skew": 1}, {"max_skew": 2}]),
)
costs = st.dictionaries(
    st.sampled_from([*RACKS, "elsewhere"]),
    st.dictionaries(st.sampled_from(RACKS), st.sampled_from(AMOUNTS), max_size=3),
    max_size=3,
)


REPLICAS = [(), (0,), (0,), (1,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 0), (1, 1), (9, 1), (0, 1, 2)]
PARTITIONS = [Partition(replicas, leader) for replicas in REPLICAS for leader in (0, 1, 2, None)]
SIZES = [(4,), (5,), (6,), (7,), (3, 3), (4, 2), (5, 1), (2, 2, 1), (3, 2, 2), (1,), (1, 1), ()]
SUBSCRIPTIONS = [frozenset(names) for names in ("t", "t", "tu", "tu", "tuv", "uv", "tw", "")]
ROLES = [
    (subscribed, rack, generation)
    for subscribed in SUBSCRIPTIONS
    for rack in ("a", "b", "c", "elsewhere", None)
    for generation in (1, 2, 2, None)
]
# Which members claim a partition, by their places.
CLAIMS = ["", "", "0", "1", "2", "3", "0", "1", "01", "123"]


@st.composite
def tiny_groups(draw: st.DrawFn) -> Group:
    """Up to 4 members and 7 partitions, with everything that may stand in a group."""
    racks = draw(st.sampled_from(["abc", "ab", "aab", "abca", "ba-", "a", "-", "cab-"]))
    brokers = tuple(Broker(i, None if rack == "-" else rack) for i, rack in enumerate(racks))
    sizes = dict(zip("tuv", draw(st.sampled_from(SIZES)), strict=False))
    topics = {
        topic: tuple(draw(st.lists(st.sampled_from(PARTITIONS), min_size=size, max_size=size)))
        for topic, size in sizes.items()
    }
    names = draw(st.sampled_from(["m", "mn", "nm", "mno", "onm", "mnop", "ponm"]))
    owned: list[dict[str, tuple[int, ...]]] = [{} for _ in names]
    for topic, size in sizes.items():
        for p in range(size + 1):
            for i in draw(st.sampled_from(CLAIMS)):
                if int(i) < len(names):
                    owned[int(i)][topic] = (*owned[int(i)].get(topic, ()), p)
    roles = draw(st.lists(st.sampled_from(ROLES), min_size=len(names), max_size=len(names)))
    members = tuple(
        Member(name, subscribed, rack, owned=claimed, generation=generation)
        for name, (subscribed, rack, generation), claimed in zip(names, roles, owned, strict=True)
    )
    return Group(Topology(brokers, topics), members, costs=draw(st.just({}) | costs))


def with_weights(group: Group, amounts: Callable[[], float]) -> Group:
    weights = {topic: tuple(amounts() for _ in partitions) for topic, partitions in group.topology.topics.items()}
    return replace(group, weights=weights)


def decided(plan: Plan) -> dict[str, Any]:
    """Everything in the plan but the time it took, as it would be written."""
    return {"assignment": plan.assignment, "target": plan.target, "withheld": plan.withheld, "moved": plan.moved}


def settled(group: Group, options: Options) -> tuple[Group, Plan]:
    """Rebalance twice, as members do that revoke what they are not given, and check that this is enough."""
    first = plan_cooperative(group, options)
    second = plan_cooperative(reclaimed(group, first.assignment, 10), options)
    assert second.moved == 0
    assert second.withheld == {}
    assert second.assignment == second.target
    return reclaimed(group, second.target, 11), second


def check_settles(group: Group, options: Options) -> None:
    stable, second = settled(group, options)
    for planner in (plan_sticky, plan_cooperative):
        third = planner(stable, options)
        assert decided(third) == decided(second)
