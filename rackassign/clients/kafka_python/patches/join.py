"""Patches for joins: join results that kafka-python loses, work that it stops meanwhile, and malformed metadata.

These patches rely on one thing: the coordinator's coroutines run on the client's IO thread, one at a time, and switch
only where they await something unfinished. `poll()` runs on the user's thread and drives them from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.base import MemberState
from kafka.errors import (
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
)

from rackassign.assignor.subscriptions import decode_join
from rackassign.clients.kafka_python.internals.attributes import (
    Consumer,
    Coordinator,
    coordinator_paths,
    is_cooperative,
)
from rackassign.clients.kafka_python.patches.base import Patch
from rackassign.text import WarnOnce, with_version

log = logging.getLogger(__name__)

_REJOIN_ERRORS = (
    IllegalGenerationError,
    # Error of a leader's join if its consumer unsubscribes meanwhile: the result is not needed any more.
    IllegalStateError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
)
"""A join that fails with one of these is repeated; any other error is raised to the application."""


def _keep_completed_join(consumer: Consumer, _once: WarnOnce) -> None:
    """Read the result of a join that finished between two polls."""
    coordinator = consumer._coordinator
    need_rejoin: Callable[[], bool] = coordinator.need_rejoin
    join_group: Callable[..., Coroutine[Any, Any, bool]] = coordinator.join_group_async

    def need_rejoin_or_read() -> bool:
        return coordinator._join_task is not None or need_rejoin()

    async def keep_then_join(timeout_ms: float | None = None) -> bool:
        # kafka-python ensures the coordinator just before this call, so its own code runs from here to its check of
        # the join task without a switch: no join can finish unnoticed in between.
        task, coordinator._join_task = _finished(coordinator._join_task)
        if task is not None:
            await _take(coordinator, task)
            if task.succeeded() and coordinator.stable():
                # As kafka-python does: new partitions get their positions before the next round, if there is one.
                return True
        try:
            return await join_group(timeout_ms=timeout_ms)
        except Exception as error:
            # kafka-python keeps a task that failed with an error of another library. It has been raised now.
            task, coordinator._join_task = _finished(coordinator._join_task)
            if task is not None:
                coordinator.request_rejoin()
                if isinstance(error, IllegalStateError):
                    return False
            raise

    coordinator.need_rejoin = need_rejoin_or_read
    coordinator.join_group_async = keep_then_join


def _finished(task: Any) -> tuple[Any, Any]:
    """Return (the task, None) if it is finished, (None, the task) if not."""
    return (task, None) if task is not None and task.is_done else (None, task)


async def _take(coordinator: Coordinator, task: Any) -> None:
    """Handle a finished join as kafka-python does with one that finishes inside `poll()`."""
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
        # After it finished the member has left the group or was removed.
        coordinator.request_rejoin()


KEEP_COMPLETED_JOIN = Patch(
    name="keep_completed_join",
    defect=(
        "A join that finishes between two polls is discarded and repeated; one that a metadata change"
        " started is never read at all, and the consumer stops forever. Short polls with long work in"
        " between are affected by every rebalance, others by chance at their start."
    ),
    proof="integration/clients/test_patches.py::test_join_finished_between_polls_is_kept",
    wraps={"_coordinator.need_rejoin": (), "_coordinator.join_group_async": ("timeout_ms",)},
    needs=coordinator_paths(
        *("_join_task", "_lock", "_generation", "state", "rejoining", "rejoin_needed"),
        *("_enable_heartbeat", "_on_join_complete_async", "rebalance_in_progress", "request_rejoin", "stable"),
    ),
    install=_keep_completed_join,
)


def _heartbeat_until_join_read(consumer: Consumer, once: WarnOnce) -> None:
    """Send heartbeats from the end of a join until a `poll()` reads it."""
    coordinator = consumer._coordinator
    original = coordinator._do_join_and_sync_async

    async def join_and_beat() -> bytes:
        assignment: bytes = await original()
        task = coordinator._join_task
        coordinator._manager.call_soon(lambda: _beat(coordinator, task, once))
        return assignment

    coordinator._do_join_and_sync_async = join_and_beat


async def _beat(coordinator: Coordinator, task: Any, once: WarnOnce) -> None:
    """Send heartbeats while the join of this task is unread and the user's loop is not overdue."""
    joined = coordinator._generation
    interval = coordinator.config["heartbeat_interval_ms"] / 1000
    try:
        while True:
            await coordinator._manager._net.sleep(interval)
            if (
                coordinator._heartbeat_closed
                # Until it is answered the next join has the state and the generation of this one. A heartbeat behind
                # it would be answered after it, as of an old generation, and kafka-python would forget the new one.
                or coordinator._join_task is not task
                or coordinator._generation is not joined
                or not coordinator.rebalance_in_progress()
                or coordinator.heartbeat.poll_timeout_expired()
            ):
                return
            try:
                await coordinator._send_heartbeat_request()
            except KafkaError as error:
                # kafka-python has recorded the effect on the membership already; the next poll acts on it.
                log.debug("heartbeat for an unread join: %s", error)
    except Exception:  # noqa: BLE001 - a failing extra must not end kafka-python's IO thread
        once.warn("beat", "%s: patch heartbeat_until_join_read failed", with_version("kafka-python"), exc_info=True)


