"""A static member whose place another one has taken."""

from __future__ import annotations

from typing import Any

from kafka.errors import FencedInstanceIdError

from rackassign.clients.kafka_python.host.remedy import Consumer, Remedy
from rackassign.util.log_once import Once


def _raise_when_fenced(consumer: Consumer, _once: Once) -> None:
    """Have `poll()` raise once a heartbeat was answered with FENCED_INSTANCE_ID, now and ever after, as Java does."""
    coordinator = consumer._coordinator
    handle, poll = coordinator._handle_heartbeat_response, coordinator.poll
    fenced: list[FencedInstanceIdError] = []

    def handle_heartbeat_response(response: Any, send_time: float) -> Any:
        if response.error_code == FencedInstanceIdError.errno and not fenced:
            fenced.append(
                FencedInstanceIdError(
                    f"another member of group {coordinator.group_id} has joined with the group_instance_id of this"
                    f" one, {coordinator.group_instance_id}, and has its partitions"
                )
            )
        return handle(response, send_time)

    def poll_unless_fenced(timeout_ms: float | None = None) -> bool:
        if fenced:
            raise fenced[0]
        return bool(poll(timeout_ms=timeout_ms))

    coordinator._handle_heartbeat_response = handle_heartbeat_response
    coordinator.poll = poll_unless_fenced


RAISE_WHEN_FENCED = Remedy(
    name="raise_when_fenced",
    defect=(
        "A static member whose group.instance.id another one joins with is fenced: the host logs that its heartbeat"
        " failed, sends no more, and reads on for ever what the other one reads as well. poll() never raises."
    ),
    proof="integration/test_remedies.py::test_a_fenced_static_member_is_told",
    methods={
        "_coordinator._handle_heartbeat_response": ("response", "send_time"),
        "_coordinator.poll": ("timeout_ms",),
    },
    needs=("_coordinator.group_id", "_coordinator.group_instance_id"),
    install=_raise_when_fenced,
)
