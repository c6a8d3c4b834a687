"""A running group moved from kafka-python's default strategy to ours, member by member, while records come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer

from rackassign import RackAwareConsumer, RackAwareRangeAssignor
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.rack_group import RackGroup

pytestmark = pytest.mark.brokers

RACKS = ("a", "b", "c")
REPLICAS = [[1, 2], [2, 3], [3, 1]] * 3


@pytest.fixture
def group(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Iterator[RackGroup]:
    with RackGroup(rack_cluster.bootstrap, unique_name(), make_topic(replicas=REPLICAS), REPLICAS) as made:
        yield made


def start_old(group: RackGroup, rack: str) -> None:
    # Members are ordered by their ids, which begin with this, and range is greedy: in another order it may leave the
    # last one a partition of another rack.
    group.start(rack, KafkaConsumer, client_id=f"rack-{rack}")


def start_new(group: RackGroup, rack: str) -> None:
    strategy = [RackAwareRangeAssignor]
    group.start(rack, RackAwareConsumer, client_id=f"rack-{rack}", partition_assignment_strategy=strategy)


def test_a_running_group_is_moved_over_member_by_member_and_loses_nothing(group: RackGroup) -> None:
    for rack in RACKS:
        start_old(group, rack)
    assert group.local(group.settle()) == 6
    with group.traffic() as traffic:
        for rack in RACKS:
            group.end(rack)
            group.settle()
            traffic.wait_for_more()
            start_new(group, rack)
            moved = group.settle()
            traffic.wait_for_more()
        assert group.local(moved) == 9

        group.end("b")
        start_old(group, "b")
        group.settle()
        traffic.wait_for_more()
    written = traffic.written()
    wait_until(lambda: group.processed() >= written, "every record processed")
