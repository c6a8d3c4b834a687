"""Problems that a client cannot fix, detected by a member in the responses to its own joins."""

from __future__ import annotations

import inspect
from typing import Any

from kafka.errors import InconsistentGroupProtocolError, UnknownError

from rackassign.clients.kafka_python.internals.adapter import assignors
from rackassign.clients.kafka_python.internals.attributes import Consumer
from rackassign.text import WarnOnce, with_version

_ENOUGH = 3
"""Number of consecutive joins that fail inside the broker before the warning: a single one may be accidental."""


def warn_on_join_response(consumer: Consumer, once: WarnOnce) -> None:
    """Warn if the broker assigns instead of a member, refuses its strategies, or fails at each join.

    Shadows `_coordinator._process_join_group_response`. A response without error and without a leader comes from a
    group with a KIP-848 member: seen with Apache Kafka 4.3, where a group of classic members always has a leader.
    """
    coordinator: Any = getattr(consumer, "_coordinator", None)
    original = getattr(coordinator, "_process_join_group_response", None)
    if original is None or tuple(inspect.signature(original).parameters) != ("response", "send_time"):
        once.warn("signs", "%s differs: join responses are not checked", with_version("kafka-python"))
        return
    failed = 0

    def process_join_group_response(response: Any, send_time: float) -> Any:
        nonlocal failed
        try:
            failed = failed + 1 if response.error_code == UnknownError.errno else 0
            _warn(coordinator.group_id, response, failed, once)
            if response.error_code == InconsistentGroupProtocolError.errno:
                _warn_of_strategies(coordinator.group_id, consumer, once)
        except Exception:  # noqa: BLE001 - what cannot be read here must still be processed
            once.warn(
                "signs", "%s differs: a join response cannot be read", with_version("kafka-python"), exc_info=True
            )
        return original(response, send_time)

    coordinator._process_join_group_response = process_join_group_response


def _warn(group: str, response: Any, failed: int, once: WarnOnce) -> None:
    if response.error_code == 0 and not response.leader:
        once.warn(
            "next generation",
            "a member of group %s uses the new consumer protocol (KIP-848): the broker assigns then,"
            " and ignores racks. `rackassign doctor --group %s` shows details",
            *(group, group),
        )
    if failed == _ENOUGH:
        once.warn(
            "wedged",
            "the broker fails at each join of group %s: a member with a malformed subscription may have broken it."
            " `rackassign doctor --group %s --fix` frees such a group",
            *(group, group),
        )


def _warn_of_strategies(group: str, consumer: Consumer, once: WarnOnce) -> None:
    """Warn that the member cannot join, and why: the error that kafka-python raises names no strategy."""
    once.warn(
        "strategies",
        "the broker does not let this member into group %s: none of its strategies (%s) is"
        " one that all members of the group have. `rackassign doctor --group %s` shows theirs. Choose the assignor"
        " with the same name, or move the group in two rolling restarts",
        *(group, ", ".join(assignor.name for assignor in assignors(consumer)), group),
    )
