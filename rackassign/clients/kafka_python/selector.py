"""What the brokers say of themselves: which replica a consumer is sent to."""

from __future__ import annotations

from collections.abc import Mapping

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from rackassign.clients.once import Once

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_PROPERTY = "replica.selector.class"


def replica_selectors(admin: KafkaAdminClient) -> dict[int, str | None]:
    """Return each broker's `replica.selector.class`; None if it has none and consumers read from leaders.

    Args:
        admin: Asked for the brokers and their configurations; brokers that are fenced are left out.

    Raises:
        KafkaError: As the admin client does.
    """
    brokers = [broker["broker_id"] for broker in admin.describe_cluster()["brokers"] if not broker["is_fenced"]]
    resources = [ConfigResource(ConfigResourceType.BROKER, str(broker), [_PROPERTY]) for broker in brokers]
    described = admin.describe_configs(resources, config_filter="all")["broker"]
    return {broker: described[str(broker)].get(_PROPERTY, {}).get("value") for broker in brokers}


def warn_of_selectors(selectors: Mapping[int, str | None], once: Once) -> None:
    """Warn if brokers have no selector at all; one of somebody's own may well know racks."""
    without = sorted(broker for broker, selector in selectors.items() if not selector)
    if without:
        once.warn(
            "selectors",
            "brokers %s have no replica.selector.class, so what they lead is read from the leader, near or not: set %s",
            *(", ".join(map(str, without)), RACK_AWARE),
        )
