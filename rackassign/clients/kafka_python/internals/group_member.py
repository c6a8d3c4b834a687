"""A consumer that is a member of its group and nothing else: it joins, is given partitions, commits, and never fetches.

The host's own `poll()` would fetch as well, so only the coordinator's half of it is called. And its listeners run on
its IO thread, where nobody may commit; so whoever sits here is told otherwise:

* Before a join for which something must be given up, `poll` raises `RevocationRequired`. Nothing has been sent by then
  and heartbeats go on; the next `poll`, after `acknowledge_revocation`, joins.
* After a join `take_new_assignment` says what was given. What is missing in it is given up by the time of the next
  `poll`, for the host joins again no earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from kafka import TopicPartition as HostPartition
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
from rackassign.util.text import with_version

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What a member was given.

    Args:
        generation: In which generation of the group.
        member_id: To whom.
        owned: All that it has now.
    """

    generation: int
    member_id: str
    owned: Partitions


class RevocationRequired(Exception):  # noqa: N818 - it is a demand, and no error
    """Partitions must be given up before the group is joined again.

    Args:
        partitions: Which.
        lost: The member was put out of the group: others may have them already, and nothing can be committed.
    """

    def __init__(self, partitions: Partitions, *, lost: bool) -> None:
        super().__init__(partitions, lost)
        self.partitions = partitions
        self.lost = lost


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What is committed of a partition.

    Args:
        offset: The next to be read.
        leader_epoch: Of the record before it; -1 if not known.
    """

    offset: int
    leader_epoch: int


_METHODS = {
    "_coordinator.poll": ("timeout_ms",),
    "_coordinator._on_join_prepare_async": ("generation", "member_id", "timeout_ms"),
    "_coordinator._on_join_complete_async": ("generation", "member_id", "protocol", "member_assignment_bytes"),
    "_coordinator.fetch_committed_offsets": ("partitions", "timeout_ms"),
    "_coordinator._invoke_completed_offset_commit_callbacks": (),
}
_NEEDS = coordinator_paths(
    *("_generation.is_lost", "_offset_fetch_futures", "_rebalance_protocol", "need_rejoin"),
    *("_subscription.assigned_partitions", "_subscription.subscription"),
)


class GroupOnlyMember:
    """The seat of a consumer in its group; to be used from one thread, but for `run_commit_callbacks`.

    The consumer must not be polled otherwise.

    Shadows `_on_join_prepare_async`, `_on_join_complete_async` and `_invoke_completed_offset_commit_callbacks` of the
    coordinator.

    Args:
        consumer: A `KafkaConsumer` with a group, and the patches on it.

    Raises:
        ConfigError: The installed kafka-python differs.
    """

    def __init__(self, consumer: Consumer) -> None:
        problem = incompatibility(consumer, _METHODS, _NEEDS)
        if problem is not None:
            raise ConfigError(
                f"{with_version('kafka-python')} cannot be the member of a group for another client: {problem}"
            )
        self._coordinator = coordinator = consumer._coordinator
        self._prepare = coordinator._on_join_prepare_async
        self._complete = coordinator._on_join_complete_async
        coordinator._on_join_prepare_async = self._prepare_unless_due
        coordinator._on_join_complete_async = self._complete_and_note
        self._answer = coordinator._invoke_completed_offset_commit_callbacks
        coordinator._invoke_completed_offset_commit_callbacks = self.run_commit_callbacks
        self._hearing = Lock()
        self._given_up: Partitions = frozenset()
        self._given: MemberAssignment | None = None

    def poll(self, timeout_ms: float) -> None:
        """Do what a member has to do, and show that its user is alive.

        Raises:
            GiveUpFirst: See there.
            KafkaError: As from the host's `poll()`.
        """
        self._coordinator.poll(timeout_ms=timeout_ms)

    def acknowledge_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that partitions are given up, as was asked for."""
        self._given_up = frozenset(partitions)

    def take_new_assignment(self) -> MemberAssignment | None:
        """Return what was given since the last call; None if nothing was."""
        given, self._given = self._given, None
        return given

    def run_commit_callbacks(self) -> None:
        """Call back for all commits that are answered; the host does it too, whenever it is asked for something.

        Raises:
            FencedInstanceIdError: Another member has this one's instance id.
        """
        # The host looks and takes in two steps, and commits may come from several threads.
        with self._hearing:
            self._answer()

    def lost(self) -> bool:
        """Tell whether the member is out of the group."""
        return bool(self._coordinator._generation.is_lost())

    def rebalance_pending(self) -> bool:
        """Tell whether a rebalance is under way, or wanted by the next `poll`."""
        return bool(self._coordinator.need_rejoin())

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> Mapping[TopicPartition, CommittedOffset] | None:
        """Return what is committed of partitions, as far as anything is; None if that is not known yet.

        Ask again then: the question is not put anew.

        Raises:
            KafkaError: The coordinator refuses to say.
        """
        asked = [HostPartition(*place) for place in partitions]
        try:
            found = self._coordinator.fetch_committed_offsets(asked, timeout_ms=timeout_ms)
        except KafkaTimeoutError:
            return None
        return {
            TopicPartition(*place): CommittedOffset(of_place.offset, of_place.leader_epoch)
            for place, of_place in found.items()
        }

    async def _prepare_unless_due(self, generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        due, lost = self._due()
        if due - self._given_up:
            raise RevocationRequired(due, lost=lost)
        await self._prepare(generation, member_id, timeout_ms=timeout_ms)
        self._given_up = frozenset()

    def _due(self) -> tuple[Partitions, bool]:
        """Return what the host gives up before it joins."""
        held = _held(self._coordinator)
        if self.lost():
            return held, True
        if is_cooperative(self._coordinator):
            subscribed = self._coordinator._subscription.subscription or ()
            return frozenset(place for place in held if place.topic not in subscribed), False
        return held, False

    async def _complete_and_note(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        # Answers to what was asked in former generations would be kept for whoever asks the same again.
        self._coordinator._offset_fetch_futures.clear()
        await self._complete(generation, member_id, protocol, member_assignment_bytes)
        owned = _held(self._coordinator)
        if not is_cooperative(self._coordinator):
            # If the host rejects an assignment it goes on listing what was given up before.
            assignment = ConsumerProtocolAssignment.decode(member_assignment_bytes)
            owned &= frozenset(TopicPartition(*place) for place in assignment.partitions())
        self._given = MemberAssignment(generation, member_id, owned)


def _held(coordinator: Any) -> Partitions:
    return frozenset(TopicPartition(*place) for place in coordinator._subscription.assigned_partitions())
