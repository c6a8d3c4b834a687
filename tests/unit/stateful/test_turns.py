"""One partition that fails does not stop the others, and a rebalance does not stop a poll."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kafka import TopicPartition as HostPartition
from kafka.errors import KafkaTimeoutError

from rackassign.stateful import StateStore
from tests.helpers.fakes.kafka import Kafka, Member, Record
from tests.helpers.stateful_consumers import count, counted, drain, give, member


@pytest.mark.parametrize("failing", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
def test_a_record_that_cannot_be_processed_does_not_stop_other_partitions(
    kafka: Kafka, tmp_path: Path, failing: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    kafka.make("t", 3)
    broken = True
    tried: list[int] = []

    def process(record: Record, store: StateStore) -> None:
        count(record, store)
        if broken and record.value and record.value[0] in failing and record.offset == 2:
            tried.append(record.value[0])
            raise ZeroDivisionError(f"partition {record.value[0]}")

    for partition in range(3):
        for _ in range(9):
            kafka.append("t", partition, None, bytes([partition]))
    with member(tmp_path, process=process) as one:
        give(one, 0, 1, 2)
        raised: list[str] = []
        notes: list[list[str]] = []
        for _ in range(20):
            try:
                one.poll(0)
            except ZeroDivisionError as error:
                raised.append(str(error))
                notes.append(getattr(error, "__notes__", []))
        assert [counted(one, partition) for partition in range(3)] == [
            2 if partition in failing else 9 for partition in range(3)
        ]
        # Each is tried in turn, and none of the errors is lost.
        assert {raised.count(f"partition {partition}") > 1 for partition in failing} == {True}
        assert max(map(tried.count, failing)) - min(map(tried.count, failing)) <= 1
        assert ("process raised here as well" in caplog.text) is (len(failing) > 1)
        for partition in failing:
            place = f"process raised at t-{partition}, offset 2"
            # Once each, however often it is tried.
            assert caplog.text.count(f"{place}: ZeroDivisionError('partition {partition}'); it is tried again") == 1
            assert [note for note in notes if note == [place]] or sys.version_info < (3, 11)
        broken = False
        drain(one)
        assert [counted(one, partition) for partition in range(3)] == [9, 9, 9]


def test_a_poll_during_a_rebalance_does_not_wait_for_its_commits(kafka: Kafka, tmp_path: Path) -> None:
    first = HostPartition("t", 0)
    with member(tmp_path) as one:
        give(one, 0)
        kafka.feed(0, 1)
        drain(one)
        group = one.consumer
        assert isinstance(group, Member)
        kafka.rebalancing = True
        for _ in range(3):
            kafka.feed(0, 1)
            drain(one)
        assert (counted(one), kafka.committed[first]) == (4, 1)
        # The last offset is committed at the end, in any case.
    assert kafka.committed[first] == 4


def test_commits_that_fail_are_repeated_except_for_partitions_of_other_members(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path) as one:
        give(one, 0, 1)
        drain(one)
        kafka.refuse = ["commit"]
        kafka.feed(0, 1)
        kafka.feed(1, 1)
        one.poll(0)
        assert kafka.committed == {}
        give(one, 0)
        drain(one)
        assert kafka.committed == {HostPartition("t", 0): 1}


def test_where_to_begin_is_asked_again_if_the_coordinator_does_not_respond_soon(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[HostPartition] = []
    committed = Member.committed

    def late(group: Member, host: HostPartition, timeout_ms: float) -> int | None:
        asked.append(host)
        if len(asked) <= 2:
            raise KafkaTimeoutError
        return committed(group, host, timeout_ms)

    monkeypatch.setattr(Member, "committed", late)
    kafka.feed(0, 1)
    kafka.feed(1, 1)
    with member(tmp_path) as one:
        give(one, 0, 1)
        for number in (1, 2):
            one.poll(0)
            # One request that is not answered, whatever the number of partitions.
            assert len(asked) == number
        drain(one)
        assert [counted(one, partition) for partition in (0, 1)] == [1, 1]
    assert "cannot determine" not in caplog.text
