"""Fetching continues while a cooperative join is under way, and commits bypass the join.

While a JoinGroup request is pending, the broker reads no further requests from its connection. A commit sent behind it
is answered after it, as of an old generation, and kafka-python then gives its membership up. But the broker accepts
commits of the old generation for as long as it waits for other members to join (`PreparingRebalance`). So commits use a
connection of their own, with the generation this member still has. A commit that comes too late, when the group is
being assigned, waits until this member's join is answered and is then sent with the new generation. Requests for
committed offsets wait until the join is answered as well: a response that takes longer than `request_timeout_ms` costs
the connection, and the join with it.

If a join has failed because another rebalance has begun, the generation is the group's until all have joined again, so
it is used in the same way.

If a join is finished and not read yet, the group is stable in its new generation. The partitions this member is to
revoke are assigned to no other member before it has rejoined. So it may commit with the new generation, also for
revoked partitions.

Commits are sent one at a time, and those made meanwhile are merged: for each partition the last offset counts.
Otherwise an application that commits at each `poll()` has hundreds under way, of which a connection takes five. If a
merged commit is refused, each is sent by itself, and gets its own result.

A member that was removed from its group cannot use this: other members own its partitions and have committed further.
Its commits fail until it is assigned partitions again, as they do without the patch; the broker would accept them as
commits of the new member that it is by then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from numbers import Integral
from typing import Any
from weakref import ref

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import (
    CommitFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownMemberIdError,
)
from kafka.future import Future
from kafka.protocol.consumer import OffsetCommitRequest

from rackassign.clients.kafka_python.internals.attributes import Consumer, coordinator_paths, is_cooperative
from rackassign.clients.kafka_python.patches._membership import LEDGER, ledger_of
from rackassign.clients.kafka_python.patches.patch import Patch
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)

_GRACE_MS = 5000
"""Extra time: a JoinGroup is answered within the rebalance timeout, and the network takes its time too."""

_OVER = frozenset({error.errno for error in (IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError)})
"""Errors of the broker once the generation of a commit is over, or being replaced."""


_INDEPENDENT_OF_OFFSETS = (
    CommitFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    NodeNotReadyError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
)
"""Errors that do not depend on the offsets: the group and the connection are the same for the next commit."""


class _Commit:
    """A pending commit."""

    def __init__(self, offsets: Mapping[Any, Any], losses: int, answer: Any = None) -> None:
        self.offsets = offsets
        self.losses = losses
        self.answer: Any = Future() if answer is None else answer

    def settle(self, error: Exception | None) -> None:
        if error is None:
            self.answer.success(None)
        else:
            self.answer.failure(error)


class Commits:
    """Commits of one consumer; all of it runs on kafka-python's IO thread."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = ref(consumer)
        self._coordinator = coordinator = consumer._coordinator
        self._send_original = coordinator._send_offset_commit_request
        self._ledger = ledger_of(consumer)
        self._waiting: list[_Commit] = []
        # Commits on the connection of the group, which are answered before a join that follows them.
        self._sent_before: list[Any] = []
        self._sending = False
        coordinator._send_offset_commit_request = self.send

    @property
    def lost(self) -> bool:
        return self._ledger.lost

    def join_ends_within_ms(self) -> float:
        """Return the number of milliseconds after which a join that is under way is answered at the latest."""
        return float(self._coordinator.config["max_poll_interval_ms"]) + _GRACE_MS

    def under_way(self) -> bool:
        """Return whether a join of a cooperative member is under way, so that its own connection is not read."""
        coordinator = self._coordinator
        task = coordinator._join_task
        return (
            task is not None
            and not task.is_done
            and is_cooperative(coordinator)
            and bool(coordinator.rebalance_in_progress())
        )

    def rebalancing(self) -> bool:
        """Return whether a join of a cooperative member is under way, or is to be repeated."""
        task = self._coordinator._join_task
        ended = task is not None and task.succeeded()
        return not ended and is_cooperative(self._coordinator) and bool(self._coordinator.rebalance_in_progress())

    async def join_answered(self) -> None:
        """Wait for a join that is under way, but not when the consumer closes, since the join is never read then."""
        if self.under_way() and not getattr(self._consumer(), "_closed", True):
            with suppress(Exception):
                await self._coordinator._manager.wait_for(self._coordinator._join_task, self.join_ends_within_ms())

    async def send(self, offsets: Any) -> Any:
        """Replace `_send_offset_commit_request`."""
        if self.lost or not (self._sending or self.rebalancing()) or not _are_offsets(offsets):
            return await self._send_before_joins(offsets)
        for partition, (offset, metadata, epoch) in offsets.items():
            # kafka-python detects that only when it encodes the request, and then resets its coordinator.
            if not (isinstance(offset, Integral) and isinstance(metadata, str | None) and isinstance(epoch, Integral)):
                raise TypeError(
                    f"{partition}: expected an offset, metadata and a leader epoch, got {offsets[partition]}"
                )
        commit = _Commit(dict(offsets), self._ledger.losses)
        self._waiting.append(commit)
        if not self._sending:
            self._sending = True
            self._coordinator._manager.call_soon(self._send_waiting)
        return await commit.answer

    async def _send_before_joins(self, offsets: Any) -> Any:
        answered = Future()
        self._sent_before.append(answered)
        try:
            return await self._send_original(offsets)
        finally:
            self._sent_before.remove(answered)
            answered.success(None)

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                together = [commit for commit in waiting if commit.losses == self._ledger.losses]
                for commit in waiting:
                    if commit.losses != self._ledger.losses:
                        commit.settle(_removed_from_group())
                merged = {partition: offset for commit in together for partition, offset in commit.offsets.items()}
                error = await self._failed(_Commit(merged, self._ledger.losses)) if merged else None
                of_all = len(together) == 1 or error is None or isinstance(error, _INDEPENDENT_OF_OFFSETS)
                for commit in together:
                    commit.settle(error if of_all else await self._failed(commit))
        finally:
            self._sending = False

    async def _failed(self, commit: _Commit) -> Exception | None:
        """Commit; return the error."""
        try:
            # Between two responses of a join it may be another member already, and the broker would accept its commit.
            if self._is_out_since(commit):
                return _removed_from_group()
            for answered in tuple(self._sent_before):
                # One on another connection could overtake it, and the earlier offset would count.
                await answered
            if self.rebalancing() and await self._sent_beside(commit.offsets):
                return None
            await self.join_answered()
            if self._is_out_since(commit):
                return _removed_from_group()
            await self._send_original(commit.offsets)
        except Exception as error:  # noqa: BLE001 - any error is passed to the caller of the commit
            return error
        return None

    def _is_out_since(self, commit: _Commit) -> bool:
        return self.lost or self._ledger.losses != commit.losses

    async def _sent_beside(self, offsets: Mapping[Any, Any]) -> bool:
        """Commit with the generation this member still has; return whether the broker accepted it."""
        coordinator = self._coordinator
        generation, node = coordinator._generation, self._own_connection()
        if node is None or generation.is_lost():
            return False
        begun = time.monotonic()
        try:
            response = await coordinator._manager.send(self._request(generation, offsets), node_id=node)
        except KafkaError as error:
            log.debug("a commit during a rebalance could not be sent: %s", error)
            return False
        if any(code in _OVER for _, partitions in response.topics for _, code in partitions):
            return False
        coordinator._handle_offset_commit_response(offsets, begun, response)
        return True

    def _own_connection(self) -> str | None:
        """Return a name for another connection to the coordinator; None if it is not known.

        kafka-python names a connection by its node, and finds the address in `_cluster._coordinator_brokers`.
        """
        cluster = self._coordinator._cluster
        known = cluster._coordinator_brokers.get(self._coordinator.coordinator_id)
        if known is None:
            return None
        name = f"commits-{known.node_id}"
        cluster._coordinator_brokers[name] = type(known)(name, known.host, known.port, None)
        return name

    def _request(self, generation: Any, offsets: Mapping[Any, Any]) -> Any:
        topic_of = OffsetCommitRequest.OffsetCommitRequestTopic
        partition_of = topic_of.OffsetCommitRequestPartition
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append(
                partition_of(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        return OffsetCommitRequest(
            max_version=8,
            group_id=self._coordinator.group_id,
            generation_id_or_member_epoch=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._coordinator.group_instance_id,
            topics=[topic_of(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
        )


def _removed_from_group() -> Exception:
    error: Exception = CommitFailedError("this member was removed from its group, and other members own its partitions")
    return error


def _are_offsets(offsets: Any) -> bool:
    """Return whether these are valid offsets; kafka-python rejects others, and they are not merged."""
    return isinstance(offsets, Mapping) and all(
        isinstance(partition, TopicPartition) and isinstance(offset, OffsetAndMetadata)
        for partition, offset in offsets.items()
    )


_LAST_COMMIT_MS = 5000
"""Time limit for the commit of records read during a join, before partitions are revoked."""


class _Flow:
    """The shadowed methods of one coordinator, each with kafka-python's name."""

    def __init__(self, consumer: Consumer) -> None:
        self._coordinator = coordinator = consumer._coordinator
        self._commits = Commits(consumer)
        self._poll = coordinator.poll
        self._join_group = coordinator.join_group_async
        self._prepare = coordinator._on_join_prepare_async
        self._commit_sync = coordinator._commit_offsets_sync_async
        self._ask_committed = coordinator._send_offset_fetch_request
        self._generation_if_stable = coordinator.generation_if_stable
        self._flowing = False
        self._allowed_ms: float | None = None

    def install(self) -> None:
        coordinator = self._coordinator
        coordinator.poll = self.poll
        coordinator.join_group_async = self.join_group_async
        coordinator._on_join_prepare_async = self.on_join_prepare_async
        coordinator._commit_offsets_sync_async = self.commit_offsets_sync_async
        coordinator._send_offset_fetch_request = self.send_offset_fetch_request
        coordinator.generation_if_stable = self.generation_if_stable

    def poll(self, timeout_ms: float | None = None) -> bool:
        coordinator = self._coordinator
        if not self._may_flow():
            return bool(self._poll(timeout_ms=timeout_ms))
        if coordinator._join_task is not None:
            # What kafka-python's own poll() does besides joining.
            coordinator._invoke_completed_offset_commit_callbacks()
            coordinator.heartbeat.poll()
            # Each check of a join that is under way would add a callback; only a finished one is read.
            if coordinator._join_task.is_done:
                with suppress(KafkaTimeoutError):
                    coordinator.ensure_active_group(timeout_ms=0)
        elif coordinator._subscription.subscribed_pattern:
            # kafka-python first waits for the metadata, and would never join with a time limit of 0.
            return bool(self._poll(timeout_ms=timeout_ms))
        else:
            # The step before a join, the last commit of the old generation, may take as long as the caller allows.
            self._flowing, self._allowed_ms = True, timeout_ms
            try:
                self._poll(timeout_ms=0)
            finally:
                self._flowing = False
        return True

    def _may_flow(self) -> bool:
        """Return whether this member owns its partitions while it joins: not once it was removed from the group."""
        coordinator = self._coordinator
        return (
            is_cooperative(coordinator)
            and not coordinator.coordinator_unknown()
            and coordinator.need_rejoin()
            and not self._commits.lost
            and not coordinator._generation.is_lost()
            and bool(coordinator._subscription.assigned_partitions())
        )

    async def on_join_prepare_async(self, generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        await self._prepare(generation, member_id, timeout_ms=self._allowed_ms if self._flowing else timeout_ms)

    async def join_group_async(self, timeout_ms: float | None = None) -> bool:
        coordinator = self._coordinator
        if self._finished_unread() and coordinator.config["enable_auto_commit"]:
            # Last opportunity to commit records read since the join began, of partitions that reading it revokes.
            try:
                await coordinator._commit_offsets_sync_async(
                    coordinator._subscription.all_consumed_offsets(), timeout_ms=_LAST_COMMIT_MS
                )
            except Exception as error:  # noqa: BLE001 - as kafka-python does before a join
                log.warning("the records read during a rebalance could not be committed: %s", error)
        return bool(await self._join_group(timeout_ms=timeout_ms))

    async def commit_offsets_sync_async(self, offsets: Any, timeout_ms: float | None = None) -> Any:
        if timeout_ms is None and self._commits.under_way():
            # Without a limit kafka-python uses that of a request; a commit too late for the old generation waits for
            # the join.
            timeout_ms = self._commits.join_ends_within_ms() + self._coordinator.config["request_timeout_ms"]
        return await self._commit_sync(offsets, timeout_ms=timeout_ms)

    async def send_offset_fetch_request(self, partitions: Any) -> Any:
        await self._commits.join_answered()
        return await self._ask_committed(partitions)

    def generation_if_stable(self) -> Any:
        if self._finished_unread():
            with self._coordinator._lock:
                return self._coordinator._generation
        return self._generation_if_stable()

    def _finished_unread(self) -> bool:
        coordinator = self._coordinator
        task = coordinator._join_task
        return bool(
            task is not None
            and task.succeeded()
            and is_cooperative(coordinator)
            and coordinator.rebalance_in_progress()
            # Partitions from before its removal belong to others, and its next generation is not theirs.
            and not self._commits.lost
        )


def _install(consumer: Consumer, _once: WarnOnce) -> None:
    _Flow(consumer).install()


FETCH_DURING_REBALANCE = Patch(
    name="fetch_during_rebalance",
    defect=(
        "poll() returns nothing while a join is under way, so partitions that a cooperative member keeps stop as well,"
        " for both rounds of a rebalance, as long as the slowest member needs to join."
    ),
    proof="integration/clients/test_fetch_during_rebalance.py::test_kept_partitions_flow_while_another_member_is_slow_to_join",
    wraps={
        "_coordinator.poll": ("timeout_ms",),
        "_coordinator.join_group_async": ("timeout_ms",),
        "_coordinator._on_join_prepare_async": ("generation", "member_id", "timeout_ms"),
        "_coordinator._commit_offsets_sync_async": ("offsets", "timeout_ms"),
        "_coordinator._send_offset_commit_request": ("offsets",),
        "_coordinator._send_offset_fetch_request": ("partitions",),
        "_coordinator.generation_if_stable": (),
        **LEDGER,
    },
    needs=coordinator_paths(
        *("_generation.is_lost", "_join_task", "_lock", "_manager.wait_for", "_rebalance_protocol", "config"),
        *("coordinator_unknown", "ensure_active_group", "heartbeat.poll", "need_rejoin", "rebalance_in_progress"),
        *("_invoke_completed_offset_commit_callbacks", "_subscription.all_consumed_offsets"),
        *("_cluster._coordinator_brokers", "_generation", "_handle_offset_commit_response", "_manager.call_soon"),
        *("_manager.send", "coordinator_id", "group_id", "group_instance_id"),
        *("_subscription.assigned_partitions", "_subscription.subscribed_pattern"),
    ),
    install=_install,
    requires=("keep_completed_join", "backoff_coordinator_poll"),
    # Its last commit is before the join is read, and a listener's commits are those of the new generation.
    after=("keep_completed_join", "revoke_before_removal"),
)
