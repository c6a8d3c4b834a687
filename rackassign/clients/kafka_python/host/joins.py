"""Joins that the host loses, and what it stops while one is under way.

What these remedies may rely on: the coordinator's coroutines run on the host's IO thread, one at a time, and switch
only where they await something unfinished. `poll()` runs on the user's thread and drives them from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.base import MemberState
from kafka.errors import (
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
)

from rackassign.clients.kafka_python.host.remedy import Consumer, Coordinator, Remedy, host_version
from rackassign.clients.once import Once

log = logging.getLogger(__name__)

_REJOIN_ERRORS = (
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
)
"""A join that fails with one of these is simply made again; any other error is the user's to see."""


def _of_coordinator(*names: str) -> tuple[str, ...]:
    return tuple(f"_coordinator.{name}" for name in names)


def _keep_finished_join(consumer: Consumer, _once: Once) -> None:
    """Read the result of a join that finished between two polls."""
    coordinator = consumer._coordinator
    need_rejoin: Callable[[], bool] = coordinator.need_rejoin
    join_group: Callable[..., Coroutine[Any, Any, bool]] = coordinator.join_group_async

    def need_rejoin_or_read() -> bool:
        return coordinator._join_task is not None or need_rejoin()

    async def keep_then_join(timeout_ms: float | None = None) -> bool:
        # The host makes sure of the coordinator just before this call, so its own code runs on from here to its
        # look at the join task without a switch: no join can finish unseen in between.
        task, coordinator._join_task = _finished(coordinator._join_task)
        if task is not None:
            await _take(coordinator, task)
        try:
            return await join_group(timeout_ms=timeout_ms)
        except Exception:
            # The host leaves a task in place that failed with an error not its own. It has been raised now.
            task, coordinator._join_task = _finished(coordinator._join_task)
            if task is not None:
                coordinator.request_rejoin()
            raise

    coordinator.need_rejoin = need_rejoin_or_read
    coordinator.join_group_async = keep_then_join


def _finished(task: Any) -> tuple[Any, Any]:
    """Return (the task, None) if it is finished, (None, the task) if not."""
    return (task, None) if task is not None and task.is_done else (None, task)


async def _take(coordinator: Coordinator, task: Any) -> None:
    """Do with a finished join what the host does with one that finishes inside `poll()`."""
    if task.failed():
        coordinator.request_rejoin()
        if not isinstance(task.exception, _REJOIN_ERRORS):
            raise task.exception
    elif coordinator.rebalance_in_progress():
        with coordinator._lock:
            coordinator.rejoining = False
            coordinator.rejoin_needed = False
            coordinator.state = MemberState.STABLE
            coordinator._enable_heartbeat()
        joined = coordinator._generation
        await coordinator._on_join_complete_async(joined.generation_id, joined.member_id, joined.protocol, task.value)
    else:
        # Since it finished the member has left the group or was put out of it.
        coordinator.request_rejoin()


KEEP_FINISHED_JOIN = Remedy(
    name="keep_finished_join",
    defect=(
        "A join that finishes between two polls is thrown away and made anew; one that a metadata change"
        " started is never read at all, and the consumer is silent for ever. Short polls and long work in"
        " between meet it on every rebalance, others by chance at their start."
    ),
    proof="integration/test_remedies.py::test_join_finished_between_polls_is_kept",
    methods={"_coordinator.need_rejoin": (), "_coordinator.join_group_async": ("timeout_ms",)},
    needs=_of_coordinator(
        *("_join_task", "_lock", "_generation", "state", "rejoining", "rejoin_needed"),
        *("_enable_heartbeat", "_on_join_complete_async", "rebalance_in_progress", "request_rejoin"),
    ),
    install=_keep_finished_join,
)


