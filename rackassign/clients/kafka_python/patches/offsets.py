"""Patches for the requests that ask for offsets: where partitions begin and end, and what was committed."""

from __future__ import annotations

import time
from typing import Any

from rackassign.clients.kafka_python.internals.attributes import Consumer
from rackassign.clients.kafka_python.patches.base import Patch
from rackassign.text import WarnOnce, with_version

_BACKOFF_S = 0.1
"""kafka-python's retry_backoff_ms, by default."""


def _refresh_on_stale_leader(consumer: Consumer, once: WarnOnce) -> None:
    """Request metadata, and wait a little, when a former leader of a partition is asked for offsets."""
    fetcher = consumer._fetcher
    original = fetcher._send_list_offsets_requests

    async def send_list_offsets_requests(timestamps: Any) -> Any:
        found = await original(timestamps)
        try:
            _, refused = found
            if refused:
                # As kafka-python does after such an error of a fetch. The request is repeated by the caller.
                consumer._cluster.request_update()
                await fetcher._manager._net.sleep(_BACKOFF_S)
        except Exception:  # noqa: BLE001 - then the same broker is asked again, as without us
            once.warn("stale", "%s: patch refresh_on_stale_leader failed", with_version("kafka-python"), exc_info=True)
        return found

    fetcher._send_list_offsets_requests = send_list_offsets_requests


REFRESH_ON_STALE_LEADER = Patch(
    name="refresh_on_stale_leader",
    defect=(
        "After the leader of a partition has changed, end_offsets() and beginning_offsets() ask the former one again"
        " and again without a pause, and raise KafkaTimeoutError, until the metadata is due, by default for five"
        " minutes. A consumer that fetches from the partition learns of the new leader by that; others do not."
    ),
    proof="integration/clients/test_follower_fetching.py::test_offsets_are_asked_of_a_new_leader",
    wraps={"_fetcher._send_list_offsets_requests": ("timestamps",)},
    needs=("_cluster.request_update", "_fetcher._manager._net.sleep"),
    install=_refresh_on_stale_leader,
)


_WAITED_FOR_S = 5.0
"""Seconds after which a caller that has asked for committed offsets does not wait for the answer any more."""


class _CommittedOffsets:
    """Answers to requests for committed offsets, which kafka-python keeps if their caller did not wait for them.

    Args:
        consumer: A `KafkaConsumer` with a group.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._coordinator = coordinator = consumer._coordinator
        self._assigned = coordinator._subscription.assignment
        self._fetch = coordinator.fetch_committed_offsets_async
        self._handle_commit = coordinator._handle_offset_commit_response
        # The states of the partitions when each request was made. A partition gets another state with each assignment
        # that it was not in before.
        self._states: dict[frozenset[Any], list[Any]] = {}
        # When each of them was asked for last.
        self._asked: dict[frozenset[Any], float] = {}

    def install(self) -> None:
        self._coordinator.fetch_committed_offsets_async = self.fetch
        self._coordinator._handle_offset_commit_response = self.handle_commit

    async def fetch(self, partitions: Any, timeout_ms: float | None = None) -> Any:
        key, kept = frozenset(partitions), self._coordinator._offset_fetch_futures
        self._states = {each: states for each, states in self._states.items() if each in kept}
        states = [self._assigned.get(tp) for tp in sorted(key)]
        before = self._states.setdefault(key, states)
        now, self._asked = time.monotonic(), {each: at for each, at in self._asked.items() if each in kept}
        # What others own they commit, which is not seen here. A caller that still waits asks again soon.
        former = None in states and now - self._asked.get(key, now) > _WAITED_FOR_S
        self._asked[key] = now
        if former or any(after is not then for after, then in zip(states, before, strict=True)):
            kept.pop(key, None)
            self._states[key] = states
        return await self._fetch(partitions, timeout_ms=timeout_ms)

    def handle_commit(self, offsets: Any, send_time: float, response: Any) -> Any:
        # Answers from before it. Others are kept: with `poll(timeout_ms=0)`, and a commit after each, those for new
        # partitions would never be taken.
        kept = self._coordinator._offset_fetch_futures
        for key in [key for key in kept if not key.isdisjoint(offsets)]:
            del kept[key]
        return self._handle_commit(offsets, send_time, response)


def _discard_former_committed_offsets(consumer: Consumer, _once: WarnOnce) -> None:
    """Request committed offsets again after an assignment or a commit, whatever was requested before."""
    _CommittedOffsets(consumer).install()


DISCARD_FORMER_COMMITTED_OFFSETS = Patch(
    name="discard_former_committed_offsets",
    defect=(
        "If poll() or committed() ends before committed offsets have arrived, kafka-python keeps them for the next"
        " request for the same partitions, whenever that is. So a consumer that has lost its partitions and gets them"
        " again begins where they were long ago, or at auto.offset.reset: records are processed twice, or never."
    ),
    proof="integration/clients/test_patches.py::test_committed_offsets_are_those_of_now",
    wraps={
        "_coordinator.fetch_committed_offsets_async": ("partitions", "timeout_ms"),
        "_coordinator._handle_offset_commit_response": ("offsets", "send_time", "response"),
    },
    needs=("_coordinator._offset_fetch_futures", "_coordinator._subscription.assignment"),
    install=_discard_former_committed_offsets,
)
