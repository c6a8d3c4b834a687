"""Snapshots and audit results in Parquet files, read and written in batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rackassign.errors import ConfigError
from rackassign.fleet import evaluation, schema
from rackassign.monitoring import ClusterSnapshot, Throughput
from rackassign.text import short_repr, truncate

GROUPS_PER_BATCH = 50
"""Number of groups in a row group, which is also the number in memory at once and in one Spark task."""

_READ_ERRORS = (OSError, pa.ArrowException)


def write_snapshot(file: Path, taken: datetime, shots: ClusterSnapshot, rates: Throughput) -> None:
    """Write a snapshot of groups."""
    # `file`: the new file, which must not exist.
    with _replacing(file, schema.SCHEMA) as writer:
        for start in range(0, len(shots.snapshots), GROUPS_PER_BATCH):
            chunk = shots.snapshots[start : start + GROUPS_PER_BATCH]
            writer.write_batch(schema.to_arrow(taken, chunk, shots.cluster, rates))


def count(path: Path) -> int:
    """Return the number of groups in a file or a folder, after checking the metadata and schema of all files.

    Raises:
        ConfigError: There are no Parquet files, or a file is not a snapshot.
    """
    return sum(_open_snapshot(file).metadata.num_rows for file in _files(path))


def read_snapshots(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the groups of a file, or of all files of a folder in order of their names, in batches."""
    keys: set[tuple[datetime, str]] = set()
    for file in _files(path):
        for batch in _batches(file, _open_snapshot(file), GROUPS_PER_BATCH):
            for row in batch.select(["taken", "group"]).to_pylist():
                key = row["taken"], row["group"]
                if key in keys:
                    raise ConfigError(
                        f"{file}: group {short_repr(key[1])} at {key[0]} was already read from another row; "
                        "remove duplicate snapshots"
                    )
                keys.add(key)
            yield batch


def write_results(folder: Path, found: Iterable[pa.RecordBatch]) -> int:
    """Write audit results into a new folder, and return the number of rows."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = not any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"cannot create {folder}: {error.strerror}") from None
    if not empty:
        raise ConfigError(f"{folder} is not empty: choose a new or an empty folder")
    with _replacing(folder / "part-0.parquet", evaluation.SCHEMA) as writer:
        number = 0
        for batch in found:
            writer.write_batch(batch)
            number += batch.num_rows
    return number


def read_results(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield audit results that `write_results` or Spark has written."""
    for file in _files(folder):
        for batch in _batches(file, _open(file), evaluation.ROWS_PER_BATCH):
            try:
                # Spark writes some columns with other types.
                table = pa.Table.from_batches([batch]).select(evaluation.SCHEMA.names).cast(evaluation.SCHEMA)
            except (KeyError, pa.ArrowException):
                raise ConfigError(f"{file}: expected the results of a fleet audit") from None
            yield from table.to_batches()


@contextmanager
def _replacing(file: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write a file under a temporary name and rename it once it is complete."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        # Checksums distinguish a damaged page from one with unusual contents.
        with pq.ParquetWriter(partial, schema, compression="zstd", write_page_checksum=True) as writer:
            yield writer
        partial.rename(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {_reason(error)}") from None
    finally:
        partial.unlink(missing_ok=True)


def _files(path: Path) -> list[Path]:
    try:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {_reason(error)}") from None
    if not files:
        raise ConfigError(f"{path} has no Parquet files")
    return files


def _open(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file, page_checksum_verification=True)
    except _READ_ERRORS as error:
        raise ConfigError(f"cannot read {file}: {_reason(error)}") from None


def _open_snapshot(file: Path) -> pq.ParquetFile:
    parquet = _open(file)
    if not parquet.schema_arrow.equals(schema.SCHEMA):
        parquet.close()
        raise ConfigError(f"{file}: expected a snapshot as `snapshot --parquet` writes it")
    return parquet


def _batches(file: Path, parquet: pq.ParquetFile, size: int) -> Iterator[pa.RecordBatch]:
    with parquet:
        batches = parquet.iter_batches(batch_size=size)
        while True:
            try:
                batch = next(batches, None)
            except _READ_ERRORS as error:
                raise ConfigError(f"cannot read {file}: {_reason(error)}") from None
            if batch is None:
                return
            yield batch


def _reason(error: BaseException) -> str:
    """Return an error in one line; for errors of the operating system, its description."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else truncate(str(error) or type(error).__name__)
