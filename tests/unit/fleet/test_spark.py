"""The audit of a fleet on a small Spark: what it finds and writes is what one process finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from rackassign.fleet import WHAT_IFS, FleetAudit, audit_groups
from rackassign.fleet.aggregate import aggregate
from rackassign.fleet.evaluation import SCHEMA
from rackassign.fleet.page import page
from rackassign.fleet.spark import audit_on_spark
from rackassign.fleet.storage import read_results, read_snapshots, write_snapshot
from rackassign.monitoring import ClusterSnapshot, GroupDescription, Price, RackMap
from rackassign.monitoring.live_groups import snapshot
from tests.helpers.builders import brokers, cluster, group, member, rates
from tests.helpers.kafka.spark_harness import session

SEEN = datetime(2026, 1, 1, 3, 4, 5, 678901, tzinfo=timezone.utc)
GROUPS = 20
HOW = FleetAudit(Price(0.01), tuple(WHAT_IFS), recommend=True)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def made(name: str, topics: dict[str, int], rng: random.Random) -> GroupDescription:
    racks = ["a", "b", "c", None]
    has: list[dict[str, list[int]]] = [{topic: [] for topic in topics} for _ in range(3)]
    for topic, count in topics.items():
        for i in range(count):
            rng.choice(has)[topic].append(i)
    return group(*(member(f"m{i}", rng.choice(racks), mine) for i, mine in enumerate(has)), name=name)


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    rng = random.Random(5)
    counts = {"t": 7, "u": 3, "v": 12}
    known = brokers(["a", "b", "c", None])
    there = cluster({name: [rng.sample([1, 2, 3, 4], 2) for _ in range(of)] for name, of in counts.items()}, known)
    some = rates(
        {(name, i): rng.random() * 1e6 for name, of in counts.items() for i in range(of) if rng.random() < 0.8}
    )
    (tmp_path / "seen").mkdir()
    for hour in range(2):
        groups = (made(f"g{number}", counts, rng) for number in range(GROUPS))
        shots = ClusterSnapshot(there, tuple(snapshot(each, there.topology, RackMap()) for each in groups))
        write_snapshot(tmp_path / "seen" / f"{hour}.parquet", SEEN + timedelta(hours=hour), shots, some)
    return tmp_path / "seen"


@pytest.mark.long
def test_spark_finds_what_one_process_finds(spark: Any, snapshots: Path, tmp_path: Path) -> None:
    ours = [row for batch in audit_groups(read_snapshots(snapshots), HOW) for row in batch.to_pylist()]
    audit_on_spark(spark, str(snapshots), HOW).repartition(3).write.parquet(str(tmp_path / "found"))
    theirs = [row for batch in read_results(tmp_path / "found") for row in batch.to_pylist()]

    def key(row: dict[str, Any]) -> list[str]:
        return [repr(row[name]) for name in SCHEMA.names]

    assert sorted(theirs, key=key) == sorted(ours, key=key)
    fleet = aggregate(read_results(tmp_path / "found"))
    assert {of.name: of.taken for of in fleet.groups} == {f"g{n}": SEEN + timedelta(hours=1) for n in range(GROUPS)}
    assert f'<b id="count">{GROUPS}</b>' in page(tmp_path / "found", Price(0.01))
