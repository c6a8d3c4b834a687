"""Fleets in files: Parquet, read and written a few groups at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rackassign.errors import ConfigError
from rackassign.fleet import audit, schema
from rackassign.monitoring import ClusterSnapshot, Throughput
from rackassign.util.text import short_repr, truncate

GROUPS_AT_ONCE = 50
"""Rows of a row group: what is in memory at the same time, and what one task of Spark takes."""

_BROKEN = (OSError, pa.ArrowException)


def write_snapshot(file: Path, taken: datetime, shots: ClusterSnapshot, rates: Throughput) -> None:
    """Write groups as they are now.

    Args:
        file: Which must not be there.
        taken: When they were looked at, with a time zone.
        shots: The groups.
        rates: What is written to their topics.
    """
    with _writing(file, schema.SCHEMA) as writer:
        for start in range(0, len(shots.snapshots), GROUPS_AT_ONCE):
            some = shots.snapshots[start : start + GROUPS_AT_ONCE]
            writer.write_batch(schema.to_arrow(taken, some, shots.cluster, rates))


def count(path: Path) -> int:
    """Return how many groups there are in a file or a folder, once all of it is found to be sound on the outside.

    Raises:
        ConfigError: There is nothing there, or something else.
    """
    return sum(_of_groups(file).metadata.num_rows for file in _files(path))


def read_snapshots(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the groups of a file, or of all files in a folder, in order of their names, a few at a time.

    Raises:
        ConfigError: There is nothing there, something else, or the same twice.
    """
    seen: set[tuple[datetime, str]] = set()
    for file in _files(path):
        for batch in _batches(file, _of_groups(file), GROUPS_AT_ONCE):
            for row in batch.select(["taken", "group"]).to_pylist():
                key = row["taken"], row["group"]
                if key in seen:
                    raise ConfigError(
                        f"{file} has group {short_repr(key[1])} as it was at a moment that was read before"
                    )
                seen.add(key)
            yield batch


def write_results(folder: Path, found: Iterable[pa.RecordBatch]) -> int:
    """Write what an audit has found into a new folder, and return the number of rows.

    Raises:
        ConfigError: The folder has something in it, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = not any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}") from None
    if not empty:
        raise ConfigError(f"{folder} is not empty")
    with _writing(folder / "part-0.parquet", audit.SCHEMA) as writer:
        number = 0
        for batch in found:
            writer.write_batch(batch)
            number += batch.num_rows
    return number


def read_results(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield what an audit has found, as `write_results` or Spark has written it.

    Raises:
        ConfigError: There is nothing there, or something else.
    """
    for file in _files(folder):
        for batch in _batches(file, _opened(file), audit.ROWS_AT_ONCE):
            try:
                # Spark has types of its own for some of it.
                table = pa.Table.from_batches([batch]).select(audit.SCHEMA.names).cast(audit.SCHEMA)
            except (KeyError, pa.ArrowException):
                raise ConfigError(f"{file} is not what an audit of a fleet finds") from None
            yield from table.to_batches()


@contextmanager
def _writing(file: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Make a file that has its name once all of it is written."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        # The sums tell a page that was damaged from one that only looks odd.
        with pq.ParquetWriter(partial, schema, compression="zstd", write_page_checksum=True) as writer:
            yield writer
        partial.rename(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {_said(error)}") from None
    finally:
        partial.unlink(missing_ok=True)


def _files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{path} has no Parquet files in it")
    return files


def _opened(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file, page_checksum_verification=True)
    except _BROKEN as error:
        raise ConfigError(f"cannot read {file}: {_said(error)}") from None


def _of_groups(file: Path) -> pq.ParquetFile:
    parquet = _opened(file)
    if not parquet.schema_arrow.equals(schema.SCHEMA):
        parquet.close()
        raise ConfigError(f"{file} has no groups in it as `snapshot --parquet` writes them")
    return parquet


def _batches(file: Path, parquet: pq.ParquetFile, size: int) -> Iterator[pa.RecordBatch]:
    with parquet:
        batches = parquet.iter_batches(batch_size=size)
        while True:
            try:
                batch = next(batches, None)
            except _BROKEN as error:
                raise ConfigError(f"cannot read {file}: {_said(error)}") from None
            if batch is None:
                return
            yield batch


def _said(error: BaseException) -> str:
    """Return what went wrong in one line, in the system's words where it was the system."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else truncate(str(error) or type(error).__name__)
