"""The partitioner, on metadata that change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.partitioner import DefaultPartitioner
from kafka.structs import TopicPartition

from rackassign import RackAwarePartitioner, RackAwareProducer
from rackassign.errors import ConfigError


@dataclass
class Node:
    rack: str | None


@dataclass
class Cluster:
    """Metadata of one topic t."""

    leaders: dict[int, int]
    racks: dict[int, str | None] = field(default_factory=lambda: {1: "a", 2: "b", 3: "c"})
    looks: int = 0
    nodes: dict[int, Node] = field(init=False)

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Have new metadata, in which brokers are other objects."""
        self.nodes = {number: Node(rack) for number, rack in self.racks.items()}

    def topics(self) -> set[str]:
        return {"t"}

    def brokers(self) -> list[Node]:
        return list(self.nodes.values())

    def broker_metadata(self, broker_id: int) -> Node | None:
        return self.nodes.get(broker_id)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        self.looks += 1
        return set(self.leaders) if topic == "t" else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        return {number for number, leader in self.leaders.items() if leader >= 0} if topic == "t" else None

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        return self.leaders.get(partition.partition)


def sent(
    partitioner: RackAwarePartitioner,
    cluster: Cluster,
    key: bytes | None = None,
    topic: str = "t",
    value: bytes | None = b"",
) -> int:
    return partitioner.partition(topic, key, key, value, value, cluster)


BATCH = 1_000


def partitioner_of(rack: str | None = None) -> RackAwarePartitioner:
    return RackAwarePartitioner(rack, batch_size=BATCH)


def fill(partitioner: RackAwarePartitioner, cluster: Cluster) -> int:
    """Send the records of a batch; return the partition."""
    (partition,) = {sent(partitioner, cluster, value=b"x" * 230) for _ in range(4)}
    return partition


def batches(partitioner: RackAwarePartitioner, cluster: Cluster, number: int = 200) -> set[int]:
    """Return the partitions of so many batches."""
    return {fill(partitioner, cluster) for _ in range(number)}


def test_the_bytes_of_a_batch_are_followed_by_another_partition() -> None:
    """KAFKA-10888: not the batch itself, since batches of a slow leader are full and those of others are not."""
    cluster, partitioner = Cluster({0: 1, 1: 1, 2: 2}), partitioner_of("a")
    before = fill(partitioner, cluster)
    for _ in range(20):
        after = fill(partitioner, cluster)
        assert after != before
        before = after


@pytest.mark.parametrize("size", [100, 5_000, 9_000, 16_300])
def test_a_record_that_begins_a_batch_counts_once(size: int) -> None:
    """kafka-python asks twice for its partition; records of the fast leader, which are sent at once, all begin one."""
    fast, slow, batch = 0, 1, 16_384
    cluster, partitioner = Cluster({fast: 1, slow: 1, 2: 2}), RackAwarePartitioner("a", batch_size=batch)
    counts, room = Counter[int](), {fast: 0, slow: 0}
    for _ in range(4_000):
        chosen = sent(partitioner, cluster, value=b"x" * size)
        if room[chosen] < size:
            partitioner.on_new_batch("t", cluster, chosen)
            assert sent(partitioner, cluster, value=b"x" * size) == chosen
            room[chosen] = batch
        room[chosen] = 0 if chosen == fast else room[chosen] - size
        counts[chosen] += 1
    assert abs(counts[fast] - counts[slow]) <= batch // size


def test_the_second_question_is_about_a_record_of_that_topic() -> None:
    cluster, partitioner = Cluster({0: 1, 1: 1, 2: 2}), partitioner_of("a")
    partitioner.on_new_batch("other", cluster, 7)
    assert {sent(partitioner, cluster) for _ in range(5)} < {0, 1}


def test_records_without_a_value_and_records_larger_than_a_batch_change_the_partition_too() -> None:
    cluster, partitioner = Cluster({0: 1, 1: 1}), partitioner_of("a")
    assert {sent(partitioner, cluster, value=None) for _ in range(60)} == {0, 1}
    large = [sent(partitioner, cluster, value=b"x" * 5_000) for _ in range(5)]
    assert all(one != next_one for one, next_one in pairwise(large))


@pytest.mark.parametrize("size", [-1, True, "16384", None, 1.5])
def test_a_batch_size_that_is_no_number_of_bytes_is_refused(size: Any) -> None:
    with pytest.raises(ConfigError, match="batch_size must be a number of bytes, 0 or more, got"):
        RackAwarePartitioner("a", batch_size=size)


