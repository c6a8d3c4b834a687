"""Local share and speed of batches that Spark reads in three racks: its own source beside ours, on real brokers.

A stand-alone Spark has a worker in each rack, with one core unless `--cores` says otherwise. Local bytes are counted by
the clients: by librdkafka for rackassign, by the metrics of the Java consumers for Spark's own source. One machine does
all the work, so times are comparable only as ratios within a round; each round has another order.

Spark's own source (`jvm`, `jvm-racks`) needs Spark 4.0 and a JDK, as `make bench-spark` has them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.tables import Sheet, show_or_print
from rackassign.spark import Coordinator, kafka_options
from rackassign.spark._tasks import total_slots
from rackassign.testing import LocalCluster, create_topic
from rackassign.testing._machine import processes
from rackassign.testing.harness import wait_until
from rackassign.testing.spark import SparkCluster, session
from tests.helpers.java.assignor_peer import compiled, find_jdk
from tests.helpers.kafka.spark_connector import check_spark, connector_jars
from tests.helpers.kafka.spark_harness import fill, told_in, wire_size

RACKS = {1: "a", 2: "b", 3: "c"}
REPLICAS = {
    1: [[1], [2], [2], [3], [3], [1]],
    2: [[1, 2], [2, 1], [2, 3], [3, 2], [3, 1], [1, 3]],
    3: [[1, 2, 3], [2, 3, 1], [2, 1, 3], [3, 1, 2], [3, 2, 1], [1, 3, 2]],
}
"""Replicas of each partition, by their number."""

PARTITIONS = 12
TOPIC = "rows"
JVM = ("jvm", "jvm-racks")
OURS = ("none", "executor", "pull")
_COUNTER = Path(__file__).parent / "java" / "NodeBytes.java"
_TIMEOUT_S = 180.0
_COUNTED_S = 0.5
"""The counter of the JVM writes ten times a second."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of processor time: of executors, of their Python workers, and of the driver with its Python planners."""

    jvm: float
    python: float
    driver: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(self.jvm - before.jvm, self.python - before.python, self.driver - before.driver)

    def total(self) -> float:
        return self.jvm + self.python + self.driver


@dataclass(frozen=True, slots=True)
class Bytes:
    """What was received from brokers in the reader's own rack, and from all."""

    near: int
    total: int


