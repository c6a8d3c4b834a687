"""The choice of partitions for producers, on metadata of any client: its shares, and what a record costs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from rackassign.clients.local_leaders import LocalLeaders
from rackassign.model import TopicPartition


@dataclass(frozen=True)
class Node:
    rack: str


@dataclass
class Metadata:
    """Topics of so many partitions, which brokers 0, 1 and 2 in the racks a, b and c lead in turn."""

    partitions: int
    nodes: dict[int, Node] = field(default_factory=lambda: {number: Node("abc"[number]) for number in range(3)})
    lookups: int = 0

    def brokers(self) -> Iterable[Node]:
        return self.nodes.values()

    def broker_metadata(self, broker_id: int) -> Node | None:
        self.lookups += 1
        return self.nodes.get(broker_id)

    def partitions_for_topic(self, topic: str) -> Iterable[int] | None:
        del topic
        return range(self.partitions)

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        self.lookups += 1
        return partition.partition % 3


def test_the_partitions_in_the_rack_get_equal_shares() -> None:
    leaders, metadata = LocalLeaders("b", batch_size=100, rng=random.Random(52)), Metadata(30)
    counts = Counter(leaders.choose("t", 100, metadata) for _ in range(10_000))
    assert set(counts) == set(range(1, 30, 3))
    # Chi-square with nine degrees of freedom exceeds this once in a thousand.
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 27.9


def test_the_same_seed_makes_the_same_choices() -> None:
    seeds = (1, 1, 2)
    one, same, other = (
        [leaders.choose("t", 100, metadata) for _ in range(50)]
        for leaders, metadata in (
            (LocalLeaders("a", batch_size=100, rng=random.Random(s)), Metadata(30)) for s in seeds
        )
    )
    assert one == same != other


@pytest.mark.parametrize("rack", ["a", "none of them"])
def test_a_record_costs_the_same_with_many_partitions_and_with_many_topics(rack: str) -> None:
    metadata = Metadata(5000)
    leaders = LocalLeaders(rack, batch_size=100)
    leaders.choose("t", 100, metadata)
    metadata.lookups = 0
    for _ in range(1000):
        # Each begins a batch.
        leaders.choose("t", 100, metadata)
    assert metadata.lookups <= 1000 * 8
    metadata = Metadata(3)
    leaders = LocalLeaders(rack, batch_size=1_000)
    topics = [f"t{number}" for number in range(10_000)]
    for topic in topics:
        leaders.choose(topic, 100, metadata)
    metadata.lookups = 0
    for topic in topics:
        leaders.choose(topic, 100, metadata)
    assert metadata.lookups <= 2 * len(topics)


def test_a_partition_is_left_when_its_time_is_over() -> None:
    now = [10.0]
    leaders, metadata = LocalLeaders("a", keep_s=5, clock=lambda: now[0]), Metadata(6)
    first = leaders.choose("t", 10**9, metadata)
    now[0] = 14.9
    assert leaders.choose("t", 10**9, metadata) == first
    now[0] = 15.0
    assert leaders.choose("t", 0, metadata) != first
