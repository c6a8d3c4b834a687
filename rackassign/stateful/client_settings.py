"""The settings of the four clients of a member, all derived from those that the user gives for the consumer."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

_OWN = frozenset(
    {"metric_reporters", "metrics_num_samples", "metrics_sample_window_ms", "max_in_flight_requests_per_connection"}
)
"""Settings of the group's consumer alone, although other clients have them: reporters would see all metrics four times,
and an idempotent producer has a limit of its own."""


_LINGER_MS = 1000
"""More than `linger_ms` of the producers."""


class ClientSettings(NamedTuple):
    """The settings of each client.

    Args:
        consumer: Of the consumer in the group.
        reader: Of the consumers of changelogs.
        producer: Of the producer of changelogs.
        admin: Of the admin client.
    """

    consumer: dict[str, Any]
    reader: dict[str, Any]
    producer: dict[str, Any]
    admin: dict[str, Any]


def client_settings(config: Mapping[str, Any]) -> ClientSettings:
    """Return the settings of all clients.

    Whatever belongs to a connection (addresses, security, proxy, versions, timeouts) goes to each client that has the
    setting. The rest configures the consumer alone.

    Args:
        config: Settings of a `KafkaConsumer`.

    Raises:
        ConfigError: A setting is unknown.
    """
    known = set(KafkaConsumer.DEFAULT_CONFIG)
    for name in config:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{short_repr(name)} is no setting of KafkaConsumer{hint}")
    of_producer, of_admin = set(KafkaProducer.DEFAULT_CONFIG), set(KafkaAdminClient.DEFAULT_CONFIG)
    shared = (of_admin & of_producer & known) | {name for name in known if name.startswith(("ssl_", "sasl_"))}
    connection = {name: value for name, value in config.items() if name in shared - _OWN}
    producing = {name: value for name, value in connection.items() if name in of_producer}
    if isinstance(request_ms := producing.get("request_timeout_ms"), (int, float)):
        # kafka-python demands that a record has the time for one request, and the user cannot set this for a consumer.
        least_ms = request_ms + _LINGER_MS
        producing["delivery_timeout_ms"] = max(KafkaProducer.DEFAULT_CONFIG["delivery_timeout_ms"], least_ms)
    return ClientSettings(
        dict(config),
        dict(connection),
        producing,
        {name: value for name, value in connection.items() if name in of_admin},
    )
