"""Patches for fetching from followers (KIP-392), and for fetched records of a partition that is paused and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kafka.structs import TopicPartition as KafkaPythonPartition

from rackassign.clients.kafka_python.internals.attributes import Consumer, Fetcher
from rackassign.clients.kafka_python.patches.base import Patch
from rackassign.text import WarnOnce, with_version

FORSAKEN_S = 5.0
"""Seconds for which an unreachable follower is not used. Its leader keeps naming it until the controller has
fenced it, by default for nine seconds; one attempt in between costs a refused connection."""


def _keep_preferred_read_replica(consumer: Consumer, once: WarnOnce) -> None:
    """Keep a follower that names no other replica: the preferred read replica in its own responses is always none."""
    fetcher = consumer._fetcher
    original = fetcher._handle_fetch_response

    def handle_fetch_response(node_id: int, fetch_offsets: Any, send_time: float, response: Any) -> None:
        try:
            _name_again(node_id, fetcher._subscriptions.assignment, response)
        except Exception:  # noqa: BLE001 - then the leader is asked again, as without us
            once.warn(
                "near", "%s: patch keep_preferred_read_replica failed", with_version("kafka-python"), exc_info=True
            )
        original(node_id, fetch_offsets, send_time, response)

    fetcher._handle_fetch_response = handle_fetch_response


def _name_again(node_id: int, assignment: Any, response: Any) -> None:
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
                forsaken[node_id] = time.monotonic() + FORSAKEN_S
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
    fetcher = consumer._fetcher
    original: Callable[[Any], int | None] = fetcher._select_read_replica

    def select_read_replica(tp: Any) -> int | None:
        chosen = original(tp)
        if chosen is None or chosen == -1 or consumer._cluster.broker_metadata(chosen) is not None:
            return chosen
        return None

    fetcher._select_read_replica = select_read_replica


WAIT_FOR_UNKNOWN_LEADER = Patch(
    name="wait_for_unknown_leader",
    defect=(
        "Metadata may name a leader that is not in its list of brokers. poll() then raises UnknownBrokerIdError, and"
        " the partitions of that broker are never fetched again, not even when it is back."
    ),
    proof="integration/clients/test_follower_fetching.py::test_a_leader_that_is_not_listed_is_waited_for",
    wraps={"_fetcher._select_read_replica": ("tp",)},
    needs=("_cluster.broker_metadata",),
    install=_wait_for_unknown_leader,
    after=("refresh_on_unknown_read_replica",),
)


def _refresh_on_unknown_read_replica(consumer: Consumer, once: WarnOnce) -> None:
    """Request metadata when a leader names a follower that is not known as one (as the Java client does)."""
    fetcher = consumer._fetcher
    original: Callable[[Any], int | None] = fetcher._select_read_replica

    def select_read_replica(tp: Any) -> int | None:
        named = _named(fetcher, tp)
        chosen = original(tp)
        try:
            if named is not None and _named(fetcher, tp) is None:
                consumer._cluster.request_update()
        except Exception:  # noqa: BLE001 - then the leader is asked again until metadata is due, as without us
            once.warn(
                "learn", "%s: patch refresh_on_unknown_read_replica failed", with_version("kafka-python"), exc_info=True
            )
        return chosen

    fetcher._select_read_replica = select_read_replica


def _named(fetcher: Fetcher, tp: Any) -> int | None:
    """Return the follower that a partition's leader has named."""
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
