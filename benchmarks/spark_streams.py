"""Processor time of streams with small triggers: Spark's own source beside ours, on real brokers.

A stand-alone Spark has a worker with one core in each rack. Each batch has a few records of each partition: they are
written, and the query is awaited. Only processor time is compared, of the executors, of their Python workers and of the
driver with its Python planner, because triggers follow the clock and one machine does all the work. Each round has
another order.

Spark's own source needs Spark 4.0, as `make bench-spark` has it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.spark_racks import JVM, PARTITIONS, RACKS, REPLICAS, Cpu, CpuMeter
from benchmarks.tables import Sheet, show_or_print
from rackassign.spark import kafka_options
from rackassign.spark._tasks import total_slots
from rackassign.testing import LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.spark import SparkCluster, session
from tests.helpers.kafka.spark_connector import check_spark, connector_jars
from tests.helpers.kafka.spark_harness import fill

WAYS = (*JVM, "executor", "pull")
TOPIC = "rows"
_TRIGGER = "1 second"
_WARM_BATCHES = 3
_TIMEOUT_S = 600.0


class Stage:
    """A Spark with racks, and a topic to which each batch appends.

    Args:
        spark: The session.
        workers: Its cluster.
        cluster: The brokers.
        folder: For checkpoints.
        options: Of the command line.
    """

    def __init__(
        self, spark: Any, workers: SparkCluster, cluster: LocalCluster, folder: Path, options: argparse.Namespace
    ) -> None:
        self._spark = spark
        self._cpu = CpuMeter(spark, workers)
        self._cluster = cluster
        self._folder = folder
        self._records: int = options.records
        self._record: int = options.record
        self._batches: int = options.batches
        self._written = 0

    def run(self, way: str, number: int) -> Cpu:
        """Return the processor time of a batch, on average over the batches of a query; the first ones do not count."""
        frame = self._spark.readStream.format("kafka" if way in JVM else "rackassign").options(**self._told(way))
        # All columns are asked for: the sink takes each row.
        writer = frame.load().writeStream.format("noop").trigger(processingTime=_TRIGGER)
        query = writer.option("checkpointLocation", str(self._folder / f"{way}-{number}")).start()
        try:
            self._append(query, _WARM_BATCHES)
            before = self._cpu.read()
            self._append(query, self._batches)
            used = self._cpu.read().since(before)
        finally:
            query.stop()
        return Cpu(*(part / self._batches for part in (used.jvm, used.python, used.driver)))

    def _append(self, query: Any, batches: int) -> None:
        """Write records and wait until they have been read, so many times."""
        for _ in range(batches):
            counts = dict.fromkeys(range(PARTITIONS), self._records)
            fill(self._cluster, TOPIC, counts, size=self._record, first=self._written)
            self._written += self._records
            query.processAllAvailable()
            # Once for each batch: workers that end meanwhile were seen shortly before.
            self._cpu.read()

    def _told(self, way: str) -> dict[str, str]:
        told = {"kafka.bootstrap.servers": self._cluster.bootstrap, "subscribe": TOPIC, "startingOffsets": "latest"}
        if way in JVM:
            return {**told, **(kafka_options() if way == "jvm-racks" else {})}
        return {**told, "rackBinding": way}


def measured(options: argparse.Namespace) -> dict[str, list[Cpu]]:
    """Return the processor time of a batch of each way, for each round."""
    ways = tuple(options.ways)
    with ExitStack() as stage:
        folder = Path(stage.enter_context(tempfile.TemporaryDirectory()))
        config = {"spark.executor.memory": "1g"}
        if set(ways) & set(JVM):
            check_spark()
            config["spark.jars"] = ",".join(map(str, connector_jars()))
        cluster = stage.enter_context(LocalCluster(list(RACKS.values())))
        create_topic(cluster.bootstrap, TOPIC, REPLICAS[2] * 2)
        workers = stage.enter_context(SparkCluster(list(RACKS.values()), memory="2g"))
        spark = stage.enter_context(session(workers.master, config))
        wait_until(lambda: total_slots(spark) == len(RACKS), "an executor in each rack", timeout_s=_TIMEOUT_S)
        running = Stage(spark, workers, cluster, folder, options)
        found: dict[str, list[Cpu]] = {way: [] for way in ways}
        # Round 0 warms executors, and does not count.
        for number in range(options.runs + 1):
            shift = number % len(ways)
            for way in (*ways[shift:], *ways[:shift]):
                used = running.run(way, number)
                print(number, way, f"{used.total():.2f} CPU s a batch", flush=True)
                if number:
                    found[way].append(used)
    return found


def sheet(options: argparse.Namespace, found: Mapping[str, Sequence[Cpu]]) -> Sheet:
    base = next(iter(found))
    rows = []
    for way, of in found.items():
        ratios = sorted(one.total() / other.total() for one, other in zip(of, found[base], strict=True))
        parts = (f"{median(getattr(each, part) for each in of):.2f}" for part in ("jvm", "python", "driver"))
        rows.append((way, " + ".join(parts), f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"))
    title = (
        f"{options.runs} streams of {options.batches} batches each, with {options.records:,} records of "
        f"{options.record:,} bytes in each of {PARTITIONS} partitions; trigger {_TRIGGER}, RF 2 in 3 racks"
    )
    return Sheet(title, ("read", "CPU s a batch, JVM + Python + driver", f"CPU, {base} = 1"), rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="the first is 1")
    parser.add_argument("--batches", type=int, default=20, help="of each stream")
    parser.add_argument("--records", type=int, default=100, help="of a batch, in each partition")
    parser.add_argument("--record", type=int, default=1000, help="bytes of a record")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    show_or_print(sheet(options, measured(options)), markdown=options.markdown)


if __name__ == "__main__":
    main()
