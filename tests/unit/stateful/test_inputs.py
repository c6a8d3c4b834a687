"""Co-partitioned topics: partitions of one number have one state, and are processed by one member."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaTimeoutError

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.stateful import STR, Output, State, StatefulConsumer, Store, StoreError, _stateful_consumer
from tests.helpers.examples import examples
from tests.helpers.fakes.kafka import Kafka, Member, Record, committed_values
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import count, drain, give, member

TOPICS = ("payments", "orders")
ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
CHANGELOG = "g-orders-payments-changelog"

half = Store("half", STR, STR)
joined = Store("joined", STR, STR)


def join(record: Record, state: State) -> None:
    assert record.key is not None
    key = record.key.decode()
    waiting = state[half].get(key)
    if waiting is None:
        state[half].put(key, record.topic)
    else:
        assert waiting != record.topic
        state[joined].put(key, (state[joined].get(key) or "") + f"{waiting}+{record.topic}")
        state[half].delete(key)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka().installed(monkeypatch)
    for topic in TOPICS:
        made.make(topic)
    return made


def started(folder: Path, **more: object) -> StatefulConsumer:
    return member(folder, *TOPICS, **{"process": join, "copartitioned": True, "stores": [half, joined], **more})


def write(kafka: Kafka, topic: str, key: str, partition: int = 0, at: int = 0) -> None:
    kafka.append(topic, partition, key.encode(), b"", timestamp=at)


def test_records_of_both_topics_meet_in_one_state(kafka: Kafka, tmp_path: Path) -> None:
    for key in ("1", "2", "3"):
        write(kafka, "orders", key)
    for key in ("3", "1"):
        write(kafka, "payments", key)
    with started(tmp_path / "1") as one:
        give(one, 0, 1)
        drain(one)
        assert {tp.partition for tp in one.active_partitions()} == {0, 1}
        assert one.active_partitions() == {TopicPartition(topic, p) for topic in TOPICS for p in (0, 1)}
        assert [key for key, _ in one.store(ORDERS)[joined].items()] == ["1", "3"]
        assert one.store(PAYMENTS)[half].get("2") == "orders"
    assert kafka.committed == {KafkaPythonPartition("orders", 0): 3, KafkaPythonPartition("payments", 0): 2}
    assert {name for name in kafka.topics if "changelog" in name} == {CHANGELOG}
    write(kafka, "payments", "2")
    with started(tmp_path / "2") as heir:
        give(heir, 0)
        drain(heir)
        assert dict(heir.store(PAYMENTS)[joined].items()) == dict.fromkeys("123", "orders+payments")


def test_an_input_without_a_known_position_is_not_part_of_a_transaction(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def process(record: Record, state: State, output: Output) -> None:
        join(record, state)
        output.send(record.key, record.key)

    kafka.make("out")
    write(kafka, "orders", "1")
    with started(tmp_path, process=process, output="out", transactional_id="one") as one:
        give(one, 0)
        with monkeypatch.context() as patch:
            # As kafka-python's after its timeout.
            patch.setattr(Member, "position", lambda *_, **__: None)
            for _ in range(5):
                one.poll(0)
        assert committed_values(kafka, "out") == []
        assert "a transaction failed, its records are processed again: payments-0: its position is not" in caplog.text
        drain(one)
        assert committed_values(kafka, "out") == [b"1"]
    assert kafka.committed == {KafkaPythonPartition("orders", 0): 1, KafkaPythonPartition("payments", 0): 0}


def test_another_topic_has_no_state(kafka: Kafka, tmp_path: Path) -> None:
    with started(tmp_path) as one:
        give(one, 0)
        write(kafka, "orders", "1")
        drain(one)
        # A tuple does as well.
        assert dict(one.store(("orders", 0))[half].items()) == {"1": "orders"}
        with one.state(("payments", 0)) as state:
            assert dict(state[half].items()) == {"1": "orders"}
        for ask in (one.store, one.state):
            with pytest.raises(StoreError, match="typo-0 has no local state"):
                ask(("typo", 0))


def test_records_that_were_fetched_together_are_processed_in_the_order_of_their_times(
    kafka: Kafka, tmp_path: Path
) -> None:
    seen: list[str] = []
    for key, at in (("o1", 1), ("o5", 5), ("o4", 4), ("o9", 9)):
        write(kafka, "orders", key, at=at)
    for key, at in (("p2", 2), ("p3", 3), ("p6", 6), ("p10", 10)):
        write(kafka, "payments", key, at=at)
    with started(tmp_path, process=lambda record, _: seen.append(record.key.decode())) as one:
        give(one, 0)
        drain(one)
    # Each topic in its own order, o4 behind o5.
    assert seen == ["o1", "p2", "p3", "o5", "o4", "p6", "o9", "p10"]


def test_a_part_of_a_unit_is_not_processed_and_a_warning_states_it_if_that_remains_so(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(kafka, "orders", "1")
    write(kafka, "payments", "1")
    with started(tmp_path) as one:
        give(one, 0)
        group = one.consumer
        assert isinstance(group, Member)
        del group.at[KafkaPythonPartition("payments", 0)]
        drain(one)
        assert (one.active_partitions(), kafka.committed) == (frozenset(), {})
        assert group.paused == {KafkaPythonPartition("orders", 0)}
        assert "copartitioned=True" not in caplog.text
        monkeypatch.setattr(_stateful_consumer, "_PARTS_S", -1.0)
        drain(one)
        assert caplog.text.count("payments-0 are not assigned to this member") == 1
        give(one, 0)
        drain(one)
        assert dict(one.store(ORDERS)[joined].items()) == {"1": "orders+payments"}


def test_topics_with_different_numbers_of_partitions_are_refused(kafka: Kafka, tmp_path: Path) -> None:
    kafka.make("orders", 3)
    with pytest.raises(
        ConfigError, match="co-partitioned topics need equal numbers of partitions: orders has 3, payments has 2; copy"
    ):
        started(tmp_path)
    assert CHANGELOG not in kafka.topics
    assert not kafka.open


def test_a_topic_that_grows_alone_stops_only_its_new_partitions(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with started(tmp_path) as one:
        give(one, 0)
        drain(one)
        kafka.topics["orders"].logs.append([])
        write(kafka, "orders", "9", partition=2)
        write(kafka, "orders", "1")
        write(kafka, "payments", "1")
        give(one, 0)
        group = one.consumer
        assert isinstance(group, Member)
        group.at[KafkaPythonPartition("orders", 2)] = 0
        drain(one)
        assert one.active_partitions() == {ORDERS, PAYMENTS}
        assert len(kafka.topics[CHANGELOG].logs) == 2
        kafka.topics["payments"].logs.append([])
        write(kafka, "payments", "9", partition=2)
        give(one, 0, 2)
        drain(one)
        assert dict(one.store(TopicPartition("orders", 2))[joined].items()) == {"9": "orders+payments"}
        assert len(kafka.topics[CHANGELOG].logs) == 3
    problems = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert any("orders has 3, payments has 2" in problem for problem in problems), problems


def test_topics_can_be_given_as_a_list(kafka: Kafka, tmp_path: Path) -> None:
    with StatefulConsumer(
        topics=list(TOPICS),
        copartitioned=True,
        process=count,
        state_dir=tmp_path,
        group_id="g",
        bootstrap_servers="x",
    ) as one:
        assert one._tasks.topics == TOPICS
    assert CHANGELOG in kafka.topics


def test_one_topic_is_no_problem(kafka: Kafka, tmp_path: Path) -> None:
    del kafka
    with StatefulConsumer(
        "orders", copartitioned=True, process=count, state_dir=tmp_path, group_id="g", bootstrap_servers="x"
    ) as one:
        assert one._tasks.topics == ("orders",)


@pytest.mark.parametrize(
    ("topics", "problem"),
    [
        ("orders", "topics must be a list of names"),
        (5, "topics must be a list of names"),
        ([], "topics and group_id are needed"),
        (["orders", 5], "topics must be names"),
        (["orders", "orders"], "each topic can be given once"),
    ],
)
def test_topics_are_checked(tmp_path: Path, topics: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        StatefulConsumer(
            topics=topics,  # type: ignore[arg-type]
            process=count,
            state_dir=tmp_path,
            group_id="g",
            bootstrap_servers="x",
        )


moves = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.sampled_from("abc"), st.integers(0, 5))
    | st.sampled_from(["move", "fails", "lose", "poll", "restart"]),
    max_size=40,
)


def tally(record: Record, state: State) -> None:
    assert record.key is not None
    key = b"%s-%s" % (record.topic.encode(), record.key)
    state.put(key, json.dumps([*json.loads(state.get(key) or b"[]"), record.offset]).encode())


@given(moves)
@settings(max_examples=examples(80), deadline=None)
def test_each_record_of_each_topic_counts_once(moves: list[str | tuple[str, str, int]]) -> None:
    expected: dict[bytes, list[int]] = {}
    lose = False

    def before_send(*_: object) -> None:
        nonlocal lose
        if lose:
            lose = False
            raise KafkaTimeoutError("gone")

    with pytest.MonkeyPatch.context() as patch, memory_directory() as folder:
        kafka = Kafka().installed(patch)
        for topic in TOPICS:
            kafka.make(topic)
        kafka.before_send = before_send
        members = [started(Path(folder) / f"{n}", process=tally, max_poll_records=2) for n in range(2)]
        owner = 0
        give(members[owner], 0)
        for move in moves:
            if isinstance(move, tuple):
                topic, key, at = move
                offset = kafka.append(topic, 0, key.encode(), b"", timestamp=at)
                expected.setdefault(f"{topic}-{key}".encode(), []).append(offset)
            elif move == "move":
                owner = 1 - owner
                give(members[1 - owner])
                give(members[owner], 0)
            elif move == "restart":
                members[owner].close()
                members[owner] = started(Path(folder) / f"{owner}", process=tally, max_poll_records=2)
                give(members[owner], 0)
            elif move == "lose":
                lose = True
            elif move == "fails":
                kafka.refuse[:] = ["answer"]
            for each in members:
                each.poll(0)
        lose = False
        kafka.refuse.clear()
        for _ in range(3):
            drain(members[owner])
        for each in members:
            each.close()
        with started(Path(folder) / "fresh", process=tally) as fresh:
            give(fresh, 0)
            drain(fresh)
            assert {key: json.loads(value) for key, value in fresh.store(ORDERS).items()} == expected
