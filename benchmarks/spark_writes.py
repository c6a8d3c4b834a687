"""Processor time and time of batches that Spark writes: its own sink beside ours, interleaved, on real brokers.

A stand-alone Spark has a worker with one core in each rack, and each writes the same rows with both sinks, one after
the other, in another order in each round. Processor time is that of the executors, of their Python workers and of the
driver with its Python planner. One machine does all the work, so only ratios within a round mean anything.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from benchmarks.spark_racks import RACKS, Cpu, CpuMeter
from benchmarks.tables import Sheet, show_or_print, spread
from rackassign.spark._tasks import total_slots
from rackassign.testing import LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.spark import SparkCluster, session
from tests.helpers.kafka.spark_connector import check_spark, connector_jars

SINKS = ("kafka", "rackassign")
Round = dict[str, tuple[Cpu, float]]


def measured(options: argparse.Namespace) -> list[Round]:
    """Return processor time and seconds of a batch for each sink, in each round."""
    check_spark()
    with ExitStack() as stage:
        cluster = stage.enter_context(LocalCluster(list(RACKS.values())))
        create_topic(cluster.bootstrap, "rows", [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 4)
        workers = stage.enter_context(SparkCluster(list(RACKS.values()), memory="2g"))
        config = {"spark.executor.memory": "1g", "spark.jars": ",".join(map(str, connector_jars()))}
        spark = stage.enter_context(session(workers.master, config))
        wait_until(lambda: total_slots(spark) == len(RACKS), "an executor in each rack", timeout_s=180)
        rows = spark.range(0, options.records, 1, len(RACKS)).selectExpr(
            f"left(repeat(cast(id as string), {options.record}), {options.record}) value",
            *(["cast(id as string) key"] if options.keys else []),
        )
        rows = rows.persist()
        rows.count()
        cpu, rounds = CpuMeter(spark, workers), []
        for number in range(options.runs + 1):
            found = {
                sink: _written(rows, sink, cluster.bootstrap, cpu) for sink in (SINKS if number % 2 else SINKS[::-1])
            }
            for sink, (used, seconds) in found.items():
                print(f"{number} {sink}: {used.total():.2f} CPU s, {seconds:.2f} s", flush=True)
            rounds.append(found)
        # Round 0 warms executors, and does not count.
        return rounds[1:]


def _written(rows: Any, sink: str, bootstrap: str, cpu: CpuMeter) -> tuple[Cpu, float]:
    before, begin = cpu.read(), time.monotonic()
    rows.write.format(sink).options(**{"kafka.bootstrap.servers": bootstrap, "topic": "rows"}).mode("append").save()
    seconds = time.monotonic() - begin
    return cpu.read().since(before), seconds


def sheet(options: argparse.Namespace, rounds: Sequence[Round]) -> Sheet:
    rows = []
    for sink in SINKS:
        parts = (
            f"{median(getattr(each[sink][0], part) for each in rounds):.2f}" for part in ("jvm", "python", "driver")
        )
        rows.append((
            sink,
            " + ".join(parts),
            spread([each[sink][0].total() / each["kafka"][0].total() for each in rounds]),
            f"{median(each[sink][1] for each in rounds):.2f}",
            spread([each[sink][1] / each["kafka"][1] for each in rounds]),
        ))  # fmt: skip
    keys = "with" if options.keys else "without"
    records = f"{options.records:,} records of {options.record:,} bytes {keys} keys"
    title = f"{options.runs} batches of {records}, RF 3 in 3 racks"
    return Sheet(title, ("sink", "CPU s, JVM + Python + driver", "CPU, kafka = 1", "s", "time, kafka = 1"), rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--records", type=int, default=300_000, help="of a batch")
    parser.add_argument("--record", type=int, default=100, help="bytes of a value")
    parser.add_argument("--keys", action="store_true", help="records have keys")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    show_or_print(sheet(options, measured(options)), markdown=options.markdown)


if __name__ == "__main__":
    main()
