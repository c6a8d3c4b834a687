"""Patches for membership: joins and their results, a coordinator that is gone, and members that are out of their group.

They rely on one thing: the coordinator's coroutines run on the client's IO thread, one at a time, and switch only where
they await something unfinished. `poll()` runs on the user's thread and drives them from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from kafka.consumer.subscription_state import SubscriptionType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.base import MemberState
from kafka.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.assignor.subscriptions import decode_join, is_former_id
from rackassign.clients.kafka_python.internals.attributes import (
    Consumer,
    Coordinator,
    coordinator_paths,
    is_cooperative,
)
from rackassign.clients.kafka_python.patches._membership import LEDGER, ledger_of
from rackassign.clients.kafka_python.patches.patch import Patch
from rackassign.text import WarnOnce, with_version


def _retry_coordinator_lookup(consumer: Consumer, _once: WarnOnce) -> None:
    """Retry the coordinator lookup, for as long as the caller allows and at intervals, if a broker is offline."""
    coordinator = consumer._coordinator
    original: Callable[..., Coroutine[Any, Any, bool]] = coordinator.ensure_coordinator_ready_async
    send: Callable[[], Coroutine[Any, Any, Any]] = coordinator._send_group_coordinator_request
    next_at = 0.0

    async def send_at_intervals() -> Any:
        nonlocal next_at
        await coordinator._manager._net.sleep(max(0.0, next_at - time.monotonic()))
        next_at = time.monotonic() + coordinator.config["retry_backoff_ms"] / 1000
        return await send()

    async def look_on(timeout_ms: float | None = None) -> bool:
        # Without a time limit the caller gets the error in the end, instead of waiting forever.
        allowed_ms = coordinator.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        end = time.monotonic() + allowed_ms / 1000
        pause = coordinator.config["retry_backoff_ms"] / 1000
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                return await original(timeout_ms=None if timeout_ms is None else left * 1000)
            except RetriableError:
                if left <= pause:
                    if timeout_ms is None:
                        raise
                    return False
                await coordinator._manager._net.sleep(pause)

    coordinator.ensure_coordinator_ready_async = look_on
    coordinator._send_group_coordinator_request = send_at_intervals


RETRY_COORDINATOR_LOOKUP = Patch(
    name="retry_coordinator_lookup",
    defect=(
        "While a broker is down and the others still list it, kafka-python may request the coordinator from it, then"
        " metadata, and poll() or commit() raises its KafkaConnectionError, though two more brokers could respond. As"
        " long as brokers name a coordinator that refuses connections, it requests it again without a pause, hundreds"
        " of times a second."
    ),
    proof="integration/clients/test_patches.py::test_a_coordinator_is_looked_for_until_it_is_found",
    wraps={
        "_coordinator.ensure_coordinator_ready_async": ("timeout_ms",),
        "_coordinator._send_group_coordinator_request": (),
    },
    needs=("_coordinator.config", "_coordinator._manager._net.sleep"),
    install=_retry_coordinator_lookup,
)


_REST_S = 0.05
"""Interval at which a poll checks its group while there are no records; records end the wait at once."""


def _backoff_coordinator_poll(consumer: Consumer, _once: WarnOnce) -> None:
    """Wait a little for records when a heartbeat is overdue, instead of not at all."""
    coordinator = consumer._coordinator
    original: Callable[[], float] = coordinator.time_to_next_poll
    coordinator.time_to_next_poll = lambda: max(original(), _REST_S)


BACKOFF_COORDINATOR_POLL = Patch(
    name="backoff_coordinator_poll",
    defect=(
        "While a heartbeat is overdue, because the coordinator does not respond or a join is under way, poll() does not"
        " wait for records at all: it spins at full speed, and each turn adds a callback to the fetches under way,"
        " some ten megabytes a minute."
    ),
    proof="integration/clients/test_fetch_during_rebalance.py::test_a_member_whose_heartbeat_is_overdue_does_not_spin",
    wraps={"_coordinator.time_to_next_poll": ()},
    needs=(),
    install=_backoff_coordinator_poll,
)


def _raise_when_fenced(consumer: Consumer, _once: WarnOnce) -> None:
    """Make `poll()` raise once a heartbeat was answered with FENCED_INSTANCE_ID, then and always after, as in Java."""
    coordinator = consumer._coordinator
    handle, poll = coordinator._handle_heartbeat_response, coordinator.poll
    fenced: list[str] = []

    def handle_heartbeat_response(response: Any, send_time: float) -> Any:
        if response.error_code == FencedInstanceIdError.errno and not fenced:
            fenced.append(
                f"another member of group {coordinator.group_id} has joined with the group_instance_id of this"
                f" one, {coordinator.group_instance_id}, and has its partitions"
            )
        return handle(response, send_time)

    def poll_unless_fenced(timeout_ms: float | None = None) -> bool:
        if fenced:
            # Another object each time: that of the first would keep the traceback of each poll.
            raise FencedInstanceIdError(*fenced)
        return bool(poll(timeout_ms=timeout_ms))

    coordinator._handle_heartbeat_response = handle_heartbeat_response
    coordinator.poll = poll_unless_fenced


RAISE_WHEN_FENCED = Patch(
    name="raise_when_fenced",
    defect=(
        "A static member is fenced if another one joins with its group.instance.id: kafka-python logs that its"
        " heartbeat failed, sends no more, and keeps reading forever what the other one reads as well. poll() never"
        " raises."
    ),
    proof="integration/clients/test_patches.py::test_poll_of_a_fenced_static_member_raises",
    wraps={
        "_coordinator._handle_heartbeat_response": ("response", "send_time"),
        "_coordinator.poll": ("timeout_ms",),
    },
    needs=("_coordinator.group_id", "_coordinator.group_instance_id"),
    install=_raise_when_fenced,
    # While it keeps fetching, that patch does not call the poll() it wraps.
    after=("fetch_during_rebalance",),
)


def _watch_as_returned_leader(consumer: Consumer, _once: WarnOnce) -> None:
    """Let a static member that is the leader since before its restart watch for new partitions, as leaders do."""
    coordinator = consumer._coordinator
    process: Callable[[Any, float], Any] = coordinator._process_join_group_response
    need_rejoin: Callable[[], bool] = coordinator.need_rejoin
    returned = False

    def process_join_group_response(response: Any, send_time: float) -> Any:
        nonlocal returned
        answered = process(response, send_time)
        returned = is_former_id(response.leader, coordinator.group_instance_id, response.member_id)
        if returned:
            coordinator._is_leader = True
        return answered

    def need_rejoin_as_leader() -> bool:
        nonlocal returned
        # It may join before it has the metadata of its topics, which then is no change.
        if returned and any(coordinator._metadata_snapshot.values()):
            coordinator._assignment_snapshot, returned = coordinator._metadata_snapshot, False
        return need_rejoin()

    coordinator._process_join_group_response = process_join_group_response
    coordinator.need_rejoin = need_rejoin_as_leader


WATCH_AS_RETURNED_LEADER = Patch(
    name="watch_as_returned_leader",
    defect=(
        "A static member that leads its group, and is restarted within its session, does not know that it leads, and"
        " no other member does: partitions that are added to a topic are read by no member until the next rebalance."
    ),
    proof="integration/clients/test_patches.py::test_a_static_leader_that_has_returned_sees_new_partitions",
    wraps={
        "_coordinator._process_join_group_response": ("response", "send_time"),
        "_coordinator.need_rejoin": (),
    },
    needs=(
        "_coordinator._is_leader",
        "_coordinator._assignment_snapshot",
        "_coordinator._metadata_snapshot",
        "_coordinator.group_instance_id",
    ),
    install=_watch_as_returned_leader,
    after=("keep_completed_join",),
)


class _Revocation:
    """What a cooperative member's listener gets when an assignment takes partitions away.

    The listener is called while the partitions are assigned, so that it can read and commit their positions; none of
    them is fetched meanwhile. Java does so too (ConsumerCoordinator.onJoinComplete). kafka-python 3.0.12 replaces the
    assignment first. What the listener would get then is known already, and what the listener raised is raised there.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._coordinator = coordinator = consumer._coordinator
        self._complete = coordinator._on_join_complete_async
        self._invoke = coordinator._invoke_rebalance_listener_async
        self._announced: set[Any] = set()
        self._raised: Exception | None = None

    def install(self) -> None:
        self._coordinator._on_join_complete_async = self.on_join_complete_async
        self._coordinator._invoke_rebalance_listener_async = self.invoke_rebalance_listener_async

    async def on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        subscription = self._coordinator._subscription
        if is_cooperative(self._coordinator) and subscription.rebalance_listener:
            given = set(ConsumerProtocolAssignment.decode(member_assignment_bytes).partitions())
            revoked = set(subscription.assigned_partitions()) - given
            # kafka-python rejects an assignment with other topics, and then nothing is revoked.
            if revoked and all(partition.topic in (subscription.subscription or ()) for partition in given):
                subscription.mark_pending_revocation(revoked)
                try:
                    await self._invoke("on_partitions_revoked", revoked)
                except Exception as error:  # noqa: BLE001 - raised where kafka-python expects it
                    self._raised = error
                self._announced = revoked
        try:
            await self._complete(generation, member_id, protocol, member_assignment_bytes)
        finally:
            self._announced, self._raised = set(), None

    async def invoke_rebalance_listener_async(self, method_name: str, arg: set[Any]) -> None:
        if method_name != "on_partitions_revoked" or not self._announced:
            await self._invoke(method_name, arg)
        elif self._raised is not None:
            raise self._raised


