"""End offsets that the member requests for partitions of which some have no leader.

Topics that are not known yet, or never: when the member joins, and what is said.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndTimestamp

from rackassign.clients.confluent._group_member import GroupMember, PendingTopics
from rackassign.clients.kafka_python.internals.group_member import GroupOnlyMember
from rackassign.model import TopicPartition
from rackassign.racks import BrokerRackCache

ONE, TWO, THREE = (TopicPartition("t", p) for p in range(3))


class Client:
    """kafka-python's own `end_offsets`, with responses of those partitions whose leader is known to the network."""

    def __init__(self, leaders: dict[TopicPartition, int | None], responding: set[TopicPartition]) -> None:
        self._cluster = SimpleNamespace(leader_for_partition=lambda tp: leaders.get(TopicPartition(*tp)))
        self._responding = responding
        self.asked: list[set[TopicPartition]] = []
        self.error: Exception | None = None
        self._fetcher: Any = Fetcher.__new__(Fetcher)
        self._fetcher._net = SimpleNamespace(run=self._run)
        self.end_offsets = self._fetcher.end_offsets

    def _run(self, _request: object, timestamps: Any, _timeout_ms: float) -> dict[Any, OffsetAndTimestamp]:
        self.asked.append({TopicPartition(*tp) for tp in timestamps})
        if self.error is not None:
            raise self.error
        return {tp: OffsetAndTimestamp(7, -1, -1) for tp in timestamps if TopicPartition(*tp) in self._responding}


def member_of(client: Client) -> GroupMember:
    member = GroupMember.__new__(GroupMember)
    member._consumer = client  # type: ignore[assignment] # its part that requests offsets
    return member


def test_partitions_without_a_leader_are_left_out() -> None:
    client = Client({ONE: 1, TWO: -1, THREE: None}, {ONE})
    assert member_of(client).end_offsets([ONE, TWO, THREE], 1.0) == {ONE: 7}
    assert client.asked == [{ONE}]


@pytest.mark.parametrize("error", [None, KafkaTimeoutError("too late")])
def test_an_end_offset_that_is_not_known_in_time_is_no_error(error: Exception | None) -> None:
    # Its leader is gone between the look at the metadata and the request.
    client = Client({ONE: 1, TWO: 2}, {ONE})
    client.error = error
    assert member_of(client).end_offsets([ONE, TWO], 1.0) == {}


class Host:
    """A consumer of kafka-python, as far as its metadata go, and its member."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> None:
        self.now = 0.0
        self.known: set[str] = set()
        self.config = {"client_rack": ""}
        self._cluster = SimpleNamespace(
            _listeners=set(),
            brokers=list,
            unauthorized_topics=set(),
            partitions_for_topic=lambda topic: {0} if topic in self.known else None,
            request_update=self.count_request,
        )
        self.polls = self.requests = 0
        monkeypatch.setattr("rackassign.clients.confluent._group_member.RackAwareConsumer", lambda **_: self)
        monkeypatch.setattr(GroupOnlyMember, "__init__", lambda *_: None)
        monkeypatch.setattr(GroupOnlyMember, "poll", lambda _, timeout_ms: self.join(timeout_ms))
        self.member = GroupMember(arguments, BrokerRackCache())
        self.member._awaited = PendingTopics(self.member._is_known, lambda: self.now)

    def join(self, _timeout_ms: float) -> None:
        self.polls += 1

    def subscribe(self, *_: object, **__: object) -> None:
        """Ask for metadata, which come when they come."""

    def unsubscribe(self) -> None:
        """Ask for nothing."""

    def count_request(self) -> None:
        self.requests += 1

    def refresh(self, now: float, *known: str) -> None:
        self.now = now
        self.known |= set(known)
        for listener in self._cluster._listeners:
            listener(self._cluster)

    def poll(self) -> int | None:
        """Poll once; return the code of what is raised."""
        try:
            self.member.poll(0)
        except KafkaException as error:
            code: int = error.args[0].code()
            return code
        return None


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_nobody_joins_before_its_topics_are_known(host: Host) -> None:
    host.member.subscribe(["t", "u"])
    host.refresh(0.1, "t")
    assert (host.poll(), host.polls) == (None, 0)
    host.refresh(0.2, "u")
    assert (host.poll(), host.polls) == (None, 1)
    # Those of another subscription are others.
    host.member.subscribe(["v"])
    assert (host.poll(), host.polls) == (None, 1)
    host.member.leave()
    host.member.subscribe(["^v"])
    assert (host.poll(), host.polls) == (None, 2)


def test_a_topic_that_does_not_exist_is_told_once_a_subscription(host: Host) -> None:
    for _ in range(2):
        host.polls = 0
        begun = host.now
        host.member.subscribe(["t", "no", "none"])
        host.refresh(begun + 0.9, "t")
        assert (host.poll(), host.polls) == (None, 0)
        host.refresh(begun + 1.1)
        host.refresh(begun + 1.2)
        assert [host.poll() for _ in range(4)] == [KafkaError.UNKNOWN_TOPIC_OR_PART] * 2 + [None] * 2
        assert host.polls == 2


def test_without_new_metadata_nothing_is_said_and_it_joins_some_time(host: Host) -> None:
    host.member.subscribe(["t"])
    host.now = 4.9
    assert (host.poll(), host.polls) == (None, 0)
    host.now = 5.0
    assert (host.poll(), host.polls) == (None, 1)
    host.refresh(6.0)
    host.refresh(6.1)
    assert host.poll() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_response_from_before_the_subscription_proves_nothing_and_more_is_requested(host: Host) -> None:
    host.member.subscribe(["t"])
    assert (host.poll(), host.requests) == (None, 0)
    # It was requested for no topics, and took long.
    host.refresh(1.5)
    assert [host.poll() for _ in range(3)] == [None] * 3
    assert (host.polls, host.requests) == (0, 1)
    host.refresh(1.6, "t")
    assert (host.poll(), host.polls, host.requests) == (None, 1, 1)
    # Each subscription has its own.
    host.member.subscribe(["u"])
    host.refresh(4.0)
    assert [host.poll() for _ in range(2)] == [None] * 2
    assert host.requests == 2
    host.refresh(4.1)
    assert host.poll() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_that_may_not_be_seen_is_told_so(host: Host) -> None:
    host._cluster.unauthorized_topics.add("t")
    host.member.subscribe(["t"])
    host.refresh(1.4)
    host.refresh(1.5)
    assert host.poll() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_topic_that_is_being_created_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, allow_auto_create_topics=True)
    host.member.subscribe(["t"])
    host.refresh(1.4)
    host.refresh(1.5)
    assert (host.poll(), host.polls) == (None, 1)
