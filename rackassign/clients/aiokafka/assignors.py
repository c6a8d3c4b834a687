"""Assignors for aiokafka's `partition_assignment_strategy`.

They run in the task of the consumer's coordinator, on its loop. Planning is in `clients.common.assignor`; this module
adapts it to the interface of aiokafka. Subscriptions and assignments are exchanged as bytes, since aiokafka's own
classes support only version 0 of the protocol, without racks. An exception here would end the coordinator's task, and
with it the consumer; no exception leaves this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, update_wrapper
from inspect import getattr_static
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, cast

from rackassign.clients.aiokafka import internals
from rackassign.clients.common.adapter import ClientAdapter, GroupMembership
from rackassign.clients.common.assignor import Assignor
from rackassign.clients.common.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from rackassign.clients.common.subscriptions import JoinMember
from rackassign.errors import ConfigError
from rackassign.model import Partitions
from rackassign.racks import BrokerRackCache
from rackassign.wire import Subscription, encode_assignments, encode_subscription

P = ParamSpec("P")
R = TypeVar("R")


class _PerConsumerMethod(Generic[P, R]):
    """A method that can be called on the class: aiokafka does not instantiate a class it is given."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        update_wrapper(cast("Callable[..., Any]", self), method)

    def __get__(self, instance: RackAwareAssignor | None, kind: type[RackAwareAssignor]) -> Callable[P, R]:
        bound = internals.per_consumer_instance(kind, partial(_made, kind)) if instance is None else instance
        return cast("Callable[P, R]", MethodType(self._method, bound))


def _made(kind: type[RackAwareAssignor]) -> RackAwareAssignor:
    try:
        return kind()
    except ConfigError as error:
        made = kind(rack=None)
        made.config_error(error)
        return made


class RackAwareAssignor(Assignor):
    """Shared base of the assignors: sends the rack, reads the live topology, and never raises.

    Takes the arguments of `clients.common.assignor.Assignor`. An instance belongs to one consumer. The class itself
    may be given too; then the rack is that of `RACKASSIGN_RACK`.
    """

    _adapter: ClassVar[ClientAdapter] = internals
    _package = __package__

    _join: Sequence[JoinMember] | None = None

    @_PerConsumerMethod
    def metadata(self, topics: Iterable[str]) -> bytes:
        """Return the subscription of this member: its topics and its rack (KIP-881, version 3)."""
        topics = tuple(sorted(topics))
        try:
            self._find_caller()
            return encode_subscription(self._joining(topics))
        except Exception:  # noqa: BLE001 - raised from here, the consumer would never consume again
            self._once.warn("metadata", "%s: only topics and rack are sent", self.name, exc_info=True)
            return encode_subscription(Subscription(topics, rack=self.rack))

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
        join, self._join = self._join or (), None
        known = {member.id for member in join} == set(members)
        if not known:
            join = [JoinMember(member, None, _subscription(metadata)) for member, metadata in members.items()]
        read: Callable[[], list[JoinMember]] = partial(list, join)
        if not known or not self.assigns():
            return _encoded(self._decide(cluster, read, read))
        planning = self._planning(cluster, read)
        later = internals.Later(
            planning, lambda planned: _encoded(self._settle(planned or self._plain(cluster, read())))
        )
        # The caller of `set_decoded_members` awaits this, and passes the result to aiokafka.
        return cast("dict[str, bytes]", later)

    def assigns(self) -> bool:
        """Return whether `assign` is not overridden; a subclass may use its members and change the result."""
        return getattr_static(self, "assign") is getattr_static(RackAwareAssignor, "assign")

    @_PerConsumerMethod
    def on_assignment(self, assignment: Any) -> None:  # noqa: ANN401 - untyped
        """Record this member's own assignment; as the leader, that of the group."""
        try:
            generation = None if self._membership is None else self._membership.generation()
            self._assigned(_partitions(assignment), -1 if generation is None else generation)
        except Exception:  # noqa: BLE001 - as above
            self._once.warn("assignment", "%s: an assignment could not be recorded", self.name, exc_info=True)

    def set_decoded_subscriptions(self, read: Mapping[str, Subscription]) -> None:
        """Ignore the subscriptions: `set_decoded_members` gets the members with all their fields."""

    def set_decoded_members(self, members: Sequence[JoinMember]) -> None:
        """Store the decoded members of the next `assign`."""
        self._join = members

    def bind(self, membership: GroupMembership, racks: BrokerRackCache | None = None) -> None:
        """Bind this assignor to its consumer, and decode the joins of that consumer.

        Args:
            membership: Membership of the consumer.
            racks: Rack cache of the consumer, if it has one.

        Raises:
            ConfigError: It is bound to another consumer.
        """
        super().bind(membership, racks)
        if isinstance(membership, internals.Membership):
            internals.read_joins(membership, self._once)

    def share_rack_cache(self, racks: BrokerRackCache) -> None:
        """Use the rack cache of a consumer that is not started yet."""
        self._racks = racks

    def config_error(self, error: ConfigError) -> None:
        """Report why a class could not be instantiated."""
        self._once.warn("environment", "%s: no rack is sent: %s", self.name, error)

    def _find_caller(self) -> None:
        """Find the consumer that is joining; a stopped consumer is replaced by the next."""
        known = self._membership
        found = internals.membership_from_stack()
        if found is None:
            if known is None:
                self._once.warn(
                    "caller", "%s: the consumer of this assignor cannot be found; racks are not read", self.name
                )
        elif known is None or (isinstance(known, internals.Membership) and known.over()):
            self._membership = None
            self.bind(found)
        elif not known.same_consumer(found):
            self._once.warn("shared", "%s: two consumers use one assignor; create one for each", self.name)


class RackAwareRangeAssignor(RackAwareAssignor):
    """Range assignment that keeps partitions local to their readers (KIP-881).

    The result equals that of Java's `RangeAssignor`, partition by partition. Takes the arguments of
    `RackAwareAssignor`.
    """

    strategy = name = "range"


class RackAwareStickyAssignor(StickyAssignor, RackAwareAssignor):
    """Sticky and local assignment, for the eager protocol. Takes the arguments of `OptimalAssignor`.

    Reads and writes the user data of Java's `StickyAssignor`, kafka-python's and aiokafka's, so that mixed groups stay
    sticky.
    """

    name = "sticky"


class RackAwareCooperativeStickyAssignor(CooperativeStickyAssignor, RackAwareAssignor):
    """Membership in a group of cooperative members (KIP-429). Takes the arguments of `OptimalAssignor`.

    aiokafka revokes everything before it joins, so this member claims nothing, and its partitions may go to others. As
    the leader it follows the protocol of the others: it withholds the partitions they claim until they revoke them.
    """

    name = "cooperative-sticky"

    def _held(self) -> Partitions:
        return {}


def _encoded(decided: Mapping[str, Partitions]) -> dict[str, bytes]:
    return dict(zip(decided, encode_assignments(decided.values()), strict=True))


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
