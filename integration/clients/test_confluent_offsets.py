"""Where members on confluent-kafka begin, go on, and what they commit."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Offset

import rackassign
from rackassign.clients.confluent import RackAwareConsumer
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.confluent_group import (
    PARTITIONS,
    TWO_EACH,
    RecordingConsumer,
    all_of,
    committed,
    fill,
    services,
    sharing,
)

pytestmark = [pytest.mark.brokers, pytest.mark.local]

MOST_INTERRUPTS = 20

_PACKAGE = str(Path(rackassign.__file__).parent)


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(replicas=TWO_EACH)


@pytest.fixture
def group(unique_name: Callable[[], str]) -> str:
    return unique_name()


def test_what_was_delivered_is_committed_by_itself_when_it_closes(
    rack_cluster: Cluster, topic: str, group: str
) -> None:
    fill(rack_cluster, topic, 100)
    read: list[Counter[tuple[TopicPartition, int]]] = []
    for part in range(2):
        with services(lambda: RecordingConsumer(rack_cluster, group, [topic], enable_auto_commit=True)) as [one]:
            wanted = 250 if part == 0 else 100 * PARTITIONS - 250

            def enough(one: RecordingConsumer = one, wanted: int = wanted) -> bool:
                for message in one.consumer.consume(min(60, wanted - len(one.recorded("record"))), 0.2):
                    one.take(message)
                return len(one.recorded("record")) == wanted

            wait_until(enough, "some records")
            one.consumer.close()
            one.consumer.close()
            one.check()
            read.append(one.read())
    assert max((read[0] + read[1]).values()) == 1
    assert committed(rack_cluster, group, topic) == [100] * PARTITIONS


def test_what_was_delivered_is_committed_by_itself_in_time(rack_cluster: Cluster, topic: str, group: str) -> None:
    fill(rack_cluster, topic, 10)
    told: list[Any] = []
    more: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 300}
    with services(
        lambda: RecordingConsumer(rack_cluster, group, [topic], on_commit=lambda *said: told.append(said), **more)
    ) as [one]:
        wait_until(lambda: one.consume() == 10 * PARTITIONS, "all records")
        wait_until(
            lambda: (
                one.poll() >= 0
                and {place.partition: place.offset for _, offsets in told for place in offsets}
                == dict.fromkeys(range(PARTITIONS), 10)
            ),
            "all of it committed",
        )
        assert {error for error, _ in told} == {None}
        assert committed(rack_cluster, group, topic) == [10] * PARTITIONS
        count = len(told)
        # Nothing new, nothing to commit.
        one.consumer.poll(1)
        assert len(told) == count


def test_none_of_many_commits_is_missing_after_the_end(rack_cluster: Cluster, topic: str, group: str) -> None:
    fill(rack_cluster, topic, 70)
    told: list[Any] = []
    with services(
        lambda: RecordingConsumer(rack_cluster, group, [topic], on_commit=lambda *said: told.append(said))
    ) as [one]:
        for _ in range(70 * PARTITIONS):
            message = one.consumer.poll(TIMEOUT_S)
            assert message is not None
            one.take(message)
            one.consumer.commit(message)
    assert committed(rack_cluster, group, topic) == [70] * PARTITIONS
    assert {error for error, _ in told} == {None}
    # In the end all of it, and nothing older after something newer.
    assert {place.partition: place.offset for _, offsets in told for place in offsets} == dict.fromkeys(
        range(PARTITIONS), 70
    )


class _CallbackError(Exception):
    """What a callback of the application raises."""


def _interrupt(_number: int, frame: Any) -> None:
    """Raise if the signal has come within a call of the consumer, and otherwise wait until one does.

    What a call has returned, and is not written down yet, would be missing in the test only. And what is raised within
    finalizers and callbacks of weak references, which run anywhere, is reported and interrupts nothing.
    """
    calls = (RackAwareConsumer.poll.__code__, RackAwareConsumer.consume.__code__)
    while frame is not None and frame.f_code not in calls:
        ours = frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_code.co_name != "__del__"
        frame = frame.f_back if ours else None
    if frame is not None:
        raise KeyboardInterrupt
    signal.setitimer(signal.ITIMER_REAL, 0.0001)


def test_an_exception_that_ends_a_wait_costs_no_record(rack_cluster: Cluster, topic: str, group: str) -> None:
    """confluent-kafka loses what a call has taken if a callback raises meanwhile, and does not close after that."""
    each, raised = 60, 0

    def fail(_: str) -> None:
        raise _CallbackError

    def write() -> None:
        # A few at a time, so that a wait takes some of them and is then ended.
        for _ in range(each):
            fill(rack_cluster, topic, 1)
            time.sleep(0.05)

    def read(wanted: int) -> None:
        before = sum(committed(rack_cluster, group, topic))
        recording = RecordingConsumer(rack_cluster, group, [topic], enable_auto_commit=True, stats_cb=fail)

        def enough() -> bool:
            nonlocal raised
            try:
                recording.consume(0.4)
            except _CallbackError:
                raised += 1
            return before + len(recording.recorded("record")) >= wanted

        with services(lambda: recording):
            wait_until(enough, "records")
            recording.check()
        assert sum(committed(rack_cluster, group, topic)) == before + len(recording.recorded("record"))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        read(each * PARTITIONS // 2)
        read(each * PARTITIONS)
        writing.result()
    assert raised > 5


def test_a_signal_in_the_middle_of_a_wait_costs_no_record(rack_cluster: Cluster, topic: str, group: str) -> None:
    """confluent-kafka looks for signals when the wait is over, and frees the record that has ended it."""
    interrupted, rounds = 0, 30

    former = signal.signal(signal.SIGALRM, _interrupt)
    producer = confluent_kafka.Producer({"bootstrap.servers": rack_cluster.bootstrap, "linger.ms": 0})
    try:
        with services(lambda: RecordingConsumer(rack_cluster, group, [topic], enable_auto_commit=True)) as [one]:
            wait_until(lambda: one.consume() == 0 and len(one.owned()) == PARTITIONS, "an assignment")
            for _ in range(rounds):
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                producer.produce(topic, b"x", partition=0)
                producer.poll(0)
                try:
                    one.poll(0.2)
                except KeyboardInterrupt:
                    interrupted += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            assert producer.flush(TIMEOUT_S) == 0
            wait_until(lambda: one.consume() >= rounds, "all records")
            one.check()
        assert committed(rack_cluster, group, topic)[0] == rounds
        assert interrupted > 0
    finally:
        signal.signal(signal.SIGALRM, former)


def test_nor_does_one_on_a_busy_topic(rack_cluster: Cluster, topic: str, group: str) -> None:
    """There is no wait then, and confluent-kafka frees what it has taken all the same."""
    each, interrupted = 3000, 0
    fill(rack_cluster, topic, each)

    former = signal.signal(signal.SIGALRM, _interrupt)
    try:
        with services(lambda: RecordingConsumer(rack_cluster, group, [topic], enable_auto_commit=True)) as [one]:
            wait_until(lambda: one.consume() > 0, "records")
            deadline = time.monotonic() + TIMEOUT_S
            read = 0
            while read < each * PARTITIONS and time.monotonic() < deadline:
                # Records that are read again take some time to come, so there is an end of it.
                if interrupted < MOST_INTERRUPTS:
                    signal.setitimer(signal.ITIMER_REAL, 0.002 * (1 + interrupted % 20))
                try:
                    while read < each * PARTITIONS and time.monotonic() < deadline:
                        message = one.consumer.poll(0.2)
                        if message is not None:
                            one.take(message)
                        read = len(one.journal) - 1
                except KeyboardInterrupt:
                    interrupted += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            one.check()
            assert set(one.read()) == {(place, offset) for place in all_of(topic) for offset in range(each)}
        assert committed(rack_cluster, group, topic) == [each] * PARTITIONS
        assert interrupted > 0
    finally:
        signal.signal(signal.SIGALRM, former)


def test_messages_and_stored_offsets_are_committed(rack_cluster: Cluster, topic: str, group: str) -> None:
    fill(rack_cluster, topic, 10)
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic], enable_auto_offset_store=False)) as [one]:
        first = one.consumer.poll(TIMEOUT_S)
        assert first is not None
        partition = first.partition()
        assert partition is not None
        with pytest.raises(KafkaException) as problem:
            one.consumer.commit(asynchronous=False)
        assert problem.value.args[0].code() == KafkaError._NO_OFFSET
        one.consumer.commit(first, asynchronous=False)
        place = Offset(topic, partition)
        assert one.consumer.committed([place], TIMEOUT_S)[0].offset == 1
        one.consumer.store_offsets(offsets=[Offset(topic, 5, 7)])
        one.consumer.commit(asynchronous=False)
        assert one.consumer.committed([Offset(topic, 5)], TIMEOUT_S)[0].offset == 7
        for wrong in ([Offset("another", 0, 1)], [Offset(topic, 99, 1)]):
            with pytest.raises(KafkaException) as problem:
                one.consumer.store_offsets(offsets=wrong)
            assert problem.value.args[0].code() == KafkaError._STATE
            with pytest.raises(KafkaException) as problem:
                one.consumer.commit(offsets=wrong, asynchronous=False)
            assert problem.value.args[0].code() == KafkaError.ILLEGAL_GENERATION


def test_metadata_of_commits_are_read_by_it_and_by_librdkafka(rack_cluster: Cluster, topic: str, group: str) -> None:
    texts = ["a", "hello", "a longer text with spaces", ""]
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as [one]:
        wait_until(lambda: one.consume() == 0 and len(one.owned()) == PARTITIONS, "an assignment")
        given = [Offset(topic, partition, 0, text) for partition, text in enumerate(texts)]
        one.consumer.commit(offsets=given, asynchronous=False)
        properties = {"bootstrap.servers": rack_cluster.bootstrap, "group.id": group}
        with closing(confluent_kafka.Consumer(properties)) as plain:
            for asked in (one.consumer, plain):
                known = asked.committed(given, timeout=TIMEOUT_S)
                assert [each.metadata or "" for each in known] == texts


def test_a_pattern_that_is_none_costs_no_assignment(rack_cluster: Cluster, topic: str, group: str) -> None:
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as [one]:
        wait_until(lambda: one.consume() == 0 and len(one.owned()) == PARTITIONS, "an assignment")
        with pytest.raises(KafkaException, match="unterminated subpattern"):
            one.consumer.subscribe([f"^{topic}("])
        assert len(one.owned()) == len(one.consumer.assignment()) == PARTITIONS
        fill(rack_cluster, topic, 1)
        wait_until(lambda: one.consume() == PARTITIONS, "all records")


@pytest.mark.release
def test_committed_offsets_are_known_while_the_coordinator_moves(rack_cluster: Cluster, topic: str, group: str) -> None:
    fill(rack_cluster, topic, 1)
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as [one]:
        wait_until(lambda: one.consume() == PARTITIONS, "all records")
        one.consumer.commit(asynchronous=False)

        def move() -> None:
            # Each of them is the coordinator sooner or later. One that stops answers that it is not, and so does one
            # that has just become it.
            for broker in rack_cluster.brokers:
                rack_cluster.stop(broker.id)
                rack_cluster.start(broker.id)

        asked = 0
        with ThreadPoolExecutor(1) as pool:
            moves = pool.submit(move)
            while not moves.done():
                known = one.consumer.committed([Offset(topic, 0)], TIMEOUT_S)
                assert [each.offset for each in known] == [1]
                asked += 1
            moves.result()
        assert asked > 3


def test_it_begins_where_on_assign_says_and_goes_where_it_is_sent(
    rack_cluster: Cluster, topic: str, group: str
) -> None:
    fill(rack_cluster, topic, 100)

    class Choosing(RecordingConsumer):
        def on_assign(self, consumer: RackAwareConsumer, partitions: list[Offset]) -> None:
            super().on_assign(consumer, partitions)
            consumer.incremental_assign([Offset(topic, each.partition, 90) for each in partitions])
            consumer.pause([Offset(topic, 5)])

    with services(lambda: Choosing(rack_cluster, group, [topic])) as [one]:
        for call in (one.consumer.seek, lambda place: one.consumer.pause([place])):
            with pytest.raises(KafkaException) as problem:
                call(Offset(topic, 0, 1))
            assert problem.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
        wait_until(lambda: one.consume() == 50, "the ends of five")
        assert {offset for _, offset in one.read()} == set(range(90, 100))
        assert one.consumer.position([Offset(topic, 4), Offset(topic, 5)]) == [Offset(topic, 4), Offset(topic, 5)]
        assert [each.offset for each in one.consumer.position([Offset(topic, 4), Offset(topic, 5)])] == [100, -1001]
        one.consumer.seek(Offset(topic, 5, 97))
        one.consumer.seek(Offset(topic, 0, 95))
        one.consumer.resume([Offset(topic, 5)])
        wait_until(lambda: one.consume() == 58, "what was sought")
        assert Counter(place.partition for place, _ in one.recorded("record")[50:]) == {0: 5, 5: 3}
        with pytest.raises(KafkaException) as problem:
            one.consumer.assign([Offset(topic, 0)])
        assert problem.value.args[0].code() == KafkaError._STATE


def test_a_seek_right_after_the_assignment_holds(rack_cluster: Cluster, topic: str, group: str) -> None:
    fill(rack_cluster, topic, 100)
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as [one]:
        wait_until(lambda: bool([one.poll(0)]) and bool(one.owned()), "an assignment")
        begun = len(one.recorded("record"))
        one.consumer.seek(Offset(topic, 0, 99))
        wait_until(lambda: one.consume() - begun >= 100 * 5 + 1, "all but the skipped")
        assert one.read()[TopicPartition(topic, 0), 99] == 1


def test_what_librdkafka_has_stopped_reading_goes_on_with_another_client(
    rack_cluster: Cluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackassign.clients.confluent._delivery.QUIET_S", 0.5)
    fill(rack_cluster, topic, 10)
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as [one]:
        wait_until(lambda: one.consume() == 10 * PARTITIONS, "all records")
        # Nobody else knows of this, as nobody knows of librdkafka's own troubles.
        one.consumer._reader.consumer.pause([Offset(topic, 3)])
        fill(rack_cluster, topic, 10)
        wait_until(lambda: one.consume() == 20 * PARTITIONS, "all records again")
        fill(rack_cluster, topic, 10)
        wait_until(lambda: one.consume() == 30 * PARTITIONS, "and all that follow")
        assert one.consumer.commit(asynchronous=False)
        one.check()
        assert max(one.read().values()) == 1


def test_what_librdkafka_goes_on_fetching_after_it_was_dropped_ends_with_another_client(
    rack_cluster: Cluster, make_topic: MakeTopic, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackassign.clients.confluent._delivery.QUIET_S", 0.5)
    read, dropped = make_topic(replicas=[[1]]), TopicPartition(make_topic(replicas=[[3]]), 0)
    with services(lambda: RecordingConsumer(rack_cluster, group, [read])) as [one]:
        fill(rack_cluster, read, 10, partitions=1)
        wait_until(lambda: one.consume() == 10, "all records")
        reader, stalls = one.consumer._reader, one.consumer._stalls

        def asks() -> bool:
            one.consume()
            return dropped in stalls._seen and stalls._seen[dropped].state == "offset-wait"

        # It is dropped while librdkafka asks where it begins, as by a rebalance right after another one.
        reader.consumer.list_topics(dropped.topic, timeout=TIMEOUT_S)
        rack_cluster.pause(3)
        try:
            reader.take(frozenset({dropped}))
            reader.begin({})
            wait_until(asks, "a request without a response")
            reader.drop([dropped])
            stalls.forget([dropped])
        finally:
            rack_cluster.resume(3)
        before = reader.consumer
        fill(rack_cluster, dropped.topic, 10, partitions=1)
        wait_until(lambda: bool(one.consume()) and reader.consumer is not before, "another client")
        fill(rack_cluster, read, 10, partitions=1)
        wait_until(lambda: one.consume() == 20, "all records again")
        assert max(one.read().values()) == 1
        assert {tp for tp, _ in one.read()} == {TopicPartition(read, 0)}


@pytest.mark.long
def test_end_offsets_are_known_although_a_partition_has_no_leader(
    rack_cluster: Cluster, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(replicas=[[1], [3]])
    fill(rack_cluster, topic, 5, partitions=2)
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as [one]:
        wait_until(lambda: one.consume() == 10, "all records")
        member, tps = one.consumer._member, all_of(topic, 2)
        assert member.end_offsets(tps, TIMEOUT_S) == dict.fromkeys(tps, 5)
        rack_cluster.kill(3)
        cluster = member._consumer._cluster

        def leaderless() -> bool:
            # Polling goes on meanwhile: an error of any request would come out here.
            one.consume()
            return bool(cluster.leader_for_partition(tps[1]) == -1)

        wait_until(leaderless, "a partition without a leader")
        wait_until(lambda: member.end_offsets(tps, 5.0) == {tps[0]: 5}, "the end offset of the other partition")
        rack_cluster.start(3)
        wait_until(lambda: bool(one.consume()) and len(member.end_offsets(tps, 5.0)) == 2, "both end offsets")


def test_what_comes_back_is_not_paused_any_more(rack_cluster: Cluster, topic: str, group: str) -> None:
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as [one]:
        wait_until(lambda: one.consume() == 0 and len(one.owned()) == PARTITIONS, "an assignment")
        one.consumer.pause([Offset(topic, p) for p in range(PARTITIONS)])
        with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as [two]:
            wait_until(sharing([one, two], topic), "two sharing")
            kept = one.owned()
        wait_until(lambda: one.consume() == 0 and len(one.owned()) == PARTITIONS, "everything back")
        fill(rack_cluster, topic, 10)
        wait_until(lambda: one.consume() == 10 * (PARTITIONS - len(kept)), "what came back")
        assert one.consumer.poll(1) is None
        assert {place for place, _ in one.read()} == set(all_of(topic)) - kept