def _heartbeat_unread_join(consumer: Consumer, once: Once) -> None:
    """Send heartbeats from the end of a join until a `poll()` reads it."""
    coordinator = consumer._coordinator
    original = coordinator._do_join_and_sync_async

    async def join_and_beat() -> bytes:
        assignment: bytes = await original()
        task = coordinator._join_task
        coordinator._manager.call_soon(lambda: _beat(coordinator, task, once))
        return assignment

    coordinator._do_join_and_sync_async = join_and_beat


async def _beat(coordinator: Coordinator, task: Any, once: Once) -> None:
    """Send heartbeats while the join of this task is unread and the user's loop is not overdue."""
    joined = coordinator._generation
    interval = coordinator.config["heartbeat_interval_ms"] / 1000
    try:
        while True:
            await coordinator._manager._net.sleep(interval)
            if (
                coordinator._heartbeat_closed
                # Until it is answered the next join has the state and the generation of this one. A heartbeat behind
                # it would be answered after it, as of an old generation, and the host would forget the new one.
                or coordinator._join_task is not task
                or coordinator._generation is not joined
                or not coordinator.rebalance_in_progress()
                or coordinator.heartbeat.poll_timeout_expired()
            ):
                return
            try:
                await coordinator._send_heartbeat_request()
            except KafkaError as error:
                # What it means for the membership the host has noted already; the next poll acts on it.
                log.debug("heartbeat for an unread join: %s", error)
    except Exception:  # noqa: BLE001 - a failing extra must not take the host's IO thread with it
        once.warn("beat", "%s: remedy heartbeat_unread_join failed", host_version(), exc_info=True)


HEARTBEAT_UNREAD_JOIN = Remedy(
    name="heartbeat_unread_join",
    defect=(
        "From the end of a join to the poll() that reads it no heartbeat is sent, so a member that works"
        " longer than its session timeout at that moment is put out of the group it has just joined."
    ),
    proof="integration/test_remedies.py::test_unread_join_is_kept_alive",
    methods={"_coordinator._do_join_and_sync_async": ()},
    needs=_of_coordinator(
        *("_generation", "_heartbeat_closed", "_join_task", "_manager.call_soon", "_manager._net.sleep"),
        *("_send_heartbeat_request", "config", "heartbeat.poll_timeout_expired", "rebalance_in_progress"),
    ),
    install=_heartbeat_unread_join,
)


def _claim_what_is_held(consumer: Consumer, once: Once) -> None:
    """Have the host's own cooperative assignor claim what the consumer holds, and not what it was given once."""
    coordinator = consumer._coordinator
    original = coordinator.group_protocols

    def group_protocols() -> Any:
        try:
            subscription = coordinator._subscription
            # An eager member has given up everything by now, though its consumer still lists it.
            held = subscription.assigned_partitions() if _is_cooperative(coordinator) else ()
            for assignor in coordinator._assignors.values():
                if isinstance(assignor, CooperativeStickyAssignor) and assignor.member_assignment is not None:
                    assignor.member_assignment = sorted(tp for tp in held if tp.topic in subscription.subscription)
        except Exception:  # noqa: BLE001 - raised from here, every poll() would fail
            once.warn("claims", "%s: remedy claim_what_is_held failed", host_version(), exc_info=True)
        return original()

    coordinator.group_protocols = group_protocols


def _is_cooperative(coordinator: Coordinator) -> bool:
    return bool(coordinator._rebalance_protocol == RebalanceProtocol.COOPERATIVE)


CLAIM_WHAT_IS_HELD = Remedy(
    name="claim_what_is_held",
    defect=(
        "kafka-python's own cooperative assignor goes on claiming partitions that it lost with its membership,"
        " or unsubscribed from. They are withheld from everybody, for a member that has nothing to give up, and"
        " nobody reads them while the group is stable. (Ours claims what is held without this.)"
    ),
    proof="integration/test_cooperative_defects.py::test_a_follower_that_unsubscribes_leaves_nothing_unowned",
    methods={"_coordinator.group_protocols": ()},
    needs=_of_coordinator(
        "_assignors", "_rebalance_protocol", "_subscription.assigned_partitions", "_subscription.subscription"
    ),
    install=_claim_what_is_held,
)


