"""What is printed of a planned reassignment."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rackassign.admin.describe import DescribedTopic
from rackassign.cli.layouts import show_metrics
from rackassign.model import Broker, Partition
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.constraints import PlacementConstraints
from rackassign.reassignment.plan import plan_leader_balance

BROKERS = (Broker(1, "a"), Broker(2, "b"))


def led_by_one(partitions: int) -> DescribedTopic:
    row = tuple(Partition((1, 2), 1) for _ in range(partitions))
    return DescribedTopic(row, tuple(p.replicas for p in row))


@pytest.mark.parametrize("topics", [None, ["t"], ["t", "u"]])
def test_metrics_of_some_topics_are_printed_with_what_they_count(topics: list[str] | None) -> None:
    state = ClusterState(BROKERS, {"t": led_by_one(2), "u": led_by_one(4)})
    planned = plan_leader_balance(state, PlacementConstraints(), topics)
    out = io.StringIO()
    show_metrics(planned, Console(file=out, width=120))
    lines = [line.strip() for line in out.getvalue().splitlines()]
    # The loads of all topics: u stays with broker 1 if only t may change, and then 2 of 6 leaders are on the other.
    (leaders,) = (line.split() for line in lines if line.startswith("leaders of a broker"))
    assert leaders[-2:] == (["2.00", "1.33"] if topics == ["t"] else ["2.00", "1.00"])
    notes = [
        line for line in lines if line.startswith("(loads of brokers and racks are those of all topics of the cluster;")
    ]
    assert len(notes) == (topics == ["t"])
