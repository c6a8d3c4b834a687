"""Executors whose racks are missing, or are racks of no broker: rows stay complete, and the traffic shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rackassign.spark import BatchTraffic, batch_traffic
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.testing.spark import SparkCluster
from rackassign.testing.spark import session as spark_session
from tests.helpers.kafka.spark_harness import all_of, check_java, fill, stream

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

SIZE = 1000
COUNTS = {0: 300, 1: 200, 2: 100}
# Each has a replica in rack a.
REPLICAS = [[1, 2], [3, 1], [2, 1]]

KINDS: Mapping[str, dict[str, str]] = {
    "mixed": {},
    "missing": {"rackEnvVar": "NOT_SET"},
    # It is set on each executor, and is the rack of no broker.
    "wrong": {"rackEnvVar": "SPARK_LOCAL_IP"},
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A Spark with an executor in a rack with a broker, and one in a rack without."""
    check_java()
    with SparkCluster(("a", "nowhere")) as workers, spark_session(workers.master) as running:
        yield running


@pytest.mark.parametrize("binding", ["executor", "pull"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_complete_and_traffic_counts_as_what_it_is(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, kind: str, binding: str
) -> None:
    topic = make_topic(replicas=REPLICAS)
    fill(rack_cluster, topic, COUNTS, size=SIZE)
    # A task for each split. With `pull` the executor without a broker leaves them to the other one.
    options = {"rackBinding": binding, "tasks": "3", "stealAfterMs": "300000", **KINDS[kind]}
    if kind == "wrong":
        # There is no other one.
        options["stealAfterMs"] = "0"
    found = traffic(spark, rack_cluster, topic, tmp_path, options)
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert sorted(map(tuple, rows.collect())) == all_of(topic, COUNTS)
    assert (found.useful, found.unreported) == (SIZE * sum(COUNTS.values()), 0)
    if kind == "missing":
        assert (found.local, found.crossed) == (0, 0)
        assert found.unknown > found.useful
    elif kind == "wrong":
        assert (found.local, found.unknown) == (0, 0)
        assert found.crossed == found.stolen > found.useful
    else:
        assert found.unknown == 0
        assert found.local + found.crossed > found.useful
        if binding == "pull":
            assert found.local > found.useful
            assert found.stolen == 0


def traffic(spark: Any, cluster: Cluster, topic: str, into: Path, options: dict[str, str]) -> BatchTraffic:
    """Read a topic as a stream into Parquet, and return the traffic of its only batch."""
    told = {**options, "metricsPath": str(into / "told")}
    frame = stream(spark, cluster, topic, **told).select("topic", "partition", "offset")
    writer = frame.writeStream.format("parquet").option("path", str(into / "rows"))
    query = writer.option("checkpointLocation", str(into / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    named = {**told, "kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    (found,) = batch_traffic(named, [each for each in query.recentProgress if each["numInputRows"]])
    return found
