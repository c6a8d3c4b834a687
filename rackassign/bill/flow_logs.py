"""Flow logs of AWS VPCs, read as Arrow record batches: text of versions 2 to 8 and Parquet, from files and folders.

A record that is not valid is an error with its file and line, since a sum without it would be wrong and look right.
"""

from __future__ import annotations

import gzip
import io
import re
import socket
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from rackassign.errors import ConfigError, MissingExtraError
from rackassign.text import short_repr, truncate

try:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.fs as pa_fs
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise MissingExtraError("pyarrow", "bill") from None

ADDRESSES = ("srcaddr", "dstaddr", "pkt_srcaddr", "pkt_dstaddr")
_WORDS = {
    "action": {"ACCEPT", "REJECT"},
    "log_status": {"OK", "NODATA", "SKIPDATA"},
    "flow_direction": {"ingress", "egress"},
}
_TEXTS = (*ADDRESSES, *_WORDS, "interface_id", "az_id")
_NUMBERS = ("srcport", "dstport", "packets", "bytes", "start", "end", "traffic_path")

SCHEMA = pa.schema(
    [*((name, pa.dictionary(pa.int32(), pa.string())) for name in _TEXTS), *((name, pa.int64()) for name in _NUMBERS)]
)
"""The fields of a record that are read, by their names in Parquet; null where a log lacks one."""

# A text without the names of its fields has these.
_DEFAULT = "version account_id interface_id srcaddr dstaddr srcport dstport protocol packets bytes start end action"

_BLOCK = 1 << 25
_ROWS = 1 << 18
READ_ERRORS = (OSError, EOFError, zlib.error, pa.ArrowException)

LATEST_S = 1 << 31
"""Times after it are in milliseconds."""

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


def packed_address(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


@lru_cache(maxsize=1 << 17)
def is_address(text: str) -> bool:
    try:
        return bool(packed_address(text))
    except (OSError, ValueError):
        return False


def read_flow_logs(path: str | Path) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file, or of all files below a folder, in batches of `SCHEMA`.

    Files are text, with gzip or not, or Parquet, whatever their names. A text begins with the names of its fields, or
    has the default format.

    Raises:
        ConfigError: A file is not a flow log, or a record is malformed; the message has the file and the line.
    """
    for file in list_files(path):
        yield from read_flow_log(file)


def list_files(path: str | Path) -> list[str]:
    """Return a file, or the files below a folder without those that begin with `_` or `.`; also of `s3://...`."""
    scheme, is_uri, _ = str(path).rpartition("://")
    try:
        system, root = _file_system(str(path))
        found = system.get_file_info(root)
        if found.type == pa_fs.FileType.NotFound:
            raise ConfigError(f"cannot read {path}: no such file or folder")
        infos = [found] if found.is_file else system.get_file_info(pa_fs.FileSelector(root, recursive=True))
    except READ_ERRORS as error:
        raise ConfigError(f"cannot read {path}: {truncate(str(error))}") from None
    files = sorted(scheme + is_uri + i.path for i in infos if i.is_file and not i.base_name.startswith(("_", ".")))
    if not files:
        raise ConfigError(f"{path} has no files")
    return files


def _file_system(path: str) -> tuple[Any, str]:
    return pa_fs.FileSystem.from_uri(path) if "://" in path else (pa_fs.LocalFileSystem(), path)


@contextmanager
def open_file(file: str) -> Iterator[tuple[BinaryIO, bool]]:
    """Open a file, with gzip or not, and return also whether it is Parquet; what cannot be read is a `ConfigError`."""
    try:
        system, name = _file_system(file)
        with system.open_input_file(name) as source:
            magic = source.read(4)
            source.seek(0)
            is_gzip = magic.startswith(b"\x1f\x8b")
            yield cast("BinaryIO", gzip.GzipFile(fileobj=source) if is_gzip else source), magic == b"PAR1"
    except READ_ERRORS as error:
        raise ConfigError(f"cannot read {file}: {truncate(str(error))}") from None


def read_flow_log(file: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of one file; see `read_flow_logs`."""
    with open_file(file) as (source, is_parquet):
        yield from _read_parquet(file, source) if is_parquet else _read_text(file, source)


def _read_parquet(file: str, source: BinaryIO) -> Iterator[pa.RecordBatch]:
    names = pq.read_schema(source).names
    _check_fields(file, names)
    columns = [name for name in SCHEMA.names if name in names]
    row = 1
    with pq.ParquetFile(source, read_dictionary=[name for name in columns if name in _TEXTS]) as parquet:
        for batch in parquet.iter_batches(_ROWS, columns=columns):
            conformed = conform(batch)
            for index, problem in _problems(conformed):
                raise ConfigError(f"{file}, row {row + index}: {problem}")
            yield conformed
            row += batch.num_rows


def _check_fields(at: str, names: Iterable[str]) -> None:
    if missing := {"srcaddr", "dstaddr", "bytes", "start"} - {*names}:
        raise ConfigError(f"{at}: not a flow log, or one without the field {min(missing)}")


def _read_text(file: str, source: BinaryIO) -> Iterator[pa.RecordBatch]:
    # pyarrow's own files read no lines.
    stream = io.BufferedReader(cast("io.RawIOBase", source))
    block = stream.readline(_BLOCK)
    names, line = block.decode("ascii", "replace").replace("-", "_").split(), 1
    if {"bytes", "start"} & {*names}:
        _check_fields(f"{file}:1", names)
        block, line = b"", 2
    else:
        default = [*_DEFAULT.split(), "log_status"]
        if len(names) != len(default) or names[0] != "2":
            raise ConfigError(f"{file}:1: not a flow log: neither names of fields nor a record in the default format")
        names = default
    while block := block + stream.read(_BLOCK) + stream.readline(_BLOCK):
        if not block.isspace():
            yield _parse(file, line, names, block)
        line += block.count(b"\n")
        block = b""


def _parse(file: str, line: int, names: list[str], block: bytes) -> pa.RecordBatch:
    options = pa_csv.ConvertOptions(
        column_types={each.name: each.type for each in SCHEMA},
        include_columns=[name for name in SCHEMA.names if name in names],
        null_values=["-"],
        strings_can_be_null=True,
    )

    def parse(text: bytes) -> pa.Table:
        reading = pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names)
        return pa_csv.read_csv(
            pa.BufferReader(text), reading, pa_csv.ParseOptions(delimiter=" ", quote_char=False), options
        )

    try:
        try:
            table = parse(block)
        except pa.ArrowInvalid:
            # Several spaces in a row, or at an end, are rare, and to look for them takes as long as to parse.
            table = parse(re.sub(rb" *\r?\n *", b"\n", re.sub(rb" {2,}", b" ", block.lstrip(b" "))))
    except pa.ArrowInvalid as error:
        raise _malformed(file, line, names, block) or ConfigError(f"{file}: {truncate(str(error))}") from None
    batch = conform(table.combine_chunks().to_batches()[0])
    for index, problem in _problems(batch):
        # pyarrow leaves out empty lines.
        lines = [number for number, text in enumerate(block.split(b"\n"), line) if text.strip()]
        raise ConfigError(f"{file}:{lines[index]}: {problem}")
    return batch


