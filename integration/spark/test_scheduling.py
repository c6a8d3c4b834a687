"""Spark that starts executors as they are needed, and copies of slow tasks: each record is in the result once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.testing.spark import SparkCluster
from rackassign.testing.spark import session as spark_session
from tests.helpers.kafka.spark_harness import RACKS, Far, Gate, all_of, check_java, fill, stream

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

SPREAD = [[1, 2], [2, 3], [3, 1]]
COUNTS = {0: 300, 1: 200, 2: 100}
GATE = 150

BINDINGS = pytest.mark.parametrize("binding", ["executor", "pull"])

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.3",
}
ON_DEMAND = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "100ms",
}


@contextmanager
def spark_with(config: Mapping[str, str]) -> Iterator[Far]:
    """Run a Spark of three workers in the racks a, b and c, with one core each."""
    check_java()
    settings = {"spark.sql.shuffle.partitions": "2", "spark.executor.cores": "1", **config}
    with SparkCluster(RACKS) as cluster, spark_session(cluster.master, settings) as spark:
        yield Far(cluster, spark)


def append(stage: Far, cluster: Cluster, topic: str, into: Path, binding: str, gate: Gate | None = None) -> None:
    """Append what is new in a topic to Parquet, as a stream with a task for each partition."""
    frame = stream(stage.spark, cluster, topic, rackBinding=binding, tasks="3")
    wanted = frame.select("topic", "partition", "offset")
    writer = (wanted if gate is None else gate.held(wanted)).writeStream.format("parquet")
    told = writer.option("path", str(into / "rows")).option("checkpointLocation", str(into / "checkpoint"))
    told.trigger(availableNow=True).start().awaitTermination()


def rows(stage: Far, into: Path) -> list[tuple[str, int, int]]:
    frame = stage.spark.read.parquet(str(into / "rows"))
    return sorted(map(tuple, frame.select("topic", "partition", "offset").collect()))


@BINDINGS
def test_a_copy_of_a_slow_task_reads_what_the_task_reads(
    rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, binding: str
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, COUNTS)
    gate = Gate(tmp_path, 0, GATE)
    with spark_with(SPECULATION) as stage:
        wait_until(stage.all_are_up, "executors")
        # The task at the gate never gets on: only its copy can end the batch.
        append(stage, rack_cluster, topic, tmp_path, binding, gate)
        assert gate.rack() in RACKS
        gate.open()
        fill(rack_cluster, topic, {0: 10}, first=300)
        append(stage, rack_cluster, topic, tmp_path, binding)
        assert rows(stage, tmp_path) == all_of(topic, {**COUNTS, 0: 310})


@BINDINGS
def test_executors_come_and_go_between_batches(
    rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, binding: str
) -> None:
    topic = make_topic(replicas=SPREAD)
    with spark_with(ON_DEMAND) as stage:

        def none_is_left() -> bool:
            return not any(stage.cluster.executors(rack) for rack in RACKS)

        for batch in range(3):
            wait_until(none_is_left, "executors that have gone")
            fill(rack_cluster, topic, COUNTS, first=1000 * batch)
            append(stage, rack_cluster, topic, tmp_path, binding)
        assert rows(stage, tmp_path) == all_of(topic, {partition: 3 * count for partition, count in COUNTS.items()})
