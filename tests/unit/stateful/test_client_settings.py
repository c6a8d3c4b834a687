"""All clients of a member connect in the same way, and the changelog is created with the brokers there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.stateful.changelog import topics as changelog_topics
from rackassign.stateful.client_settings import client_settings
from tests.helpers.fakes.kafka import Kafka
from tests.helpers.stateful_consumers import LOG, member

CONNECTION: dict[str, Any] = {
    "api_version": (3, 9),
    "proxy_url": "socks5://proxy:1080",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "user",
    "sasl_plain_password": "secret",
    "ssl_cafile": "ca.pem",
    "client_dns_lookup": "use_all_dns_ips",
    "metadata_max_age_ms": 5000,
    "request_timeout_ms": 50_000,
    "reconnect_backoff_ms": 70,
    "client_id": "counter",
}


def test_what_belongs_to_a_connection_reaches_all_clients(kafka: Kafka, tmp_path: Path) -> None:
    member(tmp_path, max_poll_records=7, session_timeout_ms=9000, ssl_ciphers="X", **CONNECTION).close()
    assert kafka.settings.keys() == {"consumer", "reader", "producer", "admin"}
    for config in kafka.settings.values():
        assert CONNECTION.items() <= config.items()
    assert {name for name, config in kafka.settings.items() if "session_timeout_ms" in config} == {"consumer"}
    assert kafka.settings["consumer"]["max_poll_records"] == 7
    assert {name for name, config in kafka.settings.items() if "ssl_ciphers" in config} == {
        "consumer",
        "reader",
        "producer",
    }


def test_each_client_of_kafka_python_knows_the_settings_it_gets() -> None:
    found = client_settings(KafkaConsumer.DEFAULT_CONFIG)
    assert found.reader.keys() <= KafkaConsumer.DEFAULT_CONFIG.keys()
    assert found.producer.keys() <= KafkaProducer.DEFAULT_CONFIG.keys()
    assert found.admin.keys() <= KafkaAdminClient.DEFAULT_CONFIG.keys()
    # An idempotent producer refuses more than five.
    assert "max_in_flight_requests_per_connection" not in found.producer


@pytest.mark.parametrize("request_ms", [1000, 1000.0, 200_000, 200_000.0])
def test_a_producer_has_the_time_for_a_request_however_long(request_ms: float) -> None:
    found = client_settings({"request_timeout_ms": request_ms}).producer
    # kafka-python refuses less.
    assert found["delivery_timeout_ms"] > found["request_timeout_ms"] + 2
    assert found["delivery_timeout_ms"] >= KafkaProducer.DEFAULT_CONFIG["delivery_timeout_ms"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("sesion_timeout_ms", '"sesion_timeout_ms" is no setting of KafkaConsumer; did you mean session_timeout_ms?'),
        ("qqq", '"qqq" is no setting of KafkaConsumer$'),
        ("linger_ms", '"linger_ms" is no setting of KafkaConsumer'),
    ],
)
def test_unknown_settings_are_refused_by_name(kafka: Kafka, tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        member(tmp_path, **{name: 1})
    assert LOG not in kafka.topics
    assert not kafka.open


def test_with_a_broker_down_a_changelog_has_fewer_replicas(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.brokers = 1
    member(tmp_path).close()
    assert "g-t-changelog was created with 1 replicas instead of 2, because brokers are missing" in caplog.text


def test_a_changelog_with_too_few_replicas_to_write_to_waits_for_brokers(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.brokers, kafka.min_isr = 1, "2"
    with monkeypatch.context() as patch:
        patch.setattr(changelog_topics, "_BROKERS_S", 0.0)
        with pytest.raises(KafkaUnavailableError, match="InvalidReplicationFactorError"):
            member(tmp_path)
    assert LOG not in kafka.topics
    kafka.brokers, kafka.refuse = 1, ["a broker returns"]
    member(tmp_path).close()
    assert LOG in kafka.topics
    assert "instead of" not in caplog.text