def _malformed(file: str, line: int, names: list[str], block: bytes) -> ConfigError | None:
    """Return an error for the first line that pyarrow could not parse."""
    for number, text in enumerate(block.decode("ascii", "replace").split("\n"), line):
        words = text.split()
        if words and len(words) != len(names):
            return ConfigError(f"{file}:{number}: expected {len(names)} fields, got {len(words)}")
        for name, word in zip(names, words, strict=False):
            if name in _NUMBERS and not re.fullmatch(r"-|-?\d{1,18}", word):
                return ConfigError(f"{file}:{number}: {name} must be a number, got {short_repr(word)}")
    return None


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of `SCHEMA`, with its types."""
    columns = []
    for each in SCHEMA:
        known = each.name in batch.schema.names
        column = batch.column(each.name) if known else pa.nulls(batch.num_rows, each.type)
        if column.type != each.type:
            column = column.cast(pa.string()).dictionary_encode() if each.name in _TEXTS else column.cast(each.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _problems(batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Yield the index of a malformed record and what is wrong with it, if there is one."""
    for name in SCHEMA.names:
        if name in _NUMBERS:
            numbers = numbers_of(batch, name, null=0)
            wrong = numbers < 0
            if name == "start":
                wrong |= (numbers > 1000 * LATEST_S) | is_null(batch, name)
        elif name in ADDRESSES or name in _WORDS:
            values, (codes,) = codes_of(batch, name)
            allowed = _WORDS.get(name)
            wrong = np.array([*(v not in allowed if allowed else not is_address(v) for v in values), False])[codes]
            if name in {"srcaddr", "dstaddr"}:
                wrong |= is_null(batch, name) & is_value(batch, "log_status", "OK", absent=True)
        else:
            continue
        if wrong.any():
            index = int(wrong.argmax())
            yield index, f"{name} is not valid: {short_repr(batch[name][index].as_py())}"


def is_null(batch: pa.RecordBatch, name: str) -> Mask:
    mask: Mask = batch.column(name).is_null().to_numpy(zero_copy_only=False)
    return mask


def numbers_of(batch: pa.RecordBatch, name: str, null: int = -1) -> Codes:
    numbers: Codes = batch.column(name).fill_null(null).to_numpy(zero_copy_only=False)
    return numbers


def codes_of(batch: pa.RecordBatch, *names: str) -> tuple[list[str], list[Codes]]:
    """Return the values of columns and, for each column, the index of a row's value, -1 for null."""
    chunks = pa.chunked_array([batch.column(name) for name in names]).unify_dictionaries().chunks
    values: list[str] = chunks[0].dictionary.to_pylist()
    return values, [chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False) for chunk in chunks]


def is_value(batch: pa.RecordBatch, name: str, value: str, *, absent: bool = False) -> Mask:
    values, (codes,) = codes_of(batch, name)
    # The last element is that of null, whose code is -1.
    return np.array([*(one == value for one in values), absent])[codes]
