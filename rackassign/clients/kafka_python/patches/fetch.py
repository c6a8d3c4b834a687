"""Patches for fetches: followers (KIP-392), pauses, requests for offsets, and signals in the middle of `poll()`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from weakref import proxy

from kafka.structs import TopicPartition as KafkaPythonPartition

from rackassign.clients.kafka_python.internals.attributes import Consumer, Fetcher
from rackassign.clients.kafka_python.patches.patch import Patch
from rackassign.text import WarnOnce, with_version

UNREACHABLE_S = 5.0
"""Seconds for which an unreachable follower is not used. Its leader keeps naming it until the controller has
fenced it, by default for nine seconds; one attempt in between costs a refused connection."""


def _keep_preferred_read_replica(consumer: Consumer, once: WarnOnce) -> None:
    """Keep a follower that names no other replica: the preferred read replica in its own responses is always none."""
    fetcher = consumer._fetcher
    original = fetcher._handle_fetch_response

    def handle_fetch_response(node_id: int, fetch_offsets: Any, send_time: float, response: Any) -> None:
        try:
            _restore_preferred_replica(node_id, fetcher._subscriptions.assignment, response)
        except Exception:  # noqa: BLE001 - then the leader is asked again, as without us
            once.warn(
                "near", "%s: patch keep_preferred_read_replica failed", with_version("kafka-python"), exc_info=True
            )
        original(node_id, fetch_offsets, send_time, response)

    fetcher._handle_fetch_response = handle_fetch_response


def _restore_preferred_replica(node_id: int, assignment: Any, response: Any) -> None:
    """Write the follower's own ID into its responses; kafka-python then changes nothing, not even when it expires."""
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.error_code or partition.preferred_read_replica >= 0:
                continue
            state = assignment.get(KafkaPythonPartition(topic.topic, partition.partition_index))
            if state is not None and state.preferred_read_replica() == node_id:
                partition.preferred_read_replica = node_id


KEEP_PREFERRED_READ_REPLICA = Patch(
    name="keep_preferred_read_replica",
    defect=(
        "A follower's normal response makes kafka-python forget that it was sent there, so every second fetch goes to"
        " the leader in another rack, which returns only the follower's ID: twice the requests, half the speed."
    ),
    proof="integration/clients/test_follower_fetching.py::test_a_follower_is_not_left_after_each_answer",
    wraps={"_fetcher._handle_fetch_response": ("node_id", "fetch_offsets", "send_time", "response")},
    needs=("_fetcher._subscriptions.assignment",),
    install=_keep_preferred_read_replica,
)


def _reset_unreachable_read_replica(consumer: Consumer, once: WarnOnce) -> None:
    """Read from the leader as soon as a follower cannot be reached."""
    fetcher = consumer._fetcher
    handle_error: Callable[..., None] = fetcher._handle_fetch_error
    create_requests: Callable[[], dict[int, Any]] = fetcher._create_fetch_requests
    forsaken: dict[int, float] = {}

    def handle_fetch_error(node_id: int, exception: Exception) -> None:
        try:
            if _forget(node_id, fetcher._subscriptions.assignment):
                forsaken[node_id] = time.monotonic() + UNREACHABLE_S
        except Exception:  # noqa: BLE001 - the error itself must still be handled
            once.warn(
                "dead", "%s: patch reset_unreachable_read_replica failed", with_version("kafka-python"), exc_info=True
            )
        handle_error(node_id, exception)

    def create_fetch_requests() -> dict[int, Any]:
        requests = create_requests()
        for node_id, until in list(forsaken.items()):
            if until <= time.monotonic():
                del forsaken[node_id]
        if forsaken:
            for request, _ in requests.values():
                # Without a rack in the request a leader returns records, and does not name the dead follower. To a
                # follower it makes no difference.
                request.rack_id = ""
        return requests

    fetcher._handle_fetch_error = handle_fetch_error
    fetcher._create_fetch_requests = create_fetch_requests


def _forget(node_id: int, assignment: Any) -> bool:
    """Forget that partitions are read from this follower; return whether there were any."""
    states = [state for state in list(assignment.values()) if state.preferred_read_replica() == node_id]
    for state in states:
        state.clear_preferred_read_replica()
    return bool(states)


RESET_UNREACHABLE_READ_REPLICA = Patch(
    name="reset_unreachable_read_replica",
    defect=(
        "When the follower that is read from dies, kafka-python keeps trying to reach it, and nothing is read, until"
        " the controller has fenced it and the metadata shows it: by default nine seconds and more."
    ),
    proof="integration/clients/test_follower_fetching.py::test_a_dead_follower_is_left_at_once",
    wraps={"_fetcher._handle_fetch_error": ("node_id", "exception"), "_fetcher._create_fetch_requests": ()},
    needs=("_fetcher._subscriptions.assignment",),
    install=_reset_unreachable_read_replica,
)


