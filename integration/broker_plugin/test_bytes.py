"""What members of the consumer protocol read across racks with the plug-in, counted on the wire, beside `range`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer

from rackassign.cli.commands.cluster import striped
from rackassign.testing import create_topic
from rackassign.testing._docker_cluster import DockerCluster
from rackassign.testing.demo import produce_records
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.kafka.wire_meter import WireMeter

pytestmark = [pytest.mark.brokers, pytest.mark.docker, pytest.mark.release]

RACKS = "abc"
PARTITIONS, RECORDS, SIZE = 12, 100, 10_000


def listener(rack: str) -> str:
    return f"RACK{rack.upper()}"


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> DockerCluster:
    """Three brokers with the plug-in, and a listener of its own for the clients of each rack, to tell their packets."""
    made = make_cluster(list(RACKS), listeners={listener(rack): "PLAINTEXT" for rack in RACKS}, broker_plugins=True)
    assert isinstance(made, DockerCluster)
    return made


def test_what_can_be_read_locally_is(cluster: DockerCluster, unique_name: Callable[[], str]) -> None:
    meter = WireMeter(cluster)
    racks = {broker.id: broker.rack for broker in cluster.brokers}

    def cross_share(topic: str, more: Mapping[str, str]) -> float:
        """Return the share of bytes across racks, of three members that settle before anything is written."""
        group = unique_name()
        with ExitStack() as opened:
            consumers: list[Consumer] = []
            for rack in RACKS:
                servers = cluster.client_config(listener(rack))["bootstrap_servers"]
                properties = {"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer", **more}
                consumers.append(Consumer({**properties, "client.rack": rack, "auto.offset.reset": "earliest"}))
                opened.callback(consumers[-1].close)
                consumers[-1].subscribe([topic])
            counts = [0] * len(consumers)

            def settled() -> bool:
                for consumer in consumers:
                    consumer.poll(0.05)
                return [len(consumer.assignment()) for consumer in consumers] == [PARTITIONS // 3] * 3

            wait_until(settled, "four partitions for each")
            before = meter.sent()
            produce_records(cluster.client_config(), topic, PARTITIONS, records=RECORDS, size=SIZE)

            def all_read() -> bool:
                for at, consumer in enumerate(consumers):
                    counts[at] += len(consumer.consume(1000, 0.05))
                return sum(counts) == PARTITIONS * RECORDS

            wait_until(all_read, "every record")
            sent = {place: size - before[place] for place, size in meter.sent().items()}
        assert sum(sent.values()) > PARTITIONS * RECORDS * SIZE
        across = sum(size for (broker, name), size in sent.items() if listener(racks[broker] or "") != name)
        return across / sum(sent.values())

    shares = {}
    for replicas in (1, 2, 3):
        for name, more in (("range", {"group.remote.assignor": "range"}), ("rackassign", {})):
            topic = unique_name()
            create_topic(cluster.bootstrap, topic, striped(PARTITIONS, replicas, len(RACKS)))
            shares[name, replicas] = cross_share(topic, more)
    # Kafka's own that is left. Each member has four partitions in a row, of which one or two are in its rack.
    assert shares["range", 1] > 0.45
    assert shares["range", 2] > 0.05
    assert max(shares["rackassign", replicas] for replicas in (1, 2, 3)) < 0.01, shares
