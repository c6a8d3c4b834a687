"""The choice of partitions for producers, on metadata of any client: its shares, and what a record costs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from rackassign.clients.local_leaders import Choice, LocalLeaders, RecentBytes
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition


@dataclass(frozen=True)
class Node:
    rack: str


@dataclass
class Metadata:
    """Topics of so many partitions, which a broker in each of these racks lead in turn."""

    partitions: int
    racks: str = "abc"
    lookups: int = 0

    def __post_init__(self) -> None:
        self.nodes = {number: Node(rack) for number, rack in enumerate(self.racks)}

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
        return partition.partition % len(self.nodes)


def led_in(racks: str) -> Metadata:
    """Return metadata of a topic whose partitions are led in these racks, a letter each."""
    return Metadata(len(racks), racks)


class Favoring(random.Random):
    """Draws the first candidate more often: with ten candidates 1.36 times as often as each of the others."""

    def sample(self, population: Any, k: int, **more: Any) -> Any:
        drawn = super().sample(population, k, **more)
        return [population[0], *drawn[1:]] if self.random() < 0.035 else drawn


def chi_square(leaders: LocalLeaders, metadata: Metadata, expected: Iterable[int]) -> float:
    """Write 10,000 batches of records of many sizes; return by how much the shares of these partitions differ."""
    sizes, begun = random.Random(123), Counter[int]()
    before: Choice | None = None
    while begun.total() < 10_000:
        chosen = leaders.choose("t", sizes.randrange(20, 600), metadata)
        assert chosen is not None
        if before is not (before := leaders.choices["t"]):
            begun[chosen] += 1
    every = [*expected]
    assert begun.keys() <= {*every}
    share = 10_000 / len(every)
    return sum((begun[partition] - share) ** 2 / share for partition in every)


LAYOUTS = {
    "a broker of three": ("abc", "b", range(1, 30, 3), 27.9),
    "five brokers of seven": ("abbbbbc", "b", [each for each in range(28) if each % 7 in range(1, 6)], 43.8),
    "a rack without leaders": ("abc", "d", range(30), 58.3),
    "no rack": ("abc", None, range(30), 58.3),
}
"""For each layout racks of the brokers, the producer's rack, partitions that it uses, and what chi-square with one
degree of freedom less exceeds once in a thousand."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_partitions_in_the_rack_get_equal_shares(layout: str) -> None:
    racks, rack, expected, bound = LAYOUTS[layout]
    metadata = Metadata(28 if len(racks) == 7 else 30, racks)
    assert chi_square(LocalLeaders(rack, batch_size=1000, rng=random.Random(52)), metadata, expected) < bound
    favoring = LocalLeaders(rack, batch_size=1000, rng=Favoring(52))
    assert chi_square(favoring, metadata, expected) > bound


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


@pytest.mark.parametrize("batch_size", [16_384, 1_000_000])
def test_a_leader_that_has_moved_into_the_rack_is_used_with_the_next_metadata(batch_size: int) -> None:
    leaders, elsewhere = LocalLeaders("a", batch_size=batch_size), led_in("bbc")
    assert leaders.choose("t", 100, elsewhere) == leaders.choose("t", 100, elsewhere)
    assert leaders.choose("t", 100, led_in("abc")) == 0


def test_a_partition_is_left_when_its_time_is_over() -> None:
    now = [10.0]
    leaders, metadata = LocalLeaders("a", keep_s=5, clock=lambda: now[0]), Metadata(6)
    first = leaders.choose("t", 10**9, metadata)
    now[0] = 14.9
    assert leaders.choose("t", 10**9, metadata) == first
    now[0] = 15.0
    assert leaders.choose("t", 0, metadata) != first


