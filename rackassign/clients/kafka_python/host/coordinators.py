"""A group's coordinator that has gone, and is to be found again."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from kafka.errors import RetriableError

from rackassign.clients.kafka_python.host.remedy import Consumer, Remedy
from rackassign.clients.once import Once


def _look_on_for_coordinator(consumer: Consumer, _once: Once) -> None:
    """Go on looking for the coordinator, for as long as the caller allows, when a broker that was asked is gone."""
    coordinator = consumer._coordinator
    original: Callable[..., Coroutine[Any, Any, bool]] = coordinator.ensure_coordinator_ready_async

    async def look_on(timeout_ms: float | None = None) -> bool:
        # Who allows any time gets the error in the end, and not silence for ever.
        allowed_ms = coordinator.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        end = time.monotonic() + allowed_ms / 1000
        pause = coordinator.config["retry_backoff_ms"] / 1000
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                return await original(timeout_ms=None if timeout_ms is None else left * 1000)
            except RetriableError:
                if left <= pause:
                    if timeout_ms is None:
                        raise
                    return False
                await coordinator._manager._net.sleep(pause)

    coordinator.ensure_coordinator_ready_async = look_on


LOOK_ON_FOR_COORDINATOR = Remedy(
    name="look_on_for_coordinator",
    defect=(
        "While a broker is down and the others still list it, the host may ask it for the coordinator, then for"
        " metadata, and poll() or commit() raises its KafkaConnectionError, though two more brokers could answer."
    ),
    proof="integration/test_remedies.py::test_a_coordinator_is_looked_for_until_it_is_found",
    methods={"_coordinator.ensure_coordinator_ready_async": ("timeout_ms",)},
    needs=("_coordinator.config", "_coordinator._manager._net.sleep"),
    install=_look_on_for_coordinator,
)