def _wait_for_unknown_leader(consumer: Consumer, _once: WarnOnce) -> None:
    """Treat a leader that is no listed broker as no leader: wait for newer metadata."""
    fetcher, cluster = consumer._fetcher, consumer._cluster
    original: Callable[[Any], int | None] = fetcher._select_read_replica
    send: Callable[[int, Any], Awaitable[Any]] = fetcher._send_list_offsets_request

    def select_read_replica(tp: Any) -> int | None:
        chosen = original(tp)
        if chosen is None or chosen == -1 or cluster.broker_metadata(chosen) is not None:
            return chosen
        return None

    async def send_list_offsets_request(node_id: int, timestamps_and_epochs: Any) -> Any:
        if cluster.broker_metadata(node_id) is None:
            # No offsets, and all partitions to be retried, with newer metadata.
            return {}, set(timestamps_and_epochs)
        return await send(node_id, timestamps_and_epochs)

    fetcher._select_read_replica = select_read_replica
    fetcher._send_list_offsets_request = send_list_offsets_request


WAIT_FOR_UNKNOWN_LEADER = Patch(
    name="wait_for_unknown_leader",
    defect=(
        "Metadata may name a leader that is not in its list of brokers. poll() then raises UnknownBrokerIdError, and"
        " the partitions of that broker are never fetched again, not even when it is back; so it does if it needs the"
        " begin or the end of such a partition."
    ),
    proof="integration/clients/test_follower_fetching.py::test_a_leader_that_is_not_listed_is_waited_for",
    wraps={
        "_fetcher._select_read_replica": ("tp",),
        "_fetcher._send_list_offsets_request": ("node_id", "timestamps_and_epochs"),
    },
    needs=("_cluster.broker_metadata",),
    install=_wait_for_unknown_leader,
    after=("refresh_on_unknown_read_replica",),
)


def _refresh_on_unknown_read_replica(consumer: Consumer, once: WarnOnce) -> None:
    """Request metadata when a leader names a follower that is not known as one (as the Java client does)."""
    fetcher, cluster = consumer._fetcher, consumer._cluster
    original: Callable[[Any], int | None] = fetcher._select_read_replica

    def select_read_replica(tp: Any) -> int | None:
        named = _named(fetcher, tp)
        chosen = original(tp)
        try:
            if named is not None and _named(fetcher, tp) is None:
                cluster.request_update()
        except Exception:  # noqa: BLE001 - then the leader is asked again until metadata is due, as without us
            once.warn(
                "learn", "%s: patch refresh_on_unknown_read_replica failed", with_version("kafka-python"), exc_info=True
            )
        return chosen

    fetcher._select_read_replica = select_read_replica


def _named(fetcher: Fetcher, tp: Any) -> int | None:
    state = fetcher._subscriptions.assignment.get(tp)
    named: int | None = None if state is None else state.preferred_read_replica()
    return named


REFRESH_ON_UNKNOWN_READ_REPLICA = Patch(
    name="refresh_on_unknown_read_replica",
    defect=(
        "When the metadata is from a time at which a follower was down or no replica yet, kafka-python does not use the"
        " follower that the leader names and fetches from the leader again, which names it again: nothing is read until"
        " the metadata is due, by default for five minutes."
    ),
    proof="integration/clients/test_follower_fetching.py::test_a_follower_that_is_back_is_read_from",
    wraps={"_fetcher._select_read_replica": ("tp",)},
    needs=("_fetcher._subscriptions.assignment", "_cluster.request_update"),
    install=_refresh_on_unknown_read_replica,
)


def _resume_paused_fetches(consumer: Consumer, once: WarnOnce) -> None:
    """Report the current batch of records as used up: only then does kafka-python return to parked records."""
    fetcher = consumer._fetcher
    original = fetcher.fetched_records

    def fetched_records(max_records: int | None = None, update_offsets: bool = True) -> Any:  # noqa: FBT001, FBT002 - as in kafka-python
        try:
            if not fetcher._next_partition_records:
                fetcher._next_partition_records = None
        except Exception:  # noqa: BLE001 - then what was parked stays so, as without us
            once.warn("parked", "%s: patch resume_paused_fetches failed", with_version("kafka-python"), exc_info=True)
        return original(max_records, update_offsets)

    fetcher.fetched_records = fetched_records


RESUME_PAUSED_FETCHES = Patch(
    name="resume_paused_fetches",
    defect=(
        "A partition that is paused while some of its fetched records are not returned yet, and resumed, is never read"
        " again: the remaining records are parked, and nothing is fetched of a partition with parked records."
    ),
    proof="integration/clients/test_follower_fetching.py::test_a_partition_that_was_paused_in_the_middle_is_read_on",
    wraps={"_fetcher.fetched_records": ("max_records", "update_offsets")},
    needs=("_fetcher._next_partition_records", "_fetcher._paused_partition_records"),
    install=_resume_paused_fetches,
)


