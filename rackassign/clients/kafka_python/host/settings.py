"""Changing the configuration of topics, and of all brokers at once, one key at a time.

In 3.0.12 the admin client refuses the name of the cluster-wide default (empty, of a broker), refuses keys that brokers
do not list while they are unset, and gives the outcome as a text without the code of the error. So the request is sent
by `_manager.run` and `_manager.send`, as its own method does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from rackassign.clients.kafka_python.host.listing import RESOURCES, ResourceKind

_SET, _DELETE = 0, 1


class Refusal(NamedTuple):
    """What was refused, and why."""

    name: str
    code: int
    message: str


def change_configs(admin: Any, kind: ResourceKind, changes: Mapping[str, Mapping[str, str | None]]) -> list[Refusal]:
    """Set keys by the name of the topic or broker, unset those with None, and return what was refused.

    Raises:
        KafkaError: As the admin client does.
    """
    resources = [
        (
            RESOURCES[kind],
            name,
            [(key, _DELETE if value is None else _SET, value) for key, value in sorted(keys.items())],
        )
        for name, keys in sorted(changes.items())
    ]

    async def ask() -> Any:
        return await admin._manager.send(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))

    response = admin._manager.run(ask)
    return [
        Refusal(found.resource_name, found.error_code, found.error_message or "")
        for found in response.responses
        if found.error_code
    ]
