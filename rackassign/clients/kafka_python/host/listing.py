"""The brokers of a cluster, as an admin client lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackassign.model import Broker


def listed_brokers(admin: Any) -> tuple[Broker, ...]:
    """Return all brokers in order of their ids; those that are fenced only where the brokers tell of them (4.0).

    In 3.0.12 `describe_cluster` raises KeyError('endpoint_type') for the oldest answer to its request (Kafka 2.8 to
    3.6); the metadata behind `_get_cluster_metadata`, which it uses for still older brokers, has what is needed here.

    Raises:
        KafkaError: As the admin client does.
    """
    try:
        found = admin.describe_cluster()["brokers"]
    except KeyError:
        found = admin._manager.run(admin._get_cluster_metadata, [])["brokers"]
    return tuple(sorted(map(_broker, found), key=lambda broker: broker.id))


def _broker(found: Mapping[str, Any]) -> Broker:
    number = found["node_id"] if "node_id" in found else found["broker_id"]
    return Broker(number, found.get("rack") or None, fenced=bool(found.get("is_fenced")))