_BACKOFF_S = 0.1
"""kafka-python's retry_backoff_ms, by default."""


def _refresh_on_stale_leader(consumer: Consumer, once: WarnOnce) -> None:
    """Request metadata, and wait a little, when a former leader of a partition is asked for offsets."""
    fetcher, cluster = consumer._fetcher, consumer._cluster
    original = fetcher._send_list_offsets_requests

    async def send_list_offsets_requests(timestamps: Any) -> Any:
        found = await original(timestamps)
        try:
            _, refused = found
            if refused:
                # As kafka-python does after such an error of a fetch. The request is repeated by the caller.
                cluster.request_update()
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
    """Answers to requests for committed offsets, which kafka-python keeps if their caller did not wait for them."""

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
        key, pending = frozenset(partitions), self._coordinator._offset_fetch_futures
        self._states = {each: states for each, states in self._states.items() if each in pending}
        states = [self._assigned.get(tp) for tp in sorted(key)]
        before = self._states.setdefault(key, states)
        now, self._asked = time.monotonic(), {each: at for each, at in self._asked.items() if each in pending}
        # What others own they commit, which is not seen here. A caller that still waits asks again soon.
        former = None in states and now - self._asked.get(key, now) > _WAITED_FOR_S
        self._asked[key] = now
        if former or any(after is not then for after, then in zip(states, before, strict=True)):
            pending.pop(key, None)
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


class _TakenRecords:
    """The positions before records were taken from the buffer, until they are returned.

    kafka-python 3.0.12 advances the position of a partition as it takes its records, before it takes those of the next
    partition and sends the next fetches. All of that is in the thread of the caller.
    """

    def __init__(self, consumer: Consumer, once: WarnOnce) -> None:
        self._fetcher = consumer._fetcher
        self._assigned = self._fetcher._subscriptions.assignment
        # The fetcher refers to this, and must not keep a consumer that nothing else refers to.
        self._poll_once = partial(type(consumer)._poll_once, proxy(consumer))
        self._append = self._fetcher._append
        self._once = once
        # By partition: its state, which is another one after another assignment, and its position.
        self._before: dict[Any, tuple[Any, Any]] = {}

    def append(self, drained: Any, part: Any, max_records: int, update_offsets: bool) -> Any:  # noqa: FBT001 - as in kafka-python
        if part and update_offsets:
            state = self._assigned.get(part.topic_partition)
            if state is not None:
                self._before.setdefault(part.topic_partition, (state, state.position))
        return self._append(drained, part, max_records, update_offsets)

    def poll_once(self, timer: Any, max_records: int, update_offsets: bool = True) -> Any:  # noqa: FBT001, FBT002 - the same
        self._before.clear()
        try:
            return self._poll_once(timer, max_records, update_offsets=update_offsets)
        except BaseException as error:
            if self._before:
                self._restore(interrupted=not isinstance(error, Exception))
            raise

    def _restore(self, *, interrupted: bool) -> None:
        try:
            for tp, (state, position) in self._before.items():
                if self._assigned.get(tp) is state:
                    state.position = position
            part = self._fetcher._next_partition_records
            if interrupted and part:
                # Its iterator has ended, with the records it was about to return, and kafka-python would take none of
                # it in an endless loop. They are fetched again.
                part.drain()
        except Exception:  # noqa: BLE001 - the exception on its way is the one to report
            self._once.warn(
                "interrupt", "%s: patch keep_interrupted_records failed", with_version("kafka-python"), exc_info=True
            )


def _keep_interrupted_records(consumer: Consumer, once: WarnOnce) -> None:
    """Read records again that an exception has kept from being returned."""
    taken = _TakenRecords(consumer, once)
    consumer._fetcher._append = taken.append
    consumer._poll_once = taken.poll_once


KEEP_INTERRUPTED_RECORDS = Patch(
    name="keep_interrupted_records",
    defect=(
        "If the handler of a signal raises while poll() takes fetched records (KeyboardInterrupt, or SystemExit after"
        " SIGTERM), up to max_poll_records records are lost: their positions are advanced already, and close() commits"
        " them. If the consumer is polled again instead, poll() can stay in an endless loop."
    ),
    proof="integration/clients/test_interrupted_polls.py::test_what_an_interrupted_poll_has_taken_is_read_again",
    wraps={
        "_poll_once": ("timer", "max_records", "update_offsets"),
        "_fetcher._append": ("drained", "part", "max_records", "update_offsets"),
    },
    needs=("_fetcher._subscriptions.assignment", "_fetcher._next_partition_records"),
    install=_keep_interrupted_records,
)
