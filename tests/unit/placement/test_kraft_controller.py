"""What KRaft's controller does, as recorded: plans are held against it, and the played cluster behaves like it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.model import Broker, TopicPartition
from rackassign.placement import OptimalPlacer
from rackassign.placement.create_topic import POLICIES, KnownBroker, NotEnoughBrokersError, Policy, place_new
from tests.helpers.fakes.reassignment_cluster import FakeReassignmentCluster

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "placement_vectors.json").read_text("utf-8"))
VECTORS: list[dict[str, Any]] = RECORDED["controller_behaviour"]

CODES = {"InvalidReplicationAssignmentError": 39, "NoReassignmentInProgressError": 85}

PLACE = TopicPartition("t", 0)

FENCED = (
    "All brokers specified in the manual partition assignment for partition {} are fenced or in controlled shutdown."
)
EMPTY = "The manual partition assignment includes an empty replica list."
TWICE = "The manual partition assignment includes the broker {} more than once."
UNKNOWN = "The manual partition assignment includes broker {}, but no such broker is registered."
UNEVEN = (
    "The manual partition assignment includes a partition with {} replica(s), but this is not consistent with previous"
    " partitions, which have {} replica(s)."
)


def refusal(rows: Sequence[Sequence[int]], registered: Collection[int], active: Collection[int], replicas: int) -> str:
    """Return why the controller would not take these lists for new partitions; empty if it would."""
    for number, row in enumerate(rows):
        if not row:
            return EMPTY
        for place, broker in enumerate(row):
            if broker not in registered:
                return UNKNOWN.format(broker)
            if broker in row[:place]:
                return TWICE.format(broker)
        if len(row) != replicas:
            return UNEVEN.format(len(row), replicas)
        if not set(row) & set(active):
            return FENCED.format(number)
    return ""


def made(vector: dict[str, Any]) -> bool:
    """Tell whether a vector is about lists and nothing else."""
    if vector["op"] not in {"create_topic", "create_partitions"} or "assignments" not in vector:
        return False
    beside = {"replication_factor", "num_partitions"} & vector.keys()
    new = vector.get("count", 0) - vector.get("existing_partitions", 0)
    return not beside and new in {0, len(vector["assignments"])}


@pytest.mark.parametrize(
    "vector", [vector for vector in VECTORS if made(vector)], ids=lambda vector: str(vector["name"])
)
def test_lists_are_refused_as_recorded(vector: dict[str, Any]) -> None:
    rows = vector["assignments"]
    found = refusal(rows, vector["registered"], vector["active"], vector.get("existing_rf", len(rows[0])))
    assert bool(found) == ("error" in vector)
    if "message" in vector:
        assert found == vector["message"]


def placed(brokers: Sequence[KnownBroker], replicas: int) -> list[list[int]]:
    return OptimalPlacer().place(0, 4, replicas, [Broker(broker.id, broker.rack) for broker in brokers])


BROKERS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["up", "down", "gone"])), min_size=1, max_size=6
).map(
    lambda rows: [
        KnownBroker(number, rack, online=how == "up", registered=how != "gone")
        for number, (rack, how) in enumerate(rows, 1)
    ]
)


@given(BROKERS, st.sampled_from(POLICIES), st.integers(1, 4), st.integers(1, 4))
def test_what_a_policy_places_is_never_refused(
    brokers: list[KnownBroker], policy: Policy, replicas: int, min_isr: int
) -> None:
    try:
        found = place_new(policy, placed, brokers, replicas=replicas, min_isr=min_isr)
    except NotEnoughBrokersError:
        return
    registered = [broker.id for broker in brokers if broker.registered]
    up = [broker.id for broker in brokers if broker.registered and broker.online]
    rows = found.to_request()
    assert refusal(rows, registered, up, len(rows[0])) == ""
    assert {len(row) for row in found.plan} == {replicas}
    assert all(len(set(row) & set(up)) >= min(min_isr, replicas) for row in found.plan)


@pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS if vector["op"] == "reassign" and vector["target"] != []],
    ids=lambda vector: str(vector["name"]),
)
def test_the_played_cluster_reassigns_as_recorded(vector: dict[str, Any]) -> None:
    stage = FakeReassignmentCluster({PLACE: tuple(vector["current"])}, vector.get("registered", vector["current"]))
    part = stage.partitions[PLACE]
    part.in_sync = set(vector["isr"])
    refused = stage.alter_reassignments({PLACE: vector["target"]})
    if "error" in vector:
        assert CODES[refused[PLACE]] == vector["code"]
        return
    assert refused == {}
    result = vector["result"]
    assert list(part.replicas) == result["replicas"]
    assert sorted(part.adding) == result["adding"]
    removing = [] if part.target is None else [broker for broker in part.replicas if broker not in part.target]
    assert removing == result["removing"]
