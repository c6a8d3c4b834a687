"""The example of a pipeline from end to end, on real brokers and a small Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from examples.pipeline.__main__ import evaluate
from examples.pipeline.counters import SCHEMA
from examples.pipeline.groups import BAD, Team
from examples.pipeline.readings import DEAD, WINDOWS, read_all
from examples.pipeline.traffic import REPLICAS, Names, traffic
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import session

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

HERE = os.getpid()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def published(spark: Any, names: Names, *key: str) -> int:
    """Return the bytes in all good messages, as a batch reads them; in one for each key if columns are named."""
    raw = spark.read.format("rackassign").options(
        **{"kafka.bootstrap.servers": names.bootstrap, "subscribe": names.counters}
    )
    said = raw.load().select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("said")).select("said.*")
    reads = (said.dropDuplicates(key) if key else said).select(f.explode("reads").alias("read"))
    return int(reads.agg(f.sum("read.bytes")).first()[0])


def kept(spark: Any, folder: Path) -> int:
    """Return the bytes in all windows."""
    return int(spark.read.parquet(str(folder / WINDOWS)).agg(f.sum("bytes")).first()[0])


def test_what_is_predicted_is_measured_and_each_message_counts_once(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    teams = (Team(f"far-{HERE}", fetches_near=False), Team(f"near-{HERE}", fetches_near=True))
    names = Names(
        rack_cluster.bootstrap, make_topic(replicas=REPLICAS), make_topic(replicas=REPLICAS[:3]), tmp_path, teams
    )

    assert traffic(names, 4) == len(BAD)
    file, found = evaluate(spark, names)

    assert [saving.group for saving in found] == [team.group for team in teams]
    for saving in found:
        assert saving.predicted.before > saving.predicted.after == 0
        assert saving.local_share.before < saving.local_share.after
        assert saving.measured.less > 0
        assert saving.group in file.read_text("utf-8")
    dead = spark.read.parquet(str(tmp_path / DEAD)).collect()
    assert sorted(bytes(row.value) for row in dead) == sorted(BAD)
    once = published(spark, names, "member", "sequence")
    assert kept(spark, tmp_path) == once < published(spark, names)

    # The last batch has been written, but nobody was told so before the query ended: it is done again.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    read_all(spark, names.bootstrap, names.counters, tmp_path)
    assert kept(spark, tmp_path) == once
    assert spark.read.parquet(str(tmp_path / DEAD)).count() == len(BAD)
