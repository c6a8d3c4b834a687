"""A Spark in racks and its session, as far as both can be told without a JVM."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing import spark
from rackassign.testing.spark import SparkCluster

WITHIN_S = 600

INTERRUPTS = """#!{python}
import os, pathlib, signal
pathlib.Path({told!r}).write_text(str(os.getpid()))
os.kill(os.getppid(), signal.SIGINT)
while True:
    signal.pause()
"""
"""In place of spark-submit; it is asked to end while pyspark waits for what it would say."""

MAKES = """
from rackassign.testing.spark import session
with session("local[1]"):
    pass
"""


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"racks": "ab"}, "racks: expected a different name"),
        ({"racks": ["a", "a"]}, "racks: expected a different name"),
        ({"racks": ["a", ""]}, "racks: expected a different name"),
        ({"racks": [1, 2]}, "racks: expected a different name"),
        ({"racks": [["a"], ["b"]]}, "racks: expected a different name"),
        ({"cores": 0}, "cores: expected 1 or more, got 0"),
        ({"cores": "2"}, "cores: expected 1 or more"),
        ({"cores": None}, "cores: expected 1 or more"),
        ({"cores": [1, 0]}, "cores: expected 1 or more"),
        ({"cores": [1, 2, 3]}, "cores: expected a number for each of 2 racks"),
        ({"variable": "A-B"}, "variable: expected the name of an environment variable"),
        ({"variable": ""}, "variable: expected the name of an environment variable"),
    ],
)
def test_what_no_cluster_can_be_is_named(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SparkCluster(**{"racks": ["a", "b"], **wrong})


def test_one_that_runs_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def keeps(cluster: SparkCluster, home: Any) -> None:
        os.close(home.descriptor)
        cluster._supervisor = kept  # type: ignore[assignment]

    kept = Kept()
    monkeypatch.setenv("JAVA_HOME", "/")
    monkeypatch.setattr(SparkCluster, "_start_supervisor", keeps)
    monkeypatch.setattr(SparkCluster, "_run", lambda *_: None)
    monkeypatch.setattr(SparkCluster, "_wait_for_log", lambda *_: "spark://127.0.0.1:1")
    with SparkCluster(["a"]) as cluster:
        with pytest.raises(ClusterError, match="already running"):
            cluster.start()
        assert cluster.workers() == {"a": 1}


class Kept:
    """A supervisor of one process that is none."""

    def running(self) -> dict[str, int]:
        return {"worker in a": 1}

    def signal(self, *_: object) -> None:
        """Send nothing."""

    wait_exit = close = signal


def test_a_session_that_is_interrupted_while_it_is_made_leaves_no_process(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(INTERRUPTS.format(python=sys.executable, told=str(told)))
    submit.chmod(0o700)
    environment = {**os.environ, "SPARK_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", MAKES], env=environment, timeout=WITHIN_S, capture_output=True, check=False
        )
        assert re.search(rb"^KeyboardInterrupt", ended.stderr, re.MULTILINE)
        assert b"bin/spark-submit" not in spark._command(int(told.read_text()))
    finally:
        if told.exists() and b"bin/spark-submit" in spark._command(int(told.read_text())):
            os.kill(int(told.read_text()), signal.SIGKILL)
