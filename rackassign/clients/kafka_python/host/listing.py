"""The brokers of a cluster, as an admin client lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.metadata import MetadataRequest

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


def metadata_of(admin: Any, broker: int) -> list[dict[str, Any]]:
    """Return all topics as one broker knows them: its copy of the metadata may be minutes behind that of another.

    The admin client asks whichever broker it likes; `_manager.run` and `_manager.send` of 3.0.12 take a node.

    Raises:
        KafkaError: As the admin client does.
    """

    async def ask() -> list[dict[str, Any]]:
        response = await admin._manager.send(MetadataRequest(topics=None), node_id=broker)
        topics: list[dict[str, Any]] = response.to_dict()["topics"]
        return topics

    found: list[dict[str, Any]] = admin._manager.run(ask)
    return found


def _broker(found: Mapping[str, Any]) -> Broker:
    number = found["node_id"] if "node_id" in found else found["broker_id"]
    return Broker(number, found.get("rack") or None, fenced=bool(found.get("is_fenced")))
