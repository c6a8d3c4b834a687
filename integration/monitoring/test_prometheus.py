"""Metrics of a consumer and of a report on the same brokers: what one counts, the other measures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from rackassign import RackAwareConsumer
from rackassign.monitoring import GroupCollector, Price, RackMap
from rackassign.monitoring.prometheus import ConsumerMetrics
from rackassign.monitoring.report_metrics import ReportMetrics
from rackassign.testing import create_topic
from rackassign.testing.demo import produce_records
from rackassign.testing.harness import KafkaPythonMember, wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.http_get import fetched
from tests.helpers.kafka.consumers import CONSUMER

pytestmark = [pytest.mark.brokers, pytest.mark.local]

REPLICAS = [[1, 2], [2, 1], [2, 3], [3, 1], [3, 2]]
"""Broker 1 is in the consumer's rack, 2 in another, and 3 in none."""


def by_locality(collector: Collector, name: str) -> dict[str, float]:
    """Return the samples of a metric, summed by the label `locality`."""
    registry = CollectorRegistry()
    registry.register(collector)
    found: dict[str, float] = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name == name:
                locality = sample.labels["locality"]
                found[locality] = found.get(locality, 0.0) + sample.value
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, {"local": 3, "cross": 1, "unknown": 1}, id="selector"),
        pytest.param(
            {"replica.selector.class": None},
            {"local": 1, "cross": 2, "unknown": 2},
            id="no selector",
            marks=pytest.mark.release,
        ),
    ],
)
def test_a_consumer_and_a_report_agree(
    make_cluster: MakeCluster,
    unique_name: Callable[[], str],
    config: Mapping[str, str | None],
    expected: Mapping[str, int],
) -> None:
    cluster = make_cluster(["a", "b", None], config=config)
    access, topic, group = cluster.client_config(), unique_name(), unique_name()
    create_topic(cluster.bootstrap, topic, REPLICAS)

    def make() -> Any:
        # The preferred read replica is a lease of that length: when it ends, the leader is asked once more.
        lasting = {**CONSUMER, "metadata_max_age_ms": 300_000}
        return RackAwareConsumer(topic, **access, group_id=group, client_rack="a", **lasting)

    def write_and_read(records: int) -> None:
        wanted = len(member.records) + records * len(REPLICAS)
        produce_records(access, topic, len(REPLICAS), records=records, size=4000)
        wait_until(lambda: len(member.records) == wanted, "all records")
        member.poll()

    with KafkaPythonMember(make) as member, closing(KafkaAdminClient(**access)) as admin:
        # By the second record of a partition its reader knows which replica to read from.
        for _ in range(3):
            write_and_read(1)
        collector, report = GroupCollector(admin, RackMap()), ReportMetrics(Price())
        wait_until(lambda: len(collector.report([group], interval_s=0.1).inspections) == 1, "a group at rest")
        metrics = ConsumerMetrics(member.consumer)

        def as_expected() -> bool:
            return by_locality(metrics, "rackassign_partitions") == expected

        wait_until(as_expected, "a replica to read from, of each partition")
        before = by_locality(metrics, "rackassign_read_bytes_total")
        write_and_read(40)
        report.take(collector.report([group], interval_s=0.1))
        after = by_locality(metrics, "rackassign_read_bytes_total")
        assert by_locality(report, "rackassign_partitions") == expected
        # It is the state of a moment: a follower that lags behind its leader is left until it has caught up.
        wait_until(as_expected, "each partition read from where it is to be read")
    measured = by_locality(report, "rackassign_read_bytes_total")
    counted = {locality: size - before.get(locality, 0.0) for locality, size in after.items()}
    assert counted == {locality: pytest.approx(size, rel=0.02) for locality, size in measured.items()}
    assert {locality: round(size / (40 * 4000)) for locality, size in measured.items()} == expected


@pytest.mark.release
def test_an_exporter_starts_without_kafka_and_says_when_it_is_gone(
    make_cluster: MakeCluster, unique_name: Callable[[], str]
) -> None:
    cluster = make_cluster(["a"])
    access, topic, group = cluster.client_config(), unique_name(), unique_name()
    create_topic(cluster.bootstrap, topic, [[1]])

    def make() -> Any:
        return RackAwareConsumer(topic, **access, group_id=group, client_rack="a", **CONSUMER)

    with KafkaPythonMember(make) as member:
        produce_records(access, topic, 1, records=1, size=100)
        wait_until(lambda: len(member.records) == 1, "a record")
    cluster.stop(1)
    words = ["exporter", "--bootstrap-server", cluster.bootstrap, "--listen", "127.0.0.1:0", "--interval", "1"]
    exporting = subprocess.Popen([sys.executable, "-m", "rackassign", *words], stderr=subprocess.PIPE, text=True)
    with exporting:
        try:
            assert exporting.stderr is not None
            base = exporting.stderr.readline().split()[-1].removesuffix("/metrics")
            wait_until(lambda: "does not respond" in fetched(f"{base}/-/ready")[1], "an exporter that tries")
            assert fetched(f"{base}/-/healthy") == (200, "healthy\n")
            assert "rackassign_up 0.0" in fetched(f"{base}/metrics")[1]
            cluster.start(1)
            wait_until(lambda: fetched(f"{base}/-/ready") == (200, "ready\n"), "an exporter that is ready")
            assert "rackassign_up 1.0" in fetched(f"{base}/metrics")[1]
            # The coordinator of a broker that has just started may still load its groups.
            members = f'rackassign_members{{group="{group}"}} 0.0'
            wait_until(lambda: members in fetched(f"{base}/metrics")[1], "the group")
            cluster.kill(1)
            wait_until(lambda: fetched(f"{base}/-/ready")[0] == 503, "an exporter that has noticed")
            shown = fetched(f"{base}/metrics")[1]
            assert "rackassign_up 0.0" in shown
            assert "rackassign_last_success_timestamp_seconds" in shown
            assert "rackassign_members" not in shown
            cluster.start(1)
            wait_until(lambda: fetched(f"{base}/-/ready") == (200, "ready\n"), "an exporter that is back")
        finally:
            exporting.terminate()
        logged = exporting.stderr.read()
    assert exporting.returncode == 0
    assert "Traceback" not in logged
    # Nothing is called by its type twice.
    assert not re.search(r"(\w+Error): \1", logged)
