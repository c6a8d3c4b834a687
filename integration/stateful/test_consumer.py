"""Members with state on real brokers: whoever dies or is stopped, each record counts once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError

from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.stateful._stores import DEFAULT
from rackassign.strategies.standby import StandbyOptions
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic
from tests.helpers.kafka.spark_harness import remade
from tests.helpers.kafka.stateful_group import SIX, SPREAD, UNHURRIED_MS, Fleet, fill_changelog
from tools.chaos.history import Struck
from tools.chaos.schedule import RACKS
from tools.chaos.stateful import play

pytestmark = [pytest.mark.brokers, pytest.mark.local]

TIMEOUT_S = 600.0


@pytest.fixture
def fleet(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> Iterator[Callable[..., Fleet]]:
    with ExitStack() as opened:

        def made(standbys: int, **config: Any) -> Fleet:
            topic = make_topic(replicas=SPREAD)
            found = Fleet(rack_cluster.bootstrap, unique_name(), topic, tmp_path, standbys, **config)
            opened.callback(found.close)
            return found

        yield made


@pytest.mark.long
def test_a_zone_is_killed_and_who_is_warm_goes_on_as_if_nothing_had_happened(fleet: Callable[..., Fleet]) -> None:
    six = fleet(1, session_timeout_ms=UNHURRIED_MS)
    for name in SIX:
        six.start(name)
    # What the leader knows of copies is what members have said with their joins. One that was under way when the zone
    # died would be answered after it, with what was said before.
    six.come_to_rest(1, TIMEOUT_S)
    six.write(3000)
    wait_until(lambda: six.done() >= 2000, "records being processed", timeout_s=TIMEOUT_S)
    before, killed = six.now(), time.time()
    six.kill("ax", "ay")
    six.write(3000)
    wait_until(lambda: six.settled(1), "four members with their copies", timeout_s=TIMEOUT_S)
    for partition in (*before["ax"][0], *before["ay"][0]):
        since = [(name, line) for name in six.running for line in six.output_lines(name) if line["at"] > killed]
        _, heir = min((line["at"], name) for name, line in since if partition in line.get("runs", ()))
        # Of a copy that is warm nothing is lacking: none of what the dead one had written was to be read. It may also
        # be that of a member which had the partition for a moment at the start, and still has the file.
        restored = (line["restored"] for name, line in since if name == heir and "restored" in line)
        assert next(total for place, _, total in restored if place == partition) == 0
    six.counts_right(TIMEOUT_S)
    six.end()


@pytest.mark.release
def test_a_former_owner_that_wakes_up_changes_nothing(fleet: Callable[..., Fleet]) -> None:
    three = fleet(1)
    for name in ("ax", "by", "cx"):
        three.start(name)
    wait_until(lambda: three.settled(1), "three members with their copies", timeout_s=TIMEOUT_S)
    three.write(2000)
    wait_until(lambda: three.done() >= 500, "records being processed", timeout_s=TIMEOUT_S)
    stopped = three.running.pop("ax")
    try:
        stopped.send_signal(signal.SIGSTOP)
        three.write(2000)
        wait_until(lambda: three.settled(1), "two members with their copies", timeout_s=TIMEOUT_S)
        three.counts_right(TIMEOUT_S)
    finally:
        stopped.send_signal(signal.SIGCONT)
    three.running["ax"] = stopped
    three.write(1000)
    wait_until(lambda: three.settled(1), "three members again", timeout_s=TIMEOUT_S)
    three.counts_right(TIMEOUT_S)
    three.end()


@pytest.mark.release
def test_whatever_happens_to_members_and_brokers_each_record_counts_once(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(RACKS)
    create_topic(cluster.bootstrap, "input", SPREAD)
    history = play(cluster, "input", 19, 6, ("kill", "start", "pause", "resume", "restart"), tmp_path)
    assert {struck.what for struck in history.of(Struck)} >= {"kill", "pause", "start", "restart"}


@pytest.mark.long
def test_an_input_that_was_made_again_is_read_whole(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    replicas = [[1, 2], [2, 3], [3, 1]]
    topic, group = make_topic(replicas=replicas), unique_name()

    def count(record: Any, store: StateStore) -> None:
        store.put(record.value, b"%d" % (int(store.get(record.value) or b"0") + 1))

    def processed(records: int, total: int) -> None:
        with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer:
            for number in range(records):
                producer.send(topic, b"x", partition=number % 3)
        with StatefulConsumer(
            topic,
            process=count,
            state_dir=tmp_path,
            standbys=StandbyOptions(0),
            bootstrap_servers=rack_cluster.bootstrap,
            group_id=group,
        ) as member:

            def counted() -> int:
                member.poll(100)
                return sum(int(member.store(tp).get(b"x") or b"0") for tp in member.active_partitions())

            wait_until(lambda: counted() >= total, f"{total} records", timeout_s=TIMEOUT_S)
            assert counted() == total

    processed(90, 90)
    remade(rack_cluster, topic, replicas)
    # Longer than what was read of the former one.
    processed(240, 330)
    processed(30, 360)


@pytest.mark.long
def test_a_long_restore_tells_how_far_it_is(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, log = make_topic(replicas=[[1, 2]]), make_topic(replicas=[[1, 2]], config={"cleanup.policy": "compact"})
    records, value = 100_000, bytes(range(256)) * 4
    changes = ((DEFAULT + b"%d" % number, value) for number in range(records))
    fill_changelog(rack_cluster.bootstrap, log, 0, changes)
    told: list[tuple[int, int]] = []
    with StatefulConsumer(
        topic,
        process=lambda record, store: store.put(b"input", record.value),
        state_dir=tmp_path / "state",
        on_restore=lambda _, done, total: told.append((done, total)),
        changelog=lambda _: log,
        standbys=StandbyOptions(0),
        bootstrap_servers=rack_cluster.bootstrap,
        group_id=unique_name(),
    ) as member:
        wait_until(lambda: not member.poll(100) and bool(member.active_partitions()), "the state", timeout_s=TIMEOUT_S)
        (place,) = member.active_partitions()
        assert sum(1 for _ in member.store(place).items()) == records
        assert member.store(place).get(b"99999") == value
    assert told == sorted(told)
    assert told[-1] == (records + 1, records + 1)
    assert len(told) > 10


def test_a_record_that_cannot_be_processed_comes_again_and_costs_the_others_nothing(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic = make_topic(replicas=[[1, 2], [2, 3], [3, 1]])
    with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer:
        for number in range(90):
            producer.send(topic, b"%d" % number, partition=number % 3)
    failures = 3

    def fails_now_and_then(record: Any, store: StateStore) -> None:
        nonlocal failures
        store.put(b"seen", (store.get(b"seen") or b"") + record.value + b",")
        if failures and record.value == b"50":
            failures -= 1
            raise ZeroDivisionError

    with StatefulConsumer(
        topic,
        process=fails_now_and_then,
        state_dir=tmp_path,
        standbys=StandbyOptions(0),
        bootstrap_servers=rack_cluster.bootstrap,
        group_id=unique_name(),
    ) as member:
        raised = 0

        def all_seen() -> bool:
            nonlocal raised
            try:
                member.poll(100)
            except ZeroDivisionError:
                raised += 1
            places = member.active_partitions()
            return sum((member.store(place).get(b"seen") or b"").count(b",") for place in places) >= 90

        wait_until(all_seen, "all records", timeout_s=TIMEOUT_S)
        assert raised == 3
        for place in member.active_partitions():
            expected = b"".join(b"%d," % number for number in range(90) if number % 3 == place.partition)
            assert member.store(place).get(b"seen") == expected


def test_a_changelog_takes_what_put_allows_and_put_refuses_what_it_would_not_take(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, group, limit = make_topic(replicas=[[1]]), unique_name(), 9_000
    create_topic(
        rack_cluster.bootstrap,
        f"{group}-{topic}-changelog",
        [[1]],
        config={"cleanup.policy": "compact", "max.message.bytes": str(limit)},
    )
    largest = limit - 1_024 - len(DEFAULT) - len(b"key")
    with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer:
        for size in (10, largest, largest + 1):
            producer.send(topic, b"%d" % size)
    with StatefulConsumer(
        topic,
        process=lambda record, store: store.put(b"key", bytes(int(record.value))),
        state_dir=tmp_path,
        standbys=StandbyOptions(0),
        bootstrap_servers=rack_cluster.bootstrap,
        group_id=group,
    ) as member:
        with pytest.raises(ValueError, match=r"have 7,977 bytes, of which the changelog takes 7,976 "):
            wait_until(lambda: bool(member.poll(100)) and False, "the last record", timeout_s=TIMEOUT_S)
        member.commit()
        (place,) = member.active_partitions()
        with member.state(place) as committed:
            assert committed.get(b"key") == bytes(largest)


def test_a_producer_that_has_failed_for_good_is_replaced(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic = make_topic(replicas=[[1, 2]])
    with (
        closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer,
        StatefulConsumer(
            topic,
            process=lambda record, store: store.put(b"seen", (store.get(b"seen") or b"") + record.value),
            state_dir=tmp_path,
            standbys=StandbyOptions(0),
            commit_interval_ms=10,
            bootstrap_servers=rack_cluster.bootstrap,
            group_id=unique_name(),
        ) as member,
    ):
        place = TopicPartition(topic, 0)

        def committed(expected: bytes) -> bool:
            member.poll(100)
            if place not in member.active_partitions():
                return False
            with member.state(place) as state:
                return state.get(b"seen") == expected

        producer.send(topic, b"a")
        wait_until(lambda: committed(b"a"), "the first commit", timeout_s=TIMEOUT_S)
        writer = member._active._transactions._producer._producer
        # As after the timeout of a request for a producer ID.
        writer._transaction_manager.transition_to_fatal_error(KafkaError("could not be executed"))
        producer.send(topic, b"b")
        wait_until(lambda: committed(b"ab"), "a commit after it", timeout_s=TIMEOUT_S)
        assert member._active._transactions._producer._producer is not writer
