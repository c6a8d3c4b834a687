"""The second job: what was measured, joined with what the audit of the fleet predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from examples.pipeline.groups import AFTER, BEFORE
from examples.pipeline.page import Saving, Sums
from examples.pipeline.readings import DEAD, WINDOWS
from rackassign.fleet import AS_IS, FleetAudit
from rackassign.fleet.spark import audit_on_spark
from rackassign.monitoring import Price

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEST = "racks-reported"
"""The what-if that rackassign makes true: its consumers tell their racks, and read near."""


def savings(spark: SparkSession, folder: Path, fleet: Path, price: Price) -> list[Saving]:
    """Return what was predicted and what was measured of each group.

    Args:
        spark: The session.
        folder: Of the tables.
        fleet: Of the snapshot of the groups, from before.
        price: Of what crosses racks.
    """
    found = predicted(spark, fleet, price).join(measured(spark, folder), "group").orderBy("group").collect()
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


def predicted(spark: SparkSession, fleet: Path, price: Price) -> DataFrame:
    """Return a row for each group: bytes a second across racks, as it was and with the best strategy."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark is heavy

    found = audit_on_spark(spark, str(fleet), FleetAudit(price, (AS_IS, BEST)))
    now = (f.col("what_if") == AS_IS) & (f.col("strategy") == "now")
    best = (f.col("what_if") == BEST) & f.col("best")
    across = f.when(f.col("source_rack") != f.col("reader_rack"), f.col("bytes_s")).otherwise(0.0)
    return found.groupBy("group").agg(
        f.sum(f.when(now, across)).alias("cross_now"),
        f.sum(f.when(best, across)).alias("cross_best"),
        f.max(f.when(best, f.col("strategy"))).alias("strategy"),
    )


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
