"""Replica selectors of brokers, which choose the preferred read replica of a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.cluster import broker_configs, list_brokers
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import join_ids

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTOR = "replica.selector.class"


def replica_selector(admin: KafkaAdminClient, broker: int) -> str | None:
    """Return a broker's `replica.selector.class`; None if it has none and its partitions are read from leaders.

    Raises:
        AuthorizationError: DESCRIBE_CONFIGS is missing.
        KafkaError: As raised by the admin client.
    """
    own, _ = broker_configs(admin, broker, [SELECTOR])
    return own.get(SELECTOR) or None


def replica_selectors(admin: KafkaAdminClient) -> dict[int, str | None]:
    """Return the `replica.selector.class` of each broker that returns it.

    Args:
        admin: Admin client. It lists the brokers and queries each one's configuration alone, since a broker that has
            just died fails a request; fenced brokers are omitted.

    Raises:
        KafkaError: As raised by the admin client when it lists the brokers.
    """
    selectors: dict[int, str | None] = {}
    for broker in list_brokers(admin):
        if not broker.fenced:
            with suppress(KafkaError):
                selectors[broker.id] = replica_selector(admin, broker.id)
    return selectors


def warn_of_selectors(selectors: Mapping[int, str | None], once: WarnOnce) -> None:
    """Warn if brokers have no selector at all; a custom one may be rack-aware."""
    without = sorted(broker for broker, selector in selectors.items() if not selector)
    if without:
        once.warn(
            "selectors",
            "brokers %s have no %s, so consumers read their partitions from the leader, local or not: set %s",
            *(join_ids(without), SELECTOR, RACK_AWARE),
        )
