"""Assignors for aiokafka's `partition_assignment_strategy`.

They run in the task of the consumer's coordinator, on its loop. Planning is in `assignor.base`; this module
adapts it to the interface of aiokafka. Subscriptions and assignments are exchanged as bytes, since aiokafka's own
classes support only version 0 of the protocol, without racks. An exception here would end the coordinator's task, and
with it the consumer; no exception leaves this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial, update_wrapper
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, cast

from rackassign.assignor.adapter import ClientAdapter, GroupMembership
from rackassign.assignor.base import Assignor, warn_on_rack_mismatch
from rackassign.assignor.history import LeaderAssignment
from rackassign.assignor.member import MemberContext
from rackassign.assignor.options import OptimalAssignor, RangeAssignor
from rackassign.assignor.subscriptions import (
    CooperativeCodec,
    JoinMember,
    StickyCodec,
    accepts_join_context,
    is_join_context_accepted,
)
from rackassign.clients.aiokafka import internals, patches
from rackassign.errors import ConfigError
from rackassign.model import Partitions
from rackassign.racks import BrokerRackCache
from rackassign.text import WarnOnce
from rackassign.wire import Subscription, encode_assignments, encode_subscription

P = ParamSpec("P")
R = TypeVar("R")


class _PerConsumerMethod(Generic[P, R]):
    """A method that can be called on the class: aiokafka does not instantiate a class it is given."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        update_wrapper(cast("Callable[..., Any]", self), method)

    def __get__(self, instance: RackAwareAssignor | None, kind: type[RackAwareAssignor]) -> Callable[P, R]:
        if instance is None and kind is RackAwareAssignor:
            # The base class is no assignor of a consumer and has no instance; help() looks there for documentation.
            return cast("Callable[P, R]", self._method)
        bound = instance
        if bound is None:
            warned = _warned(f"{kind.__module__}.{kind.__qualname__}")
            bound = internals.per_consumer_instance(kind, partial(_made, kind), partial(_made, kind, warned))
        return cast("Callable[P, R]", MethodType(self._method, bound))


@cache
def _warned(_name: str) -> WarnOnce:
    """Return the warnings of a class's instances whose consumer cannot be determined: each call has another one."""
    return WarnOnce(logging.getLogger(f"{__package__}.assignor"))


def _made(kind: Callable[..., RackAwareAssignor], once: WarnOnce | None = None) -> RackAwareAssignor:
    problem = None
    try:
        made = kind()
    except ConfigError as error:
        made, problem = kind(rack=None), error
    if once is not None:
        made.share_warnings(once)
    if problem is not None:
        made.config_error(problem)
    return made