def _revoke_before_removal(consumer: Consumer, _once: WarnOnce) -> None:
    """Call the listener of a cooperative member before the partitions are removed from its assignment."""
    _Revocation(consumer).install()


REVOKE_BEFORE_REMOVAL = Patch(
    name="revoke_before_removal",
    defect=(
        "A cooperative member's partitions are removed from its assignment before on_partitions_revoked is called, so"
        " a commit there without offsets leaves them out, and position() raises: records that were read since the last"
        " commit are processed twice."
    ),
    proof="integration/clients/test_patches.py::test_a_listener_commits_what_is_revoked",
    wraps={
        "_coordinator._on_join_complete_async": ("generation", "member_id", "protocol", "member_assignment_bytes"),
        "_coordinator._invoke_rebalance_listener_async": ("method_name", "arg"),
    },
    needs=coordinator_paths(
        *("_rebalance_protocol", "_subscription.assigned_partitions", "_subscription.mark_pending_revocation"),
        *("_subscription.rebalance_listener", "_subscription.subscription"),
    ),
    install=_revoke_before_removal,
)


def _keep_generation_when_removed(consumer: Consumer, _once: WarnOnce) -> None:
    """Return the lost membership until the next assignment, so that the broker rejects the offsets."""
    ledger, coordinator = ledger_of(consumer), consumer._coordinator
    current: Callable[[], Any] = coordinator.group_metadata

    def group_metadata() -> Any:
        # Read first: a removal in between, on the IO thread, is then seen.
        metadata = current()
        if not ledger.lost or ledger.assigned is None:
            return metadata
        if coordinator._subscription.subscription_type == SubscriptionType.USER_ASSIGNED:
            # A consumer that chooses its partitions itself is no member, also if it was one before.
            return metadata
        generation, member = ledger.assigned
        return metadata._replace(generation_id=generation, member_id=member)

    coordinator.group_metadata = group_metadata


