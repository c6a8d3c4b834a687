"""Fetching continues while a cooperative join is under way, and commits bypass the join.

While the JoinGroup request is pending the broker reads no further requests from this connection. So commits use another
one (`commit_during_rebalance`), and requests for committed offsets wait until the join is answered: a response that
takes longer than `request_timeout_ms` costs the connection, and the join with it.

If a join is finished and not read yet, the group is stable in its new generation. The partitions this member is to
revoke are assigned to no other member before it has rejoined. So it may commit with the new generation, also for
revoked partitions.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from kafka.errors import KafkaTimeoutError

from rackassign.clients.kafka_python.internals.attributes import Consumer, coordinator_paths, is_cooperative
from rackassign.clients.kafka_python.patches.base import Patch
from rackassign.clients.kafka_python.patches.commit_during_rebalance import Commits
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)

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
        self._commits.install()
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
        "_coordinator.reset_generation": ("member_id",),
        "_coordinator._on_join_complete_async": (
            "generation",
            "member_id",
            "protocol",
            "member_assignment_bytes",
        ),
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
    # Its last commit is before the join is read.
    after=("keep_completed_join",),
)
