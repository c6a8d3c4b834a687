"""The sticky assignors for kafka-python."""

from __future__ import annotations

from kafka.coordinator.assignors.abstract import RebalanceProtocol

from rackassign.clients.kafka_python.assignor import RackAwareAssignor
from rackassign.clients.sticky import CooperativeStickyAssignor, StickyAssignor


class RackAwareStickyAssignor(StickyAssignor, RackAwareAssignor):
    """Sticky assignment near home, for the eager protocol. Takes the arguments of `BalancedAssignor`.

    Reads and writes the user data of Java's `StickyAssignor` and kafka-python's, so that mixed groups stay sticky.
    """

    name = "sticky"


class RackAwareCooperativeStickyAssignor(CooperativeStickyAssignor, RackAwareAssignor):
    """Sticky assignment near home, for the cooperative protocol (KIP-429). Takes the arguments of `BalancedAssignor`.

    An instance belongs to one consumer. `attach` and `RackAwareConsumer` tie it to theirs, so that it claims exactly
    what that holds. Without them it claims what it was given last, and its leader makes up for what is not true.
    """

    name = "cooperative-sticky"

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Prefer to keep what is held; beside an eager assignor, as on the way from one to the other, give it up."""
        return [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER]
