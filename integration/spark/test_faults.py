"""The Spark source while executors and brokers die: each record is in the result once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from rackassign.spark import Coordinator
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import Far, Gate, far, fill, known_everywhere

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark_faults]

SPREAD = [[1, 2], [2, 3], [3, 1]]
SIZE = 1000
"""Bytes of a record: what a task has not read yet does not fit into what lies between it and the gate."""

MANY = 20_000
GATE = 150

BINDINGS: Mapping[str, dict[str, str]] = {
    "executor": {"rackBinding": "executor"},
    "pull": {"rackBinding": "pull"},
    "pull-some": {"rackBinding": "pull", "tasks": "3", "maxRecordsPerPartition": "3000"},
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Far]:
    with far() as running:
        yield running


@pytest.fixture
def topic(rack_cluster: Cluster, make_topic: MakeTopic) -> str:
    """Three partitions with more in them than is read at once."""
    made: str = make_topic(replicas=SPREAD)
    known_everywhere(rack_cluster, made, 3)
    fill(rack_cluster, made, dict.fromkeys(range(3), MANY), size=SIZE)
    return made


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Holds up a task in the middle of partition 0, and none that is left when the test is over."""
    made = Gate(tmp_path, 0, GATE)
    yield made
    made.open()


def options(cluster: Cluster, topic: str, told: Mapping[str, str]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest", **told}


def stream(stage: Far, cluster: Cluster, topic: str, told: Mapping[str, str]) -> Any:
    # Values as well: a column that nobody wants is not sent to the gate.
    return stage.spark.readStream.format("rackassign").options(**options(cluster, topic, told)).load()


@contextmanager
def running(frame: Any, into: Path, **trigger: Any) -> Iterator[Any]:
    """Run a query into Parquet; stop it in the end."""
    wanted = frame.select("topic", "partition", "offset", "value")
    writer = wanted.writeStream.format("parquet").option("path", str(into / "rows"))
    query = writer.option("checkpointLocation", str(into / "checkpoint")).trigger(**trigger).start()
    try:
        yield query
    finally:
        query.stop()


def check(stage: Far, into: Path, topic: str, counts: Mapping[int, int]) -> None:
    """Check that each record has arrived, and has once, as it was written."""
    frame = stage.spark.read.parquet(str(into / "rows"))
    found = frame.groupBy("topic", "partition").agg({"*": "count", "offset": "max", "value": "approx_count_distinct"})
    rows = sorted((row.topic, row.partition, row["count(1)"], row["max(offset)"]) for row in found.collect())
    assert rows == [(topic, partition, count, count - 1) for partition, count in sorted(counts.items())]
    assert frame.dropDuplicates(["topic", "partition", "offset"]).count() == sum(counts.values())
    assert frame.filter(f"length(value) <> {SIZE}").isEmpty()


@pytest.mark.parametrize("binding", BINDINGS)
def test_an_executor_killed_in_a_stream(
    stage: Far, rack_cluster: Cluster, topic: str, gate: Gate, tmp_path: Path, binding: str
) -> None:
    told = BINDINGS[binding]
    with running(gate.held(stream(stage, rack_cluster, topic, told)), tmp_path, processingTime="0 seconds") as query:
        stage.kill(gate.rack())
        gate.open()
        query.processAllAvailable()
        fill(rack_cluster, topic, {0: 200, 1: 1}, size=SIZE, first=MANY)
        query.processAllAvailable()
        assert query.isActive
    check(stage, tmp_path, topic, {0: MANY + 200, 1: MANY + 1, 2: MANY})


@contextmanager
def in_the_background(write: Callable[[], None]) -> Iterator[None]:
    """Run a batch beside the block; wait for it in the end, and fail as it does."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        yield
        done.result(300)


def write_and_kill(stage: Far, gate: Gate, write: Callable[[], None]) -> None:
    """Write, and kill the executor that comes to the gate."""
    with in_the_background(write):
        stage.kill(gate.rack())
        gate.open()


def batch(stage: Far, cluster: Cluster, topic: str, told: Mapping[str, str]) -> Any:
    return stage.spark.read.format("rackassign").options(**options(cluster, topic, told)).load()


def writing(frame: Any, into: Path) -> Callable[[], None]:
    return lambda: frame.select("topic", "partition", "offset", "value").write.parquet(str(into / "rows"))


@pytest.mark.parametrize("binding", BINDINGS)
def test_an_executor_killed_in_a_batch(
    stage: Far, rack_cluster: Cluster, topic: str, gate: Gate, tmp_path: Path, binding: str
) -> None:
    with Coordinator(stage.spark) if binding != "executor" else nullcontext() as held:
        told = {**BINDINGS[binding], **(held.options if held else {})}
        frame = gate.held(batch(stage, rack_cluster, topic, told))
        write_and_kill(stage, gate, writing(frame, tmp_path))
    check(stage, tmp_path, topic, dict.fromkeys(range(3), MANY))


@pytest.mark.parametrize("binding", ["executor", "pull"])
def test_a_broker_killed_in_a_stream_and_its_return(
    stage: Far, rack_cluster: Cluster, topic: str, gate: Gate, tmp_path: Path, binding: str
) -> None:
    told = BINDINGS[binding]
    with running(gate.held(stream(stage, rack_cluster, topic, told)), tmp_path, processingTime="0 seconds") as query:
        gate.rack()
        # Leads what is being read.
        rack_cluster.kill(1)
        gate.open()
        query.processAllAvailable()
        fill(rack_cluster, topic, {0: 200, 1: 1, 2: 30}, size=SIZE, first=MANY)
        query.processAllAvailable()
        rack_cluster.start(1)
        fill(rack_cluster, topic, {0: 50}, size=SIZE, first=MANY + 200)
        query.processAllAvailable()
        rack_cluster.wait_ready()
        fill(rack_cluster, topic, {1: 50}, size=SIZE, first=MANY + 1)
        query.processAllAvailable()
        assert query.isActive
    check(stage, tmp_path, topic, {0: MANY + 250, 1: MANY + 51, 2: MANY + 30})


@pytest.mark.parametrize("binding", ["executor", "pull"])
def test_a_broker_killed_in_a_batch_and_its_return(
    stage: Far, rack_cluster: Cluster, topic: str, gate: Gate, tmp_path: Path, binding: str
) -> None:
    counts = dict.fromkeys(range(3), MANY)
    with Coordinator(stage.spark) if binding == "pull" else nullcontext() as held:
        told = {**BINDINGS[binding], **(held.options if held else {})}
        frame = batch(stage, rack_cluster, topic, told)
        with in_the_background(writing(gate.held(frame), tmp_path)):
            gate.rack()
            rack_cluster.kill(1)
            gate.open()
        check(stage, tmp_path, topic, counts)
        # Planned and read while it is away, and when it has come back.
        writing(batch(stage, rack_cluster, topic, told), tmp_path / "away")()
        rack_cluster.start_all()
        writing(batch(stage, rack_cluster, topic, told), tmp_path / "back")()
    for folder in ("away", "back"):
        check(stage, tmp_path / folder, topic, counts)
