"""Fleet audit on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from rackassign.fleet import evaluation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def audit_on_spark(spark: SparkSession, path: str, options: evaluation.FleetAudit) -> DataFrame:
    """Return the audit results of the groups in Parquet files.

    Spark reads few files in one task, however many groups they have. If that matters, set
    `spark.sql.files.maxPartitionBytes` to a small value or repartition.

    Args:
        spark: The Spark session.
        path: Path of a file or a folder.
        options: Options of the audit; sent to the executors, which need this package.
    """

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return evaluation.audit_groups(batches, options)

    return spark.read.parquet(path).mapInArrow(evaluate, spark_schema())


def spark_schema() -> StructType:
    """Return the schema of audit results in Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark is heavy

    return from_arrow_schema(evaluation.SCHEMA)
