"""Spark for the pipeline: a stand-alone master, and a worker in each rack that tells its rack to what it starts."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.errors import ClusterError
from rackassign.racks import RACK_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READY_S, _STOP_S = 120.0, 20.0
_HERE = "127.0.0.1"
_WHERE = ("--host", _HERE, "--port", "0", "--webui-port", "0")
_CLASS = "org.apache.spark.deploy.{0}.{1}"


def check_java() -> None:
    """Refuse to begin where there is no Java; the one that comes in a wheel for brokers is too new for Spark.

    Raises:
        ClusterError: There is none.
    """
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise ClusterError("Spark needs a Java 17: install one, or set JAVA_HOME")


@contextmanager
def stand_alone(racks: Sequence[str], folder: Path) -> Iterator[str]:
    """Start a master and a worker of one core in each rack; lend the master's address. None outlives the block.

    Args:
        racks: Of the workers.
        folder: For their logs and what they work with.

    Raises:
        ClusterError: One does not start.
    """
    with ExitStack() as started:
        running = started.enter_context(_running("master", "Master", [], folder, {}))
        master = _said(*running, r"spark://127\.0\.0\.1:[1-9]\d*")
        for rack in racks:
            words = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / rack), master]
            running = started.enter_context(_running("worker", "Worker", words, folder, {RACK_VARIABLE: rack}))
            _said(*running, "Successfully registered with master")
        yield master


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """Lend a session.

    Args:
        master: Of a cluster, or `local[2]`: all of it stands in one rack then, that of this process.
    """
    os.environ["SPARK_LOCAL_IP"] = _HERE
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 - reads the environment

    config = {
        "spark.driver.bindAddress": _HERE,
        "spark.driver.host": _HERE,
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("pipeline")
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _running(
    room: str, name: str, words: Sequence[str], folder: Path, told: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a part of Spark for as long as the block takes; lend it and the path of its log."""
    import pyspark  # noqa: PLC0415 - only to find it

    home = Path(pyspark.__file__).parent
    options = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": _HERE}
    log = folder / f"{'-'.join([name.lower(), *told.values()])}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin/spark-class"), _CLASS.format(room, name), *_WHERE, *words],
            env={**os.environ, **options, **told},
            stdout=output,
            stderr=output,
            # Executors end with their worker, and Ctrl-C does not reach them before the session is over.
            start_new_session=True,
        )
        try:
            yield process, log
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _said(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Wait until a log has something in it; return that."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text("utf-8", "replace"))
        if found:
            return found[0]
        if process.poll() is not None:
            raise ClusterError(f"Spark ended with {process.returncode}, see {log}")
        time.sleep(0.1)
    raise ClusterError(f"Spark did not start in time, see {log}")
