"""Spark that starts executors as they are needed: each record is in the result once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.testing.spark import SparkCluster
from rackassign.testing.spark import session as spark_session
from tests.helpers.kafka.spark_harness import RACKS, Far, all_of, check_java, fill, stream

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

SPREAD = [[1, 2], [2, 3], [3, 1]]
COUNTS = {0: 300, 1: 200, 2: 100}

BINDINGS = pytest.mark.parametrize("binding", ["executor", "pull"])

ON_DEMAND = {
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


@contextmanager
def on_demand() -> Iterator[Far]:
    """Run a Spark of workers in the racks a, b and c, of one core each, which starts executors as it needs them."""
    check_java()
    with SparkCluster(RACKS) as cluster, spark_session(cluster.master, ON_DEMAND) as spark:
        yield Far(cluster, spark)


def append(stage: Far, cluster: Cluster, topic: str, into: Path, binding: str) -> None:
    """Append what is new in a topic to Parquet, as a stream with a task for each partition."""
    frame = stream(stage.spark, cluster, topic, rackBinding=binding, tasks="3")
    writer = frame.select("topic", "partition", "offset").writeStream.format("parquet")
    told = writer.option("path", str(into / "rows")).option("checkpointLocation", str(into / "checkpoint"))
    told.trigger(availableNow=True).start().awaitTermination()


def rows(stage: Far, into: Path) -> list[tuple[str, int, int]]:
    frame = stage.spark.read.parquet(str(into / "rows"))
    return sorted(map(tuple, frame.select("topic", "partition", "offset").collect()))


@BINDINGS
def test_executors_come_and_go_between_batches(
    rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, binding: str
) -> None:
    topic = make_topic(replicas=SPREAD)
    with on_demand() as stage:

        def none_is_left() -> bool:
            return not any(stage.cluster.executors(rack) for rack in RACKS)

        for batch in range(3):
            wait_until(none_is_left, "executors that have gone")
            fill(rack_cluster, topic, COUNTS, first=1000 * batch)
            append(stage, rack_cluster, topic, tmp_path, binding)
        assert rows(stage, tmp_path) == all_of(topic, {partition: 3 * count for partition, count in COUNTS.items()})
