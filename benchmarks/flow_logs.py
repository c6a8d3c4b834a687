"""How many records of flow logs are summed a second, in one process and on Spark: `python -m benchmarks.flow_logs`.

Flows of brokers and clients in three zones, each recorded by both sides, in the fields of version 5. Beside it, Spark's
own SQL does nothing but sum the bytes of the same files. A second is one of a processor, of all processes together, as
the kernel has it. All must find the same. Figures depend on the machine, ratios of one run less so.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.tables import Sheet, show
from rackassign.bill.flow_logs import read_flow_logs
from rackassign.bill.flows import FLOWS, FlowNetwork, classify, find_recorders, flows_on_spark, sum_flows
from rackassign.testing._machine import processes
from rackassign.testing.spark import session
from tests.helpers.flow_logs import FORMATS, flows, hosts, records, write_parquet, write_text

CORES = 2
_WARM = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow_logs", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000, help="of all files together (%(default)s)")
    parser.add_argument("--files", type=int, default=20, help="of each form (%(default)s)")
    parser.add_argument("--clients", type=int, default=300, help="beside 6 brokers (%(default)s)")
    options = parser.parse_args()
    among = hosts(6, options.clients)
    each = options.records // options.files // 2
    network = FlowNetwork(
        {host.address: host.zone for host in among if host.broker},
        frozenset({9092}),
        {host.address: host.group for host in among if host.group},
        {f"10.{number}.0.0/16": zone for number, zone in enumerate(sorted({host.zone for host in among}))},
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(options.files):
            table = records(among, flows(among, each, number), number, FORMATS[5])
            write_parquet(folder / "parquet" / f"{number}.parquet", table)
            write_text(folder / "gzip" / f"{number}.log.gz", table)
        rows = [*_timed(folder, network, each * 2 * options.files)]
    shown = [(what, f"{seconds:.1f}", f"{rate / 1e6:.2f}", f"{rate / rows[0][2]:.2f}") for what, seconds, rate in rows]
    title = f"{each * 2 * options.files:,} records in {options.files} files"
    show([Sheet(title, ("", "s of a processor", "million records in one", "first = 1"), shown)])


def _processor_s() -> float:
    """Return the time that this process and those below it have had, with those that have ended."""
    running = {process.id: process for process in processes()}
    below = [os.getpid()]
    for process in below:
        below += (child.id for child in running.values() if child.parent == process)
    ticks = 0
    for process in below:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _timed(folder: Path, network: FlowNetwork, count: int) -> Iterator[tuple[str, float, float]]:
    """Yield what was done, seconds of a processor, and records in one."""

    def timed(what: str, run: Callable[[], Any]) -> tuple[Any, tuple[str, float, float]]:
        begun, before = time.perf_counter(), _processor_s()
        result = run()
        used = _processor_s() - before
        print(f"{what}: {used:.1f} s of a processor in {time.perf_counter() - begun:.1f} s", flush=True)
        return result, (what, used, count / used)

    sums = []
    for form in ("parquet", "gzip"):
        path = folder / form
        found, row = timed(
            f"one process, {form}",
            lambda path=path: sum_flows(classify(batch, network) for batch in read_flow_logs(path)),  # type: ignore[misc]
        )
        sums.append(found)
        yield row
        _, row = timed(f"first pass, {form}", lambda path=path: find_recorders(read_flow_logs(path)))  # type: ignore[misc]
        yield row
    with session(f"local[{CORES}]", {"spark.sql.shuffle.partitions": str(CORES)}) as spark:
        # Workers start with the first query.
        with suppress(StopIteration):
            next(iter(spark.range(_WARM).mapInArrow(lambda batches: batches, "id bigint").toLocalIterator()))
        for form in ("parquet", "gzip"):
            query = flows_on_spark(spark, str(folder / form), network)
            found, row = timed(f"Spark, {form}", lambda query=query: query.collect())  # type: ignore[misc]
            sums.append(sum_flows([pa.RecordBatch.from_pylist([one.asDict() for one in found], FLOWS)]))
            yield row
        query = spark.read.parquet(str(folder / "parquet")).selectExpr("sum(bytes)")
        _, row = timed("Spark SQL, only sum(bytes), parquet", query.collect)
        yield row
        text = spark.read.option("sep", " ").option("header", "true").csv(str(folder / "gzip"))  # all strings
        _, row = timed("Spark SQL, only sum(bytes), gzip", text.selectExpr("sum(cast(bytes as bigint))").collect)
        yield row
    if any(found != sums[0] for found in sums):
        raise SystemExit("Spark and one process do not find the same")


if __name__ == "__main__":
    main()