def shares(rack: str, layout: Metadata, max_share: float, batches: int = 5000) -> dict[str, float]:
    """Return the share of each rack in so many batches."""
    leaders = LocalLeaders(rack, batch_size=100, max_share=max_share, rng=random.Random(7))
    counts = Counter(layout.racks[leaders.choose("t", 100, layout) or 0] for _ in range(batches))
    return {name: round(count / batches, 2) for name, count in counts.items()}


@pytest.mark.parametrize(
    ("rack", "racks", "max_share", "expected"),
    [
        pytest.param("a", "abcabcabcabc", 3, {"a": 1.0}, id="enough leaders"),
        pytest.param("a", "abcabcabcabc", 1.5, {"a": 0.5, "b": 0.5}, id="the next rack"),
        pytest.param("c", "abcabcabcabc", 2, {"c": 0.67, "a": 0.33}, id="the next rack is the first one"),
        pytest.param("a", "abbbbbbbbbbb", 3, {"a": 0.25, "b": 0.75}, id="one leader of twelve"),
        pytest.param("a", "abbccccccccc", 3, {"a": 0.25, "b": 0.5, "c": 0.25}, id="all racks"),
        pytest.param("a", "abc", 1, {"a": 0.33, "b": 0.33, "c": 0.33}, id="fair shares"),
        pytest.param("b", "aaacccaaaccc", 1, {"a": 0.5, "c": 0.5}, id="no leader in the rack"),
    ],
)
def test_no_partition_gets_more_than_its_share_and_the_rest_goes_to_the_next_rack(
    rack: str, racks: str, max_share: float, expected: dict[str, float]
) -> None:
    assert shares(rack, led_in(racks), max_share) == pytest.approx(expected, abs=0.011)


def test_nor_does_it_among_so_many_that_not_all_are_looked_at() -> None:
    found = shares("a", led_in("a" * 2 + "b" * 1000), 1, batches=30_000)
    # Shares are rounded to hundredths; a fallback to the rack gave it 0.01.
    assert found["a"] == pytest.approx(2 / 1002, abs=0.005)


def test_what_was_written_long_ago_does_not_count() -> None:
    now, layout = 0.0, led_in("abbb")
    leaders = LocalLeaders("a", batch_size=100, max_share=2, clock=lambda: now)
    for begin in (0, 130, 1000):
        now = begin
        written = [layout.racks[leaders.choose("t", 100, layout) or 0] for _ in range(1000)]
        assert 480 <= written.count("a") <= 520
    recent = RecentBytes()
    recent.add(0, 10, 0)
    recent.add(0, 5, 130)
    assert (recent.of(0), recent.total) == (15, 15)
    recent.add(1, 1, 260)
    assert (recent.of(0), recent.total) == (5, 6)
    recent.add(1, 1, 1000)
    assert (recent.of(0), recent.total) == (0, 1)


@pytest.mark.parametrize("max_share", [0.5, True, "2", float("nan"), float("inf")])
def test_a_share_that_cannot_be_is_refused(max_share: Any) -> None:
    with pytest.raises(ConfigError, match="max_share"):
        LocalLeaders("a", max_share=max_share)


def test_a_leader_that_is_slow_gets_fewer_batches() -> None:
    leaders, metadata = LocalLeaders("a", batch_size=100, rng=random.Random(3)), Metadata(12)
    queues: Counter[int] = Counter()
    leaders.queued = lambda partition: queues[partition.partition]
    written: Counter[int] = Counter()
    for turn in range(20_000):
        number = leaders.choose("t", 100, metadata)
        assert number is not None
        written[number] += 1
        queues[number] += 1
        # Partitions 0, 3, 6 and 9 are led in the rack; 0 is sent every 40th turn, each other one every third.
        for other in [3, 6, 9] if turn % 3 == 0 else [0] if turn % 40 == 1 else []:
            queues[other] = max(0, queues[other] - 1)
    assert written[0] <= 20_000 / 40 + 20
    assert queues[0] < 20
    assert max(written[each] for each in (3, 6, 9)) < 1.05 * min(written[each] for each in (3, 6, 9))
