"""Further listeners of test clusters, without brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackassign.errors import ConfigError
from rackassign.testing import Broker, LocalCluster
from rackassign.testing.docker.config import environment, published
from rackassign.testing.local.broker_config import _identity, plan_brokers, ports_needed
from rackassign.testing.security import ClusterCertificates

BOTH = {"SECURE": "SASL_SSL", "OTHER": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ({"secure": "SASL_SSL"}, "a name of capital letters and digits .* got 'secure'"),
        ({"CONTROLLER": "PLAINTEXT"}, "other than CONTROLLER, EXTERNAL, INTERNAL, PLAINTEXT, got 'CONTROLLER'"),
        ({"SECURE": "SSL"}, "listeners.SECURE: expected PLAINTEXT or SASL_SSL, got 'SSL'"),
    ],
)
def test_what_cannot_be_a_listener_is_refused(listeners: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LocalCluster(["a"], listeners=listeners)


def test_an_unknown_listener_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no listener 'SECURED': the cluster has SECURE, OTHER"):
        LocalCluster(["a"], listeners=BOTH).client_config("SECURED")


def test_every_listener_of_every_local_broker_has_a_port_of_its_own(tmp_path: Path) -> None:
    count = ports_needed(2, len(BOTH))
    nodes = plan_brokers(["a", None], range(1, count + 1), tmp_path, list(BOTH))
    ports = [port for node in nodes for port in (node.port, node.controller_port, *node.listeners.values())]
    assert sorted(map(str, ports)) == sorted(map(str, range(1, count + 1)))
    told = _identity(nodes[0], nodes, BOTH)
    assert told["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1,SECURE://127.0.0.1:3,OTHER://127.0.0.1:5"
    assert told["listener.security.protocol.map"] == (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,OTHER:PLAINTEXT"
    )


def test_listeners_of_a_container_are_published_one_by_one() -> None:
    broker = Broker(1, "a", "127.0.0.1", 5001, {"SECURE": 5002, "OTHER": 5003})
    assert published(broker) == {9092: 5001, 9094: 5002, 9095: 5003}
    told = environment(broker, 1, "id", {}, BOTH)
    assert told["KAFKA_LISTENERS"] == (
        "EXTERNAL://:9092,SECURE://:9094,OTHER://:9095,INTERNAL://:19092,CONTROLLER://:9093"
    )
    assert "SECURE://127.0.0.1:5002,OTHER://127.0.0.1:5003" in told["KAFKA_ADVERTISED_LISTENERS"]


def test_certificates_fit_into_properties(tmp_path: Path) -> None:
    security = ClusterCertificates.issued("127.0.0.1", tmp_path)
    properties = security.broker_properties(BOTH)
    assert not any(set("\r\n") & set(value) for value in properties.values())
    assert properties["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY----- ")
    assert [name for name in properties if "jaas" in name] == ["listener.name.secure.scram-sha-512.sasl.jaas.config"]
    assert "BEGIN CERTIFICATE" in Path(security.client_config()["ssl_cafile"]).read_text()
