"""Balance of each topic, and co-partitioned topics, in groups on three racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from kafka import KafkaConsumer

from rackassign import RackAwareConsumer, RackAwareCooperativeStickyAssignor
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import CONSUMER, plain_consumer
from tests.helpers.machine_speed import scaled_ms

pytestmark = pytest.mark.brokers

TWO_RACKS_EACH = [[1, 2], [2, 3], [3, 1]]


def numbers(consumer: KafkaConsumer, topic: str) -> list[int]:
    return sorted(tp.partition for tp in consumer.assignment() if tp.topic == topic)


@pytest.mark.long
def test_partitions_of_one_number_are_together_at_every_poll(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    # No replicas of a unit are alike, so that what is local is not what keeps them together.
    topics = make_topic(replicas=TWO_RACKS_EACH * 4), make_topic(replicas=[[1], [1], [1]] * 4)
    group = unique_name()
    members: dict[str, KafkaConsumer] = {}
    with ExitStack() as opened:

        def start(name: str, **more: int) -> None:
            assignor = RackAwareCooperativeStickyAssignor(rack=name[0], copartition=[topics])
            members[name] = RackAwareConsumer(
                *topics,
                bootstrap_servers=rack_cluster.bootstrap,
                group_id=group,
                client_rack=name[0],
                partition_assignment_strategy=[assignor],
                **{**CONSUMER, **more},
            )
            opened.callback(members[name].close, timeout_ms=scaled_ms(5000))

        def polled() -> bool:
            """Poll once, look at each member, and return whether the group is at rest with units spread evenly."""
            for member in members.values():
                member.poll(timeout_ms=50)
                assert numbers(member, topics[0]) == numbers(member, topics[1])
            owned = Counter(number for member in members.values() for number in numbers(member, topics[0]))
            counts = [len(numbers(member, topics[0])) for member in members.values()]
            return owned == Counter(range(12)) and max(counts) - min(counts) <= 1

        for name in ("a1", "b1", "c1"):
            start(name)
            wait_until(polled, f"units are spread after {name} has joined")
        # A member that is not polled any more is what a killed one is to the others.
        start("a2", max_poll_interval_ms=scaled_ms(6000))
        wait_until(polled, "units are spread over four")
        del members["a2"]
        wait_until(polled, "the units of a member that is gone are spread")
        members.pop("b1").close()
        wait_until(polled, "units are spread over the two that are left")


def test_plain_consumers_get_the_leaders_in_their_rack_and_warn_that_they_need_them(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Each partition has a replica in each rack, so any assignment is local, but not by leaders.
    topic, group = make_topic(replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 4), unique_name()
    members: dict[str, KafkaConsumer] = {}
    with ExitStack() as opened:
        for rack in "abc":
            members[rack] = plain_consumer(
                topic,
                bootstrap_servers=rack_cluster.bootstrap,
                group_id=group,
                partition_assignment_strategy=[RackAwareCooperativeStickyAssignor(rack=rack)],
                **CONSUMER,
            )
            opened.callback(members[rack].close, timeout_ms=scaled_ms(5000))
            assert sum(f"rack is {rack!r} but client_rack is not set" in each for each in caplog.messages) == 1

        def all_near() -> bool:
            for member in members.values():
                member.poll(timeout_ms=50)
            owned = {rack: numbers(member, topic) for rack, member in members.items()}
            return owned == {rack: [*range(led, 12, 3)] for led, rack in enumerate("abc")}

        wait_until(all_near, "each member has the partitions whose leaders are in its rack")
    assert sum("client_rack is not set" in each for each in caplog.messages) == 3


def test_a_busy_topic_is_spread_evenly_however_many_others_there_are(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    busy = make_topic(replicas=[[1, 2], [1, 3], [1, 2]] * 10)
    others = [make_topic(replicas=TWO_RACKS_EACH[:1]), make_topic(replicas=TWO_RACKS_EACH), make_topic(5)]
    group = unique_name()
    with ExitStack() as opened:
        members: list[KafkaConsumer] = []
        for rack in "abcabc":
            assignor = RackAwareCooperativeStickyAssignor(rack=rack, balance="topic")
            member = RackAwareConsumer(
                busy,
                *others,
                bootstrap_servers=rack_cluster.bootstrap,
                group_id=group,
                client_rack=rack,
                partition_assignment_strategy=[assignor],
                **CONSUMER,
            )
            opened.callback(member.close, timeout_ms=scaled_ms(5000))
            members.append(member)

        def spread() -> bool:
            for member in members:
                member.poll(timeout_ms=50)
            totals = sorted(len(member.assignment()) for member in members)
            return [len(numbers(member, busy)) for member in members] == [5] * 6 and totals == [6, 6, 6, 7, 7, 7]

        wait_until(spread, "five of the busy topic for each, and the others spread as evenly")
