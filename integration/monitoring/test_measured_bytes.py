"""What clients count is what brokers store: the demo's consumers, as planned, and the producers of all clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import pytest
from kafka import KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from rackassign import RackAwareProducer, RackAwareRangeAssignor
from rackassign.clients import aiokafka, confluent
from rackassign.clients.fetch_metrics import RackTraffic, Traffic
from rackassign.locality import RackSets
from rackassign.model import Broker, Group, Member, Partition, TopicPartition, Topology
from rackassign.strategies import plan_range
from rackassign.testing import Cluster
from rackassign.testing.demo import ConsumeResult, consume_topic, produce_records
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic

pytestmark = pytest.mark.brokers

RACKS = ("a", "b", "c")
RECORDS, SIZE = 60, 4000


def log_sizes(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Ask the brokers how many bytes each partition of the topic has."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        answers = admin.describe_log_dirs()
    finally:
        admin.close()
    assert not any(directory["error_code"] for answer in answers for directory in answer["log_dirs"])
    return {
        TopicPartition(topic, partition["partition_index"]): partition["partition_size"]
        for answer in answers
        for directory in answer["log_dirs"]
        for described in directory["topics"]
        if described["name"] == topic
        for partition in described["partitions"]
    }


def group_of(cluster: Cluster, topic: str, replicas: list[list[int]]) -> Group:
    brokers = tuple(Broker(broker.id, broker.rack) for broker in cluster.brokers)
    topology = Topology(brokers, {topic: tuple(Partition(tuple(ids), ids[0]) for ids in replicas)})
    return Group(topology, tuple(Member(f"rack-{rack}", frozenset({topic}), rack) for rack in RACKS))


def crossed(reading: ConsumeResult, cluster: Cluster) -> int:
    rack_of = {broker.id: str(broker.rack) for broker in cluster.brokers}
    return sum(size for (reader, source), size in reading.by_racks(rack_of).items() if reader != source)


@pytest.mark.parametrize(
    ("replicas", "cross_partitions"),
    [
        pytest.param([[1, 2], [2, 3], [3, 1]] * 3, 0, id="RF 2: all can be local"),
        pytest.param([[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2, 0, id="RF 3: all are local"),
        pytest.param([[1], [2], [3], [1], [1], [1]], 2, id="RF 1, one rack has too many"),
    ],
)
def test_what_crosses_racks_is_what_the_plan_says(
    rack_cluster: Cluster, make_topic: MakeTopic, replicas: list[list[int]], cross_partitions: int
) -> None:
    topic = make_topic(replicas=replicas)
    produce_records(rack_cluster.client_config(), topic, len(replicas), records=RECORDS, size=SIZE)
    sizes = log_sizes(rack_cluster.bootstrap, topic)
    group = group_of(rack_cluster, topic, replicas)
    plan = plan_range(group)
    racks = RackSets.of(group.topology, "any-replica")
    near = racks.topic_racks(group.topology.topics[topic])

    reading = consume_topic(
        dict.fromkeys(RACKS, rack_cluster.client_config()), topic, lambda rack: RackAwareRangeAssignor(rack=rack)
    )

    planned = {rack: plan.assignment[f"rack-{rack}"].get(topic, ()) for rack in RACKS}
    assert {rack: tuple(sorted(p for _, p in owned)) for rack, owned in reading.assignment.items()} == planned
    assert reading.records == {(rack, TopicPartition(topic, p)): RECORDS for rack in RACKS for p in planned[rack]}
    expected = {
        (rack, TopicPartition(topic, p)): sizes[TopicPartition(topic, p)]
        for rack in RACKS
        for p in planned[rack]
        if not near[p] & racks.bits[rack]
    }
    assert len(expected) == cross_partitions
    assert crossed(reading, rack_cluster) == sum(expected.values())
    assert sum(reading.fetched.values()) == sum(sizes.values())


@pytest.mark.long
def test_members_that_join_at_once_get_what_a_sticky_assignor_gives_to_new_members(
    rack_cluster: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(replicas=[[1, 2], [2, 3], [3, 1]] * 3)
    access = dict.fromkeys(RACKS, rack_cluster.client_config())
    for _ in range(3):
        reading = consume_topic(access, topic, lambda _: CooperativeStickyAssignor(), at_once=True)
        # Of members that join one after the other, each keeps what it had, and there are many outcomes.
        assert {rack: sorted(p for _, p in owned) for rack, owned in reading.assignment.items()} == {
            "a": [0, 3, 6],
            "b": [1, 4, 7],
            "c": [2, 5, 8],
        }


def test_the_host_s_own_range_crosses_racks_on_the_same_data(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    replicas = [[1, 2], [2, 3], [3, 1]] * 3
    topic = make_topic(replicas=replicas)
    produce_records(rack_cluster.client_config(), topic, len(replicas), records=RECORDS, size=SIZE)
    sizes = log_sizes(rack_cluster.bootstrap, topic)
    reading = consume_topic(
        dict.fromkeys(RACKS, rack_cluster.client_config()), topic, lambda _: RangePartitionAssignor()
    )
    assert {rack: sorted(p for _, p in owned) for rack, owned in reading.assignment.items()} == {
        "a": [0, 1, 2],
        "b": [3, 4, 5],
        "c": [6, 7, 8],
    }
    # Of each consumer's three partitions one has no replica in its rack.
    assert crossed(reading, rack_cluster) == sum(sizes[TopicPartition(topic, p)] for p in (1, 5, 6))


def write_with_kafka_python(cluster: Cluster, topic: str, rack: str) -> Callable[[], RackTraffic]:
    """Write records without and with a partition, compressed; return how to read what the producer has counted."""
    with closing(RackAwareProducer(**cluster.client_config(), client_rack=rack, compression_type="gzip")) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"x" * SIZE)
            producer.send(topic, b"y" * SIZE, partition=number % 3)
    return producer.locality


def write_with_aiokafka(cluster: Cluster, topic: str, rack: str) -> Callable[[], RackTraffic]:
    async def write() -> Callable[[], RackTraffic]:
        async with aiokafka.RackAwareProducer(
            bootstrap_servers=cluster.bootstrap, client_rack=rack, compression_type="gzip"
        ) as producer:
            for number in range(RECORDS):
                await producer.send(topic, b"x" * SIZE)
                await producer.send(topic, b"y" * SIZE, partition=number % 3)
        locality: Callable[[], RackTraffic] = producer.locality
        return locality

    return asyncio.run(write())


@pytest.mark.parametrize("write", [write_with_kafka_python, write_with_aiokafka])
def test_producers_count_what_the_brokers_store(
    rack_cluster: Cluster, make_topic: MakeTopic, write: Callable[[Cluster, str, str], Callable[[], RackTraffic]]
) -> None:
    topic = make_topic(replicas=[[1], [2], [3]])
    counted = write(rack_cluster, topic, "b")()
    sizes = log_sizes(rack_cluster.bootstrap, topic)
    stored = {rack: sizes[TopicPartition(topic, number)] for number, rack in enumerate(RACKS)}
    assert {rack: amount.bytes for rack, amount in counted.topics[topic].items()} == stored
    assert [counted.topics[topic][rack].records for rack in RACKS] == [20, 80, 20]
    assert counted.local_share() == stored["b"] / sum(stored.values())
    # In a rack that no broker has, nothing is known to be cross-rack.
    elsewhere = write(rack_cluster, topic, "B")()
    assert (elsewhere.unknown().records, elsewhere.cross()) == (120, Traffic())


def test_the_producer_of_confluent_kafka_counts_what_librdkafka_reports(
    rack_cluster: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(replicas=[[1], [2], [3]])
    reported: list[str] = []
    properties = {"bootstrap.servers": rack_cluster.bootstrap, "client.rack": "b", "statistics.interval.ms": 100}
    producer = confluent.RackAwareProducer(properties, stats_cb=reported.append)
    # Nothing has to be written without a partition for the racks to be known.
    wait_until(lambda: producer.poll(0.01) >= 0 and vars(producer)["_watch"].rack_of(2) == "b", "racks")
    for number in range(RECORDS):
        producer.produce(topic, b"x" * SIZE, partition=number % 3)
    assert producer.flush(30) == 0
    wait_until(
        lambda: (
            producer.poll(0.1) >= 0 and sum(each.records for each in producer.locality().by_rack().values()) == RECORDS
        ),
        "statistics",
    )
    assert producer.locality().topics == {topic: dict.fromkeys(RACKS, Traffic(20 * SIZE, 20))}
    # The application gets them, too.
    assert reported
