"""The streaming job: messages of consumers in, windows of what they read and a table of bad records out.

Windows are written to Parquet and sent to a topic.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from examples.pipeline.counters import SCHEMA
from examples.pipeline.results import BATCH, ResultTopic
from rackassign.spark._stream import supports_read_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOWS, DEAD = "windows", "dead-letters"

WINDOW_KEY = ("start", "group", "run", "topic", "reader_rack", "source_rack")
"""The columns that distinguish the windows of a batch."""

WINDOW_SCHEMA = (
    "start TIMESTAMP, group STRING, run STRING, topic STRING, reader_rack STRING, source_rack STRING, "
    "bytes BIGINT, records BIGINT, since BIGINT, taken BIGINT"
)
"""Windows as Spark reads them; times in milliseconds since 1970, apart from the start."""

_WINDOW = "10 seconds"
_LATE = "10 minutes"
_GOOD = """
    said.group IS NOT NULL AND said.run IS NOT NULL AND said.member IS NOT NULL AND said.sequence >= 0
    AND said.rack IS NOT NULL AND said.since <= said.taken AND said.reads IS NOT NULL
    AND forall(said.reads, read -> read.topic IS NOT NULL AND read.bytes >= 0 AND read.records >= 0)
"""


def read_all(spark: SparkSession, topic: str, results: ResultTopic, folder: Path, *, per_batch: int = 100) -> None:
    """Take in all that there is now, and end; the next call goes on from there.

    Args:
        spark: The session.
        topic: Where the consumers publish.
        results: Where the windows go, on the same cluster.
        folder: Of the tables and of the checkpoint.
        per_batch: At most so many messages in each, from Spark 4.2 on.
    """
    raw = (
        spark.readStream.format("rackassign")
        .option("kafka.bootstrap.servers", results.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**({"maxOffsetsPerTrigger": per_batch} if supports_read_limits() else {}))
        .option("rackBinding", "pull")
        .load()
    )
    query = (
        once(parsed(raw))
        .writeStream.foreachBatch(partial(keep, folder, results))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def parsed(raw: DataFrame) -> DataFrame:
    """Return rows of the source with what is said in them, and whether that is good."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark is heavy

    said = raw.withColumn("said", f.from_json(f.col("value").cast("string"), SCHEMA))
    return said.withColumn("good", f.coalesce(f.expr(_GOOD), f.lit(col=False)))


def once(rows: DataFrame) -> DataFrame:
    """Drop what was published twice: a producer may send again what has arrived. Bad records are each one of a kind."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark is heavy

    place = f.concat_ws(":", "topic", "partition", "offset")
    which = f.when(f.col("good"), f.concat_ws("#", "said.member", "said.sequence")).otherwise(place)
    return rows.withColumn("which", which).withWatermark("timestamp", _LATE).dropDuplicatesWithinWatermark(["which"])


def keep(folder: Path, results: ResultTopic, batch: DataFrame, number: int) -> None:
    """Write a batch to both tables and its windows to the topic.

    Each table has a folder of its own for each batch, so that a batch that is done again replaces itself. In the topic
    its records are recognised by their keys.
    """
    batch.persist()
    try:
        read = windows(batch).coalesce(1).persist()
        try:
            read.write.mode("overwrite").parquet(str(folder / WINDOWS / f"{BATCH}={number}"))
            results.publish(read, number, WINDOW_KEY)
        finally:
            read.unpersist()
        bad = dead_letters(batch).coalesce(1)
        bad.write.mode("overwrite").parquet(str(folder / DEAD / f"{BATCH}={number}"))
    finally:
        batch.unpersist()


def windows(batch: DataFrame) -> DataFrame:
    """Return what was read in each ten seconds: a row for each group, run, topic and pair of racks.

    Messages of one window may come in several batches: sum up over those.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - Spark is heavy

    good = batch.where("good").select("said.*").withColumn("read", f.explode("reads"))
    return good.groupBy(
        f.window(f.timestamp_millis(f.col("taken")), _WINDOW).start.alias("start"),
        "group",
        "run",
        f.col("read.topic").alias("topic"),
        f.col("rack").alias("reader_rack"),
        f.col("read.rack").alias("source_rack"),
    ).agg(
        f.sum("read.bytes").alias("bytes"),
        f.sum("read.records").alias("records"),
        f.min("since").alias("since"),
        f.max("taken").alias("taken"),
    )


def dead_letters(batch: DataFrame) -> DataFrame:
    """Return the bad records as they came, and where from."""
    return batch.where("NOT good").select("topic", "partition", "offset", "timestamp", "key", "value")
