"""What becomes of an assignment: the reader follows the member, and the user is told before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import ref

from confluent_kafka import TopicPartition

from rackassign.clients.confluent.commits import Commits
from rackassign.clients.confluent.fetcher import PartitionFetcher, Places
from rackassign.clients.confluent.group_member import GroupMember
from rackassign.clients.confluent.stall_detector import StallDetector
from rackassign.clients.kafka_python.internals import MemberAssignment, RevocationRequired

_ENDS_S = 0.3
"""Whoever does not answer in so long is asked again later."""

Callback = Callable[[Any, list[TopicPartition]], object]
"""Called with the user's consumer and partitions, as confluent-kafka's."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a user wants to be told.

    Args:
        on_assign: What comes on top.
        on_revoke: What is about to be given up, and can still be committed.
        on_lost: What was lost with the membership; left out, `on_revoke` is told.
    """

    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None


class RebalanceHandler:
    """Keeps what is read in step with what the member has; all of it on the thread that polls.

    A callback that raises is heard out of `serve`, after everything else has been done as if it had not.

    Args:
        consumer: The user's, for the callbacks.
        member: Who is given partitions.
        reader: Who reads them.
        commits: Of what was read.
        stalls: Of what should be read, and is not.
    """

    def __init__(
        self, consumer: object, member: GroupMember, reader: PartitionFetcher, commits: Commits, stalls: StallDetector
    ) -> None:
        # Not held: who drops the user's consumer must be the last that had it.
        self._consumer = ref(consumer)
        self._member = member
        self._reader = reader
        self._commits = commits
        self._stalls = stalls
        self._member_id = ""
        self.callbacks = Callbacks()
        self.telling = False
        """Whether a callback is running."""

    def serve(self, wait_s: float) -> None:
        """Do what the group wants; while nothing is held it is waited for.

        Raises:
            KafkaException: The group cannot be joined, or what is committed cannot be known.
        """
        if self._member.lost():
            # Before anything else: others may read these already.
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

    def give_up(self, places: Places, *, lost: bool) -> None:
        """Stop reading partitions, and say so.

        Args:
            places: Which; of none nothing is said.
            lost: Somebody else may have them already: nothing is committed, and what is told of cannot be.
        """
        if not places:
            return
        if lost:
            self._drop(places)
            self._tell(self.callbacks.on_lost or self.callbacks.on_revoke, places)
            return
        try:
            self._tell(self.callbacks.on_revoke, places)
        finally:
            try:
                self._commits.commit_before_revoke(places)
            finally:
                self._drop(places)

    def rebalance_pending(self) -> bool:
        """Tell whether there is more to be done soon."""
        return bool(self._reader.waiting) or self._member.rebalance_pending()

    def _follow(self, given: MemberAssignment) -> None:
        # Whoever comes back under another name was out meanwhile, if it noticed or not.
        renamed, self._member_id = given.member_id != self._member_id, given.member_id
        try:
            self.give_up(self._reader.held if renamed else self._reader.held - given.owned, lost=renamed)
        finally:
            added = given.owned - self._reader.held
            first = not self._reader.held
            self._reader.take(added)
            if added or first:
                self._tell(self.callbacks.on_assign, added)

    def _begin(self, wait_s: float) -> None:
        if not self._reader.waiting:
            return
        unknown = self._reader.unknown()
        self._reader.begin(self._member.committed(unknown, wait_s) if unknown else {})

    def _wake(self) -> None:
        quiet = self._stalls.suspects(self._reader.reading())
        if quiet and self._stalls.stalled(self._member.end_offsets(quiet, _ENDS_S)):
            self._reader.recreate()
            self._stalls.forget(self._reader.held)

    def _drop(self, places: Places) -> None:
        self._commits.drop(places)
        self._stalls.forget(places)
        self._reader.drop(places)

    def _tell(self, callback: Callback | None, places: Places) -> None:
        if callback is None:
            return
        self.telling = True
        try:
            callback(self._consumer(), [TopicPartition(*place) for place in sorted(places)])
        finally:
            self.telling = False
