"""The assignor with standbys for kafka-python."""

from __future__ import annotations

from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.clients.kafka_python.assignor import RackAwareAssignor
from rackassign.clients.standby import NAME, StandbyAssignor


class StandbyAwareAssignor(StandbyAssignor, RackAwareAssignor):
    """Sticky assignment near home, and warm copies spread over client tags (KIP-708).

    Takes the arguments of `StandbyAssignor`.

    An instance belongs to one consumer, to which `attach` or `RackAwareConsumer` tie it.
    """

    name = NAME

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Take note of this member's own assignment, and of the copies it is to keep."""
        super().on_assignment(assignment, generation)
        user_data = getattr(assignment, "user_data", None)
        self.take_standbys(user_data if isinstance(user_data, bytes) else None)

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Keep what is held while joining: what is given up is state that has to be found again."""
        return [RebalanceProtocol.COOPERATIVE]
