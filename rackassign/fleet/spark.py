"""The same audit on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from rackassign.fleet import audit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def audit_on_spark(spark: SparkSession, path: str, how: audit.FleetAudit) -> DataFrame:
    """Return what an audit finds of the groups in Parquet files.

    Few files are one task to Spark, however many groups they have; set `spark.sql.files.maxPartitionBytes` low, or
    repartition, where that matters.

    Args:
        spark: The session.
        path: Of a file, or of a folder.
        how: What to look for; sent to the executors, which need this package.
    """

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return audit.audit_groups(batches, how)

    return spark.read.parquet(path).mapInArrow(judge, spark_schema())


def spark_schema() -> StructType:
    """Return the columns of an audit, as Spark names them."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark is heavy

    return from_arrow_schema(audit.SCHEMA)
