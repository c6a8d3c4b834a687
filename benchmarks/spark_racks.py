"""What share of a batch is read at home by Spark in three racks: late, pulled and barrier reads, on real brokers here.

A stand-alone Spark with a worker of one core in each rack, as three zones have them; what is counted is what librdkafka
has received from each broker. The machine does all the work at once, so speed means nothing but as a ratio of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from benchmarks.show import Sheet, show
from integration.spark_stage import fill
from integration.support import wait_until
from rackassign.spark import Coordinator, read_barrier
from rackassign.spark.barrier import slots_of
from rackassign.testing import LocalCluster, create_topic

RACKS = {1: "a", 2: "b", 3: "c"}
RECORD = 1000
PAIRS = [[1, 2], [2, 1], [2, 3], [3, 2], [3, 1], [1, 3]]
PATIENCE_S = 180.0
WAYS = ("off", "late", "pull", "barrier")


@contextmanager
def workers(folder: Path) -> Iterator[str]:
    """Run a master and a worker in each rack; yield where the master is."""
    home = Path(pyspark.__file__).parent
    shared = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONPATH": str(Path(__file__).parent.parent),
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0"]
    url = f"spark://127.0.0.1:{port}"
    worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
    with ExitStack() as running:
        commands = [(master, "")] + [
            ([*worker, "--work-dir", str(folder / rack), url], rack) for rack in RACKS.values()
        ]
        for command, rack in commands:
            log = running.enter_context((folder / f"log-{rack}").open("w", encoding="utf-8"))
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command],
                env={**shared, **({"RACKASSIGN_RACK": rack} if rack else {})},
                stdout=log,
                stderr=log,
            )
            running.callback(process.wait)
            running.callback(process.terminate)
        yield url


@contextmanager
def session(url: str) -> Iterator[Any]:
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "SPARK_SCALA_VERSION": "2.13"}
    builder: Any = SparkSession.builder
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.master(url).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        wait_until(lambda: slots_of(spark) == len(RACKS), "an executor in each rack", patience_s=PATIENCE_S)
        yield spark
    finally:
        spark.stop()


def frame(spark: Any, way: str, options: dict[str, str], held: Coordinator) -> Any:
    if way == "barrier":
        return read_barrier(spark, options)
    told = {**options, **(held.options if way == "pull" else {"binding": way})}
    return spark.read.format("rackassign").options(**told).load()


def measured(make: Callable[[], Any], folder: Path) -> tuple[float, float, float]:
    """Read once; return the local share, bytes received for each useful one, and seconds."""
    begun = time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    took = time.perf_counter() - begun
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text("utf-8").splitlines()]
    received = [(RACKS[int(node)] == line["rack"], size) for line in lines for node, size in line["received"].items()]
    total = sum(size for _, size in received)
    return sum(size for near, size in received if near) / total, total / sum(line["useful"] for line in lines), took


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--records", type=int, default=10_000, help="in each of 12 partitions")
    parser.add_argument("--record", type=int, default=RECORD, help="bytes of a record")
    told = parser.parse_args(arguments)
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    with ExitStack() as stage:
        folder = Path(stage.enter_context(tempfile.TemporaryDirectory()))
        cluster = stage.enter_context(LocalCluster(list(RACKS.values())))
        create_topic(cluster.bootstrap, "rows", PAIRS * 2)
        fill(cluster, "rows", dict.fromkeys(range(12), told.records), size=told.record, **{"linger.ms": 200})
        spark = stage.enter_context(session(stage.enter_context(workers(folder))))
        held = stage.enter_context(Coordinator(spark))
        # The first round warms executors, and does not count.
        for run in range(told.runs + 1):
            for way in WAYS:
                reports = folder / f"{way}-{run}"
                options = {
                    "kafka.bootstrap.servers": cluster.bootstrap,
                    "subscribe": "rows",
                    "reportPath": str(reports),
                }
                figures = measured(lambda way=way, options=options: frame(spark, way, options, held), reports)  # type: ignore[misc]
                print(run, way, "{:.3f} local, {:.2f} received / useful, {:.1f} s".format(*figures), flush=True)
                if run:
                    found[way].append(figures)
    base = median(took for *_, took in found["late"])
    rows = [
        (
            way,
            f"{min(share for share, *_ in figures):.3f} to {max(share for share, *_ in figures):.3f}",
            f"{max(more for _, more, _ in figures):.2f}",
            f"{median(took for *_, took in figures) / base:.2f}",
        )
        for way, figures in found.items()
    ]
    title = f"{told.runs} batch reads, 12 partitions of {told.records:,} records of {told.record:,} bytes, RF 2"
    show([Sheet(title, ("read", "local", "received / useful, at most", "time, late = 1"), rows)])


if __name__ == "__main__":
    main()
