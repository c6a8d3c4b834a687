"""The traffic of the batches of a stream, on real brokers, with the listener of docs/how-to/spark.md."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackassign.spark import BatchTraffic, batch_traffic
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.documents import blocks
from tests.helpers.kafka.spark_harness import create_coordinator, fill, session, wire_size

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

GUIDE = "docs/how-to/spark.md"
SIZE = 1000
# Local to the session's rack a, and not.
REPLICAS = [[1, 2], [2, 3]]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def documented(cluster: Cluster, topic: str, folder: Path, spark: Any) -> dict[str, Any]:
    """Run the code of the guide with another cluster, topic and folder; return its names."""
    [code] = [block.text for block in blocks(GUIDE) if "StreamingQueryListener" in block.text]
    for old, new in (
        ("broker:9092", cluster.bootstrap),
        ('"orders"', f'"{topic}", "startingOffsets": "earliest"'),
        ("/mnt", str(folder)),
    ):
        assert old in code
        code = code.replace(old, new)
    names: dict[str, Any] = {"spark": spark, "__name__": "documented"}
    exec(compile(code, GUIDE, "exec"), names)  # noqa: S102 - our own documentation
    return names


def batches_of(caplog: pytest.LogCaptureFixture) -> list[BatchTraffic]:
    """Return what the listener has logged."""
    return [record.args[0] for record in caplog.records if record.name == "traffic" and isinstance(record.args, tuple)]  # type: ignore[misc]


def test_each_batch_shows_what_was_local_and_what_crossed(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(replicas=REPLICAS)
    create_coordinator(rack_cluster, topic)
    caplog.set_level(logging.INFO, "traffic")
    fill(rack_cluster, topic, {0: 200, 1: 100}, size=SIZE)
    names = documented(rack_cluster, topic, tmp_path, spark)
    writer = names["stream"].writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        wait_until(lambda: len(batches_of(caplog)) == 1, "progress of the first batch")
        fill(rack_cluster, topic, {0: 50}, size=SIZE, first=200)
        query.processAllAvailable()
        wait_until(lambda: len(batches_of(caplog)) == 2, "progress of the second batch")
        recent = [each for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()
        spark.streams.removeListener(names["listener"])
    first, second = batches_of(caplog)
    assert batch_traffic(names["options"], recent) == [first, second]
    for found, local, crossed in ((first, (0, 0, 200), (1, 0, 100)), (second, (0, 200, 250), (1, 100, 100))):
        wire = [wire_size(rack_cluster, topic, *bounds) for bounds in (local, crossed)]
        assert found.useful == SIZE * (local[2] - local[1] + crossed[2] - crossed[1])
        assert (found.unknown, found.unreported) == (0, 0)
        # Besides record batches there are responses without records.
        assert wire[0] <= found.local <= 1.5 * wire[0] + 2000
        assert wire[1] <= found.stolen <= found.crossed <= 1.5 * wire[1] + 2000
