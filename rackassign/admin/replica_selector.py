"""What the brokers say of themselves: which replica a consumer is sent to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.cluster import broker_configs, list_brokers
from rackassign.util.log_once import WarnOnce

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTOR = "replica.selector.class"


def replica_selector(admin: KafkaAdminClient, broker: int) -> str | None:
    """Return a broker's `replica.selector.class`; None if it has none and its partitions are read from leaders.

    Raises:
        NotAllowedError: It may not be asked.
        KafkaError: As the admin client does.
    """
    own, _ = broker_configs(admin, broker, [SELECTOR])
    return own.get(SELECTOR) or None


def replica_selectors(admin: KafkaAdminClient) -> dict[int, str | None]:
    """Return the `replica.selector.class` of each broker that says it.

    Args:
        admin: Asked for the brokers, and each of them for its configuration alone, since one that has just died fails
            a request; brokers that are fenced are left out.

    Raises:
        KafkaError: As the admin client does when it is asked for the brokers.
    """
    selectors: dict[int, str | None] = {}
    for broker in list_brokers(admin):
        if not broker.fenced:
            with suppress(KafkaError):
                selectors[broker.id] = replica_selector(admin, broker.id)
    return selectors


def warn_of_selectors(selectors: Mapping[int, str | None], once: WarnOnce) -> None:
    """Warn if brokers have no selector at all; one of somebody's own may well know racks."""
    without = sorted(broker for broker, selector in selectors.items() if not selector)
    if without:
        once.warn(
            "selectors",
            "brokers %s have no %s, so what they lead is read from the leader, near or not: set %s",
            *(", ".join(map(str, without)), SELECTOR, RACK_AWARE),
        )
