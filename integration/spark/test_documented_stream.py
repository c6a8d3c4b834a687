"""The program of docs/how-to/spark.md, run as it is written there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.documents import blocks
from tests.helpers.kafka.spark_harness import fill, session

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

GUIDE = "docs/how-to/spark.md"
SPREAD = [[1, 2], [2, 3], [3, 1]]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def program(cluster: Cluster, topic: str, folder: Path) -> str:
    """Return the program of the guide with another cluster, topic and folder."""
    [code] = [block.text for block in blocks(GUIDE) if "writeStream" in block.text]
    for old, new in (("broker:9092", cluster.bootstrap), ('"orders"', f'"{topic}"'), ("/data", str(folder))):
        assert old in code
        code = code.replace(old, new)
    return code


@contextmanager
def running(code: str, folder: Path) -> Iterator[Callable[[], None]]:
    """Run a program in a process of its own with a local Spark; kill it in the end, with all it has started."""
    # Yields: A function that fails if the program has ended.
    script, log = folder / "stream.py", folder / "log"
    script.write_text(code, "utf-8")
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "RACKASSIGN_RACK": "a",
    }
    with (
        log.open("ab") as output,
        subprocess.Popen(
            [sys.executable, str(script)], env=environment, stderr=output, stdout=output, start_new_session=True
        ) as process,
    ):

        def check() -> None:
            assert process.poll() is None, log.read_text("utf-8")[-3000:]

        try:
            yield check
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def ended(check: Callable[[], None], commit: Path) -> bool:
    check()
    return commit.exists()


def test_the_stream_of_the_guide_continues_where_it_was_killed(
    spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    code = program(rack_cluster, topic, tmp_path)
    commits = Path(*re.findall(r'"checkpointLocation", "(.*)"', code)) / "commits"
    fill(rack_cluster, topic, {0: 100, 1: 50, 2: 7})
    for batch, more in enumerate(({0: 30}, {})):
        with running(code, tmp_path) as check:
            wait_until(partial(ended, check, commits / str(batch)), f"the end of batch {batch}")
        fill(rack_cluster, topic, more, first=100)
    rows = spark.read.parquet(re.findall(r'"path", "(.*)"', code)[0])
    assert rows.columns == ["key", "value", "topic", "partition", "offset", "timestamp"]
    found = sorted((row.topic, row.partition, row.offset, row.key) for row in rows.collect())
    counts = {0: 130, 1: 50, 2: 7}
    assert found == sorted((topic, p, offset, str(offset)) for p, count in counts.items() for offset in range(count))
