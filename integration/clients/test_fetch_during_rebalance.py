"""What a member keeps flows while the group rebalances, and its progress is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import MemberToRemove
from kafka.errors import KafkaError

from rackassign import RackAwareCooperativeStickyAssignor, attach
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import CONSUMER, numbers, patched_consumer, settled
from tests.helpers.machine_speed import scaled_ms

pytestmark = [pytest.mark.brokers, pytest.mark.local]

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
            owned = [numbers(member) for member in members]
            return sorted(p for each in owned for p in each) == list(range(PARTITIONS)) and len({*map(len, owned)}) == 1

        wait_until(over, "all three sharing")


MOST_POLLS = 100
"""Of a coordinator in a second in which there is nothing to do; one that spins is asked some thousand times."""


def count_polls(coordinator: Any) -> list[float | None]:
    """Note each time that the coordinator is polled."""
    noted: list[float | None] = []
    poll = coordinator.poll

    def counted(timeout_ms: float | None = None) -> bool:
        noted.append(timeout_ms)
        return bool(poll(timeout_ms=timeout_ms))

    coordinator.poll = counted
    return noted


def note_waits(consumer: KafkaConsumer) -> list[float]:
    """Note for how many milliseconds records are waited for each time."""
    noted: list[float] = []
    fetch_records = consumer._fetcher.fetch_records

    def fetched(*arguments: Any, timeout_ms: float, **more: Any) -> Any:
        noted.append(timeout_ms)
        return fetch_records(*arguments, timeout_ms=timeout_ms, **more)

    consumer._fetcher.fetch_records = fetched
    return noted


Start = Callable[..., Rebalance]


@pytest.fixture
def start(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Iterator[Start]:
    opened = ExitStack()

    def start(**config: Any) -> Rebalance:
        topic, group = make_topic(PARTITIONS), unique_name()
        # As long as a test may last: a member that is not polled holds the join up.
        config = {"session_timeout_ms": 600_000, "max_poll_interval_ms": 600_000, **config}

        def member() -> KafkaConsumer:
            consumer = patched_consumer(
                rack_cluster, group, topic, assignor=RackAwareCooperativeStickyAssignor, **config
            )
            opened.callback(consumer.close, timeout_ms=scaled_ms(5000))
            return consumer

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


def test_a_member_whose_heartbeat_is_overdue_does_not_spin(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    """As when its coordinator is frozen: the heartbeat that is under way is not answered, and the next one is due."""
    topic = make_topic(2)
    plain = KafkaConsumer(topic, bootstrap_servers=rack_cluster.bootstrap, group_id=unique_name(), **CONSUMER)
    with closing(attach(plain)) as consumer:
        wait_until(settled([consumer], topic, 2), "an assignment")
        coordinator = consumer._coordinator
        coordinator.heartbeat.time_to_next_heartbeat = lambda: 0.0
        polls, waits = count_polls(coordinator), note_waits(consumer)
        begun = time.monotonic()

        def looked() -> bool:
            consumer.poll(timeout_ms=1000)
            return len(waits) > 4

        wait_until(looked, "some waits for records")
        seconds = time.monotonic() - begun
    # How often it looks depends on the machine, too; whether it waits for records in between does not.
    assert waits.count(0.0) <= len(waits) / 2
    assert len(polls) <= MOST_POLLS * seconds


def committed(rebalance: Rebalance) -> dict[KafkaPythonPartition, int]:
    """Return what is committed, asked by another client: a member's own question waits for the join."""
    config = rebalance.reader.config
    with closing(KafkaAdminClient(bootstrap_servers=config["bootstrap_servers"])) as admin:
        listed = admin.list_group_offsets(config["group_id"])
    return {place: found.offset for place, found in next(iter(listed.values())).items()}


def read_one(rebalance: Rebalance) -> dict[KafkaPythonPartition, int]:
    """Read a record while the join is under way; return the reader's positions where it has."""
    before = len(rebalance.read)
    rebalance.produce()
    wait_until(lambda: rebalance.look() > before, "a record during the join")
    places = {KafkaPythonPartition(rebalance.topic, p) for p in rebalance.read}
    return {place: rebalance.reader.position(place) for place in places}


def test_a_commit_does_not_wait_for_a_join(start: Start) -> None:
    """The join cannot end meanwhile: the slow member does not poll."""
    rebalance = start()
    rebalance.wait_for_join()
    reader = rebalance.reader
    positions = read_one(rebalance)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(reader.commit).result(timeout=TIMEOUT_S)
    task = reader._coordinator._join_task
    assert task is not None
    assert not task.is_done
    found = committed(rebalance)
    assert {place: found[place] for place in positions} == positions
    rebalance.end()


