"""Assignors for kafka-python's `partition_assignment_strategy`.

They run inside `poll()`, on the IO thread of kafka-python. Planning is in `clients.common.assignor`; this
module adapts it to the interface of kafka-python. No exception leaves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from inspect import getattr_static
from types import MappingProxyType
from typing import ClassVar

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from rackassign.clients.common.adapter import ClientAdapter
from rackassign.clients.common.assignor import FROM_ENVIRONMENT, WATCHING, Assignor, EnvRackDefault, check_rack
from rackassign.clients.common.standby_assignor import NAME, StandbyAssignor
from rackassign.clients.common.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from rackassign.clients.kafka_python import internals
from rackassign.clients.kafka_python.subscriptions import KafkaPythonMember, join_members, join_members_minimal
from rackassign.model import Partitions
from rackassign.wire import NEWEST, Subscription

__all__ = [
    "FROM_ENVIRONMENT",
    "WATCHING",
    "EnvRackDefault",
    "RackAwareAssignor",
    "RackAwareRangeAssignor",
    "check_rack",
    "partitions_of",
]


class RackAwareAssignor(Assignor, AbstractPartitionAssignor):  # type: ignore[misc] # kafka-python is untyped
    """Shared base of the assignors: sends the rack, reads the live topology, and never raises.

    Takes the arguments of `rackassign.clients.common.assignor.Assignor`.
    """

    _adapter: ClassVar[ClientAdapter] = internals
    _package = __package__

    _read: Mapping[str, Subscription] = MappingProxyType({})

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return the subscription of this member: its topics and its rack (KIP-881, version 3)."""
        sent = self._joining(topics)
        claims = [(topic, list(partitions)) for topic, partitions in sent.owned.items()]
        return ConsumerProtocolSubscription(
            NEWEST, list(sent.topics), sent.user_data, claims, sent.generation, sent.rack
        )

    def assign(
        self, cluster: internals.Cluster, members: list[KafkaPythonMember]
    ) -> dict[str, ConsumerProtocolAssignment]:
        """Compute the assignment of the whole group; called on its leader.

        Args:
            cluster: kafka-python's live `ClusterMetadata`.
            members: Members of the join, their subscriptions decoded.

        Returns:
            An assignment for every member.
        """
        read, self._read = self._read, {}
        decided = self._decide(
            cluster, partial(join_members, members, read), partial(join_members_minimal, members, read)
        )
        return internals.encode_member_assignments(decided, self.assignment_user_data(decided))

    def assigns(self) -> bool:
        """Return whether `assign` is not overridden; a subclass may use the subscriptions of its members."""
        return getattr_static(self, "assign") is getattr_static(RackAwareAssignor, "assign")

    def set_decoded_subscriptions(self, read: Mapping[str, Subscription]) -> None:
        """Store the decoded subscriptions of the next `assign`, by member ID, so that they are decoded only once."""
        self._read = read

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Record this member's own assignment; as the leader, that of the group."""
        self._assigned(partitions_of(assignment), generation)


class RackAwareRangeAssignor(RackAwareAssignor):
    """Range assignment that keeps partitions local to their readers (KIP-881).

    The result equals that of Java's `RangeAssignor`, partition by partition. Takes the arguments of
    `RackAwareAssignor`.
    """

    strategy = name = "range"


def partitions_of(assignment: ConsumerProtocolAssignment) -> Partitions:
    """Return the partitions of kafka-python's assignment, by topic."""
    owned: dict[str, list[int]] = {}
    for topic, partition in assignment.partitions():
        owned.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in owned.items()}


class RackAwareStickyAssignor(StickyAssignor, RackAwareAssignor):
    """Sticky and local assignment, for the eager protocol. Takes the arguments of `OptimalAssignor`.

    Reads and writes the user data of Java's `StickyAssignor` and kafka-python's, so that mixed groups stay sticky.
    """

    name = "sticky"


class RackAwareCooperativeStickyAssignor(CooperativeStickyAssignor, RackAwareAssignor):
    """Sticky and local assignment, for the cooperative protocol (KIP-429). Takes the arguments of `OptimalAssignor`.

    An instance belongs to one consumer. `attach` and `RackAwareConsumer` bind it to theirs, so that it claims exactly
    the partitions the consumer owns. Without them it claims its last assignment, and its leader corrects false claims.
    """

    name = "cooperative-sticky"

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Prefer the cooperative protocol; in a group with an eager assignor, as during a migration, use eager."""
        return [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER]


class StandbyAwareAssignor(StandbyAssignor, RackAwareAssignor):
    """Sticky and local assignment, with standbys spread over client tags (KIP-708).

    Takes the arguments of `StandbyAssignor`.

    An instance belongs to one consumer, to which `attach` or `RackAwareConsumer` bind it.
    """

    name = NAME

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Record this member's own assignment, and the copies it is to keep."""
        super().on_assignment(assignment, generation)
        user_data = getattr(assignment, "user_data", None)
        self.apply_standby_user_data(user_data if isinstance(user_data, bytes) else None)

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Use only the cooperative protocol: the state of a revoked partition would have to be restored."""
        return [RebalanceProtocol.COOPERATIVE]
