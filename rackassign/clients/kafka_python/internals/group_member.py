"""A consumer that is only a member of its group: it joins, gets partitions and commits, and never fetches.

kafka-python's own `poll()` would fetch as well, so only the coordinator's half of it is called. Its rebalance listeners
run on its IO thread, where commits are not possible, so they are replaced:

* Before a join for which partitions must be revoked, `poll` raises `RevocationRequired`. Nothing has been sent by then
  and heartbeats continue; the next `poll`, after `acknowledge_revocation`, joins.
* After a join `take_new_assignment` returns the assignment. Partitions missing in it have to be revoked by the time of
  the next `poll`, because kafka-python rejoins no earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaTimeoutError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.clients.kafka_python.internals.attributes import (
    Consumer,
    coordinator_paths,
    incompatibility,
    is_cooperative,
)
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.text import with_version

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The assignment of a member."""

    generation: int
    member_id: str
    owned: Partitions


class RevocationRequired(Exception):  # noqa: N818 - it is a demand, and no error
    """Partitions must be revoked before the member rejoins."""

    def __init__(self, partitions: Partitions, *, lost: bool) -> None:
        super().__init__(partitions, lost)
        self.partitions = partitions
        # Removed from the group: other members may own them already, and nothing can be committed.
        self.lost = lost


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of a partition."""

    offset: int
    # Leader epoch of the record before it; -1 if not known.
    leader_epoch: int


_METHODS = {
    "_coordinator.poll": ("timeout_ms",),
    "_coordinator._on_join_prepare_async": ("generation", "member_id", "timeout_ms"),
    "_coordinator._on_join_complete_async": ("generation", "member_id", "protocol", "member_assignment_bytes"),
    "_coordinator.fetch_committed_offsets": ("partitions", "timeout_ms"),
    "_coordinator._invoke_completed_offset_commit_callbacks": (),
}
_NEEDS = coordinator_paths(
    *("_generation.is_lost", "_offset_fetch_futures", "_rebalance_protocol", "need_rejoin", "request_rejoin"),
    *("_subscription.assigned_partitions", "_subscription.subscription"),
)


class GroupOnlyMember:
    """The membership of a consumer; to be used from one thread, except for `run_commit_callbacks`.

    The consumer must not be polled otherwise.

    Shadows `_on_join_prepare_async`, `_on_join_complete_async` and `_invoke_completed_offset_commit_callbacks` of the
    coordinator.
    """

    def __init__(self, consumer: Consumer) -> None:
        problem = incompatibility(consumer, _METHODS, _NEEDS)
        if problem is not None:
            raise ConfigError(
                f"{with_version('kafka-python')} cannot be used as the group member of another client: {problem}"
            )
        self._coordinator = coordinator = consumer._coordinator
        self._prepare = coordinator._on_join_prepare_async
        self._complete = coordinator._on_join_complete_async
        coordinator._on_join_prepare_async = self._prepare_unless_due
        coordinator._on_join_complete_async = self._complete_and_note
        self._answer = coordinator._invoke_completed_offset_commit_callbacks
        coordinator._invoke_completed_offset_commit_callbacks = self._run_commit_callbacks
        self._callback_lock = Lock()
        self._given_up: Partitions = frozenset()
        self._given: MemberAssignment | None = None

    def poll(self, timeout_ms: float) -> None:
        """Run the group's protocol, and show that the application is alive; may raise `RevocationRequired`."""
        self._coordinator.poll(timeout_ms=timeout_ms)

    def acknowledge_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Confirm that the requested partitions are revoked; the next `poll` joins.

        kafka-python checks then whether it still has to join. The reason may be gone: the former topics are subscribed
        to again, or are back in the metadata. Without a join the member would own partitions that are not read.
        """
        self._given_up = frozenset(partitions)
        self._coordinator.request_rejoin()

    def take_new_assignment(self) -> MemberAssignment | None:
        assignment, self._given = self._given, None
        return assignment

    def run_commit_callbacks(self) -> None:
        """Run the callbacks of completed commits. kafka-python also does this in most of its methods."""
        self._run_commit_callbacks()

    def _run_commit_callbacks(self) -> None:
        # kafka-python checks and removes in two steps, and commits may come from several threads.
        with self._callback_lock:
            self._answer()

    def lost(self) -> bool:
        return bool(self._coordinator._generation.is_lost())

    def rebalance_pending(self) -> bool:
        """Return whether a rebalance is under way, or will be started by the next `poll`."""
        return bool(self._coordinator.need_rejoin())

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> Mapping[TopicPartition, CommittedOffset] | None:
        """Return the committed offsets there are; None if not known yet, and then the next call reuses the request."""
        asked = [KafkaPythonPartition(*tp) for tp in partitions]
        try:
            found = self._coordinator.fetch_committed_offsets(asked, timeout_ms=timeout_ms)
        except KafkaTimeoutError:
            return None
        return {
            TopicPartition(*tp): CommittedOffset(of_place.offset, of_place.leader_epoch)
            for tp, of_place in found.items()
        }

    async def _prepare_unless_due(self, generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        due, lost = self._due()
        assignment, self._given = self._given, None
        if assignment is not None and not lost and is_cooperative(self._coordinator):
            # What was not taken by now, because an exception ended a poll, is valid but for what is revoked here.
            self._given = replace(assignment, owned=assignment.owned - due)
        if due - self._given_up:
            raise RevocationRequired(due, lost=lost)
        await self._prepare(generation, member_id, timeout_ms=timeout_ms)
        self._given_up = frozenset()

    def _due(self) -> tuple[Partitions, bool]:
        """Return the partitions that kafka-python revokes before it joins."""
        owned = _held(self._coordinator)
        if self.lost():
            return owned, True
        if is_cooperative(self._coordinator):
            subscribed = self._coordinator._subscription.subscription or ()
            return frozenset(tp for tp in owned if tp.topic not in subscribed), False
        return owned, False

    async def _complete_and_note(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        # Responses to requests of former generations would be kept for the next equal request.
        self._coordinator._offset_fetch_futures.clear()
        await self._complete(generation, member_id, protocol, member_assignment_bytes)
        owned = _held(self._coordinator)
        if not is_cooperative(self._coordinator):
            # If kafka-python rejects an assignment, it still lists the partitions that were revoked before.
            assignment = ConsumerProtocolAssignment.decode(member_assignment_bytes)
            owned &= frozenset(TopicPartition(*tp) for tp in assignment.partitions())
        self._given = MemberAssignment(generation, member_id, owned)


def _held(coordinator: Any) -> Partitions:
    return frozenset(TopicPartition(*tp) for tp in coordinator._subscription.assigned_partitions())