class RackAwareAssignor(Assignor):
    """Shared base of the assignors: the interface of aiokafka.

    An instance belongs to one consumer. The class itself may be given too; then the rack is that of `RACKASSIGN_RACK`.
    """

    _adapter: ClassVar[ClientAdapter] = internals
    _package = __package__

    @_PerConsumerMethod
    def metadata(self, topics: Iterable[str]) -> bytes:
        """Return the subscription of this member: its topics and its rack (KIP-881, version 3)."""
        topics = tuple(sorted(topics))
        try:
            self._find_caller()
            return encode_subscription(self._joining(topics))
        except Exception:  # noqa: BLE001 - raised from here, the consumer would never consume again
            self._member.once.warn("metadata", "%s: only topics and rack are sent", self.name, exc_info=True)
            return encode_subscription(Subscription(topics, rack=self.rack))

    @accepts_join_context
    @_PerConsumerMethod
    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, bytes]:  # noqa: ANN401 - untyped
        """Compute the assignment of the whole group; called on its leader.

        If the join was decoded by `read_joins`, planning runs on a thread, so that the consumer's loop continues.

        Args:
            cluster: aiokafka's live `ClusterMetadata`.
            members: Metadata of each member as decoded by aiokafka; used if `read_joins` could not decode it.

        Returns:
            An assignment for every member, encoded.
        """
        join = patches.current_join()
        if join is not None and {member.id for member in join.members} == set(members):
            joined = list(join.members)
        else:
            join = None
            joined = [JoinMember(member, None, _subscription(metadata)) for member, metadata in members.items()]
        read: Callable[[], list[JoinMember]] = partial(list, joined)
        if join is None or join.assignor is not self or not is_join_context_accepted(self):
            # The caller is a subclass, or an assignor that wraps this one, and expects assignments.
            return _encoded(self._decide(cluster, read, read))
        planning = self._planning(cluster, read)
        later = patches.Later(
            planning, lambda planned: _encoded(self._settle(planned or self._fallback(cluster, read())))
        )
        # `_perform_assignment` is shadowed, awaits this, and passes the result to aiokafka.
        return cast("dict[str, bytes]", later)

    @_PerConsumerMethod
    def on_assignment(self, assignment: Any) -> None:  # noqa: ANN401 - untyped
        try:
            generation = self._member.generation()
            self._assigned(_partitions(assignment), -1 if generation is None else generation)
        except Exception:  # noqa: BLE001 - as above
            self._member.once.warn("assignment", "%s: an assignment could not be recorded", self.name, exc_info=True)

    def bind(self, membership: GroupMembership, racks: BrokerRackCache | None = None) -> None:
        """Bind this assignor to its consumer, decode the joins of that consumer, and let it find followers.

        Args:
            membership: Membership of the consumer.
            racks: Rack cache of the consumer, if it has one.

        Raises:
            ConfigError: It is bound to another consumer.
        """
        super().bind(membership, racks)
        if isinstance(membership, internals.Membership):
            patches.read_joins(membership, self._member.once)
            patches.join_again(membership.coordinator, self._member.once)
            patches.end_commits(membership.coordinator, self._member.once)
            patches.stop_heartbeats(membership.coordinator, self._member.once)
            patches.watch_as_returned_leader(membership.coordinator, self._member.once)
            patches.find_unknown_followers(membership.coordinator, self._member.once)

    def share_rack_cache(self, racks: BrokerRackCache) -> None:
        self._member.racks = racks

    def share_warnings(self, once: WarnOnce) -> None:
        """Log only warnings that no other instance with the same `once` has logged."""
        self._member.once = once

    def config_error(self, error: ConfigError) -> None:
        self._member.once.warn("environment", "%s: no rack is sent: %s", self.name, error)

    def _find_caller(self) -> None:
        """Find the consumer that is joining; a stopped consumer is replaced by the next."""
        known = self._member.membership
        membership = internals.membership_from_stack()
        if membership is None:
            if known is None:
                self._member.once.warn(
                    "caller", "%s: the consumer of this assignor cannot be found; racks are not read", self.name
                )
        elif known is None or (isinstance(known, internals.Membership) and known.over()):
            self._member.membership = None
            self.bind(membership)
        elif not known.same_consumer(membership):
            self._warn_of_sharing()
        if membership is not None and not self.rack_compared:
            rack = internals.fetch_rack(membership)
            if rack is not None:
                warn_on_rack_mismatch([self], rack, self._member.once)


class RackAwareRangeAssignor(RangeAssignor, RackAwareAssignor):
    """Range assignment that keeps partitions local to their readers (KIP-881). Takes the arguments of `RangeAssignor`.

    The result equals that of Java's `RangeAssignor`, partition by partition.
    """


class RackAwareStickyAssignor(OptimalAssignor, RackAwareAssignor):
    """Sticky and local assignment, for the eager protocol. Takes the arguments of `OptimalAssignor`.

    Reads and writes the user data of Java's `StickyAssignor`, kafka-python's and aiokafka's, so that mixed groups stay
    sticky.
    """

    name = "sticky"
    _codec_type = StickyCodec


class _ClaimNothing(CooperativeCodec):
    """The cooperative subscription of a member that has revoked everything."""

    def __init__(self, member: MemberContext) -> None:
        super().__init__(member, dict)


class RackAwareCooperativeStickyAssignor(OptimalAssignor, RackAwareAssignor):
    """Membership in a group of cooperative members (KIP-429). Takes the arguments of `OptimalAssignor`.

    aiokafka revokes everything before it joins, so this member claims nothing, and its partitions may go to others. As
    the leader it follows the protocol of the others: it withholds the partitions they claim until they revoke them.
    """

    name = "cooperative-sticky"
    _codec_type = _ClaimNothing


def _encoded(decided: LeaderAssignment) -> dict[str, bytes]:
    given = decided.assignment
    return dict(zip(given, encode_assignments(given.values()), strict=True))


def _subscription(metadata: Any) -> Subscription:  # noqa: ANN401 - aiokafka is untyped
    """Return the subscription that aiokafka has decoded, of version 0."""
    topics = tuple(topic for topic in getattr(metadata, "subscription", None) or () if isinstance(topic, str))
    user_data = getattr(metadata, "user_data", None)
    return Subscription(topics, user_data if isinstance(user_data, bytes) else None)


def _partitions(assignment: Any) -> Partitions:  # noqa: ANN401 - aiokafka is untyped
    owned: dict[str, list[int]] = {}
    for topic, partition in assignment.partitions():
        owned.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in owned.items()}
