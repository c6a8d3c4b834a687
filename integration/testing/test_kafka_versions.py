"""Brokers of old and new versions of Kafka, of several versions in one cluster, and a rolling upgrade.

Few versions, since the jars of each are fetched once; `make compatibility` runs all of them.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing import VERSIONS, LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.kafka.consumers import plain_consumer

pytestmark = [pytest.mark.brokers, pytest.mark.local]

RECORDS = 30
WAIT_MS = 600_000


def produce(cluster: LocalCluster, topic: str, value: bytes) -> None:
    with closing(KafkaProducer(**cluster.client_config(), acks="all")) as producer:
        sent = [producer.send(topic, value, partition=n % 3) for n in range(RECORDS)]
        for future in sent:
            future.get(timeout=WAIT_MS / 1000)


def consume(cluster: LocalCluster, topic: str, group: str, records: int) -> list[bytes]:
    config: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_MS}
    values: list[bytes] = []
    with closing(plain_consumer(topic, **cluster.client_config(), **config)) as consumer:
        for record in consumer:
            values.append(record.value)
            if len(values) == records:
                break
    return values


def levels(cluster: LocalCluster) -> dict[str, int]:
    with closing(KafkaAdminClient(**cluster.client_config())) as admin:
        return {name: f["finalized"][1] for name, f in admin.describe_features().items() if "finalized" in f}


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text("utf-8")


@pytest.mark.release
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_brokers_of_a_version_take_records_and_return_them(version: str) -> None:
    with LocalCluster(["a", "b", "c"], kafka_version=version) as cluster:
        create_topic(cluster.bootstrap, "t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        produce(cluster, "t", b"x" * 100)
        assert consume(cluster, "t", "g", RECORDS) == [b"x" * 100] * RECORDS
        assert cluster.versions == {1: version, 2: version, 3: version}
        for broker in (1, 2, 3):
            assert f"kafka_2.13-{version}.jar" in command_line(cluster.pids[broker])
        cluster.stop(3)
        assert cluster.running == {1, 2}


@pytest.mark.release
def test_a_rolling_upgrade_keeps_records_and_raises_the_features_at_its_end() -> None:
    with LocalCluster(["a", "b", "c"], kafka_version="3.9") as cluster:
        create_topic(cluster.bootstrap, "t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        produce(cluster, "t", b"before")
        before = levels(cluster)
        with pytest.raises(ConfigError, match=r"broker 1 is running with Kafka 3\.9\.2: stop it first"):
            cluster.start(1, kafka_version="4.4")
        for broker in (1, 2, 3):
            cluster.stop(broker)
            cluster.start(broker, kafka_version="4.4")
            cluster.wait_ready()
            assert "kafka_2.13-4.4.0.jar" in command_line(cluster.pids[broker])
            produce(cluster, "t", b"during")
            if broker == 1:
                with pytest.raises(ClusterError, match=r"several versions of Kafka: 3\.9\.2, 4\.4\.0"):
                    cluster.finish_upgrade()
        assert levels(cluster) == before
        # The way back is open until the features are raised.
        cluster.stop(3)
        cluster.start(3, kafka_version="3.9")
        cluster.wait_ready()
        produce(cluster, "t", b"during")
        cluster.stop(3)
        cluster.start(3, kafka_version="4.4")
        after = cluster.finish_upgrade()
        # Each broker learns of it from the controller.
        wait_until(lambda: levels(cluster) == after, "the raised features on the broker that is asked")
        assert after["metadata.version"] > before["metadata.version"]
        assert after["group.version"] == 1
        values = consume(cluster, "t", "g", 5 * RECORDS)
        assert sorted(values) == [b"before"] * RECORDS + [b"during"] * 4 * RECORDS


@pytest.mark.release
def test_brokers_of_several_versions_start_with_the_features_of_the_oldest() -> None:
    with LocalCluster(["a", "b", "c", "d"], kafka_version=["4.4", "3.5", "4.3.0", "3.9"]) as cluster:
        assert cluster.versions == {1: "4.4.0", 2: "3.5.2", 3: "4.3.0", 4: "3.9.2"}
        create_topic(cluster.bootstrap, "t", [[1, 2, 3, 4], [2, 3, 4, 1], [3, 4, 1, 2]])
        produce(cluster, "t", b"x")
        assert consume(cluster, "t", "g", RECORDS) == [b"x"] * RECORDS
        assert set(levels(cluster)) == {"metadata.version"}


@pytest.mark.release
@pytest.mark.kafka_version("3.9", "4.4")
def test_a_marked_test_runs_with_each_of_its_versions(rack_cluster: LocalCluster, kafka_version: str) -> None:
    assert kafka_version in {"3.9.2", "4.4.0"}
    assert set(rack_cluster.versions.values()) == {kafka_version}


@pytest.mark.release
@pytest.mark.kafka_version("3.9")
def test_further_clusters_of_a_marked_test_have_its_version_unless_they_ask_for_another(
    make_cluster: MakeCluster,
) -> None:
    versions = [make_cluster(["a"], **more).versions for more in ({}, {"kafka_version": "4.4"})]  # type: ignore[attr-defined]
    assert versions == [{1: "3.9.2"}, {1: "4.4.0"}]
