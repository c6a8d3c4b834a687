"""Answers to requests for committed offsets, which are kept from one poll to the next."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from rackassign.clients.kafka_python.patches import fetch as offsets
from rackassign.clients.kafka_python.patches.fetch import DISCARD_FORMER_COMMITTED_OFFSETS
from rackassign.text import WarnOnce

OLD, NEW = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """A coordinator whose requests are answered behind the poll that has made them, as with a timeout of 0."""

    def __init__(self) -> None:
        self._subscription = SimpleNamespace(assignment={OLD: object(), NEW: object()})
        self._offset_fetch_futures: dict[frozenset[TopicPartition], int] = {}
        self.requests = 0

    async def fetch_committed_offsets_async(self, partitions: Any, timeout_ms: float | None = None) -> int | None:
        del timeout_ms
        key = frozenset(partitions)
        if key in self._offset_fetch_futures:
            return self._offset_fetch_futures.pop(key)
        self.requests += 1
        self._offset_fetch_futures[key] = self.requests
        return None

    def _handle_offset_commit_response(self, offsets: Any, send_time: float, response: Any) -> None:
        del offsets, send_time, response


def patched() -> Coordinator:
    coordinator = Coordinator()
    DISCARD_FORMER_COMMITTED_OFFSETS.install(
        SimpleNamespace(_coordinator=coordinator), WarnOnce(logging.getLogger("rackassign.test"))
    )
    return coordinator


def fetched(coordinator: Coordinator, *partitions: TopicPartition) -> int | None:
    return asyncio.run(coordinator.fetch_committed_offsets_async(partitions, timeout_ms=0))


def test_commits_of_other_partitions_do_not_keep_a_new_one_from_its_offset() -> None:
    coordinator = patched()
    assert fetched(coordinator, NEW) is None
    coordinator._handle_offset_commit_response({OLD: 5}, 0.0, None)
    assert fetched(coordinator, NEW) == 1


def test_what_was_asked_before_a_commit_or_an_assignment_is_asked_again() -> None:
    coordinator = patched()
    assert fetched(coordinator, OLD, NEW) is None
    coordinator._handle_offset_commit_response({OLD: 5}, 0.0, None)
    assert fetched(coordinator, OLD, NEW) is None
    coordinator._subscription.assignment[NEW] = object()
    assert fetched(coordinator, OLD, NEW) is None
    assert fetched(coordinator, OLD, NEW) == 3


def test_what_others_own_is_asked_again_once_its_caller_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(offsets, "time", SimpleNamespace(monotonic=lambda: now[0]))
    coordinator, theirs = patched(), TopicPartition("t", 9)
    assert fetched(coordinator, theirs) is None
    # A caller that tries again takes the answer to its first request, however long that takes.
    now[0] += 1.0
    assert fetched(coordinator, theirs) == 1
    assert fetched(coordinator, theirs) is None
    now[0] += 3600.0
    assert fetched(coordinator, theirs) is None
    assert coordinator.requests == 3
    assert fetched(coordinator, theirs) == 3
