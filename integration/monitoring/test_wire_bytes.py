"""The demo's claim on brokers in containers, counted on the wire and not by the client."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor

from rackassign import RackAwareCooperativeStickyAssignor
from rackassign.cli.commands.cluster import RACKS, striped
from rackassign.testing import create_topic
from rackassign.testing._docker_cluster import DockerCluster
from rackassign.testing.demo import MakeAssignor, consume_topic, produce_records
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.kafka.wire_meter import WireMeter

pytestmark = [pytest.mark.brokers, pytest.mark.docker]

PARTITIONS, RECORDS, SIZE = 9, 200, 10_000


@pytest.mark.long
def test_what_is_planned_to_stay_at_home_stays_there_on_the_wire(make_cluster: MakeCluster) -> None:
    # A way in of its own for the clients of each rack: their packets carry no other mark of it.
    cluster = make_cluster(RACKS, listeners={f"RACK{rack.upper()}": "PLAINTEXT" for rack in RACKS})
    assert isinstance(cluster, DockerCluster)
    clients = {rack: cluster.client_config(f"RACK{rack.upper()}") for rack in RACKS}
    create_topic(cluster.bootstrap, "orders", striped(PARTITIONS, 2, len(RACKS)))
    produce_records(cluster.client_config(), "orders", PARTITIONS, records=RECORDS, size=SIZE)
    meter = WireMeter(cluster)
    rack_of = {broker.id: broker.rack for broker in cluster.brokers}

    def cross_shares(make_assignor: MakeAssignor) -> Mapping[str, float]:
        before = meter.sent()
        reading = consume_topic(clients, "orders", make_assignor)
        assert sum(reading.records.values()) == PARTITIONS * RECORDS
        shares: dict[str, float] = {}
        for rack in RACKS:
            listener = f"RACK{rack.upper()}"
            sent = {
                broker: size - before[broker, name] for (broker, name), size in meter.sent().items() if name == listener
            }
            total = sum(sent.values())
            # All of the consumer's third of the data has come this way, and little else.
            assert total > PARTITIONS * RECORDS * SIZE / len(RACKS)
            shares[rack] = sum(size for broker, size in sent.items() if rack_of[broker] != rack) / total
        return shares

    blind = cross_shares(lambda _: RangePartitionAssignor())
    aware = cross_shares(lambda rack: RackAwareCooperativeStickyAssignor(rack=rack))
    # One of three partitions of each consumer has no replica in its rack, if nobody looks at racks.
    assert all(0.32 < share < 0.35 for share in blind.values()), blind
    assert all(share < 0.01 for share in aware.values()), aware
