"""The consumer harness: whose thread does what, whose error is raised where, and when a group has settled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import CommitFailedError, CoordinatorNotAvailableError, KafkaTimeoutError

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.testing import harness as traffic_module
from rackassign.testing.harness import GroupHarness, KafkaPythonMember, Owned, Record, Traffic, settle, wait_until

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Consumer:
    """A consumer of kafka-python that owns both partitions and receives one record in each poll."""

    def __init__(self) -> None:
        self.polls = 0
        self.commits = 0
        self.closed = False
        self.threads: set[str] = set()
        self.poll_error: Exception | None = None
        self.commit_error: Exception | None = None

    def poll(self, timeout_ms: float) -> dict[Any, list[Any]]:
        del timeout_ms
        self.threads.add(threading.current_thread().name)
        if self.poll_error is not None:
            raise self.poll_error
        self.polls += 1
        return {KafkaPythonPartition("t", 0): [SimpleNamespace(offset=self.polls - 1, value=b"v")]}

    def commit(self) -> None:
        self.commits += 1
        if self.commit_error is not None:
            raise self.commit_error

    def assignment(self) -> set[Any]:
        return {KafkaPythonPartition("t", 0), KafkaPythonPartition("t", 1)}

    def group_metadata(self) -> Any:
        return SimpleNamespace(member_id="m")

    def close(self) -> None:
        self.closed = True


def test_a_thread_creates_polls_and_closes() -> None:
    consumer, made_by = Consumer(), []

    def make() -> Any:
        made_by.append(threading.current_thread().name)
        return consumer

    member = KafkaPythonMember(make, pause_s=0.001)
    assert (member.id, member.assignment()) == ("", Owned())
    with member:
        wait_until(lambda: len(member.records) >= 3, "records")
        assert (member.id, member.assignment()) == ("m", frozenset({ONE, TWO}))
    assert consumer.closed
    assert made_by == list(consumer.threads) == ["group member"]
    assert member.records[:3] == [Record(ONE, offset, b"v") for offset in range(3)]
    assert consumer.commits == 0


@pytest.mark.parametrize("error", [None, CommitFailedError()])
def test_what_was_received_is_committed_if_asked(error: Exception | None) -> None:
    consumer = Consumer()
    consumer.commit_error = error
    with KafkaPythonMember(lambda: consumer, commit=True, pause_s=0.001) as member:
        wait_until(lambda: len(member.records) >= 3, "records")
    assert consumer.commits == consumer.polls


def test_an_error_of_the_thread_is_raised_where_the_member_is_used() -> None:
    consumer = Consumer()
    consumer.poll_error = ValueError("broken")
    member = KafkaPythonMember(lambda: consumer)
    with pytest.raises(ValueError, match="broken"), member:
        wait_until(lambda: member.failed, "the error")
    with pytest.raises(ValueError, match="broken"):
        member.poll()
    with pytest.raises(ValueError, match="broken"):
        member.do(lambda _: None)
    assert consumer.closed
    assert isinstance(member.take_error(), ValueError)
    member.poll()


def test_a_task_runs_between_polls_and_its_error_is_its_caller_s() -> None:
    consumer = Consumer()

    def fail(_: object) -> None:
        raise KeyError("no")

    with KafkaPythonMember(lambda: consumer, pause_s=0.001) as member:
        assert member.do(lambda given: (given is consumer, threading.current_thread().name)) == (True, "group member")
        with pytest.raises(KeyError):
            member.do(fail)
        with member.paused():
            before = consumer.polls
            assert not threading.Event().wait(0.05)
            assert consumer.polls == before
        wait_until(lambda: consumer.polls > before, "polls that go on")


def test_a_wait_ends_with_what_was_waited_for() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0\.05 s for a better day"):
        wait_until(lambda: False, "a better day", timeout_s=0.05)


NO_COORDINATOR = "no coordinator"


class Admin:
    """A coordinator whose state changes at each look."""

    def __init__(self, *states: tuple[str, Mapping[str, set[int]]]) -> None:
        self._states = list(states)

    def describe_groups(self, groups: list[str]) -> dict[str, Any]:
        name, members = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if name == NO_COORDINATOR:
            raise CoordinatorNotAvailableError
        described = [
            {"member_id": m, "member_assignment": {"assigned_partitions": [{"topic": "t", "partitions": sorted(ids)}]}}
            for m, ids in members.items()
        ]
        return {groups[0]: {"group_state": name, "members": described}}


class Fixed:
    """A member that owns what it is given."""

    def __init__(self, name: str, *ids: int) -> None:
        self.id = name
        self._owned = frozenset(TopicPartition("t", p) for p in ids)
        self.polls = 0

    def poll(self) -> None:
        self.polls += 1

    def assignment(self) -> Owned:
        return self._owned


def test_a_group_has_settled_when_members_and_coordinator_agree() -> None:
    right = {"a": {0}, "b": {1}}
    admin = Admin(
        # The topic of offsets is being created.
        (NO_COORDINATOR, {}),
        ("PreparingRebalance", right),
        # Each partition has an owner, but not the one that the leader chose.
        ("Stable", {"a": {1}, "b": {0}}),
        # A member that is not among those asked.
        ("Stable", {**right, "c": set()}),
        ("Stable", right),
    )
    members = [Fixed("a", 0), Fixed("b", 1)]
    assert settle(admin, "g", members, {"t": 2}) == [{ONE}, {TWO}]
    assert [member.polls for member in members] == [5, 5]


@pytest.mark.parametrize(
    "members", [[Fixed("a", 0)], [Fixed("a", 0), Fixed("b", 0, 1)]], ids=["unowned", "owned twice"]
)
def test_a_group_that_does_not_settle_is_described(members: list[Fixed]) -> None:
    with pytest.raises(TimeoutError, match=r"for group g to settle; members own .*partition=0.*the coordinator has \{"):
        settle(Admin(("Stable", {"a": {0}})), "g", members, {"t": 2}, timeout_s=0.1)


class Producer:
    """A producer of two partitions; its n-th record fails."""

    failing_at: int | None = None
    sent: list[tuple[int, bytes]]

    def __init__(self, **_: Any) -> None:
        self._count = 0

    def partitions_for(self, topic: str) -> set[int]:
        assert topic == "t"
        return {0, 1}

    def send(self, _topic: str, value: bytes, partition: int) -> Any:
        self._count += 1
        failed = self._count == type(self).failing_at
        if failed:
            type(self).failing_at = None
        else:
            type(self).sent.append((partition, value))
        offset = sum(each == partition for each, _ in type(self).sent) - 1

        def succeed(callback: Callable[[Any], None]) -> None:
            if not failed:
                callback(SimpleNamespace(offset=offset))

        def fail(callback: Callable[[BaseException], None]) -> None:
            if failed:
                callback(KafkaTimeoutError("late"))

        return SimpleNamespace(add_callback=succeed, add_errback=fail)

    def flush(self, timeout: float) -> None:
        del timeout

    def close(self) -> None:
        pass


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> type[Producer]:
    kind = type("Fresh", (Producer,), {"sent": []})
    monkeypatch.setattr(traffic_module, "KafkaProducer", kind)
    return kind


def test_traffic_numbers_the_records_of_each_partition(producer: type[Producer]) -> None:
    noted: list[tuple[TopicPartition, int, int]] = []
    with Traffic({}, ["t"], rate=1000, most_records=10, on_acknowledged=lambda *each: noted.append(each)) as traffic:
        wait_until(lambda: len(traffic.written()) == 10, "all records")
    assert producer.sent == [(p, b"%d" % number) for number in range(5) for p in (0, 1)]
    assert traffic.written() == {(tp, offset) for tp in (ONE, TWO) for offset in range(5)}
    assert noted == [(TopicPartition("t", p), number, number) for number in range(5) for p in (0, 1)]


def test_a_record_that_is_not_written_fails_the_test_unless_it_may(producer: type[Producer]) -> None:
    producer.failing_at = 3
    with pytest.raises(KafkaTimeoutError), Traffic({}, ["t"], rate=1000, most_records=10) as traffic:
        traffic.wait_for_more(per_partition=100)
    producer.failing_at = 3
    with Traffic({}, ["t"], rate=1000, most_records=10, tolerant=True) as traffic:
        wait_until(lambda: len(traffic.written()) == 9, "all records but one")


def test_more_records_are_waited_for_of_each_partition_however_late_the_producer_starts(
    producer: type[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Event()

    def slow(**_: object) -> Any:
        assert waiting.wait(60)
        return producer()

    def look(condition: Callable[[], bool], what: str) -> None:
        waiting.set()
        wait_until(condition, what)

    monkeypatch.setattr(traffic_module, "KafkaProducer", slow)
    monkeypatch.setattr(traffic_module, "wait_until", look)
    with Traffic({}, ["t"], rate=20) as traffic:
        traffic.wait_for_more(per_partition=5)
    assert len(traffic.written()) >= 10


def test_two_members_of_one_name_are_refused() -> None:
    harness: GroupHarness[Any] = GroupHarness({}, "g", {"t": 1})
    harness.add("a", nullcontext())
    with pytest.raises(ConfigError, match="there is a member 'a' already"):
        harness.add("a", nullcontext())
    harness.end("a")
    harness.add("a", nullcontext())
