"""The leader's watch on real brokers: what is a change of racks, and what only looks like one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as HostPartition

from rackassign import RackAwareConsumer, RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor
from rackassign.clients.kafka_python import internals
from rackassign.testing import Cluster, create_topic
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic
from tests.helpers.kafka.group_harness import GroupHarness, at_rest
from tests.helpers.kafka.scenarios import SOON, WATCHER, Naive
from tests.helpers.kafka.waiting import wait_until

pytestmark = [pytest.mark.brokers, pytest.mark.local]

CONFIG: dict[str, Any] = {"metadata_max_age_ms": 300}

PREFERRED = 0


@pytest.fixture
def asked(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Tell what rebalances the watch has asked for, in its own words."""
    caplog.set_level(logging.INFO, WATCHER)
    return lambda: [record.getMessage() for record in caplog.records if record.name == WATCHER]


def start(team: GroupHarness) -> None:
    for name in ("a1", "b1", "c1"):
        assignor = RackAwareCooperativeStickyAssignor(rack=name[0], rack_monitor=SOON)
        team.start(name, RackAwareConsumer, partition_assignment_strategy=[assignor], **CONFIG)


def test_rolling_restarts_trigger_nothing(
    make_cluster: MakeCluster, unique_name: Callable[[], str], asked: Callable[[], list[str]]
) -> None:
    cluster = make_cluster(["a", "b", "c"])
    topic, group = unique_name(), unique_name()
    replicas = [[1, 2], [2, 3], [3, 1]] * 2
    create_topic(cluster.bootstrap, topic, replicas)
    bounces = 0
    with GroupHarness(cluster.bootstrap, group, topic, replicas) as team:
        start(team)
        settled = team.settle()
        generation = team.generation()
        naive = {name: service.do(lambda c: Naive(c, topic)) for name, service in team.services().items()}
        for _ in range(2):
            for broker in (1, 2, 3):
                away, back = ({name: n.changes + k for name, n in naive.items()} for k in (1, 2))
                cluster.stop(broker)
                wait_until(lambda: all(naive[name].changes >= away[name] for name in naive), "a broker missed")  # noqa: B023
                cluster.start(broker)
                wait_until(lambda: all(naive[name].changes >= back[name] for name in naive), "a broker back")  # noqa: B023
                bounces += 1
        team.renew_admin()
        assert team.settle() == settled
        assert team.generation() == generation
    assert asked() == []
    assert all(view.changes >= 2 * bounces for view in naive.values())


def move(team: GroupHarness, replicas: Sequence[Sequence[int]]) -> None:
    moved = {HostPartition(team.topic, p): list(ids) for p, ids in enumerate(replicas)}
    assert set(team.admin.alter_partition_reassignments(moved).values()) == {None}
    team.replicas = replicas


def test_replicas_that_move_are_followed_with_one_trigger(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    asked: Callable[[], list[str]],
) -> None:
    replicas = [[1, 2], [2, 3], [3, 1]] * 2
    with GroupHarness(rack_cluster.bootstrap, unique_name(), make_topic(replicas=replicas), replicas) as team:
        start(team)
        before = team.settle()
        assert team.local(before) == 6
        generation = team.generation()
        # Each partition leaves the rack of who reads it, and there is room for it in the new ones.
        reader = {place.partition: name[0] for name, owned in before.items() for place in owned}
        others = {"a": [2, 3], "b": [3, 1], "c": [1, 2]}
        move(team, [others[reader[p]] for p in range(6)])
        wait_until(lambda: bool(asked()), "a trigger")
        wait_until(lambda: team.local(team.settle()) == 6, "all local again")
        team.check_best(before, team.settle())
        assert team.generation() - generation <= 2
        assert len(asked()) == 1
        assert "makes 6 local instead of 0" in asked()[0]
        # The same racks in another order are no change, nor is who leads.
        generation = team.generation()
        move(team, [list(reversed(ids)) for ids in team.replicas])
        team.admin.elect_leaders(PREFERRED, [team.topic])
        wait_until(lambda: all(service.do(sees(team)) for service in team.services().values()), "the new order seen")
        at_rest(team.admin, team.group, list(team.services().values()))
        assert team.generation() == generation
        assert len(asked()) == 1


