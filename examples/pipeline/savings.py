"""The second job: what was measured, joined with what the bill of a snapshot predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from examples.pipeline.groups import AFTER, BEFORE
from examples.pipeline.page import Saving, Sums
from examples.pipeline.readings import DEAD, WINDOWS
from rackassign.bill.snapshots import read_snapshots
from rackassign.bill.usage import Items, Setting, Usage
from rackassign.monitoring import Price

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def savings(spark: SparkSession, folder: Path, snapshots: Path, price: Price) -> list[Saving]:
    """Return what was predicted and what was measured of each group.

    Args:
        spark: The session.
        folder: Of the tables.
        snapshots: Of the snapshot of the groups, from before.
        price: Of what crosses racks.
    """
    found = predicted(spark, snapshots).join(measured(spark, folder), "group").orderBy("group").collect()
    return [
        Saving(
            row["group"],
            row["strategy"],
            Sums(row["cross_now"], row["cross_best"]),
            Sums(row[BEFORE]["cross"], row[AFTER]["cross"]),
            Sums(row[BEFORE]["local_share"], row[AFTER]["local_share"]),
            price,
        )
        for row in found
    ]


def bad_records(spark: SparkSession, folder: Path) -> int:
    """Return how many messages are in the table of dead letters."""
    return spark.read.parquet(str(folder / DEAD)).count()


def predicted(spark: SparkSession, snapshots: Path) -> DataFrame:
    """Return a row for each group: bytes a second across racks, as it was and with rackassign's best strategy."""
    taken = read_snapshots(snapshots)[-1]
    report = taken.report()
    usage = Usage.of(report)
    names = frozenset(group.snapshot.live.name for group in report.inspections)
    now, best = (_by_group(usage.items(setting)) for setting in (Setting(), Setting(assigned=names)))
    rows = [
        (name, now[name], best[name], group.best.strategy)
        for group in report.inspections
        if (name := group.snapshot.live.name) in now
    ]
    return spark.createDataFrame(rows, "group STRING, cross_now DOUBLE, cross_best DOUBLE, strategy STRING")


def _by_group(items: Items) -> dict[str, float]:
    across: dict[str, float] = {}
    for key, item in items.items():
        if key.group:
            across[key.group] = across.get(key.group, 0.0) + item.across.least
    return across


def measured(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a row for each group, with a struct for each run: bytes a second across racks, and the local share."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark is heavy

    away = f.col("source_rack") != f.col("reader_rack")
    seconds = (f.max("taken") - f.min("since")) / 1000
    runs = (
        spark.read.parquet(str(folder / WINDOWS))
        .groupBy("group", "run")
        .agg(
            (f.sum(f.when(away, f.col("bytes")).otherwise(0)) / seconds).alias("cross"),
            (f.sum(f.when(~away, f.col("bytes")).otherwise(0)) / f.sum("bytes")).alias("local_share"),
        )
    )
    return runs.groupBy("group").pivot("run", [BEFORE, AFTER]).agg(f.first(f.struct("cross", "local_share")))