HEARTBEAT_UNTIL_JOIN_READ = Patch(
    name="heartbeat_until_join_read",
    defect=(
        "From the end of a join to the poll() that reads it no heartbeat is sent, so a member that works"
        " longer than its session timeout at that moment is removed from the group it has just joined."
    ),
    proof="integration/clients/test_patches.py::test_unread_join_is_kept_alive",
    wraps={"_coordinator._do_join_and_sync_async": ()},
    needs=coordinator_paths(
        *("_generation", "_heartbeat_closed", "_join_task", "_manager.call_soon", "_manager._net.sleep"),
        *("_send_heartbeat_request", "config", "heartbeat.poll_timeout_expired", "rebalance_in_progress"),
    ),
    install=_heartbeat_until_join_read,
)


def _claim_current_assignment(consumer: Consumer, once: WarnOnce) -> None:
    """Make kafka-python's own cooperative assignor claim the owned partitions, and not its last assignment."""
    coordinator = consumer._coordinator
    original = coordinator.group_protocols

    def group_protocols() -> Any:
        try:
            subscription = coordinator._subscription
            # An eager member has revoked everything by now, though its consumer still lists it.
            held = subscription.assigned_partitions() if is_cooperative(coordinator) else ()
            for assignor in coordinator._assignors.values():
                if isinstance(assignor, CooperativeStickyAssignor) and assignor.member_assignment is not None:
                    assignor.member_assignment = sorted(tp for tp in held if tp.topic in subscription.subscription)
        except Exception:  # noqa: BLE001 - raised from here, every poll() would fail
            once.warn(
                "claims", "%s: patch claim_current_assignment failed", with_version("kafka-python"), exc_info=True
            )
        return original()

    coordinator.group_protocols = group_protocols


CLAIM_CURRENT_ASSIGNMENT = Patch(
    name="claim_current_assignment",
    defect=(
        "kafka-python's own cooperative assignor keeps claiming partitions that it lost with its membership,"
        " or unsubscribed from. They are withheld from all members, for a member that has nothing to revoke, and"
        " are not read while the group is stable. (rackassign's assignor claims owned partitions without this.)"
    ),
    proof="integration/clients/test_cooperative_defects.py::test_a_follower_that_unsubscribes_leaves_nothing_unowned",
    wraps={"_coordinator.group_protocols": ()},
    needs=coordinator_paths(
        "_assignors", "_rebalance_protocol", "_subscription.assigned_partitions", "_subscription.subscription"
    ),
    install=_claim_current_assignment,
)


def _tolerate_malformed_metadata(consumer: Consumer, once: WarnOnce) -> None:
    """Clean metadata before kafka-python decodes it, and skip most of the decoding for assignors of rackassign."""
    coordinator = consumer._coordinator
    original = coordinator._perform_assignment

    def perform_assignment(leader_id: str, protocol_name: str, members: Sequence[Any]) -> Any:
        try:
            members = decode_join(members, coordinator._lookup_assignor(protocol_name), once)
        except Exception:  # noqa: BLE001 - then kafka-python behaves as without the patch
            once.warn(
                "guard", "%s: patch tolerate_malformed_metadata failed", with_version("kafka-python"), exc_info=True
            )
        return original(leader_id, protocol_name, members)

    coordinator._perform_assignment = perform_assignment


TOLERATE_MALFORMED_METADATA = Patch(
    name="tolerate_malformed_metadata",
    defect=(
        "The leader decodes every member's metadata unguarded: one member that sends malformed bytes or an"
        " illegal topic name makes the leader's poll() raise at every attempt, and no member gets an assignment."
    ),
    proof="integration/clients/test_patches.py::test_group_goes_on_beside_a_broken_member",
    wraps={"_coordinator._perform_assignment": ("leader_id", "protocol_name", "members")},
    needs=("_coordinator._lookup_assignor",),
    install=_tolerate_malformed_metadata,
)
