"""A secured cluster passes the same path: SASL_SSL with SCRAM."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka.errors import KafkaError

from rackassign import RackAwareRangeAssignor
from rackassign.model import TopicPartition
from rackassign.testing import create_topic
from rackassign.testing._topics import admin_client
from rackassign.testing.demo import consume_topic, produce_records
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.machine_speed import scaled_s

pytestmark = pytest.mark.brokers

RACKS = ("a", "b")


@pytest.mark.long
def test_secured_consumers_read_at_home_and_others_are_kept_out(
    make_cluster: MakeCluster, unique_name: Callable[[], str]
) -> None:
    cluster = make_cluster(RACKS, listeners={"SECURE": "SASL_SSL"})
    secure = cluster.client_config("SECURE")
    topic = unique_name()
    create_topic(cluster.bootstrap, topic, [[2], [1]])
    produce_records(secure, topic, 2, records=20, size=1000)

    reading = consume_topic(dict.fromkeys(RACKS, secure), topic, lambda rack: RackAwareRangeAssignor(rack=rack))
    assert reading.assignment == {"a": {TopicPartition(topic, 1)}, "b": {TopicPartition(topic, 0)}}
    rack_of = {broker.id: str(broker.rack) for broker in cluster.brokers}
    assert {pair for pair, size in reading.by_racks(rack_of).items() if size} == {("a", "a"), ("b", "b")}

    for wrong in ({"sasl_plain_password": "a guess"}, {"security_protocol": "SSL"}):
        with pytest.raises(KafkaError), admin_client({**secure, **wrong}, scaled_s(3)):
            pass
