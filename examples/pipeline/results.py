"""Results back in Kafka: what the streaming job has computed of a batch becomes records of a topic.

`format("rackassign")` writes them, so Spark's Kafka connector is not used. The key of a record names the batch and the
row, so that a batch that is repeated sends equal records with equal keys: a reader keeps the last record of each key,
and so does a topic with `cleanup.policy=compact`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = "batch"
"""The column with the number of the batch, in Kafka and in the folders of Parquet."""

CONFIG = {"cleanup.policy": "compact"}
"""Of the topic of results."""


@dataclass(frozen=True, slots=True)
class ResultTopic:
    """A topic for results.

    Args:
        bootstrap: Of the cluster.
        name: Of the topic.
    """

    bootstrap: str
    name: str

    def publish(self, rows: DataFrame, batch: int, key: Iterable[str]) -> None:
        """Send the rows of a batch, and return when brokers have all of them.

        Args:
            rows: The rows.
            batch: The number of the batch.
            key: The columns that distinguish the rows of a batch.

        Raises:
            Exception: A record was not delivered. Spark then ends the query, and its next run repeats the batch.
        """
        from pyspark.sql import functions as f  # noqa: PLC0415 - Spark is heavy

        # Without this setting a column that is null would be missing, also in keys.
        told = {"ignoreNullFields": "false"}
        records = rows.withColumn(BATCH, f.lit(batch)).select(
            f.to_json(f.struct(BATCH, *key), told).alias("key"),
            f.to_json(f.struct(BATCH, *rows.columns), told).alias("value"),
        )
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.name}
        records.write.format("rackassign").options(**options).mode("append").save()

    def read(self, spark: SparkSession, schema: str) -> DataFrame:
        """Return all results, each of them once, with the column `batch` first.

        Args:
            spark: The session.
            schema: Of the results, in Spark's notation.
        """
        from pyspark.sql import functions as f  # noqa: PLC0415 - Spark is heavy

        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.name}
        records = spark.read.format("rackassign").options(**options).load()
        # Records with equal keys are in one partition.
        last = records.groupBy("key").agg(f.max_by("value", "offset").cast("string").alias("value"))
        return last.select(f.from_json("value", f"{BATCH} BIGINT, {schema}").alias("result")).select("result.*")
