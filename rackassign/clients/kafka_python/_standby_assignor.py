"""The assignor with standbys for kafka-python; apart from the others, since few members need what it imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.assignor.base import DEFAULT_RACK_MONITOR
from rackassign.assignor.member import FROM_ENVIRONMENT, EnvRackDefault
from rackassign.assignor.rack_monitor import RackChangePolicy
from rackassign.assignor.standby import (
    NAME,
    OnStandbys,
    Positions,
    StandbyCodec,
    StandbyConfig,
    StandbyCopies,
    StandbyPlanner,
)
from rackassign.clients.kafka_python._assignors import RackAwareAssignor
from rackassign.model import TopicPartition
from rackassign.strategies.standby import StandbyOptions


class StandbyAwareAssignor(RackAwareAssignor):
    """Sticky and local assignment, with standbys spread over client tags (KIP-708), for the cooperative protocol.

    An instance belongs to one consumer, to which `attach` or `RackAwareConsumer` bind it.

    Args:
        rack: As for `RackAwareRangeAssignor`.
        client_tags: Tags of this member; those in `rack_aware_assignment_tags` must be among them.
        standbys: How copies are placed; the leader's options apply.
        positions: Returns the changelog positions of this member's copies.
        ends: Returns the known ends of changelogs.
        on_standbys: Called with added and removed copies.
        changelog: Returns the name of a topic's changelog.
        copartition: Sets of topics whose partitions of one number go to one member.
        locality: As for `RackAwareRangeAssignor`.
        name: As for `RackAwareRangeAssignor`, with a default of its own, because other assignors cannot read what its
            members send.
        rack_monitor: As for `RackAwareRangeAssignor`.

    Raises:
        ConfigError: If an option is not valid; errors in tags have Kafka's own messages.
    """

    name = NAME
    # Eager members would have to restore the state of the partitions that they revoke.
    _protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(
        self,
        rack: str | EnvRackDefault | None = FROM_ENVIRONMENT,
        *,
        client_tags: Mapping[str, str] | None = None,
        standbys: StandbyOptions | None = None,
        positions: Callable[[], Positions] | None = None,
        ends: Callable[[], Positions] = dict,
        on_standbys: OnStandbys | None = None,
        changelog: Callable[[str], str] = "{}-changelog".format,
        copartition: Sequence[Sequence[str]] = (),
        locality: str = "any-replica",
        name: str | None = None,
        rack_monitor: RackChangePolicy | None = DEFAULT_RACK_MONITOR,
    ) -> None:
        member = self.member_context(rack, locality, name)
        placed = StandbyOptions() if standbys is None else standbys
        config = StandbyConfig(client_tags or {}, placed, positions, ends, on_standbys, changelog, copartition)
        self._copies = StandbyCopies(member, config)
        self._standby_codec = StandbyCodec(member, config, self._copies)
        super().__init__(member, self._standby_codec, StandbyPlanner(member, config), rack_monitor)

    @property
    def standbys(self) -> frozenset[TopicPartition]:
        """The partitions of which this member is to keep a copy."""
        return self._copies.kept

    @property
    def generation(self) -> int:
        """The generation of the last assignment; -1 before there was one."""
        return self._standby_codec.generation

    def request_rejoin(self) -> None:
        """Make this member rejoin with its next poll, if its consumer is known."""
        self._member.request_rejoin()

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Record this member's own assignment, and the copies it is to keep."""
        super().on_assignment(assignment, generation)
        user_data = getattr(assignment, "user_data", None)
        self._copies.on_assigned(user_data if isinstance(user_data, bytes) else None)
