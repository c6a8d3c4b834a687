"""Configuration of topics, and of all brokers at once, one key at a time.

In 3.0.12 the admin client refuses the name of the cluster-wide default (empty, of a broker), refuses keys that brokers
do not list while they are unset, and gives the outcome as a text without the code of the error. So the two requests
are sent by `_manager.run` and `_manager.send`, as its own methods do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

Kind = Literal["topic", "all-brokers"]

_CODES: Mapping[Kind, int] = {"topic": 2, "all-brokers": 4}
_OWN: Mapping[Kind, int] = {"topic": 1, "all-brokers": 3}
"""Source of a value that is set there, and not inherited from elsewhere."""

_SET, _DELETE = 0, 1

EVERY_BROKER = ""
"""The name of what counts for all brokers that do not say otherwise."""


class Refusal(NamedTuple):
    """What was refused, and why."""

    name: str
    code: int
    message: str


class Settings(NamedTuple):
    """Values that are set, by the name of the topic and by key, and what could not be read."""

    values: dict[str, dict[str, str]]
    refused: list[Refusal]


def read_settings(admin: Any, kind: Kind, names: Iterable[str], keys: Iterable[str]) -> Settings:
    """Read keys that are set there themselves; inherited values are left out.

    Raises:
        KafkaError: As the admin client does.
    """
    # The brokers of 4.3 list nothing of the default for all if they are asked for keys by name.
    asked = list(keys)
    resources = [(_CODES[kind], name, asked if kind == "topic" else None) for name in names]
    response = _sent(admin, DescribeConfigsRequest(resources=resources, include_synonyms=False, min_version=1))
    values = {
        found.resource_name: {
            row.name: row.value
            for row in found.configs
            if row.name in asked and row.config_source == _OWN[kind] and row.value is not None
        }
        for found in response.results
        if not found.error_code
    }
    refused = [
        Refusal(found.resource_name, found.error_code, found.error_message or "")
        for found in response.results
        if found.error_code
    ]
    return Settings(values, refused)


def write_settings(admin: Any, kind: Kind, changes: Mapping[str, Mapping[str, str | None]]) -> list[Refusal]:
    """Set keys, or unset those with None, and return what was refused.

    Raises:
        KafkaError: As the admin client does.
    """
    resources = [
        (_CODES[kind], name, [(key, _DELETE if value is None else _SET, value) for key, value in sorted(keys.items())])
        for name, keys in sorted(changes.items())
    ]
    response = _sent(admin, IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
    return [
        Refusal(found.resource_name, found.error_code, found.error_message or "")
        for found in response.responses
        if found.error_code
    ]


def _sent(admin: Any, request: Any) -> Any:
    async def ask() -> Any:
        return await admin._manager.send(request)

    return admin._manager.run(ask)
