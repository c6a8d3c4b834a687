"""The Spark source through Spark Connect: in a process of its own, since a process has one session of one kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rackassign.spark import Coordinator
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import check_java, fill

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

SPREAD = [[1, 2], [2, 3], [3, 1]]
CONFIG = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "RACKASSIGN_RACK": "a",
    # Spark's own way to a port that nobody has.
    "SPARK_TESTING": "1",
}


def test_batches_work_through_spark_connect(rack_cluster: Cluster, make_topic: MakeTopic) -> None:
    check_java()
    topic = make_topic(replicas=SPREAD)
    counts = {0: 4, 1: 300, 2: 50}
    fill(rack_cluster, topic, counts)
    command = [sys.executable, "-c", f"import {__name__} as it; it.tell(*{(rack_cluster.bootstrap, topic)!r})"]
    done = subprocess.run(
        command, capture_output=True, check=False, text=True, timeout=600, env={**os.environ, **ENVIRONMENT}
    )
    assert done.returncode == 0, done.stderr[-5000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["session"].startswith("pyspark.sql.connect.")
    expected = [[partition, offset] for partition, count in counts.items() for offset in range(count)]
    assert told["read"] == told["pulled"] == expected


def tell(bootstrap: str, topic: str) -> None:
    """Read a topic in each way, and print what came; runs in a process of its own."""
    builder: Any = SparkSession.builder
    builder = builder.remote("local[2]")
    for name, value in CONFIG.items():
        builder = builder.config(name, value)
    spark: Any = builder.getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    source = spark.read.format("rackassign").options(**options)

    def places(frame: Any) -> list[list[int]]:
        return sorted([row.partition, row.offset] for row in frame.select("partition", "offset").collect())

    told: dict[str, Any] = {"session": type(spark).__module__, "read": places(source.load())}
    with Coordinator(spark, host="127.0.0.1") as held:
        told["pulled"] = places(source.options(**held.options).load())
    spark.stop()
    print(json.dumps(told))
