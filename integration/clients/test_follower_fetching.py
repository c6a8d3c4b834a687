"""Reading from followers: what the host does, and what it does with the patches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaConnectionError

from rackassign import FetchMeter, attach
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.scenarios import BATCHES, FOLLOWER, LEADER, fill, read
from tests.helpers.machine_speed import scaled_ms

pytestmark = [pytest.mark.brokers, pytest.mark.local]

ATTEMPTS = 20


def reader(cluster: Cluster, topic: str, meter: FetchMeter, **config: object) -> KafkaConsumer:
    """Return a consumer of one partition, in the follower's rack."""
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, client_rack="a", group_id=None, **{**CONSUMER, **config}
    )
    consumer.assign([KafkaPythonPartition(topic, 0)])
    return attach(consumer, meter=meter)


@pytest.fixture
def near(rack_cluster: Cluster, make_topic: MakeTopic) -> Callable[..., dict[int, int]]:
    """Read a topic a batch at a time; return how many answers came from each broker."""
    topic = make_topic(replicas=[[LEADER, FOLLOWER]])
    fill(rack_cluster, topic, BATCHES)

    def answers() -> dict[int, int]:
        meter = FetchMeter()
        # What the leader has answered expires after the age of metadata, and reading may take some seconds.
        config = {"max_partition_fetch_bytes": 1, "metadata_max_age_ms": 300_000}
        with closing(reader(rack_cluster, topic, meter, **config)) as consumer:
            read(consumer, BATCHES)
        assert meter.bytes_by_broker().keys() == {FOLLOWER}
        return meter.responses_by_broker()

    return answers


@pytest.mark.long
def test_a_follower_is_not_left_after_each_answer(near: Callable[..., dict[int, int]]) -> None:
    answers = near()
    assert answers[FOLLOWER] >= BATCHES
    # It is asked when the consumer starts, and whenever what it said has expired.
    assert answers[LEADER] <= BATCHES // 6


@pytest.fixture
def own_cluster(make_cluster: MakeCluster) -> Cluster:
    """A cluster whose controller takes long to notice that a broker is dead."""
    return make_cluster(["a", "b", "c"], config={"broker.session.timeout.ms": str(scaled_ms(12_000))})


def unfenced(admin: KafkaAdminClient) -> set[int]:
    """Return the brokers that the controller holds to be alive, by those that are."""
    for _ in range(ATTEMPTS):
        # It may ask the dead one all the same.
        with suppress(KafkaConnectionError):
            return {broker["broker_id"] for broker in admin.describe_cluster()["brokers"] if not broker["is_fenced"]}
    raise AssertionError("nobody says which brokers are alive")


AHEAD = 10
"""Records that must come after the kill: more than were fetched before it, and few, as the session of the dead broker
runs meanwhile."""


def read_on_without(cluster: Cluster) -> bool:
    """Kill the follower that is read from; tell whether reading goes on before the controller has noticed."""
    topic = "topic"
    create_topic(cluster.bootstrap, topic, [[LEADER, FOLLOWER]])
    fill(cluster, topic, BATCHES)
    meter = FetchMeter()
    living = [f"{broker.host}:{broker.port}" for broker in cluster.brokers if broker.id != FOLLOWER]
    with (
        closing(reader(cluster, topic, meter, max_partition_fetch_bytes=1)) as consumer,
        closing(KafkaAdminClient(bootstrap_servers=living)) as admin,
    ):
        read(consumer, 3)
        assert meter.bytes_by_broker().keys() == {FOLLOWER}
        cluster.kill(FOLLOWER)
        # What is written later than this no consumer may see: the leader waits for the follower before it shows it.
        read(consumer, AHEAD)
        noticed = FOLLOWER not in unfenced(admin)
    cluster.start(FOLLOWER)
    cluster.wait_ready()
    return not noticed


@pytest.mark.release
@pytest.mark.local
def test_a_dead_follower_is_left_at_once(own_cluster: Cluster) -> None:
    assert read_on_without(own_cluster)


def unlisted(cluster: Cluster, topic: str, broker: int) -> KafkaConsumer:
    """Return a consumer whose metadata names a replica that is not among its brokers, until the next refresh."""
    # That refresh would end the defect, so it comes later than a test is waited for.
    consumer = reader(cluster, topic, FetchMeter(), metadata_max_age_ms=3_600_000)
    wait_until(lambda: bool(consumer.partitions_for_topic(topic)), "metadata of the topic")
    consumer.seek(KafkaPythonPartition(topic, 0), 0)
    manager = consumer._client._manager

    def hide() -> None:
        manager.close(broker)
        del consumer._cluster._brokers[broker]

    manager.run(hide)
    wait_until(lambda: broker not in manager._conns, "no connection that is left to it")
    return consumer


def test_a_follower_that_is_back_is_read_from(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(replicas=[[LEADER, FOLLOWER]])
    fill(rack_cluster, topic, 1)
    with closing(unlisted(rack_cluster, topic, FOLLOWER)) as consumer:
        read(consumer, 1)


def test_a_leader_that_is_not_listed_is_waited_for(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(replicas=[[LEADER]])
    fill(rack_cluster, topic, 1)
    with closing(unlisted(rack_cluster, topic, LEADER)) as consumer:
        read(consumer, 1)


def stale(cluster: Cluster, topic: str) -> KafkaConsumer:
    """Return a consumer that takes a follower for the leader, until its metadata are refreshed; it fetches nothing."""
    config = {**CONSUMER, "metadata_max_age_ms": 300_000}
    consumer = attach(KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=None, **config))
    wait_until(lambda: bool(consumer.partitions_for_topic(topic)), "metadata of the topic")
    consumer._cluster._partitions[topic][0].leader_id = FOLLOWER
    return consumer


def test_offsets_are_asked_of_a_new_leader(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(replicas=[[LEADER, FOLLOWER]])
    fill(rack_cluster, topic, 3)
    tp = KafkaPythonPartition(topic, 0)
    with closing(stale(rack_cluster, topic)) as consumer:
        assert (consumer.beginning_offsets([tp]), consumer.end_offsets([tp])) == ({tp: 0}, {tp: 3})


def read_after_a_pause(cluster: Cluster, topic: str, expected: int) -> int:
    """Pause a partition in the middle of what was fetched, read another, resume; return how many records came.

    So many as are expected are waited for, and after them any others have some polls to come.
    """
    came = 0

    def enough() -> bool:
        nonlocal came
        came += sum(map(len, consumer.poll(timeout_ms=100).values()))
        return came >= expected

    both = [KafkaPythonPartition(topic, partition) for partition in range(2)]
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=None, **{**CONSUMER, "max_poll_records": 3})
    with closing(attach(consumer)):
        consumer.assign(both)
        first = consumer.poll(timeout_ms=TIMEOUT_S * 1000)
        (begun,) = first
        consumer.pause(begun)
        read(consumer, 10)
        consumer.resume(begun)
        came += 10 + len(first[begun])
        wait_until(enough, f"{expected} records")
        for _ in range(20):
            enough()
        return came


def test_a_partition_that_was_paused_in_the_middle_is_read_on(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(replicas=[[LEADER], [LEADER]])
    with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap, acks="all", linger_ms=0)) as producer:
        for number in range(20):
            producer.send(topic, b"", partition=number % 2).get(TIMEOUT_S)
    assert read_after_a_pause(rack_cluster, topic, 20) == 20
