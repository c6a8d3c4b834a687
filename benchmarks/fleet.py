"""How long the audit of a fleet takes, in one process and on Spark, and how much memory: `python -m benchmarks.fleet`.

A thousand groups of ten members read ten topics of a hundred partitions each, RF 2 in three racks, who has what is
random, and every partition is written to. A replay is one group planned by one strategy and counted by topic and pair
of racks. Each run is a process of its own: its peak, as the kernel has it, includes whatever it imports; on Spark it is
that of the larger of two workers. Both must find the same, row by row. Seconds depend on the machine, ratios of one run
less so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks.tables import Sheet, show
from rackassign.fleet import AS_IS, WHAT_IFS, FleetAudit, audit_groups, storage
from rackassign.fleet.evaluation import SCHEMA
from rackassign.model import STRATEGY_NAMES, Broker, Partition, TopicPartition, Topology
from rackassign.monitoring import (
    BrokerDescription,
    ClusterSnapshot,
    GroupDescription,
    MemberDescription,
    ObservedCluster,
    RackMap,
    Throughput,
)
from rackassign.monitoring.live_groups import snapshot
from rackassign.testing._machine import processes
from rackassign.testing.spark import session
from rackassign.wire import Subscription

RACKS = ("a", "b", "c")
BROKERS, TOPICS, MEMBERS = 6, 10, 10
WARM = 3
SNAPSHOTS = 5
"""Times all changes are some 100,000 replays."""

_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_TAKEN = datetime(2026, 1, 1, tzinfo=timezone.utc)
_FIRST = "one process"


def fleet(groups: int, partitions: int, seed: int) -> tuple[ClusterSnapshot, Throughput]:
    """Make groups that share nothing but the brokers."""
    rng = random.Random(seed)
    ids = range(1, BROKERS + 1)
    brokers = tuple(BrokerDescription(i, RACKS[i % len(RACKS)], selector=_SELECTOR) for i in ids)
    names = [[f"topic-{number}-{topic}" for topic in range(TOPICS)] for number in range(groups)]
    each = partitions // TOPICS
    topics = {name: tuple(_copies(rng) for _ in range(each)) for some in names for name in some}
    topology = Topology(tuple(Broker(b.id, b.rack) for b in brokers), topics)
    cluster = ObservedCluster(brokers, topology, {name: tuple(p.replicas for p in row) for name, row in topics.items()})
    shots = tuple(
        snapshot(_group(f"group-{number}", some, each, rng), topology, RackMap()) for number, some in enumerate(names)
    )
    return ClusterSnapshot(cluster, shots, ()), Throughput(
        {TopicPartition(t, i): rng.random() for t in topics for i in range(each)}
    )


def _copies(rng: random.Random) -> Partition:
    leader, follower = rng.sample(range(1, BROKERS + 1), 2)
    return Partition((leader, follower), leader)


def _group(name: str, topics: list[str], each: int, rng: random.Random) -> GroupDescription:
    has: list[dict[str, tuple[int, ...]]] = [{} for _ in range(MEMBERS)]
    for topic in topics:
        for i in range(each):
            mine = has[rng.randrange(MEMBERS)]
            mine[topic] = (*mine.get(topic, ()), i)
    members = (
        MemberDescription(f"m-{i}", f"c-{i}", "host", None, classic=True, subscription=told, assigned=mine)
        for i, mine in enumerate(has)
        for told in [Subscription(tuple(topics), rack=RACKS[i % len(RACKS)])]
    )
    return GroupDescription(name, "classic", "Stable", "range", tuple(members))


def what_ifs(*, all_: bool) -> tuple[str, ...]:
    return tuple(WHAT_IFS) if all_ else (AS_IS,)


def plain(snapshots: Path, found: Path, *, all_: bool) -> None:
    how = FleetAudit(what_ifs=what_ifs(all_=all_))
    before = _peak_mb()
    begun = time.perf_counter()
    storage.write_results(found, audit_groups(storage.read_snapshots(snapshots), how))
    _tell([time.perf_counter() - begun], _peak_mb(), before)


def _peak_mb(process: str = "self") -> float:
    """Return the peak of a process; what `getrusage` says includes that of the process which started it."""
    lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _tell(seconds: list[float], peak: float, before: float = 0.0) -> None:
    sys.stdout.write(json.dumps({"seconds": seconds, "peak": peak, "before": before}) + "\n")


def on_spark(snapshots: Path, found: Path, *, all_: bool, times: int) -> None:
    from rackassign.fleet.spark import audit_on_spark  # noqa: PLC0415 - the others do without

    how = FleetAudit(what_ifs=what_ifs(all_=all_))
    seconds = []
    # A task is about a row group then.
    with session("local[2]", {"spark.sql.files.maxPartitionBytes": "256k"}) as spark:
        for _ in range(times):
            begun = time.perf_counter()
            audit_on_spark(spark, str(snapshots), how).write.mode("overwrite").parquet(str(found))
            seconds.append(time.perf_counter() - begun)
        peak = max(_workers_mb())
    _tell(seconds, peak)


def _workers_mb() -> Iterator[float]:
    """Yield the peak of each Python process below this one, as the kernel has it."""
    running = {process.id: process for process in processes()}
    below = [os.getpid()]
    for process in below:
        below += (child.id for child in running.values() if child.parent == process)
    for process in below[1:]:
        if running[process].name.startswith("python"):
            yield _peak_mb(str(process))


def run(case: str, snapshots: Path, found: Path, *, all_: bool = False, times: int = 1) -> dict[str, Any]:
    """Run a case in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.fleet", "--case", case, str(snapshots), str(found), str(int(all_))]
    done = subprocess.run([*words, str(times)], stdout=subprocess.PIPE, check=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def make(folder: Path, groups: int, partitions: int, seed: int) -> None:
    """Write a snapshot, in a process that ends."""
    words = [sys.executable, "-m", "benchmarks.fleet", "--case", "make", str(folder), "-", str(groups), str(partitions)]
    subprocess.run([*words, str(seed)], check=True)


def same(one: Path, other: Path) -> int:
    """Return the number of rows; stops if they differ in anything but order."""
    keys = [(name, "ascending") for name in SCHEMA.names if name not in {"take", "best"}]
    tables = [pa.Table.from_batches(storage.read_results(folder), SCHEMA).sort_by(keys) for folder in (one, other)]
    if not tables[0].equals(tables[1]):
        raise SystemExit("Spark and one process do not find the same")
    return int(tables[0].num_rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--groups", type=int, default=1000, help="how many (%(default)s)")
    parser.add_argument("--partitions", type=int, default=1000, help="of each group (%(default)s)")
    parser.add_argument("--snapshots", type=int, default=SNAPSHOTS, help="for the large case; 0 for none (%(default)s)")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        _part(*options.case)
        return
    replays = options.groups * len(STRATEGY_NAMES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one").mkdir()
        make(folder / "one", options.groups, options.partitions, 0)
        written = sum(file.stat().st_size for file in (folder / "one").iterdir())
        print(f"a snapshot is a file of {written / 1e6:.1f} MB", flush=True)
        rows = [*_cases(folder, "one", replays, all_=False)]
        if options.snapshots:
            (folder / "many").mkdir()
            for seed in range(options.snapshots):
                make(folder / "many", options.groups, options.partitions, seed)
            rows += _cases(folder, "many", replays * options.snapshots * len(WHAT_IFS), all_=True)
    unit = rows[0][2] / rows[0][1]
    shown = [
        (name, f"{count:,}", f"{took:.1f}", f"{1000 * took / count:.2f}", f"{took / count / unit:.2f}", f"{peak:.0f}")
        for name, count, took, peak in rows
    ]
    size = f"{options.groups:,} groups x {options.partitions:,} partitions x {len(STRATEGY_NAMES)} strategies"
    title = f"{size}: once, and {options.snapshots} snapshots x {len(WHAT_IFS)} changes"
    headings = ("where", "replays", "s", "ms a replay", "first = 1", "peak, MB a Python process")
    show([Sheet(title, headings, shown)])


def _cases(folder: Path, name: str, replays: int, *, all_: bool) -> Iterator[tuple[str, int, float, float]]:
    ours, sparks = folder / f"{name}-plain", folder / f"{name}-spark"
    told = run("plain", folder / name, ours, all_=all_)
    print(f"{replays:,} replays in one process, which imports {told['before']:.0f} MB", flush=True)
    yield _FIRST, replays, told["seconds"][0], told["peak"]
    told = run("spark", folder / name, sparks, all_=all_, times=1 if all_ else 1 + WARM)
    first, *others = told["seconds"]
    yield "Spark local[2], its first query", replays, first, told["peak"]
    if others:
        yield f"Spark local[2], median of {WARM} more", replays, median(others), told["peak"]
    print(f"{same(ours, sparks):,} rows, the same from both", flush=True)


def _part(case: str, snapshots: str, found: str, *more: str) -> None:
    if case == "make":
        groups, partitions, seed = map(int, more)
        shots, rates = fleet(groups, partitions, seed)
        storage.write_snapshot(Path(snapshots) / f"groups-{seed}.parquet", _TAKEN + timedelta(hours=seed), shots, rates)
        return
    all_, times = map(int, more)
    if case == "plain":
        plain(Path(snapshots), Path(found), all_=bool(all_))
    else:
        on_spark(Path(snapshots), Path(found), all_=bool(all_), times=times)


if __name__ == "__main__":
    main()
