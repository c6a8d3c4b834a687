"""The zone in the client ID, as brokers see it, from each client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import pytest
from kafka import KafkaAdminClient

from rackassign import RackAwareConsumer
from rackassign.clients import aiokafka, confluent
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import CONSUMER, PROPERTIES

pytestmark = [pytest.mark.brokers, pytest.mark.local]


def client_ids(cluster: Cluster, group: str) -> list[str]:
    """Return the client IDs of the members as the coordinator has them."""
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        return [member["client_id"] for member in admin.describe_groups([group])[group]["members"]]


def with_kafka_python(cluster: Cluster, topic: str, group: str) -> list[str]:
    named = {"bootstrap_servers": cluster.bootstrap, "group_id": group, "client_id": "app"}
    with closing(RackAwareConsumer(topic, **named, client_rack="a", zone_hint="warpstream", **CONSUMER)) as consumer:
        wait_until(lambda: consumer.poll(timeout_ms=100) or consumer.assignment(), "an assignment")
        return client_ids(cluster, group)


def with_aiokafka(cluster: Cluster, topic: str, group: str) -> list[str]:
    async def join() -> list[str]:
        named = {"bootstrap_servers": cluster.bootstrap, "group_id": group, "client_id": "app"}
        consumer = aiokafka.RackAwareConsumer(topic, **named, client_rack="a", zone_hint="warpstream")
        await consumer.start()
        try:
            return await asyncio.to_thread(client_ids, cluster, group)
        finally:
            await consumer.stop()

    return asyncio.run(join())


def with_confluent(cluster: Cluster, topic: str, group: str) -> list[str]:
    named = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "client.id": "app", "client.rack": "a"}
    with confluent.RackAwareConsumer({**PROPERTIES, **named}, zone_hint="warpstream") as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "an assignment")
        return client_ids(cluster, group)


@pytest.mark.parametrize("client", [with_kafka_python, with_aiokafka, with_confluent])
def test_brokers_see_the_zone(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    client: Callable[[Cluster, str, str], list[str]],
) -> None:
    assert client(rack_cluster, make_topic(1), unique_name()) == ["app,warpstream_az=a"]
