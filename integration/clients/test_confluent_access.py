"""Both clients of a consumer on confluent-kafka are let in where one must log in, by one and the same configuration."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rackassign.testing import create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.kafka.confluent_group import RecordingConsumer, fill

pytestmark = [pytest.mark.brokers, pytest.mark.local]

AS_LIBRDKAFKA = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_cafile": "ssl.ca.location",
}


@pytest.mark.long
def test_a_login_is_for_both_clients(make_cluster: MakeCluster, unique_name: Callable[[], str]) -> None:
    cluster = make_cluster(["a"], listeners={"SECURE": "SASL_SSL"})
    topic, group = unique_name(), unique_name()
    create_topic(cluster.bootstrap, topic, [[1]])
    fill(cluster, topic, 10, partitions=1)
    access = cluster.client_config("SECURE")
    secure = {AS_LIBRDKAFKA[name]: value for name, value in access.items() if name in AS_LIBRDKAFKA}
    assert len(secure) == len(AS_LIBRDKAFKA)
    one = RecordingConsumer(cluster, group, [topic], **{"bootstrap.servers": access["bootstrap_servers"]}, **secure)
    try:
        wait_until(lambda: one.consume() == 10, "all records")
        assert one.consumer.commit(asynchronous=False)
    finally:
        one.consumer.close()
