"""Commits: the changes of many records as one unit.

One partition that fails does not stop the others, and a rebalance does not stop a poll.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaTimeoutError

from rackassign.errors import ConfigError
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.stateful import _active_tasks as active_tasks
from rackassign.stateful._processing import decode_progress
from rackassign.stateful._stores import DEFAULT, PROGRESS
from tests.helpers.examples import examples
from tests.helpers.fakes.kafka import Kafka, Member, Record
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import FIRST, LOG, count, counted, drain, give, member

MINUTE_MS = 60_000


def changelog(kafka: Kafka) -> list[Record]:
    return [each for each in kafka.topics[LOG].logs[0] if not each.marker]


def rushed(one: StatefulConsumer) -> None:
    """Have the interval be over."""
    one._active._committed_at = float("-inf")


def test_all_changes_of_a_key_within_an_interval_are_one_record(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path, max_poll_records=10, commit_interval_ms=MINUTE_MS) as one:
        give(one, 0)
        drain(one)
        one._active._committed_at = time.monotonic()
        kafka.feed(0, 100)
        drain(one)
        assert counted(one) == 100
        assert changelog(kafka) == []
        assert kafka.committed == {}
        rushed(one)
        drain(one)
        assert [change.key for change in changelog(kafka)] == [DEFAULT + b"n", PROGRESS]
        assert changelog(kafka)[0].value == b"100"
        assert kafka.committed == {KafkaPythonPartition("t", 0): 100}


def test_an_interval_that_is_not_over_at_the_end_is_committed(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path / "1", commit_interval_ms=MINUTE_MS) as one:
        give(one, 0)
        drain(one)
        one._active._committed_at = time.monotonic()
        kafka.feed(0, 7)
        drain(one)
        assert kafka.committed == {}
    assert kafka.committed == {KafkaPythonPartition("t", 0): 7}
    seen: list[Any] = []
    with member(tmp_path / "2", process=lambda record, _: seen.append(record)) as heir:
        give(heir, 0)
        drain(heir)
    assert seen == []


def test_what_was_processed_of_a_revoked_partition_is_committed_before_it_is_released(
    kafka: Kafka, tmp_path: Path
) -> None:
    seen: list[int] = []

    def process(record: Record, store: StateStore) -> None:
        seen.append(record.offset)
        count(record, store)

    with (
        member(tmp_path / "1", process=process, commit_interval_ms=MINUTE_MS) as one,
        member(tmp_path / "2", process=process, commit_interval_ms=MINUTE_MS) as other,
    ):
        give(one, 0, 1)
        drain(one)
        one._active._committed_at = time.monotonic()
        kafka.feed(0, 7)
        drain(one)
        give(one, 1)
        one.poll(0)
        give(other, 0)
        drain(other)
        assert (counted(other), seen) == (7, [0, 1, 2, 3, 4, 5, 6])


def test_a_member_that_was_out_of_the_group_writes_nothing_for_what_it_owned(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path, commit_interval_ms=MINUTE_MS) as one:
        give(one, 0)
        drain(one)
        one._active._committed_at = time.monotonic()
        kafka.feed(0, 3)
        drain(one)
        end = kafka.end(KafkaPythonPartition(LOG, 0))
        for generations in (0, 3):
            group = one.consumer
            assert isinstance(group, Member)
            group.give()
            one._assignor._standby_codec.generation += generations
            drain(one)
        assert kafka.end(KafkaPythonPartition(LOG, 0)) == end


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("fails", ["answer", "lost"])
def test_records_whose_first_commit_fails_are_read_again(kafka: Kafka, tmp_path: Path, reset: str, fails: str) -> None:
    with member(tmp_path, auto_offset_reset=reset, max_poll_records=2) as one:
        give(one, 0)
        drain(one)
        group = one.consumer
        assert isinstance(group, Member)
        kafka.feed(0, 5)
        if fails == "answer":
            kafka.refuse[:] = ["answer"]
            drain(one)
        else:
            # The group went on without this member, which is back with the partition at once; nothing was committed.
            one.poll(0)
            one._active.release_all()
            del kafka.topics[LOG].logs[0][:]
            kafka.committed.clear()
            kafka.generation += 1
            give(one, 0)
            drain(one)
        assert counted(one) == 5


def test_a_poll_does_not_wait_for_records_longer_than_a_commit_may_wait(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path, commit_interval_ms=200) as one:
        give(one, 0)
        drain(one)
        one._active._committed_at = time.monotonic()
        assert one._active.wait_ms(5000) == 5000
        kafka.feed(0, 1)
        one.poll(0)
        assert one._active.wait_ms(5000) <= 200
        rushed(one)
        one.poll(0)
        assert one._active.wait_ms(5000) == 5000


def test_a_task_with_many_changes_is_committed_before_the_interval_is_over(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_tasks, "COMMIT_BYTES", 3000)

    def grow(record: Record, store: StateStore) -> None:
        store.put(b"%d" % record.offset, b"v" * 100)

    with member(tmp_path, process=grow, max_poll_records=1, commit_interval_ms=MINUTE_MS) as one:
        give(one, 0)
        drain(one)
        one._active._committed_at = time.monotonic()
        kafka.feed(0, 25)
        drain(one)
        # Each key and its value have 103 bytes, and 200 more in a batch.
        assert kafka.coordinator.committed == 2


def test_an_error_of_process_keeps_the_records_before_it_for_the_next_commit(kafka: Kafka, tmp_path: Path) -> None:
    fail = True

    def process(record: Record, store: StateStore) -> None:
        count(record, store)
        if fail and record.offset == 4:
            raise ZeroDivisionError

    with member(tmp_path, process=process, commit_interval_ms=MINUTE_MS) as one:
        give(one, 0)
        drain(one)
        one._active._committed_at = time.monotonic()
        kafka.feed(0, 6)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                one.poll(0)
            one.poll(0)
        fail = False
        drain(one)
        assert counted(one) == 6
    assert [change.value for change in changelog(kafka) if change.key == DEFAULT + b"n"] == [b"6"]


@pytest.mark.parametrize("given", [-1, 60_001, 1.5, "100", True, None])
def test_an_interval_is_a_number_of_milliseconds(kafka: Kafka, tmp_path: Path, given: Any) -> None:
    with pytest.raises(ConfigError, match="commit_interval_ms must be an integer from 0 to 60000"):
        member(tmp_path, commit_interval_ms=given)
    assert not kafka.open


moves = st.lists(st.sampled_from(["feed", "poll", "poll", "due", "lose", "move", "restart", "fails"]), max_size=30)


@given(moves)
@settings(max_examples=examples(150), deadline=None)
def test_each_record_counts_once_whatever_becomes_of_commits(moves: list[str]) -> None:
    fed = 0
    lose = False

    def before_send(*_: object) -> None:
        nonlocal lose
        if lose:
            lose = False
            raise KafkaTimeoutError("gone")

    with pytest.MonkeyPatch.context() as patch, memory_directory() as folder:
        kafka = Kafka().installed(patch)
        kafka.make("t")
        kafka.before_send = before_send
        members = [member(Path(folder) / f"{n}", commit_interval_ms=MINUTE_MS, max_poll_records=2) for n in range(2)]
        owner = 0
        give(members[owner], 0)
        for move in [*moves, "due"]:
            if move == "feed":
                kafka.feed(0, 5)
                fed += 5
            elif move == "due":
                rushed(members[owner])
            elif move == "lose":
                lose = True
            elif move == "fails":
                kafka.refuse[:] = ["transaction end"]
            elif move == "move":
                # The former owner has what is on its way, and what it has not written.
                owner = 1 - owner
                give(members[1 - owner])
                give(members[owner], 0)
            elif move == "restart":
                members[owner].close()
                members[owner] = member(Path(folder) / f"{owner}", commit_interval_ms=MINUTE_MS, max_poll_records=2)
                give(members[owner], 0)
            for each in members:
                each.poll(0)
        lose = False
        kafka.refuse.clear()
        for _ in range(3):
            rushed(members[owner])
            drain(members[owner])
        assert counted(members[owner]) == fed
        for each in members:
            each.close()
        with member(Path(folder) / "fresh") as fresh:
            give(fresh, 0)
            drain(fresh)
            assert counted(fresh) == fed
            progress = fresh._shelf.open(FIRST).get(PROGRESS)
            assert decode_progress(progress).next == ({"t": fed} if fed else {})


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


def test_where_to_begin_is_asked_again_if_the_coordinator_does_not_respond_soon(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[KafkaPythonPartition] = []
    committed = Member.committed

    def late(group: Member, host: KafkaPythonPartition, timeout_ms: float) -> int | None:
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
