"""Spark that runs a second copy of a slow task, in another rack: each record is in the result once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rackassign.spark import Coordinator
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.testing.spark import SparkCluster
from rackassign.testing.spark import session as spark_session
from tests.helpers.kafka.spark_harness import RACKS, Far, Gate, all_of, check_java, fill, stream

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

SPREAD = [[1, 2], [2, 3], [3, 1]]
COUNTS = {0: 300, 1: 200, 2: 100}

EAGER = {
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    # Otherwise a task that has read as much as the others is not slow for Spark.
    "spark.speculation.efficiency.enabled": "false",
}
"""As soon as half of the tasks are done, another one is slow."""

BINDINGS = pytest.mark.parametrize("binding", ["executor", "pull"])


@pytest.fixture(scope="module")
def stage() -> Iterator[Far]:
    check_java()
    with SparkCluster(RACKS, separate_hosts=True) as cluster, spark_session(cluster.master, EAGER) as spark:
        started = Far(cluster, spark)
        wait_until(started.all_are_up, "executors")
        yield started


@pytest.fixture
def topic(rack_cluster: Cluster, make_topic: MakeTopic) -> str:
    made: str = make_topic(replicas=SPREAD)
    fill(rack_cluster, made, COUNTS)
    return made


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Holds up the first task that comes to a record until the test is over; copies of it pass."""
    made = Gate(tmp_path, 0, 150)
    yield made
    made.open()


def rows(stage: Far, folder: Path) -> list[tuple[str, int, int]]:
    return sorted(map(tuple, stage.spark.read.parquet(str(folder)).collect()))


def while_closed(gate: Gate, run: Callable[[], object]) -> None:
    """Run a query to its end with the gate closed; without a copy of the task that is held up there is no end."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            running.result(TIMEOUT_S)
        finally:
            gate.open()


def columns(frame: Any) -> Any:
    return frame.select("topic", "partition", "offset")


@BINDINGS
def test_a_batch_is_complete_though_a_task_never_ends(
    stage: Far, rack_cluster: Cluster, topic: str, gate: Gate, tmp_path: Path, binding: str
) -> None:
    into = tmp_path / "rows"
    told = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": topic, "tasks": "3"}
    with ExitStack() as opened:
        if binding == "pull":
            told |= opened.enter_context(Coordinator(stage.spark)).options
        frame = stage.spark.read.format("rackassign").options(**{"rackBinding": binding, **told}).load()
        while_closed(gate, lambda: columns(gate.held(frame)).write.parquet(str(into)))
    assert gate.rack() in RACKS
    assert rows(stage, into) == all_of(topic, COUNTS)


@BINDINGS
def test_a_stream_goes_on_though_a_task_never_ends(
    stage: Far, rack_cluster: Cluster, topic: str, gate: Gate, tmp_path: Path, binding: str
) -> None:
    into = tmp_path / "rows"
    frame = gate.held(stream(stage.spark, rack_cluster, topic, rackBinding=binding, tasks="3"))
    writer = columns(frame).writeStream.format("parquet").option("path", str(into))
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="0 seconds").start()
    )
    try:
        while_closed(gate, query.processAllAvailable)
        fill(rack_cluster, topic, COUNTS, first=1000)
        query.processAllAvailable()
    finally:
        query.stop()
    assert gate.rack() in RACKS
    assert rows(stage, into) == all_of(topic, {partition: 2 * count for partition, count in COUNTS.items()})
