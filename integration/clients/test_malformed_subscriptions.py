"""A live member that sends anything at all, two hundred times over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from rackassign import attach
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.generators.malformed_inputs import broker_survives, subscriptions
from tests.helpers.kafka.consumers import CONSUMER, consumers
from tests.helpers.kafka.rack_group import RackGroup, at_rest

pytestmark = [pytest.mark.brokers, pytest.mark.local]

JOINS = 200
PARTITIONS = 4

HEARTBEAT_MS = 50
"""So that members learn of each of so many rebalances at once."""

LEARNT = 2
"""Generations that a leader has to hand out before it knows better than what members claim."""


class Hostile(CooperativeStickyAssignor):  # type: ignore[misc] # kafka-python is untyped
    """Sends the next of what it is given at each join."""

    def __init__(self, data: list[bytes]) -> None:
        super().__init__()
        self._data = data
        self.sent = 0

    def metadata(self, topics: object) -> bytes:
        del topics
        self.sent += 1
        return self._data[self.sent % len(self._data)]


@pytest.mark.release
def test_the_others_keep_their_partitions(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    replicas = [[1], [2]] * (PARTITIONS // 2)
    topic, other = make_topic(replicas=replicas), make_topic(1)
    sent = list(islice(filter(broker_survives, subscriptions(other, topic, PARTITIONS, seed=881)), JOINS))
    hostile = Hostile(sent)
    with RackGroup(rack_cluster.bootstrap, unique_name(), topic, replicas) as group:
        for name in ("a1", "b1"):
            group.start(name, heartbeat_interval_ms=HEARTBEAT_MS)
            owned = group.settle()
        begun = group.generation()
        with consumers(
            lambda: attach(
                KafkaConsumer(
                    other,
                    bootstrap_servers=rack_cluster.bootstrap,
                    group_id=group.group,
                    partition_assignment_strategy=[hostile],
                    **CONSUMER,
                )
            )
        ) as (member,):

            def joined() -> bool:
                member.poll(timeout_ms=50)
                for other in group.threaded().values():
                    other.poll()
                if member.group_metadata().state == "<stable>" and not member._coordinator.need_rejoin():
                    member._coordinator.request_rejoin()
                return hostile.sent >= JOINS

            wait_until(joined, f"{JOINS} joins", timeout_s=600)
        at_rest(group.admin, group.group, list(group.threaded().values()))
        assert group.settle() == owned
        lost = [
            (name, given.generation, sorted(owned[name] - given.owned))
            for name, other in group.threaded().items()
            for given in other.given
            if given.generation > begun + LEARNT and given.owned != owned[name]
        ]
    assert not lost
