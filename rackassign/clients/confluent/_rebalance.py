"""Rebalances of the consumer: the fetcher follows the member, and callbacks are called before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import ref

from confluent_kafka import TopicPartition as ConfluentPartition

from rackassign.clients.confluent._commits import Commits
from rackassign.clients.confluent._delivery import StallDetector
from rackassign.clients.confluent._fetcher import PartitionFetcher
from rackassign.clients.confluent._group_member import GroupMember
from rackassign.clients.kafka_python.internals.group_member import MemberAssignment, Partitions, RevocationRequired
from rackassign.model import TopicPartition

_ENDS_S = 0.3
"""Time limit of a request for end offsets; it is repeated later, or librdkafka asks itself."""

Callback = Callable[[Any, list[ConfluentPartition]], object]
"""Called with the user's consumer and partitions, as confluent-kafka's."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Rebalance callbacks of the user."""

    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    # If omitted, `on_revoke` is called with partitions that were lost with the membership.
    on_lost: Callback | None = None


class RebalanceHandler:
    """Keeps the partitions being read in sync with the member's assignment; for the polling thread.

    An exception of a callback is raised by `serve`, after everything else has been done as without it.
    """

    def __init__(
        self, consumer: object, member: GroupMember, reader: PartitionFetcher, commits: Commits, stalls: StallDetector
    ) -> None:
        # A weak reference, so that the user's consumer is closed when its last user drops it.
        self._consumer = ref(consumer)
        self._member = member
        self._reader = reader
        self._commits = commits
        self._stalls = stalls
        self.following: MemberAssignment | None = None
        """The assignment that is read; None before the first one, and after a loss or an unsubscription."""
        self.callbacks = Callbacks()
        self.in_callback = False
        """Whether a callback is running."""

    def serve(self, wait_s: float) -> None:
        """Serve the group; while no partition is owned, wait for it."""
        if self._member.lost():
            # First of all: other members may read these partitions already.
            self.give_up(self._reader.held, lost=True)
        self._commits.serve()
        try:
            self._member.poll(0.0 if self._reader.held else wait_s)
        except RevocationRequired as due:
            try:
                self.give_up(self._reader.held & due.partitions, lost=due.lost)
            finally:
                self._member.acknowledge_revocation(due.partitions)
        given = self._member.take_new_assignment()
        if given is not None:
            self._follow(given)
        self._wake()
        self._begin(wait_s)

    def give_up(self, tps: Partitions, *, lost: bool) -> None:
        # Others may own lost partitions already: nothing is committed, and the callback cannot commit.
        if lost:
            self.following = None
        if not tps:
            return
        if lost:
            self._drop(tps)
            self._call(self.callbacks.on_lost or self.callbacks.on_revoke, tps)
            return
        try:
            self._call(self.callbacks.on_revoke, tps)
        finally:
            try:
                self._commits.commit_before_revoke(tps)
            finally:
                self._drop(tps)

    def end_offsets(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._member.end_offsets(tps, _ENDS_S)

    def rebalance_pending(self) -> bool:
        return bool(self._reader.waiting) or self._member.rebalance_pending()

    def _follow(self, given: MemberAssignment) -> None:
        # A member with a new member ID lost its membership in between, whether it noticed or not.
        renamed = self.following is None or given.member_id != self.following.member_id
        # What is only revoked has no other owner until the next join, so it can be committed in this generation.
        self.following = given
        try:
            self.give_up(self._reader.held if renamed else self._reader.held - given.owned, lost=renamed)
        finally:
            self.following = given
            added = given.owned - self._reader.held
            first = not self._reader.held
            self._reader.take(added)
            if added or first:
                self._call(self.callbacks.on_assign, added)

    def _begin(self, wait_s: float) -> None:
        if not self._reader.waiting:
            return
        unknown = self._reader.unknown()
        committed = self._member.committed(unknown, 1000 * wait_s) if unknown else {}
        self._reader.begin(committed, self.end_offsets)

    def _wake(self) -> None:
        quiet = self._stalls.suspects(self._reader.reading())
        stray = self._stalls.strays(self._reader.held)
        if stray or (quiet and self._stalls.stalled(self.end_offsets(quiet))):
            self._reader.recreate()
            self._stalls.restart()

    def _drop(self, tps: Partitions) -> None:
        self._commits.drop(tps)
        self._stalls.forget(tps)
        self._reader.drop(tps)

    def _call(self, callback: Callback | None, tps: Partitions) -> None:
        if callback is None:
            return
        self.in_callback = True
        try:
            callback(self._consumer(), [ConfluentPartition(*tp) for tp in sorted(tps)])
        finally:
            self.in_callback = False