def test_a_leader_that_leaves_the_rack_is_left_with_the_next_record() -> None:
    cluster, partitioner = Cluster({0: 1, 1: 1, 2: 2}), partitioner_of("a")
    used = sent(partitioner, cluster)
    cluster.leaders[used] = 3
    assert sent(partitioner, cluster) == 1 - used
    cluster.leaders[1 - used] = -1
    cluster.leaders[used] = 1
    assert sent(partitioner, cluster) == used


def test_without_a_leader_in_the_rack_all_are_used_until_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    cluster, partitioner = Cluster({0: 1, 1: 3, 2: 3, 3: -1}), partitioner_of("b")
    assert batches(partitioner, cluster) == {0, 1, 2}
    assert caplog.messages == [
        "no partition of topic t has its leader in rack 'b', so its records go to leaders in all racks"
    ]
    cluster.leaders[3] = 2
    cluster.refresh()
    fill(partitioner, cluster)
    assert batches(partitioner, cluster) == {3}


def test_leaders_that_leave_the_rack_are_one_line_of_information(caplog: pytest.LogCaptureFixture) -> None:
    cluster, partitioner = Cluster({0: 1, 1: 2}), partitioner_of("a")
    caplog.set_level("INFO")
    for times in (1, 2):
        cluster.leaders[0] = 1
        cluster.refresh()
        fill(partitioner, cluster)
        assert batches(partitioner, cluster) == {0}
        cluster.leaders[0] = 3
        cluster.refresh()
        assert batches(partitioner, cluster) == {0, 1}
        assert caplog.messages == ["the leaders of topic t have left rack 'a': its records go to other racks"] * times


def test_a_rack_that_no_broker_has_is_reported_with_those_that_they_have(caplog: pytest.LogCaptureFixture) -> None:
    assert batches(partitioner_of("A"), Cluster({0: 1, 1: 2})) == {0, 1}
    (message,) = caplog.messages
    assert message.startswith("rack 'A' of the producer is the rack of no broker, so records go to leaders in all")
    assert message.endswith("racks of brokers: a, b, c")


def test_without_a_rack_all_are_used(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACKASSIGN_RACK", raising=False)
    assert batches(partitioner_of(), Cluster({0: 1, 1: 2})) == {0, 1}
    assert caplog.messages == ["the producer has no rack, so records go to leaders in all racks"]
    monkeypatch.setenv("RACKASSIGN_RACK", "b")
    assert batches(partitioner_of(), Cluster({0: 1, 1: 2})) == {1}


def test_while_no_leader_is_known_all_partitions_are_used_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    partitioner = partitioner_of("a")
    assert {sent(partitioner, Cluster({0: -1, 1: -1})) for _ in range(200)} == {0, 1}
    assert batches(partitioner_of("a"), Cluster({0: 9, 1: 1})) == {1}
    assert not caplog.messages


def test_keys_go_where_they_always_went() -> None:
    cluster, partitioner, default = Cluster(dict.fromkeys(range(7), 3)), partitioner_of("a"), DefaultPartitioner()
    keys = [b"%d" % number for number in range(200)]
    ours = [sent(partitioner, cluster, key) for key in keys]
    assert ours == [default.partition("t", key, key, None, None, cluster) for key in keys]
    assert len(Counter(ours)) == 7


def test_a_topic_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="Topic u not found"):
        sent(partitioner_of("a"), Cluster({0: 1}), topic="u")


@pytest.mark.parametrize(
    ("given", "rack", "client_id"),
    [
        ({"client_rack": "a"}, "a", "app"),
        ({}, "b", "app"),
        ({"client_rack": ""}, None, "app"),
        ({"client_rack": "a", "zone_hint": "warpstream"}, "a", "app,warpstream_az=a"),
    ],
)
def test_a_producer_has_the_rack_that_a_consumer_would_have(
    given: dict[str, Any], rack: str | None, client_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", "b")
    monkeypatch.setattr(KafkaProducer, "__init__", lambda self, **configs: self.config.update(configs))
    config = RackAwareProducer(client_id="app", **given, batch_size=7).config
    assert (config["partitioner"].rack, config["client_id"], config["batch_size"]) == (rack, client_id, 7)
    # Each record is larger than a batch of 7 bytes.
    assert len({sent(config["partitioner"], Cluster({0: 1, 1: 1, 2: 2, 3: 2})) for _ in range(100)}) > 1


def test_a_producer_takes_no_other_partitioner() -> None:
    with pytest.raises(ConfigError, match="partitioner: RackAwareProducer has its own"):
        RackAwareProducer(partitioner=DefaultPartitioner())
