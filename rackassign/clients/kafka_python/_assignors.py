"""Assignors for kafka-python's `partition_assignment_strategy`.

Metadata of other members may be valid but inconsistent: a null where a list is expected. Such parts are omitted here,
because one member's error must not cost the group its assignment.

Assignors run inside `poll()`, on the IO thread of kafka-python. Planning is in `assignor.base`; this module adapts it
to the interface of kafka-python. No exception leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Protocol
from weakref import ref

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from rackassign.assignor.adapter import ClientAdapter
from rackassign.assignor.base import Assignor, warn_on_rack_mismatch
from rackassign.assignor.options import OptimalAssignor, RangeAssignor
from rackassign.assignor.subscriptions import (
    CooperativeCodec,
    JoinContext,
    JoinMember,
    StickyCodec,
    accepts_join_context,
)
from rackassign.clients.kafka_python import internals
from rackassign.model import Partitions
from rackassign.wire import NEWEST, Subscription


class KafkaPythonMember(Protocol):
    """A member in kafka-python's JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


def join_members(members: Sequence[KafkaPythonMember]) -> list[JoinMember]:
    if isinstance(members, JoinContext):
        return _decoded(members)
    return [JoinMember(m.member_id, m.group_instance_id, _subscription(m.metadata)) for m in members]


def join_members_minimal(members: Sequence[KafkaPythonMember]) -> list[JoinMember]:
    """Return the members of a join with only those parts of their subscriptions that an assignment needs."""
    if isinstance(members, JoinContext):
        return _decoded(members)
    found: list[JoinMember] = []
    for member in members:
        subscription = Subscription(_topics(member.metadata))
        with suppress(Exception):
            subscription = _subscription(member.metadata)
        found.append(JoinMember(member.member_id, member.group_instance_id, subscription))
    return found


def _decoded(join: JoinContext[KafkaPythonMember]) -> list[JoinMember]:
    read = join.subscriptions
    return [JoinMember(m.member_id, m.group_instance_id, read[m.member_id]) for m in join.joined]


def _topics(metadata: Any) -> tuple[str, ...]:  # noqa: ANN401 - kafka-python is untyped
    return tuple(topic for topic in metadata.topics or () if isinstance(topic, str))


def _subscription(metadata: Any) -> Subscription:  # noqa: ANN401 - kafka-python is untyped
    owned: dict[str, list[int]] = {}
    for topic, partitions in metadata.owned_partitions or ():
        owned.setdefault(topic, []).extend(p for p in partitions or () if isinstance(p, int))
    rack, generation, user_data = metadata.rack_id, metadata.generation_id, metadata.user_data
    return Subscription(
        topics=_topics(metadata),
        user_data=user_data if isinstance(user_data, bytes) else None,
        owned={topic: tuple(ids) for topic, ids in owned.items()},
        generation=generation if isinstance(generation, int) else -1,
        rack=(rack or None) if isinstance(rack, str) else None,
    )


class RackAwareAssignor(Assignor, AbstractPartitionAssignor):  # type: ignore[misc] # kafka-python is untyped
    """Shared base of the assignors: the interface of kafka-python."""

    _adapter: ClassVar[ClientAdapter] = internals
    _package = __package__
    _protocols: ClassVar[Sequence[RebalanceProtocol]] = (RebalanceProtocol.EAGER,)
    """Rebalance protocols in order of preference."""
    _constructed: Callable[[], Any] | None = None
    """Returns the last consumer that was constructed with this assignor; None if it is gone."""

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Return the protocols of this assignor; called in the consumer's constructor, whose rack is compared now."""
        consumer = internals.consumer_under_construction()
        if consumer is not None:
            self._bind_constructed(consumer)
            options = None if self.rack_compared else internals.options_of(consumer)
            if options is not None:
                # An instance of a class that was passed is not among its assignors.
                warn_on_rack_mismatch([self, *options.assignors], options.client_rack, self._member.once)
        return list(self._protocols)

    def _bind_constructed(self, consumer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        """Begin with a consumer that is under construction, in place of a closed one."""
        # Weak, since an assignor may outlive its consumer.
        known, self._constructed = self._constructed, ref(consumer)
        other = None if known is None else known()
        if known is None or other is consumer:
            return
        if internals.is_open(other):
            # Each would claim what the other one owns.
            self._warn_of_sharing()
        else:
            self._release()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return the subscription of this member: its topics and its rack (KIP-881, version 3)."""
        sent = self._joining(topics)
        claims = [(topic, list(partitions)) for topic, partitions in sent.owned.items()]
        return ConsumerProtocolSubscription(
            NEWEST, list(sent.topics), sent.user_data, claims, sent.generation, sent.rack
        )

    @accepts_join_context
    def assign(
        self, cluster: internals.Cluster, members: list[KafkaPythonMember]
    ) -> dict[str, ConsumerProtocolAssignment]:
        """Compute the assignment of the whole group; called on its leader.

        Args:
            cluster: kafka-python's live `ClusterMetadata`.
            members: Members of the join, with subscriptions as decoded by kafka-python; a `JoinContext` has them
                completely decoded.

        Returns:
            An assignment for every member.
        """
        decided = self._decide(cluster, partial(join_members, members), partial(join_members_minimal, members))
        return internals.encode_member_assignments(decided.assignment, decided.user_data)

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        self._assigned(partitions_of(assignment), generation)


def partitions_of(assignment: ConsumerProtocolAssignment) -> Partitions:
    owned: dict[str, list[int]] = {}
    for topic, partition in assignment.partitions():
        owned.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in owned.items()}


class RackAwareRangeAssignor(RangeAssignor, RackAwareAssignor):
    """Range assignment that keeps partitions local to their readers (KIP-881). Takes the arguments of `RangeAssignor`.

    The result equals that of Java's `RangeAssignor`, partition by partition.
    """


class RackAwareStickyAssignor(OptimalAssignor, RackAwareAssignor):
    """Sticky and local assignment, for the eager protocol. Takes the arguments of `OptimalAssignor`.

    Reads and writes the user data of Java's `StickyAssignor` and kafka-python's, so that mixed groups stay sticky.
    """

    name = "sticky"
    _codec_type = StickyCodec


class RackAwareCooperativeStickyAssignor(OptimalAssignor, RackAwareAssignor):
    """Sticky and local assignment, for the cooperative protocol (KIP-429). Takes the arguments of `OptimalAssignor`.

    An instance belongs to one consumer. `attach` and `RackAwareConsumer` bind it to theirs, so that it claims exactly
    the partitions the consumer owns. Without them it claims its last assignment, and its leader corrects false claims.
    """

    name = "cooperative-sticky"
    _codec_type = CooperativeCodec
    # With an eager assignor beside it, as during a migration, both are eager.
    _protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
