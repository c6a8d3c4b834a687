"""What a member keeps flows while the group rebalances, and its progress is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as HostPartition
from kafka.errors import RebalanceInProgressError

from rackassign import RackAwareCooperativeStickyAssignor, attach
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic

from .support import CONSUMER, numbers, settled, wait_until

pytestmark = pytest.mark.brokers

PARTITIONS = 6
POLLS = 10
"""Of a member that is looked at; far more than one that reads needs."""


@dataclass
class Rebalance:
    """Two members and one that has just come: the group waits for the second, which does not poll."""

    topic: str
    reader: KafkaConsumer
    slow: KafkaConsumer
    joiner: KafkaConsumer
    producer: KafkaProducer
    read: list[int] = field(default_factory=list)

    def wait_for_join(self) -> None:
        """Come back when the reader's join is under way; it cannot end before the slow member polls."""

        def joining() -> bool:
            self.joiner.poll(timeout_ms=20)
            self.look(20)
            return self.reader._coordinator._join_task is not None

        wait_until(joining, "the reader joining again")

    def produce(self) -> None:
        """Add one record to each partition of the reader."""
        for partition in numbers(self.reader):
            self.producer.send(self.topic, b"x", partition=partition)
        self.producer.flush()

    def look(self, timeout_ms: int = 100) -> int:
        """Poll the reader once; return how many records it has read so far."""
        for place, records in self.reader.poll(timeout_ms=timeout_ms).items():
            self.read.extend([place.partition] * len(records))
        return len(self.read)

    def end(self) -> None:
        members = (self.reader, self.slow, self.joiner)

        def over() -> bool:
            for member in members:
                member.poll(timeout_ms=50)
            return sorted(p for member in members for p in numbers(member)) == list(range(PARTITIONS))

        wait_until(over, "all three sharing")


Start = Callable[..., Rebalance]


@pytest.fixture
def start(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Iterator[Start]:
    opened = ExitStack()

    def start(*disable: str, **config: object) -> Rebalance:
        topic, group = make_topic(PARTITIONS), unique_name()

        def member() -> KafkaConsumer:
            consumer = KafkaConsumer(
                topic,
                bootstrap_servers=rack_cluster.bootstrap,
                group_id=group,
                client_rack="a",
                partition_assignment_strategy=[RackAwareCooperativeStickyAssignor(rack="a")],
                **{**CONSUMER, **config},
            )
            opened.callback(consumer.close, timeout_ms=5000)
            return attach(consumer, disable=disable)

        reader, slow = member(), member()
        wait_until(settled([reader, slow], topic, PARTITIONS), "two members sharing")
        producer = opened.enter_context(closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)))
        rebalance = Rebalance(topic, reader, slow, member(), producer)
        rebalance.produce()
        wait_until(lambda: rebalance.look() == len(numbers(reader)), "a first record of each")
        rebalance.read.clear()
        return rebalance

    yield start
    opened.close()


def test_kept_partitions_flow_while_another_member_is_slow_to_join(start: Start) -> None:
    rebalance = start()
    rebalance.wait_for_join()
    held = numbers(rebalance.reader)
    for times in (1, 2):
        rebalance.produce()
        goal = times * len(held)
        wait_until(lambda goal=goal: rebalance.look() == goal, "records during the join")  # type: ignore[misc]
    assert sorted(rebalance.read) == sorted(held * 2)
    assert rebalance.reader._coordinator._join_task is not None
    rebalance.end()


def test_without_the_remedy_kept_partitions_stop(start: Start) -> None:
    rebalance = start("fetch_while_joining")
    rebalance.wait_for_join()
    rebalance.produce()
    for _ in range(POLLS):
        rebalance.look()
    assert not rebalance.read
    rebalance.end()


@pytest.mark.parametrize("wait", [True, False], ids=["join under way", "join finished, not read"])
def test_a_commit_during_a_join_is_no_error_and_not_lost(start: Start, wait: bool) -> None:  # noqa: FBT001
    rebalance = start()
    rebalance.wait_for_join()
    reader, coordinator = rebalance.reader, rebalance.reader._coordinator
    rebalance.produce()
    wait_until(lambda: rebalance.look() > 0, "a record during the join")
    positions = {
        HostPartition(rebalance.topic, p): reader.position(HostPartition(rebalance.topic, p)) for p in rebalance.read
    }
    with ThreadPoolExecutor(1) as pool:

        def come_to(done: Callable[[], bool], what: str) -> None:
            def look() -> bool:
                for other in (rebalance.slow, rebalance.joiner):
                    other.poll(timeout_ms=50)
                return done()

            wait_until(look, what)

        if wait:
            committing = pool.submit(reader.commit)
            come_to(committing.done, "a commit that ends with the join")
        else:
            come_to(lambda: bool(coordinator._join_task.is_done), "a join that is finished, and not read")
            committing = pool.submit(reader.commit)
        committing.result(timeout=60)
    assert coordinator._join_task is not None
    assert {place: reader.committed(place) for place in positions} == positions
    rebalance.end()


def test_without_the_remedy_a_commit_during_a_join_is_an_error(start: Start) -> None:
    rebalance = start("fetch_while_joining")
    rebalance.wait_for_join()
    with pytest.raises(RebalanceInProgressError):
        rebalance.reader.commit()
    rebalance.end()


def test_offsets_are_committed_before_a_join_as_ever(start: Start) -> None:
    """The last commit of the old generation takes its time, though nobody waits for the join itself."""
    rebalance = start(enable_auto_commit=True, auto_commit_interval_ms=60_000)
    rebalance.wait_for_join()
    reader = rebalance.reader
    rebalance.end()
    places = [HostPartition(rebalance.topic, p) for p in range(PARTITIONS)]
    # One record of each partition it had was read before the join.
    assert sum(reader.committed(place) or 0 for place in places) >= PARTITIONS // 2
