"""Committed offsets of the input: merged while one commit is under way, and complete after `finish`."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaTimeoutError

from rackassign.model import TopicPartition
from rackassign.stateful.tasks.inputs import OffsetCommits

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Answer:
    """A commit that is under way until it gets a result."""

    def __init__(self) -> None:
        self.is_done = False
        self.exception: Exception | None = None

    def failed(self) -> bool:
        return self.exception is not None


class Consumer:
    """A consumer of both partitions, whose asynchronous commits are not answered by themselves."""

    def __init__(self) -> None:
        self.owned = {A, B}
        self.asked: list[tuple[dict[TopicPartition, int], Answer]] = []
        self.committed: list[dict[TopicPartition, int]] = []
        self.refuses: Exception | None = None

    def assignment(self) -> set[KafkaPythonPartition]:
        return {KafkaPythonPartition(*tp) for tp in self.owned}

    def commit_async(self, offsets: dict[Any, Any], callback: Any) -> Answer:  # noqa: ARG002
        answer = Answer()
        self.asked.append((_plain(offsets), answer))
        return answer

    def commit(self, offsets: dict[Any, Any], timeout_ms: int) -> None:
        assert timeout_ms <= 2000
        if self.refuses is not None:
            raise self.refuses
        self.committed.append(_plain(offsets))


def _plain(offsets: dict[Any, Any]) -> dict[TopicPartition, int]:
    return {TopicPartition(*tp): found.offset for tp, found in offsets.items()}


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def test_offsets_of_polls_meanwhile_are_one_commit(consumer: Consumer) -> None:
    commits = OffsetCommits(consumer)
    commits.send({A: 1})
    commits.send({A: 2})
    commits.send({A: 3, B: 7})
    assert [offsets for offsets, _ in consumer.asked] == [{A: 1}]
    consumer.asked[0][1].is_done = True
    commits.send({})
    assert [offsets for offsets, _ in consumer.asked] == [{A: 1}, {A: 3, B: 7}]


def test_what_waits_for_an_answer_is_committed_at_the_end_too(consumer: Consumer) -> None:
    commits = OffsetCommits(consumer)
    commits.send({A: 1, B: 4})
    commits.send({A: 2})
    commits.finish()
    assert consumer.committed == [{A: 2, B: 4}]
    commits.finish()
    assert len(consumer.committed) == 1


def test_offsets_that_are_waited_for_take_one_request(consumer: Consumer) -> None:
    commits = OffsetCommits(consumer)
    commits.finish({A: 1, B: 2})
    assert (consumer.asked, consumer.committed) == ([], [{A: 1, B: 2}])


def test_offsets_that_cannot_be_committed_at_once_are_sent_by_the_next_poll(consumer: Consumer) -> None:
    commits = OffsetCommits(consumer)
    commits.send({A: 1})
    commits.send({B: 2})
    consumer.refuses = KafkaTimeoutError()
    commits.finish()
    commits.send({B: 3})
    assert consumer.asked[-1][0] == {A: 1, B: 3}


def test_offsets_of_a_failed_commit_are_kept_and_those_of_another_owner_are_not(consumer: Consumer) -> None:
    commits = OffsetCommits(consumer)
    commits.send({A: 1, B: 5})
    consumer.asked[0][1].is_done, consumer.asked[0][1].exception = True, KafkaTimeoutError()
    consumer.owned = {B}
    commits.send({B: 6})
    assert consumer.asked[-1][0] == {B: 6}
