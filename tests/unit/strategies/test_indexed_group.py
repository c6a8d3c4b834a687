"""Groups as arrays."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from rackassign.locality import cross_rack_cost
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.strategies import Options, indexed_group, plan_cooperative
from rackassign.strategies.indexed_group import IndexedGroup


@pytest.mark.parametrize("per_topic", [False, True])
def test_racks_with_equal_costs_are_one_for_the_solver(per_topic: bool) -> None:  # noqa: FBT001
    topology = Topology((Broker(0, "a"), Broker(1, "b")), {"t": (Partition((0,), 0), Partition((1,), 1)) * 20})
    racks = [*(f"host-{i}" for i in range(30)), "a", "b", None, "far"]
    members = tuple(Member(f"m{i:02}", frozenset({"t"}), rack) for i, rack in enumerate(racks))
    group = Group(topology, members, costs={"far": {"a": 5.0}})
    problem = IndexedGroup.of(group, "any-replica").to_problem(per_topic=per_topic)
    # None, a, b, far and the hosts.
    assert problem.cost.shape == (2, 5)
    assert problem.ties is not None
    assert problem.ties.cost.shape == (2, 5)
    assert len(set(problem.rack[:30].tolist())) == 1
    assert len(set(problem.rack.tolist())) == 5
    plan = plan_cooperative(group, Options(balance="topic" if per_topic else "total"))
    assert plan.optimal
    assert all(p % 2 == 0 for p in plan.target["m30"]["t"])
    assert all(p % 2 == 1 for p in (*plan.target["m31"]["t"], *plan.target["m33"]["t"]))


def test_prices_are_computed_for_racks_and_not_for_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names of their hosts as racks, thousands of members took minutes."""
    topology = Topology((Broker(0, "a"), Broker(1, "b")), {"t": (Partition((0, 1), 0), Partition((1,), 1)) * 20})
    priced: list[object] = []

    def counted(*question: Any) -> int:
        priced.append(question)
        return cross_rack_cost(*question)

    monkeypatch.setattr(indexed_group, "cross_rack_cost", counted)
    numbers = []
    for hosts in (1, 1000):
        members = tuple(Member(f"m{i}", frozenset({"t"}), f"host-{i}") for i in range(hosts))
        group = Group(topology, members, costs={"far": {"a": 5.0}})
        priced.clear()
        assert IndexedGroup.of(group, "any-replica").to_problem().rack.tolist() == [0] * hosts
        numbers.append(len(priced))
    assert numbers[0] == numbers[1] > 0


def test_racks_that_differ_by_leaders_only_stay_apart() -> None:
    topology = Topology((Broker(0, "a"), Broker(1, "b")), {"t": (Partition((0, 1), 0), Partition((1, 0), 1))})
    members = tuple(Member(rack, frozenset({"t"}), rack) for rack in "ba")
    plan = plan_cooperative(Group(topology, members))
    assert plan.target == {"a": {"t": (0,)}, "b": {"t": (1,)}}


def test_claims_of_members_with_equal_subscriptions_take_no_memory_for_each_member_and_topic() -> None:
    topics = [f"t{i}" for i in range(2000)]
    topology = Topology((Broker(0, "a"),), dict.fromkeys(topics, (Partition((0,), 0),)))
    members = tuple(Member(f"m{i}", frozenset(topics), owned={f"t{i}": (0,)}) for i in range(2000))
    indexed = IndexedGroup.of(Group(topology, members), "any-replica")
    assert len(indexed.sizes) == 2000
    tracemalloc.start()
    try:
        claims = indexed.claims
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (claims.owner >= 0).all()
    # A byte for each would be 4 million.
    assert peak < 2_000_000
