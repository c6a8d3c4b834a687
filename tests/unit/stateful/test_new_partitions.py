"""Partitions that are added to the input: the changelog grows with it, or a message states how to make it grow."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import TopicPartition as KafkaPythonPartition

from rackassign.model import TopicPartition
from tests.helpers.fakes.kafka import Kafka, Member
from tests.helpers.stateful_consumers import FIRST, LOG, counted, drain, give, member

COMMAND = "kafka-topics.sh --bootstrap-server x --alter --topic g-t-changelog --partitions 3"


def grow(kafka: Kafka) -> None:
    kafka.topics["t"].logs.append([])
    kafka.feed(2, 3)


def test_a_changelog_is_extended_while_the_group_runs(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with member(tmp_path / "1") as one, member(tmp_path / "2") as other:
        give(one, 0)
        give(other, 1)
        kafka.feed(0, 1)
        drain(one)
        grow(kafka)
        give(one, 0, 2)
        kafka.feed(0, 1)
        drain(one)
        assert [counted(one, partition) for partition in (0, 2)] == [2, 3]
        assert len(kafka.topics[LOG].logs) == 3
        # The other has not seen the former size change, and finds it as it is.
        other._assignor._copies.kept = frozenset({TopicPartition("t", 2)})
        give(other, 1)
        drain(other)
        assert counted(other, 2) == 3
    assert caplog.text.count("t has 3 partitions now: g-t-changelog, which had 2, was extended") == 1
    assert not kafka.open


def test_without_the_permission_one_message_names_the_command_and_the_others_go_on(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.denied.add("ALTER")
    with member(tmp_path) as one:
        give(one, 0)
        grow(kafka)
        give(one, 0, 2)
        kafka.feed(0, 2)
        drain(one)
        assert one.active_partitions() == {FIRST}
        assert counted(one) == 2
    assert caplog.text.count(COMMAND) == 1
    assert "not allowed: ALTER on topic g-t-changelog" in caplog.text
    # A restart changes nothing.
    with member(tmp_path) as one:
        give(one, 0, 2)
        kafka.feed(0, 1)
        drain(one)
        assert counted(one) == 3
        assert caplog.text.count(COMMAND) == 2
        kafka.topics[LOG].logs.append([])
        drain(one)
        assert counted(one, 2) == 3


def test_a_member_that_starts_after_the_input_has_grown_extends_the_changelog(kafka: Kafka, tmp_path: Path) -> None:
    member(tmp_path).close()
    grow(kafka)
    with member(tmp_path) as one:
        give(one, 2)
        drain(one)
        assert counted(one, 2) == 3


def test_a_cluster_that_does_not_respond_then_is_asked_again(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with member(tmp_path) as one:
        give(one, 0)
        drain(one)
        grow(kafka)
        kafka.refuse = ["describe_topics"]
        give(one, 0, 2)
        drain(one)
        assert counted(one, 2) == 3
    assert "new partitions are not processed yet: changelogs cannot be prepared" in caplog.text


def append(kafka: Kafka, topic: str, partition: int, records: int) -> None:
    for _ in range(records):
        kafka.append(topic, partition, None, b"x", timestamp=1)


@pytest.mark.parametrize(("first", "second"), [("t", "u"), ("u", "t")])
def test_a_co_partitioned_topic_that_is_extended_alone_is_named_until_the_other_one_is_extended_as_well(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, first: str, second: str
) -> None:
    kafka.make("u")
    with member(tmp_path, "t", "u", copartitioned=True) as one:
        assert isinstance(one.consumer, Member)
        give(one, 0)
        append(kafka, "t", 0, 1)
        append(kafka, "u", 0, 2)
        drain(one)
        assert counted(one) == 3
        kafka.topics[first].logs.append([])
        append(kafka, first, 2, 4)
        give(one, 0)
        one.consumer.at[KafkaPythonPartition(first, 2)] = 0
        append(kafka, "t", 0, 1)
        drain(one)
        assert counted(one) == 4
        sizes = {first: 3, second: 2}
        counts = f"t has {sizes['t']}, u has {sizes['u']}"
        assert caplog.text.count("new partitions are not processed yet: co-partitioned topics need") == 1
        assert counts in caplog.text
        assert len(kafka.topics["g-t-u-changelog"].logs) == 2
        kafka.topics[second].logs.append([])
        append(kafka, second, 2, 5)
        give(one, 0, 2)
        drain(one)
        assert (counted(one), counted(one, 2)) == (4, 9)
        assert len(kafka.topics["g-t-u-changelog"].logs) == 3
