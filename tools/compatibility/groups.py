"""Checks of consumers and their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as HostPartition

from rackassign import (
    FetchMeter,
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    attach,
)
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.testing.harness import GroupHarness, KafkaPythonMember, wait_until
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.scenarios import BATCHES, FOLLOWER, LEADER, SOON, fill, read

from .cells import Place

STRIPED = [[1], [2], [3]] * 2
RACKS = "abc"

Assignor = Callable[[str], Any]


def range_assignor(place: Place) -> str:
    """The range assignment of KIP-881."""
    return _assigned(place, lambda rack: RackAwareRangeAssignor(rack=rack))


def optimal_assignor(place: Place) -> str:
    """The optimal cooperative assignment."""
    return _assigned(place, lambda rack: RackAwareCooperativeStickyAssignor(rack=rack))


def rack_monitor(place: Place) -> str:
    """Replicas that move, and the rebalance that follows."""
    topic = place.topic(STRIPED)
    with _members(place, topic, _monitored) as group:
        group.settle()
        moved = {HostPartition(topic, 0): [2], HostPartition(topic, 1): [1]}
        refused = [error for error in group.admin.alter_partition_reassignments(moved).values() if error]
        if refused:
            raise AssertionError(f"the reassignment was refused: {refused[0]}")
        expected = {"a": {1, 3}, "b": {0, 4}, "c": {2, 5}}

        def followed() -> bool:
            found = {name: {tp.partition for tp in m.assignment()} for name, m in group.members.items()}
            return found == expected

        wait_until(followed, "members that follow the moved replicas")
    return "two replicas moved, and the group was rebalanced to be local again"


def follower_fetching(place: Place) -> str:
    """Fetching from the closest replica (KIP-392), with the patches."""
    topic = place.topic([[LEADER, FOLLOWER]])
    fill(place.cluster, topic, BATCHES)
    meter = FetchMeter()
    config = {**CONSUMER, "client_rack": "a", "group_id": None, "max_partition_fetch_bytes": 1}
    with closing(KafkaConsumer(**place.cluster.client_config(), **config)) as consumer:
        consumer.assign([HostPartition(topic, 0)])
        attach(consumer, meter=meter)
        read(consumer, BATCHES)
    if meter.bytes_by_broker().keys() != {FOLLOWER}:
        raise AssertionError(f"records came from brokers {sorted(meter.bytes_by_broker())}")
    asked = meter.responses_by_broker().get(LEADER, 0)
    if asked > BATCHES // 6:
        raise AssertionError(f"the leader was asked {asked} times for {BATCHES} batches")
    return "all records came from the follower in the consumer's rack, and it was not left after each response"


def stateful(place: Place) -> str:
    """A member with state, and its successor with an empty directory."""
    topic = place.topic([[1, 2], [2, 3], [3, 1]])
    counted: dict[bytes, int] = {}

    def count(record: Any, store: StateStore) -> None:
        counted[record.value] = int(store.get(record.value) or 0) + 1
        store.put(record.value, b"%d" % counted[record.value])

    config = {**CONSUMER, **place.cluster.client_config(), "group_id": place.group}
    # kafka-python's own clients refuse these.
    del config["enable_auto_commit"]
    for name in ("first", "second"):
        with closing(KafkaProducer(**place.cluster.client_config(), acks="all")) as producer:
            for partition in range(3):
                producer.send(topic, b"%d" % partition, partition=partition).get(60)
        before = dict(counted)
        with StatefulConsumer(topic, process=count, state_dir=place.home / name, client_rack="a", **config) as member:

            def done(member: StatefulConsumer = member, before: dict[bytes, int] = before) -> bool:
                member.poll(200)
                return len(counted) == len(STRIPED) // 2 and all(n > before.get(k, 0) for k, n in counted.items())

            wait_until(done, f"the records of the {name} member")
    if set(counted.values()) != {2}:
        raise AssertionError(f"counts are {counted}, expected 2 each")
    return "a successor restored the state from the changelog and continued"


def _monitored(rack: str) -> RackAwareCooperativeStickyAssignor:
    return RackAwareCooperativeStickyAssignor(rack=rack, rack_monitor=SOON)


def _assigned(place: Place, assignor: Assignor) -> str:
    topic = place.topic(STRIPED)
    with _members(place, topic, assignor) as group:
        owned = group.settle()
        local = sum(STRIPED[tp.partition] == [RACKS.index(rack) + 1] for rack, tps in owned.items() for tp in tps)
    if local != len(STRIPED):
        raise AssertionError(f"{local} of {len(STRIPED)} partitions are local")
    return f"three members in three racks own {local} local partitions of {len(STRIPED)}"


@contextmanager
def _members(place: Place, topic: str, assignor: Assignor) -> Iterator[GroupHarness[KafkaPythonMember]]:
    access = place.cluster.client_config()

    def member(rack: str) -> KafkaPythonMember:
        config = {**CONSUMER, "group_id": place.group, "client_rack": rack, "metadata_max_age_ms": 300}
        strategy = [assignor(rack)]
        return KafkaPythonMember(
            lambda: RackAwareConsumer(topic, **access, **config, partition_assignment_strategy=strategy)
        )

    with GroupHarness[KafkaPythonMember](access, place.group, {topic: len(STRIPED)}) as group:
        for rack in RACKS:
            group.add(rack, member(rack))
        yield group


@contextmanager
def settled_group(place: Place, replicas: Sequence[Sequence[int]] = STRIPED) -> Iterator[str]:
    """Yield the topic of a settled group of three members."""
    topic = place.topic(replicas)
    with _members(place, topic, lambda rack: RackAwareCooperativeStickyAssignor(rack=rack)) as group:
        group.settle()
        yield topic


def finalized_features(place: Place) -> dict[str, int]:
    """Return the level of each feature of the cluster."""
    with closing(KafkaAdminClient(**place.cluster.client_config())) as admin:
        return {
            name: found["finalized"][1] for name, found in admin.describe_features().items() if "finalized" in found
        }
