"""Processor time of streams with small triggers: Spark's own source beside ours, on real brokers.

A stand-alone Spark has a worker with one core in each rack. Each batch has a few records of each partition: they are
written, and the query is awaited. Processor time is that of the executors, of their Python workers and of the driver
with its Python planner. A batch's time is what Spark reports of it, without the time until the trigger. What is
received from brokers is counted by the kernel, metadata and all. One machine does all the work, so only ratios within a
round mean anything. Each round has another order.

Spark's own source needs Spark 4.0, as `make bench-spark` has it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.spark_racks import JVM, PARTITIONS, RACKS, REPLICAS, Cpu, CpuMeter
from benchmarks.tables import Sheet, show_or_print, spread
from rackassign.spark import kafka_options
from rackassign.spark._tasks import total_slots
from rackassign.testing import LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.spark import SparkCluster, session
from tests.helpers.kafka.spark_connector import check_spark, connector_jars
from tests.helpers.kafka.spark_harness import fill, wire_size
from tests.helpers.kernel_traffic import ConnectionBytes

WAYS = (*JVM, "executor", "pull")
TOPIC = "rows"
_TRIGGER = "1 second"
_WARM_BATCHES = 3
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Used:
    """What a batch takes, on average over the batches of a query."""

    cpu: Cpu
    seconds: float
    # Bytes from brokers for each byte of the record batches that were read.
    received: float


class Stage:
    """A Spark with racks, and a topic to which each batch appends."""

    def __init__(
        self, spark: Any, workers: SparkCluster, cluster: LocalCluster, folder: Path, options: argparse.Namespace
    ) -> None:
        self._spark = spark
        self._cpu = CpuMeter(spark, workers)
        self._cluster = cluster
        self._folder = folder
        self._partitions: int = options.partitions
        self._records: int = options.records
        self._record: int = options.record
        self._batch: int = options.batch
        self._batches: int = options.batches
        self._written = 0
        self._connections: dict[int, ConnectionBytes] = {}

    def run(self, way: str, number: int) -> Used:
        """Return what a batch takes; the first ones of the query do not count."""
        frame = self._spark.readStream.format("kafka" if way in JVM else "rackassign").options(**self._told(way))
        # All columns are asked for: the sink takes each row.
        writer = frame.load().writeStream.format("noop").trigger(processingTime=_TRIGGER)
        query = writer.option("checkpointLocation", str(self._folder / f"{way}-{number}")).start()
        try:
            self._append(query, _WARM_BATCHES)
            start, received, before = self._written, self._received(), self._cpu.read()
            warm = query.lastProgress["batchId"]
            self._append(query, self._batches)
            used = self._cpu.read().since(before)
            received = self._received() - received
            took = [
                each["durationMs"]["triggerExecution"] / 1000
                for each in query.recentProgress
                if each["batchId"] > warm and each["numInputRows"]
            ]
        finally:
            query.stop()
        wire = self._partitions * wire_size(self._cluster, TOPIC, 0, start, self._written)
        cpu = Cpu(*(part / self._batches for part in (used.jvm, used.python, used.driver)))
        return Used(cpu, sum(took) / self._batches, received / wire)

    def _append(self, query: Any, batches: int) -> None:
        """Write records and wait until they have been read, so many times."""
        for _ in range(batches):
            counts = dict.fromkeys(range(self._partitions), self._records)
            properties = {"batch.size": self._batch, "linger.ms": 100}
            fill(self._cluster, TOPIC, counts, size=self._record, first=self._written, **properties)
            self._written += self._records
            query.processAllAvailable()
            # Once for each batch: workers that end meanwhile were seen shortly before.
            self._cpu.read()
            self._received()

    def _received(self) -> int:
        """Return the bytes that executors and their Python workers have received from brokers."""
        for process in self._cpu.of_executors() - self._connections.keys():
            # One that has ended meanwhile has nothing to count.
            with suppress(OSError):
                self._connections[process] = ConnectionBytes(process)
        ports = {broker.port for broker in self._cluster.brokers}
        total = 0
        for counted in self._connections.values():
            with suppress(OSError):
                counted.look()
            total += sum(size for port, size in counted.by_port().items() if port in ports)
        return total

    def _told(self, way: str) -> dict[str, str]:
        told = {"kafka.bootstrap.servers": self._cluster.bootstrap, "subscribe": TOPIC, "startingOffsets": "latest"}
        if way in JVM:
            return {**told, **(kafka_options() if way == "jvm-racks" else {})}
        return {**told, "rackBinding": way}


def measured(options: argparse.Namespace) -> dict[str, list[Used]]:
    """Return what a batch takes in each way, for each round."""
    ways = tuple(options.ways)
    with ExitStack() as stage:
        folder = Path(stage.enter_context(tempfile.TemporaryDirectory()))
        config = {"spark.executor.memory": "1g"}
        if set(ways) & set(JVM):
            check_spark()
            config["spark.jars"] = ",".join(map(str, connector_jars()))
        cluster = stage.enter_context(LocalCluster(list(RACKS.values())))
        create_topic(cluster.bootstrap, TOPIC, [REPLICAS[2][each % 6] for each in range(options.partitions)])
        workers = stage.enter_context(SparkCluster(list(RACKS.values()), memory="2g"))
        spark = stage.enter_context(session(workers.master, config))
        wait_until(lambda: total_slots(spark) == len(RACKS), "an executor in each rack", timeout_s=_TIMEOUT_S)
        running = Stage(spark, workers, cluster, folder, options)
        found: dict[str, list[Used]] = {way: [] for way in ways}
        # Round 0 warms executors, and does not count.
        for number in range(options.runs + 1):
            shift = number % len(ways)
            for way in (*ways[shift:], *ways[:shift]):
                used = running.run(way, number)
                print(
                    f"{number} {way}: {used.cpu.total():.2f} CPU s, {used.seconds:.2f} s a batch,"
                    f" received / wire {used.received:.3f}",
                    flush=True,
                )
                if number:
                    found[way].append(used)
    return found


def sheet(options: argparse.Namespace, found: Mapping[str, Sequence[Used]]) -> Sheet:
    base = next(iter(found))
    rows = []
    for way, of in found.items():
        pairs = list(zip(of, found[base], strict=True))
        parts = (f"{median(getattr(each.cpu, part) for each in of):.2f}" for part in ("jvm", "python", "driver"))
        rows.append((
            way,
            " + ".join(parts),
            spread([one.cpu.total() / other.cpu.total() for one, other in pairs]),
            f"{median(each.seconds for each in of):.2f}",
            spread([one.seconds / other.seconds for one, other in pairs]),
            f"{max(each.received for each in of):.3f}",
        ))  # fmt: skip
    title = (
        f"{options.runs} streams of {options.batches} batches each, with {options.records:,} records of "
        f"{options.record:,} bytes in each of {options.partitions} partitions; trigger {_TRIGGER}, RF 2 in 3 racks"
    )
    headings = (
        "read",
        "CPU s a batch, JVM + Python + driver",
        f"CPU, {base} = 1",
        "s a batch",
        f"time, {base} = 1",
        "received / wire, at most",
    )
    return Sheet(title, headings, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="the first is 1")
    parser.add_argument("--batches", type=int, default=20, help="of each stream")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--records", type=int, default=100, help="of a batch, in each partition")
    parser.add_argument("--record", type=int, default=1000, help="bytes of a record")
    parser.add_argument("--batch", type=int, default=16_384, help="bytes of a record batch")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    show_or_print(sheet(options, measured(options)), markdown=options.markdown)


if __name__ == "__main__":
    main()
