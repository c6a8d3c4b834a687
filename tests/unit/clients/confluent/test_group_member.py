"""End offsets that the member requests for partitions of which some have no leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndTimestamp

from rackassign.clients.confluent.group_member import GroupMember
from rackassign.model import TopicPartition

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
