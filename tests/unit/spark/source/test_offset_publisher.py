"""Offsets for lag monitors: the newest arrive, and whatever happens to them, a query does not notice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

import pytest

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.spark.options import Options
from rackassign.spark.source import offset_publisher
from rackassign.spark.source.offset_publisher import OffsetPublisher
from rackassign.testing.harness import wait_until

P0 = TopicPartition("t", 0)
GUARD_S = 120.0


class Group:
    """A group to which offsets are committed, one request after the other, when the test lets it."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.asked = threading.Semaphore(0)
        self.may = threading.Semaphore(0)
        self.problem: Exception | None = None

    def send(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.asked.release()
        assert self.may.acquire(timeout=GUARD_S)
        if self.problem is not None:
            raise self.problem
        self.sent.append(offsets[P0])


def test_slow_brokers_get_the_newest_offsets_only_and_hold_up_nothing() -> None:
    group = Group()
    publisher = OffsetPublisher("g", group.send)
    publisher.publish({P0: 1})
    assert group.asked.acquire(timeout=GUARD_S)
    for offset in (2, 3, 4):
        publisher.publish({P0: offset})
    group.may.release(2)
    publisher.close(GUARD_S)
    assert group.sent == [1, 4]
    publisher.publish({P0: 5})
    assert group.sent == [1, 4]


def test_brokers_that_do_not_respond_do_not_keep_a_query_from_ending() -> None:
    group = Group()
    publisher = OffsetPublisher("g", group.send)
    publisher.publish({P0: 1})
    assert group.asked.acquire(timeout=GUARD_S)
    publisher.close(0.01)
    group.may.release()


def test_each_problem_is_a_warning_once_in_a_row(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    publisher = OffsetPublisher("g", group.send)
    steps = [
        KafkaUnavailableError("down"),
        KafkaUnavailableError("down"),
        None,
        KafkaUnavailableError("down"),
        OSError(5),
    ]
    with caplog.at_level(logging.WARNING):
        for number, problem in enumerate(steps):
            publisher.publish({P0: number})
            assert group.asked.acquire(timeout=GUARD_S)
            group.problem = problem
            group.may.release()
            # The next one is sent when this one has ended.
        publisher.close(GUARD_S)
    assert group.sent == [2]
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["down", "down", "5"]
    assert caplog.messages[0] == "commitGroup: offsets of group g are not committed: down"


def test_offsets_that_were_not_committed_are_sent_again_although_there_are_no_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offset_publisher, "_RETRY_S", 0.0)
    group = Group()
    group.problem = KafkaUnavailableError("down")
    group.may.release(100)
    publisher = OffsetPublisher("g", group.send)
    publisher.publish({P0: 1})
    assert group.asked.acquire(timeout=GUARD_S)
    wait_until(lambda: publisher._retry_at is not None, "the failure", timeout_s=GUARD_S)
    # But not at once: an idle stream publishes its offsets many times a second.
    monkeypatch.setattr(publisher, "_retry_at", time.monotonic() + 3600)
    publisher.publish({P0: 1})
    group.problem = None
    monkeypatch.setattr(publisher, "_retry_at", time.monotonic())
    for _ in range(3):
        publisher.publish({P0: 1})
    publisher.close(GUARD_S)
    assert group.sent == [1]
    # Of the four calls after the failure only the second one has sent them.
    assert group.asked.acquire(blocking=False)
    assert not group.asked.acquire(blocking=False)


def test_closing_without_offsets_ends_at_once() -> None:
    OffsetPublisher("g", Group().send).close(GUARD_S)


def test_the_option_is_for_streams() -> None:
    options = {"kafka.bootstrap.servers": "k:1", "subscribe": "t", "commitGroup": "lag"}
    assert Options.of(options, "stream").commit_group == "lag"
    with pytest.raises(ConfigError, match="commitGroup: only for streams"):
        Options.of(options, "batch")
    with pytest.raises(ConfigError, match="commitGroup: expected a value"):
        Options.of({**options, "commitGroup": " "}, "stream")
