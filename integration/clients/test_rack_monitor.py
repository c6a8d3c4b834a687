"""The rack monitor on real brokers. What only looks like a change is in `tests/property/test_simulation.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kafka import TopicPartition as KafkaPythonPartition

from rackassign import RackAwareConsumer, RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import plain_consumer
from tests.helpers.kafka.rack_group import RackGroup
from tests.helpers.kafka.scenarios import LASTING, WATCHER

pytestmark = [pytest.mark.brokers, pytest.mark.local]

CONFIG: dict[str, Any] = {"metadata_max_age_ms": 300}


@pytest.fixture
def asked(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Tell what rebalances the watch has asked for, in its own words."""
    caplog.set_level(logging.INFO, WATCHER)
    return lambda: [record.getMessage() for record in caplog.records if record.name == WATCHER]


def move(group: RackGroup, replicas: Sequence[Sequence[int]]) -> None:
    moved = {KafkaPythonPartition(group.topic, p): list(ids) for p, ids in enumerate(replicas)}
    assert set(group.admin.alter_partition_reassignments(moved).values()) == {None}
    group.replicas = replicas


@pytest.mark.long
def test_replicas_that_move_are_followed_with_one_trigger(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    asked: Callable[[], list[str]],
    late: Callable[[], int],
) -> None:
    replicas = [[1, 2], [2, 3], [3, 1]] * 2
    with RackGroup(rack_cluster.bootstrap, unique_name(), make_topic(replicas=replicas), replicas) as group:
        for name in ("a1", "b1", "c1"):
            assignor = RackAwareCooperativeStickyAssignor(rack=name[0], rack_monitor=LASTING)
            group.start(name, RackAwareConsumer, partition_assignment_strategy=[assignor], **CONFIG)
        before = group.rest()
        assert group.local(before) == 6
        generation, late_before = group.generation(), late()
        # Each partition leaves the rack of who reads it, and there is room for it in the new ones.
        reader = {place.partition: name[0] for name, owned in before.items() for place in owned}
        others = {"a": [2, 3], "b": [3, 1], "c": [1, 2]}
        move(group, [others[reader[p]] for p in range(6)])
        wait_until(lambda: bool(asked()), "a trigger")
        wait_until(lambda: group.local(group.settle()) == 6, "all local again")
        group.check_best(before, group.settle())
        assert group.generation() - generation <= 2 + late() - late_before
        assert len(asked()) == 1
        assert "makes 6 local instead of 0" in asked()[0]


@pytest.mark.long
def test_a_plain_consumer_is_watched_while_it_leads(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    asked: Callable[[], list[str]],
) -> None:
    """No `attach`: the consumer is found behind the cluster it hands to the assignor."""
    replicas = [[1], [2]]
    with RackGroup(rack_cluster.bootstrap, unique_name(), make_topic(replicas=replicas), replicas) as group:
        for name in ("a1", "b1"):
            strategy = [RackAwareRangeAssignor(rack=name[0], rack_monitor=LASTING)]
            group.start(name, plain_consumer, patched=False, partition_assignment_strategy=strategy, **CONFIG)
        assert group.local(group.settle()) == 2
        move(group, [[2], [1]])
        wait_until(lambda: group.local(group.settle()) == 2, "all local again")
        assert len(asked()) == 1
