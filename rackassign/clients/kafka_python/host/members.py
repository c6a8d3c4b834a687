"""Members that send what the host cannot read, or fails on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rackassign.clients.joins import read_join
from rackassign.clients.kafka_python.host.remedy import Consumer, Remedy, host_version
from rackassign.util.log_once import Once


def _guard_members(consumer: Consumer, once: Once) -> None:
    """Clean what members sent before the host decodes it, and spare it most of that where the assignor is ours."""
    coordinator = consumer._coordinator
    original = coordinator._perform_assignment

    def perform_assignment(leader_id: str, protocol_name: str, members: Sequence[Any]) -> Any:
        try:
            read_join(members, coordinator._lookup_assignor(protocol_name), once)
        except Exception:  # noqa: BLE001 - then the host sees what it would have seen without us
            once.warn("guard", "%s: remedy guard_members failed", host_version(), exc_info=True)
        return original(leader_id, protocol_name, members)

    coordinator._perform_assignment = perform_assignment


GUARD_MEMBERS = Remedy(
    name="guard_members",
    defect=(
        "The leader decodes every member's metadata unguarded: one member that sends broken bytes or an"
        " illegal topic name makes the leader's poll() raise at every attempt, and nobody gets an assignment."
    ),
    proof="integration/test_remedies.py::test_group_goes_on_beside_a_broken_member",
    methods={"_coordinator._perform_assignment": ("leader_id", "protocol_name", "members")},
    needs=("_coordinator._lookup_assignor",),
    install=_guard_members,
)