KEEP_GENERATION_WHEN_REMOVED = Patch(
    name="keep_generation_when_removed",
    defect=(
        "Once a member was removed from its group, group_metadata() returns no generation, or that of its next"
        " membership. With either the broker accepts the offsets of a transaction, though the partitions have other"
        " owners, which have committed further: records are processed twice."
    ),
    proof="integration/clients/test_patches.py::test_offsets_of_a_removed_member_are_rejected",
    wraps={"_coordinator.group_metadata": (), **LEDGER},
    needs=("_coordinator._subscription.subscription_type",),
    install=_keep_generation_when_removed,
    after=("revoke_before_removal", "fetch_during_rebalance"),
)


class _JoinOfRemovedMember:
    """What becomes of the partitions of a member that learns in a join that it was removed from its group.

    Its methods have kafka-python's names. A cooperative member loses the partitions, with the call of its listener. An
    eager one has revoked them before, and kafka-python lists them until the join is complete: they are only removed.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._coordinator = coordinator = consumer._coordinator
        self._prepare = coordinator._on_join_prepare_async
        coordinator._on_join_prepare_async = self.on_join_prepare_async
        ledger_of(consumer).after_loss.append(self.lost)

    def lost(self) -> None:
        coordinator = self._coordinator
        if not (coordinator.rejoining and coordinator._subscription.assigned_partitions()):
            return
        if not is_cooperative(coordinator):
            self._remove_partitions()
        else:
            with coordinator._lock:
                # Otherwise `_on_join_prepare_async` counts as called, with the former generation.
                coordinator.rejoining = False

    async def on_join_prepare_async(self, generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        coordinator = self._coordinator
        was_member = not coordinator._generation.is_lost()
        await self._prepare(generation, member_id, timeout_ms=timeout_ms)
        if not (was_member and coordinator._generation.is_lost()):
            return
        # Its last commit was refused, or a heartbeat in the meantime. What follows counts as prepared.
        if not is_cooperative(coordinator):
            self._remove_partitions()
        elif coordinator._subscription.assigned_partitions():
            await self._prepare(generation, member_id, timeout_ms=timeout_ms)

    def _remove_partitions(self) -> None:
        # The user may unsubscribe meanwhile, and then there are none.
        with suppress(IllegalStateError):
            self._coordinator._subscription.assign_from_subscribed([])


def _lose_partitions_when_removed_in_join(consumer: Consumer, _once: WarnOnce) -> None:
    """Have a join without the partitions of before, if it has found out that they are lost."""
    _JoinOfRemovedMember(consumer)


LOSE_PARTITIONS_WHEN_REMOVED_IN_JOIN = Patch(
    name="lose_partitions_when_removed_in_join",
    defect=(
        "A member that is removed from its group during its own join, because its process stood still, keeps its"
        " partitions with their positions. It gets some of them back, and commits these positions over those of the"
        " owners in between: their records are processed twice. `on_partitions_lost` is not called."
    ),
    proof="integration/clients/test_patches.py::test_a_member_removed_in_its_join_continues_where_others_have_committed",
    wraps={"_coordinator._on_join_prepare_async": ("generation", "member_id", "timeout_ms"), **LEDGER},
    needs=coordinator_paths(
        *("_generation.is_lost", "_lock", "_rebalance_protocol", "rejoining"),
        *("_subscription.assign_from_subscribed", "_subscription.assigned_partitions"),
    ),
    install=_lose_partitions_when_removed_in_join,
    after=("revoke_before_removal", "fetch_during_rebalance", "keep_generation_when_removed"),
)


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
        coordinator._manager.call_soon(lambda: _send_heartbeat(coordinator, task, once))
        return assignment

    coordinator._do_join_and_sync_async = join_and_beat


async def _send_heartbeat(coordinator: Coordinator, task: Any, once: WarnOnce) -> None:
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
