"""Fleets in files: Parquet, read and written a few groups at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rackassign.errors import ConfigError
from rackassign.observe import Rates, Shots
from rackassign.spark.fleet import audit, rows

GROUPS_AT_ONCE = 50
"""Rows of a row group: what is in memory at the same time, and what one task of Spark takes."""


def save(file: Path, taken: datetime, shots: Shots, rates: Rates) -> None:
    """Write groups as they are now.

    Args:
        file: Which must not be there.
        taken: When they were looked at, with a time zone.
        shots: The groups.
        rates: What is written to their topics.
    """
    with pq.ParquetWriter(file, rows.SCHEMA, compression="zstd") as writer:
        for start in range(0, len(shots.snapshots), GROUPS_AT_ONCE):
            some = shots.snapshots[start : start + GROUPS_AT_ONCE]
            writer.write_batch(rows.written(taken, some, shots.cluster, rates))


def load(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the groups of a file, or of all files in a folder, in order of their names, a few at a time.

    Raises:
        ConfigError: There is nothing there, or something else.
    """
    files = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder]
    if not files:
        raise ConfigError(f"{folder} has no Parquet files in it")
    for file in files:
        try:
            parquet = pq.ParquetFile(file)
        except (OSError, pa.ArrowException) as error:
            raise ConfigError(f"cannot read {file}: {error}") from None
        with parquet:
            if not parquet.schema_arrow.equals(rows.SCHEMA):
                raise ConfigError(f"{file} has no groups in it as `snapshot --parquet` writes them")
            yield from parquet.iter_batches(batch_size=GROUPS_AT_ONCE)


def keep(folder: Path, found: Iterable[pa.RecordBatch]) -> int:
    """Write what an audit has found into a new folder, and return the number of rows.

    Raises:
        ConfigError: The folder has something in it.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(folder / "part-0.parquet", audit.SCHEMA, compression="zstd") as writer:
        count = 0
        for batch in found:
            writer.write_batch(batch)
            count += batch.num_rows
    return count