@dataclass(slots=True)
class Found:
    """What was measured of a way, a figure for each round."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[Cpu] = field(default_factory=list)
    bytes: list[Bytes] = field(default_factory=list)


class Stage:
    """A Spark with racks, a topic, and the ways to read it."""

    def __init__(
        self,
        spark: Any,
        workers: SparkCluster,
        cluster: LocalCluster,
        folder: Path,
        held: Coordinator,
        more: Mapping[str, str],
    ) -> None:
        self._more = more
        self._spark = spark
        self._cpu = CpuMeter(spark, workers)
        self._folder = folder
        self._held = held
        self._options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC}

    def round(self, number: int, ways: Sequence[str], found: Mapping[str, Found]) -> None:
        """Read once in each way, beginning with another each time."""
        shift = number % len(ways)
        for way in (*ways[shift:], *ways[:shift]):
            of = found[way]
            self._timed(way, of)
            # Counting takes time: another read, whose time does not count.
            if way in JVM:
                before = self._jvm_bytes()
                counted = {"kafka.metric.reporters": _COUNTER.stem, "kafka.node.bytes.folder": str(self._jvm_folder())}
                _drain(self._frame(way, counted))
                after = self._jvm_bytes()
                of.bytes.append(Bytes(after.near - before.near, after.total - before.total))
            else:
                told = self._folder / f"{way}-{number}"
                _drain(self._frame(way, {"metricsPath": str(told)}))
                of.bytes.append(_reported(told))
            print(number, way, f"{of.seconds[-1]:.1f} s,", _share(of.bytes[-1]), "local", flush=True)

    def _timed(self, way: str, of: Found) -> None:
        cpu, begun = self._cpu.read(), time.perf_counter()
        _drain(self._frame(way, {}))
        of.seconds.append(time.perf_counter() - begun)
        of.cpu.append(self._cpu.read().since(cpu))

    def _frame(self, way: str, more: Mapping[str, str]) -> Any:
        options = {**self._options, **more}
        if way in JVM:
            racks = kafka_options() if way == "jvm-racks" else {}
            return self._spark.read.format("kafka").options(**options, **racks).load()
        told = {**self._more, **(self._held.options if way == "pull" else {"rackBinding": way})}
        return self._spark.read.format("rackassign").options(**options, **told).load()

    def _jvm_folder(self) -> Path:
        folder = self._folder / "jvm"
        folder.mkdir(exist_ok=True)
        return folder

    def _jvm_bytes(self) -> Bytes:
        time.sleep(_COUNTED_S)
        near = total = 0
        for file in self._jvm_folder().glob("*.txt"):
            rack, *lines = file.read_text("utf-8").splitlines()
            for node, size in (line.split() for line in lines):
                total += int(size)
                near += int(size) * (RACKS[int(node)] == rack)
        return Bytes(near, total)


class CpuMeter:
    """The processor time of a session and of the executors of its cluster.

    A JVM takes over the time of a child that has ended. pyspark's daemon does not, since it ignores the end of its
    workers, and a worker ends after a minute without a task: what was seen last of it counts on.
    """

    def __init__(self, spark: Any, workers: SparkCluster) -> None:
        self._driver: int = spark.sparkContext._gateway.proc.pid
        self._workers = workers
        self._seen: dict[int, _Seen] = {}

    def read(self) -> Cpu:
        """Return the processor time so far."""
        running = {process.id: process for process in processes()}
        parents = {process.id: process.parent for process in running.values()}
        executors = {process for rack in RACKS.values() for process in self._workers.executors(rack)}
        jvms = {self._driver, *executors}
        self._seen = {process: seen for process, seen in self._seen.items() if process in running or seen.is_forked}
        for process in running.values():
            above = {process.id, *_ancestors(process.id, parents)}
            if above & jvms:
                part = "jvm" if process.id in executors else "python" if above & executors else "driver"
                is_forked = jvms.isdisjoint({process.id, process.parent})
                self._seen[process.id] = _Seen(part, process.cpu_s, is_forked)
        return Cpu(*(
            sum(seen.cpu_s for seen in self._seen.values() if seen.part == part) for part in ("jvm", "python", "driver")
        ))  # fmt: skip

    def of_executors(self) -> set[int]:
        """Return the processes of executors and their Python workers, as of the last reading."""
        return {process for process, seen in self._seen.items() if seen.part != "driver"}


class _Seen(NamedTuple):
    part: str
    cpu_s: float
    is_forked: bool
    """Whether a daemon of pyspark has forked it."""


def _ancestors(process: int, parents: Mapping[int, int]) -> Iterator[int]:
    while process in parents:
        process = parents[process]
        yield process


def _drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _reported(folder: Path) -> Bytes:
    received: Counter[bool] = Counter()
    for line in told_in(folder):
        for node, size in line["received"].items():
            received[RACKS[int(node)] == line["rack"]] += size
    return Bytes(received[True], received.total())


def _share(of: Bytes) -> str:
    return f"{of.near / of.total:.3f}"


def _jar_of_counter(folder: Path, jars: Sequence[Path]) -> Path:
    classes = compiled(find_jdk(), os.pathsep.join(map(str, jars)), _COUNTER)
    jar = folder / "node-bytes.jar"
    with zipfile.ZipFile(jar, "w") as packed:
        for file in classes.glob("*.class"):
            packed.write(file, file.name)
    return jar


def measured(options: argparse.Namespace) -> tuple[dict[str, Found], int]:
    """Return what was found of each way, and the bytes of the record batches of the topic."""
    ways = tuple(options.ways)
    with ExitStack() as stage:
        folder = Path(stage.enter_context(tempfile.TemporaryDirectory()))
        config = {"spark.executor.memory": "1g"}
        if set(ways) & set(JVM):
            check_spark()
            jars = connector_jars()
            config["spark.jars"] = ",".join(map(str, [*jars, _jar_of_counter(folder, jars)]))
        cluster = stage.enter_context(LocalCluster(list(RACKS.values())))
        create_topic(cluster.bootstrap, TOPIC, REPLICAS[options.replicas] * 2)
        counts = dict.fromkeys(range(PARTITIONS), options.records)
        fill(cluster, TOPIC, counts, size=options.record, **{"batch.size": options.batch, "linger.ms": 200})
        wire = sum(wire_size(cluster, TOPIC, partition, 0, options.records) for partition in range(PARTITIONS))
        workers = stage.enter_context(SparkCluster(list(RACKS.values()), cores=options.cores, memory="2g"))
        spark = stage.enter_context(session(workers.master, config))
        wait_until(lambda: total_slots(spark) == sum(options.cores), "an executor in each rack", timeout_s=_TIMEOUT_S)
        held = stage.enter_context(Coordinator(spark))
        reading = Stage(spark, workers, cluster, folder, held, dict(each.split("=", 1) for each in options.option))
        # The first round warms executors, and does not count.
        reading.round(0, ways, {way: Found() for way in ways})
        found = {way: Found() for way in ways}
        for number in range(1, options.runs + 1):
            reading.round(number, ways, found)
    return found, wire


def sheet(options: argparse.Namespace, found: Mapping[str, Found], wire: int) -> Sheet:
    base = next(iter(found))
    rows = []
    for way, of in found.items():
        shares = sorted(each.near / each.total for each in of.bytes)
        times = sorted(one / other for one, other in zip(of.seconds, found[base].seconds, strict=True))
        rows.append((
            way,
            f"{shares[0]:.3f} to {shares[-1]:.3f}",
            f"{median(times):.2f} ({times[0]:.2f} to {times[-1]:.2f})",
            " + ".join(
                f"{median(getattr(each, part) for each in of.cpu):.1f}" for part in ("jvm", "python", "driver")
            ),
            f"{median(one.total() / other.total() for one, other in zip(of.cpu, found[base].cpu, strict=True)):.2f}",
            f"{max(each.total for each in of.bytes) / wire:.2f}",
        ))  # fmt: skip
    seconds = median(found[base].seconds)
    title = (
        f"{options.runs} batch reads of {PARTITIONS} partitions with {options.records:,} records of {options.record:,} "
        f"bytes each, RF {options.replicas} in 3 racks with {', '.join(map(str, options.cores))} cores"
        f"{''.join(f', {each}' for each in options.option)}; {base}: {seconds:.1f} s"
    )
    headings = (
        "read",
        "local, of bytes",
        f"time, {base} = 1",
        "CPU s, JVM + Python + driver",
        f"CPU, {base} = 1",
        "received / wire, at most",
    )
    return Sheet(title, headings, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--ways", nargs="+", choices=(*JVM, *OURS), default=(*JVM, *OURS), help="the first is 1")
    parser.add_argument("--records", type=int, default=100_000, help="in each partition")
    parser.add_argument("--record", type=int, default=1000, help="bytes of a record")
    parser.add_argument("--replicas", type=int, choices=REPLICAS, default=2, help="of each partition")
    parser.add_argument("--cores", type=int, nargs=3, default=[1, 1, 1], help="of the executor in each rack")
    parser.add_argument("--batch", type=int, default=65_536, help="bytes of a record batch")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of our source")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    show_or_print(sheet(options, *measured(options)), markdown=options.markdown)


if __name__ == "__main__":
    main()