@pytest.mark.long
def test_a_bad_commit_among_good_ones_fails_alone(start: Start) -> None:
    """What is committed while another commit is under way goes with it, and is told what has become of itself."""
    rebalance = start()
    rebalance.wait_for_join()
    reader = rebalance.reader
    positions = read_one(rebalance)
    good = {place: OffsetAndMetadata(at, "", -1) for place, at in positions.items()}
    # Where no other commit is: one that is replaced by a later one, before it was sent, succeeds with that.
    elsewhere = {KafkaPythonPartition(rebalance.topic, p) for p in range(PARTITIONS)} - set(positions)
    assert elsewhere
    bad: dict[str, Any] = {
        "no number": {place: OffsetAndMetadata("1", "", -1) for place in positions},
        "too large": {place: OffsetAndMetadata(1, "x" * 5000, -1) for place in elsewhere},
        "no such topic": {KafkaPythonPartition("none", 0): OffsetAndMetadata(1, "", -1)},
    }
    answers: list[tuple[str, Any]] = []

    def commit(name: str, offsets: Any) -> None:
        reader.commit_async(offsets, callback=lambda _, answer: answers.append((name, answer)))

    for name, offsets in bad.items():
        commit("good", good)
        commit(name, offsets)
    commit("good", good)

    def answered() -> bool:
        for member in (rebalance.reader, rebalance.slow, rebalance.joiner):
            member.poll(timeout_ms=20)
        return len(answers) == len(bad) * 2 + 1

    wait_until(answered, "an answer to each commit")
    assert {name for name, answer in answers if isinstance(answer, Exception)} == set(bad)
    found = committed(rebalance)
    assert {place: found[place] for place in positions} == positions
    rebalance.end()


def test_a_member_that_was_put_out_commits_over_nobody(start: Start, rack_cluster: Cluster) -> None:
    """It joins anew by then, and the broker would take a commit from the member that it will be."""
    rebalance = start()
    rebalance.wait_for_join()
    reader = rebalance.reader
    held = read_one(rebalance)
    group = reader.group_metadata()
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin:
        admin.remove_group_members(group.group_id, [MemberToRemove(member_id=group.member_id)])
    others = [rebalance.slow, rebalance.joiner]
    wait_until(settled(others, rebalance.topic, PARTITIONS), "the others sharing everything")
    further = {place: OffsetAndMetadata(at + 1000, "", -1) for place, at in held.items()}
    for other in others:
        theirs = {place: offset for place, offset in further.items() if place in other.assignment()}
        if theirs:
            other.commit(theirs)
    coordinator = reader._coordinator
    stale = {place: OffsetAndMetadata(1, "", -1) for place in held}

    def joins_anew() -> bool:
        reader.poll(timeout_ms=20)
        task = coordinator._join_task
        return task is not None and not task.is_done and coordinator._generation.member_id != group.member_id

    wait_until(joins_anew, "the member that was put out joining anew")
    with pytest.raises(KafkaError):
        reader.commit(stale)

    def finished() -> bool:
        for other in others:
            other.poll(timeout_ms=20)
        return bool(coordinator._join_task.is_done)

    wait_until(finished, "a join that is finished, and not read")
    with pytest.raises(KafkaError):
        reader.commit(stale)
    found = committed(rebalance)
    assert {place: found[place] for place in held} == {place: at + 1000 for place, at in held.items()}
    rebalance.end()


def test_a_member_that_was_put_out_hands_out_nothing_of_what_it_had(start: Start, rack_cluster: Cluster) -> None:
    rebalance = start()
    rebalance.wait_for_join()
    held = numbers(rebalance.reader)
    group = rebalance.reader.group_metadata()
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin:
        admin.remove_group_members(group.group_id, [MemberToRemove(member_id=group.member_id)])
    others = [rebalance.slow, rebalance.joiner]
    wait_until(settled(others, rebalance.topic, PARTITIONS), "the others sharing everything")
    # Its next join waits for the slow member again; until then it has nothing, though its consumer still lists it.
    for partition in held:
        rebalance.producer.send(rebalance.topic, b"x", partition=partition)
    rebalance.producer.flush()
    for _ in range(POLLS):
        rebalance.look()
    assert not rebalance.read
    rebalance.end()


@pytest.mark.long
def test_what_is_read_before_and_during_a_join_is_committed_by_itself(start: Start) -> None:
    """Of what moves too: whoever gets it next goes on behind it."""
    rebalance = start(enable_auto_commit=True, auto_commit_interval_ms=60_000)
    rebalance.wait_for_join()
    reader = rebalance.reader
    held = numbers(reader)
    rebalance.produce()
    wait_until(lambda: rebalance.look() == len(held), "records during the join")
    rebalance.end()
    assert set(numbers(reader)) < set(held)
    # One record of each was read before the join, and one while it went on.
    found = committed(rebalance)
    assert [found[KafkaPythonPartition(rebalance.topic, p)] for p in held] == [2] * len(held)
