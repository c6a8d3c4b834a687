"""The ledger of a membership: how often it was lost, and in which generation the consumer was last assigned partitions.

Three patches depend on it. It shadows each of the two methods once, whichever of these patches is installed first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka.coordinator.base import UNKNOWN_MEMBER_ID

from rackassign.clients.kafka_python.internals.attributes import Consumer

LEDGER: Mapping[str, tuple[str, ...]] = {
    "_coordinator.reset_generation": ("member_id",),
    "_coordinator._on_join_complete_async": ("generation", "member_id", "protocol", "member_assignment_bytes"),
}
"""What it shadows, as `Patch.wraps`."""


class MembershipLedger:
    """The memberships of one consumer; its methods have kafka-python's names and run on its IO thread."""

    def __init__(self, consumer: Consumer) -> None:
        coordinator = consumer._coordinator
        self._reset = coordinator.reset_generation
        self._complete = coordinator._on_join_complete_async
        self.lost = False
        """Whether the member was removed from its group, or has left it, and was assigned nothing since."""
        self.losses = 0
        self.assigned: tuple[int, str] | None = None
        """Generation and member ID of the last assignment."""
        self.after_loss: list[Callable[[], None]] = []
        coordinator.reset_generation = self.reset_generation
        coordinator._on_join_complete_async = self.on_join_complete_async

    def reset_generation(self, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        self.lost = True
        self.losses += 1
        self._reset(member_id=member_id)
        for call in self.after_loss:
            call()

    async def on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        self.assigned, self.lost = (generation, member_id), False
        await self._complete(generation, member_id, protocol, member_assignment_bytes)


def ledger_of(consumer: Consumer) -> MembershipLedger:
    """Return the ledger of a consumer, which the first call installs."""
    found: MembershipLedger | None = consumer.__dict__.get("_rackassign_membership")
    if found is None:
        found = consumer.__dict__["_rackassign_membership"] = MembershipLedger(consumer)
    return found
