"""Filters and columns of a query limit what is read, and change no row of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource
from pyspark.sql.functions import col

from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import fill, session, told_in

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.local,
    pytest.mark.spark,
    pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="needs Spark 4.1"),
]

SPREAD = [[1, 2], [2, 3], [3, 1]]
ENABLED = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def offsets_read(folder: Path) -> dict[int, list[tuple[int, int]]]:
    """Return the ranges that tasks have read, by partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    # A query that reads nothing writes nothing.
    for line in told_in(folder) if folder.exists() else ():
        found.setdefault(line["partition"], []).append((line["start"], line["end"]))
    return {partition: sorted(ranges) for partition, ranges in sorted(found.items())}


def test_filters_become_offsets_and_rows_stay_the_same(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, dict.fromkeys(range(3), 200))
    options = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": topic}
    whole = spark.read.format("rackassign").options(**options).load()
    stamps = sorted(row.timestamp for row in whole.where("partition = 1").select("timestamp").collect())
    middle = stamps[100].astimezone(timezone.utc)
    spark.conf.set(ENABLED, "true")
    try:
        for name, condition, expected in (
            ("offsets", "partition in (0, 2) and offset >= 50 and offset < 60", {0: [(50, 60)], 2: [(50, 60)]}),
            ("one", "partition = 1 and offset = 7", {1: [(7, 8)]}),
            ("none", "partition = 5", {}),
            ("others", "topic = 'other'", {}),
        ):
            told = {**options, "pushFilters": "true", "metricsPath": str(tmp_path / name)}
            filtered = spark.read.format("rackassign").options(**told).load().where(condition)
            rows = sorted((row.partition, row.offset) for row in filtered.collect())
            assert rows == sorted((row.partition, row.offset) for row in whole.where(condition).collect())
            assert offsets_read(tmp_path / name) == expected
        told = {**options, "pushFilters": "true", "metricsPath": str(tmp_path / "since")}
        later = spark.read.format("rackassign").options(**told).load().where(col("timestamp") >= middle)
        assert later.count() == whole.where(col("timestamp") >= middle).count() > 0
        read = sum(end - start for ranges in offsets_read(tmp_path / "since").values() for start, end in ranges)
        assert later.count() <= read < 600 - 50
    finally:
        spark.conf.unset(ENABLED)


def test_without_the_setting_of_spark_its_error_names_it(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic
) -> None:
    options = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": make_topic(replicas=SPREAD)}
    with pytest.raises(Exception, match=ENABLED):
        spark.read.format("rackassign").options(**options, pushFilters="true").load().collect()


def test_only_the_columns_of_the_option_are_read(spark: Any, rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(replicas=SPREAD)
    fill(rack_cluster, topic, {0: 30, 1: 5})
    options = {"kafka.bootstrap.servers": rack_cluster.bootstrap, "subscribe": topic, "columns": "offset, partition"}
    frame = spark.read.format("rackassign").options(**options).load()
    assert frame.columns == ["offset", "partition"]
    assert frame.count() == 35
    assert sorted(map(tuple, frame.collect())) == sorted([(o, 0) for o in range(30)] + [(o, 1) for o in range(5)])