@pytest.mark.parametrize("undone", [False, True], ids=["goes on", "undone"])
def test_at_default_settings_a_half_way_view_is_not_acted_upon(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    asked: Callable[[], list[str]],
    undone: bool,  # noqa: FBT001
) -> None:
    """The leader happens to refresh its metadata, which it keeps for five minutes, in the middle of a reassignment."""
    replicas = [[1], [2], [3]] * 4
    with GroupHarness(rack_cluster.bootstrap, unique_name(), make_topic(replicas=replicas), replicas) as team:
        for name in ("a1", "b1", "c1"):
            strategy = [RackAwareCooperativeStickyAssignor(rack=name[0])]
            team.start(name, RackAwareConsumer, partition_assignment_strategy=strategy, metadata_max_age_ms=300_000)
        before = team.settle()
        assert team.local(before) == 12
        generation = team.generation()
        half, whole = [[2], [3], [1]] * 2 + replicas[6:], [[2], [3], [1]] * 4
        move(team, half)
        for service in team.services().values():
            # Until each has seen it: what a refresh at that moment shows.
            wait_until(lambda service=service: service.do(refreshed(team)), "the first half seen")  # type: ignore[misc]
        move(team, replicas if undone else whole)
        if undone:
            # By the leader, which asks for new metadata before it acts; others keep theirs for five minutes.
            (leader,) = (service for service in team.services().values() if service.do(leads))
            wait_until(lambda: leader.do(sees(team)), "the undoing seen by the leader", patience_s=120)
            at_rest(team.admin, team.group, list(team.services().values()))
            assert asked() == []
            assert team.generation() == generation
        else:
            wait_until(lambda: team.local(team.settle()) == 12, "all local again", patience_s=120)
            assert len(asked()) == 1
            assert "makes 12 local instead of 0" in asked()[0]
            assert team.generation() - generation <= 2


def leads(consumer: KafkaConsumer) -> bool:
    """Tell whether what the group lives by was decided here."""
    return any(assignor._history.last is not None for assignor in internals.assignors(consumer))


def refreshed(team: GroupHarness) -> Callable[[KafkaConsumer], bool]:
    """Return a look at whether a consumer sees the replicas as they are meant to be, which asks for metadata if not."""

    def look(consumer: KafkaConsumer) -> bool:
        if sees(team)(consumer):
            return True
        consumer._cluster.request_update()
        return False

    return look


def sees(team: GroupHarness) -> Callable[[KafkaConsumer], bool]:
    """Return a look at whether a consumer sees the replicas and leaders as they are meant to be."""
    wanted = [(ids[0], list(ids)) for ids in team.replicas]

    def look(consumer: KafkaConsumer) -> bool:
        known = consumer._cluster._partitions.get(team.topic, {})
        return [(known[p].leader_id, list(known[p].replica_nodes)) for p in sorted(known)] == wanted

    return look


def test_a_plain_consumer_is_watched_while_it_leads(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    asked: Callable[[], list[str]],
) -> None:
    """No `attach`: the consumer is found behind the cluster it hands to the assignor."""
    replicas = [[1], [2]]
    with GroupHarness(rack_cluster.bootstrap, unique_name(), make_topic(replicas=replicas), replicas) as team:
        for name in ("a1", "b1"):
            strategy = [RackAwareRangeAssignor(rack=name[0], rack_monitor=SOON)]
            team.start(name, KafkaConsumer, patched=False, partition_assignment_strategy=strategy, **CONFIG)
        assert team.local(team.settle()) == 2
        move(team, [[2], [1]])
        wait_until(lambda: team.local(team.settle()) == 2, "all local again")
        assert len(asked()) == 1