def _fetch_while_joining(consumer: Consumer, _once: Once) -> None:
    """Go on fetching what is held while a cooperative join is under way."""
    coordinator = consumer._coordinator
    poll: Callable[..., bool] = coordinator.poll
    prepare: Callable[..., Coroutine[Any, Any, None]] = coordinator._on_join_prepare_async
    send_commit: Callable[..., Coroutine[Any, Any, Any]] = coordinator._send_offset_commit_request
    generation_if_stable: Callable[[], Any] = coordinator.generation_if_stable
    allowed: list[float | None] = []

    def poll_without_waiting(timeout_ms: float | None = None) -> bool:
        if not _holds_while_joining(coordinator):
            return poll(timeout_ms=timeout_ms)
        if coordinator._join_task is not None:
            with suppress(KafkaTimeoutError):
                coordinator.ensure_active_group(timeout_ms=0)
        elif coordinator._subscription.subscribed_pattern:
            # The host first waits for the metadata, and would never join if it must not wait at all.
            return poll(timeout_ms=timeout_ms)
        else:
            # What comes before a join, the last commit of the old generation, may take as long as the user allows.
            allowed[:] = [timeout_ms]
            try:
                poll(timeout_ms=0)
            finally:
                allowed.clear()
        return True

    async def prepare_in_time(generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        await prepare(generation, member_id, timeout_ms=allowed[0] if allowed else timeout_ms)

    async def commit_after_join(offsets: Any) -> Any:
        # The broker reads nothing more from this connection until it has answered the JoinGroup; a commit of the old
        # generation would then come too late, and the host would give its membership up for it.
        task = coordinator._join_task
        if task is not None and _is_cooperative(coordinator) and coordinator.rebalance_in_progress():
            with suppress(Exception):
                await coordinator._manager.wait_for(task, None)
        return await send_commit(offsets)

    def generation_of_finished_join() -> Any:
        # It is finished and not read: the group is stable in the new generation, and what this member is to give up
        # nobody else gets before it has joined once more.
        task = coordinator._join_task
        if task is not None and task.succeeded() and _is_cooperative(coordinator):
            with coordinator._lock:
                if coordinator.rebalance_in_progress():
                    return coordinator._generation
        return generation_if_stable()

    coordinator.poll = poll_without_waiting
    coordinator._on_join_prepare_async = prepare_in_time
    coordinator._send_offset_commit_request = commit_after_join
    coordinator.generation_if_stable = generation_of_finished_join


def _holds_while_joining(coordinator: Coordinator) -> bool:
    return (
        _is_cooperative(coordinator)
        and not coordinator.coordinator_unknown()
        and coordinator.need_rejoin()
        and bool(coordinator._subscription.assigned_partitions())
    )


FETCH_WHILE_JOINING = Remedy(
    name="fetch_while_joining",
    defect=(
        "poll() returns nothing while a join is under way, so partitions that a cooperative member keeps stop all"
        " the same, for both rounds of a rebalance, as long as the slowest member needs to join."
    ),
    proof="integration/test_flow.py::test_kept_partitions_flow_while_another_member_is_slow_to_join",
    methods={
        "_coordinator.poll": ("timeout_ms",),
        "_coordinator._on_join_prepare_async": ("generation", "member_id", "timeout_ms"),
        "_coordinator._send_offset_commit_request": ("offsets",),
        "_coordinator.generation_if_stable": (),
    },
    needs=_of_coordinator(
        *("_generation", "_join_task", "_lock", "_manager.wait_for", "_rebalance_protocol", "coordinator_unknown"),
        *("ensure_active_group", "need_rejoin", "rebalance_in_progress", "_subscription.assigned_partitions"),
        "_subscription.subscribed_pattern",
    ),
    install=_fetch_while_joining,
    stands_on="keep_finished_join",
)
