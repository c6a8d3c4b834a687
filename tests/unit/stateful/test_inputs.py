"""Co-partitioned topics: partitions of one number have one state, and are processed by one member."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaError

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful import STR, State, StatefulConsumer, Store
from rackassign.stateful._inputs import Inputs, Tasks, in_order
from tests.helpers.stateful_world import Played, Stage
from tests.helpers.tasks import Record

TOPICS = ("payments", "orders")
CHANGELOG = "group-orders-payments-changelog"

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
def stage(stage: Stage) -> Stage:
    for topic in TOPICS:
        stage.remake(topic)
    return stage


def started(stage: Stage, place: str) -> Played:
    return stage.start(place, *TOPICS, process=join, copartitioned=True, stores=[half, joined])


def write(stage: Stage, topic: str, *keys: str, partition: int = 0) -> None:
    for key in keys:
        stage.write(topic, key.encode(), n=partition)


def test_records_of_both_topics_meet_in_one_state(stage: Stage) -> None:
    write(stage, "orders", "1", "2", "3")
    write(stage, "payments", "3", "1")
    one = started(stage, "1")
    stage.run()
    assert one.stateful.active_partitions() == {TopicPartition(topic, p) for topic in TOPICS for p in (0, 1)}
    for topic in TOPICS:
        # A tuple does as well.
        state = one.stateful.store((topic, 0))
        assert dict(state[joined].items()).keys() == {"1", "3"}
        assert state[half].get("2") == "orders"
    committed = stage.committed()
    assert (committed["orders", 0], committed["payments", 0]) == (3, 2)
    assert {name for name in stage.cluster.topics if "changelog" in name} == {CHANGELOG}
    stage.stop(one)
    write(stage, "payments", "2")
    heir = started(stage, "2")
    stage.run()
    assert dict(heir.stateful.store(("payments", 0))[joined].items()).keys() == {"1", "2", "3"}


def test_topics_that_grow_alone_stop_only_their_new_partitions(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    one = started(stage, "1")
    stage.cluster.add_partitions("orders", 3)
    write(stage, "orders", "9", partition=2)
    for topic in TOPICS:
        write(stage, topic, "1")
    stage.run(14.0)
    assert {tp.partition for tp in one.stateful.active_partitions()} == {0, 1}
    assert dict(one.stateful.store(("orders", 0))[joined].items()).keys() == {"1"}
    assert len(stage.cluster.topics[CHANGELOG]) == 2
    assert caplog.text.count("new partitions are not processed yet: co-partitioned topics need equal numbers") == 1
    assert "orders has 3, payments has 2" in caplog.text
    stage.cluster.add_partitions("payments", 3)
    write(stage, "payments", "9", partition=2)
    stage.run(25.0)
    assert dict(one.stateful.store(("payments", 2))[joined].items()).keys() == {"9"}
    assert len(stage.cluster.topics[CHANGELOG]) == 3


def test_a_part_of_a_task_is_not_processed_and_a_warning_states_it_if_that_remains_so(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a member that is configured without the option."""
    write(stage, "orders", "1", "2")
    one = started(stage, "1")
    other = stage.start("2", "orders", changelog=lambda _: "other")
    stage.run(8.0)
    owned = {tp.partition for tp in other.stateful.active_partitions()}
    assert owned
    assert {tp.partition for tp in one.stateful.active_partitions()} == {0, 1} - owned
    assert "copartitioned=True" not in caplog.text
    stage.run(26.0)
    assert caplog.text.count("are not assigned to this member, but other partitions of the same number are") == 1


def test_topics_with_different_numbers_of_partitions_are_refused(stage: Stage) -> None:
    stage.cluster.add_partitions("orders", 3)
    (error,) = started(stage, "1").raised
    assert isinstance(error, ConfigError)
    assert "co-partitioned topics need equal numbers of partitions: orders has 3, payments has 2; copy" in str(error)
    assert CHANGELOG not in stage.cluster.topics


def test_topics_can_be_given_as_a_list(stage: Stage, tmp_path: Path) -> None:
    one = stage.start("1", topics=["orders"], copartitioned=True)
    assert {tp.topic for tp in one.stateful.active_partitions()} == {"orders", "t"}
    with pytest.raises(ConfigError, match="topics and group_id are needed"):
        StatefulConsumer(topics=[], process=join, state_dir=tmp_path, group_id="g")


def test_records_that_were_fetched_together_are_in_the_order_of_their_times() -> None:
    orders = [Record(n, timestamp=at, topic="orders") for n, at in enumerate((1, 5, 4, 9))]
    payments = [Record(n, timestamp=at, topic="payments") for n, at in enumerate((2, 3, 6, 10))]
    # Each topic in its own order.
    assert [record.timestamp for record in in_order([orders, payments])] == [1, 2, 3, 5, 4, 6, 9, 10]
    assert in_order([orders]) == orders


@pytest.mark.parametrize("known", [None, KafkaError("no leader")])
def test_an_input_without_a_known_position_is_not_part_of_a_transaction(known: Any) -> None:
    def position(*_: object, **__: object) -> None:
        if known is not None:
            raise known

    inputs = Inputs(
        *(SimpleNamespace(position=position), Tasks(TOPICS, copartitioned=True)),
        repeated=True,
        once=None,  # type: ignore[arg-type] # nothing is logged
        topic_ids=lambda _: {},
    )
    run: Any = SimpleNamespace(next_offset=lambda topic: 7 * (topic == "orders"))
    assert inputs.next_offset(TopicPartition("orders", 0), run) == 7
    with pytest.raises(KafkaUnavailableError, match=r"payments-0: its position is not known: .*no "):
        inputs.next_offset(TopicPartition("payments", 0), run)
    inputs.received({TopicPartition("payments", 0): [Record(5)]})
    assert inputs.next_offset(TopicPartition("payments", 0), run) == 5
