"""A running group moved from kafka-python's default strategy to ours, member by member, while records come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer

from rackassign import RackAwareConsumer, RackAwareRangeAssignor
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.group_harness import GroupHarness
from tests.helpers.kafka.waiting import wait_until

pytestmark = pytest.mark.brokers

RACKS = ("a", "b", "c")
REPLICAS = [[1, 2], [2, 3], [3, 1]] * 3


@pytest.fixture
def team(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Iterator[GroupHarness]:
    with GroupHarness(rack_cluster.bootstrap, unique_name(), make_topic(replicas=REPLICAS), REPLICAS) as made:
        yield made


def start_old(team: GroupHarness, rack: str) -> None:
    # Members are ordered by their ids, which begin with this, and range is greedy: in another order it may leave the
    # last one a partition of another rack.
    team.start(rack, KafkaConsumer, client_id=f"rack-{rack}")


def start_new(team: GroupHarness, rack: str) -> None:
    strategy = [RackAwareRangeAssignor]
    team.start(rack, RackAwareConsumer, client_id=f"rack-{rack}", partition_assignment_strategy=strategy)


def test_a_running_group_is_moved_over_member_by_member_and_loses_nothing(team: GroupHarness) -> None:
    for rack in RACKS:
        start_old(team, rack)
    assert team.local(team.settle()) == 6
    with team.traffic() as traffic:
        for rack in RACKS:
            team.end(rack)
            team.settle()
            traffic.wait_for_more()
            start_new(team, rack)
            moved = team.settle()
            traffic.wait_for_more()
        assert team.local(moved) == 9

        team.end("b")
        start_old(team, "b")
        team.settle()
        traffic.wait_for_more()
    written = traffic.written()
    wait_until(lambda: team.processed() >= written, "every record processed")
