"""The example of a pipeline from end to end, on real brokers and a small Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from examples.pipeline.__main__ import evaluate, windows_kept
from examples.pipeline.counters import SCHEMA
from examples.pipeline.groups import BAD, Team
from examples.pipeline.readings import DEAD, WINDOW_SCHEMA, WINDOWS, read_all
from examples.pipeline.results import CONFIG, ResultTopic
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


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def sent(spark: Any, results: ResultTopic) -> list[Any]:
    """Return the keys of all records of the topic of results, also of those that are there twice."""
    options = {"kafka.bootstrap.servers": results.bootstrap, "subscribe": results.name}
    return sorted(bytes(row.key) for row in spark.read.format("rackassign").options(**options).load().collect())


def kept(spark: Any, folder: Path) -> int:
    """Return the bytes in all windows."""
    return int(spark.read.parquet(str(folder / WINDOWS)).agg(f.sum("bytes")).first()[0])


def table(spark: Any, folder: Path, results: ResultTopic) -> list[tuple[Any, ...]]:
    """Return the rows of all windows in Parquet, with the columns of the topic."""
    columns = results.read(spark, WINDOW_SCHEMA).columns
    return rows_of(spark.read.parquet(str(folder / WINDOWS)).select(*columns))


def forget(checkpoint: Path, batch: int) -> None:
    """Have a checkpoint forget that a batch was done, and that there were batches behind it."""
    for part, first in (("commits", batch), ("offsets", batch + 1)):
        for path in (checkpoint / part).iterdir():
            number = path.name.strip(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= first:
                path.unlink()


def test_what_is_predicted_is_measured_and_each_message_counts_once(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    teams = (Team(f"far-{HERE}", fetches_near=False), Team(f"near-{HERE}", fetches_near=True))
    topic, counters = make_topic(replicas=REPLICAS), make_topic(replicas=REPLICAS[:3])
    results = ResultTopic(rack_cluster.bootstrap, make_topic(replicas=REPLICAS[:3], config=CONFIG))
    names = Names(rack_cluster.bootstrap, topic, counters, results.name, tmp_path, teams)

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

    windows = rows_of(results.read(spark, WINDOW_SCHEMA))
    assert windows == table(spark, tmp_path, results)
    assert windows_kept(spark, names) == (len(windows), len(windows))
    keys = sent(spark, results)
    assert len(keys) == len(set(keys)) == len(windows)

    # A batch has been written, but the query ended before its checkpoint was: the batch is done again.
    last = max(json.loads(key)["batch"] for key in keys)
    repeated = [key for key in keys if json.loads(key)["batch"] == last]
    forget(tmp_path / "checkpoint", last)
    read_all(spark, names.counters, results, tmp_path)
    assert kept(spark, tmp_path) == once
    assert spark.read.parquet(str(tmp_path / DEAD)).count() == len(BAD)
    # Brokers have its records twice, which are recognised by their keys.
    assert sent(spark, results) == sorted(keys + repeated)
    assert rows_of(results.read(spark, WINDOW_SCHEMA)) == table(spark, tmp_path, results) == windows
