"""Converts records to Arrow batches with the columns of the JVM source."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackassign.errors import ConfigError, RackassignError
from rackassign.text import truncate

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyarrow import RecordBatch


COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
_SIZED = ("key", "value", HEADERS)
"""The columns whose bytes depend on the records."""


def check_columns(names: Sequence[str], *, headers: bool) -> None:
    known = (*COLUMNS, HEADERS) if headers else COLUMNS
    for name in names:
        if name == HEADERS and not headers:
            raise ConfigError("headers: this column requires includeHeaders=true")
        if name not in known:
            raise ConfigError(f"unknown column {truncate(name)}: expected one of {', '.join(known)}")


def to_batches(
    chunks: Iterable[Sequence[Message]], names: Sequence[str], *, max_rows: int, max_bytes: int
) -> Iterator[RecordBatch]:
    """Yield records as Arrow batches with these columns in order. A chunk is of one partition and fits into a batch."""
    # Records are converted as they arrive, some hundred at a time, and their arrays are joined. So few records exist at
    # the same time, and their memory stays in the processor's cache.
    # `max_bytes` is for keys, values and headers together. A single chunk may have more.
    parts: list[_Part] = []
    rows = size = 0
    for messages in chunks:
        arrays = _arrays(messages, names)
        more = sum(arrays[name].nbytes for name in _SIZED if name in arrays)
        if parts and (rows + len(messages) > max_rows or size + more > max_bytes):
            yield _joined(parts, names)
            parts, rows, size = [], 0, 0
        parts.append(_Part(messages[0].topic(), messages[0].partition(), len(messages), arrays))
        rows += len(messages)
        size += more
    if parts:
        yield _joined(parts, names)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some records of one partition, with the columns that differ between them."""

    topic: str | None
    partition: int | None
    rows: int
    arrays: Mapping[str, Any]

    def column(self, name: str) -> Any:  # noqa: ANN401 - pyarrow has no annotations
        import pyarrow as pa  # noqa: PLC0415 - loaded on first use

        if name in {"topic", "partition"}:
            return pa.repeat(pa.scalar(getattr(self, name), _types()[name]), self.rows)
        return self.arrays[name]


def _joined(parts: Sequence[_Part], names: Sequence[str]) -> RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    types = _types()
    columns = [pa.concat_arrays([part.column(name) for part in parts]) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([(name, types[name]) for name in names]))


def _arrays(messages: Sequence[Message], names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of some records, without those that are the same for a partition."""
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    types = _types()
    arrays: dict[str, Any] = {}
    if "key" in names:
        arrays["key"] = pa.array([message.key() for message in messages], types["key"])
    if "value" in names:
        arrays["value"] = pa.array([message.value() for message in messages], types["value"])
    if "offset" in names:
        arrays["offset"] = _offsets(messages)
    if "timestamp" in names or "timestampType" in names:
        stamps = [message.timestamp() for message in messages]
        # Kafka's timestamps are in milliseconds, Spark's in microseconds.
        if "timestamp" in names:
            arrays["timestamp"] = _timestamps(messages, [stamp for _, stamp in stamps])
        # The type for "no timestamp" is 0 in librdkafka, and -1 in Java.
        arrays["timestampType"] = pa.array([kind - 1 for kind, _ in stamps], types["timestampType"])
    if HEADERS in names:
        arrays[HEADERS] = pa.array([_headers(message) for message in messages], types[HEADERS])
    return arrays


def _timestamps(messages: Sequence[Message], stamps_ms: Sequence[int]) -> Any:  # noqa: ANN401 - pyarrow has no annotations
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    try:
        return pa.array(stamps_ms, pa.timestamp("ms", "UTC")).cast(_types()["timestamp"])
    except pa.ArrowInvalid:
        latest = max(range(len(messages)), key=stamps_ms.__getitem__)
        at = f"{messages[latest].topic()}-{messages[latest].partition()}, offset {messages[latest].offset()}"
        problem = f"the timestamp {stamps_ms[latest]} is later than Spark's latest"
        raise RackassignError(f"{at}: {problem}; read the topic without the column timestamp") from None


def _offsets(messages: Sequence[Message]) -> Any:  # noqa: ANN401 - pyarrow has no annotations
    import numpy as np  # noqa: PLC0415 - loaded on first use
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    first, last = messages[0].offset(), messages[-1].offset()
    if first is not None and last is not None and last - first == len(messages) - 1:
        # None is missing between them, because offsets increase.
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array([message.offset() for message in messages], pa.int64())


@functools.cache
def _types() -> dict[str, Any]:
    """Return the Arrow types of columns, which have to match Spark's exactly."""
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(pa.field("element", header)),
    }


def _headers(message: Message) -> list[dict[str, Any]] | None:
    try:
        found = message.headers()
    except (SystemError, UnicodeDecodeError):
        # In confluent-kafka 2.12, and in versions before and after it, only these errors show an undecodable key.
        at = f"{message.topic()}-{message.partition()}, offset {message.offset()}"
        raise RackassignError(f"{at}: a header key is not valid UTF-8; read the topic without includeHeaders") from None
    # A list in practice, although the client's type annotations allow other types.
    return [{"key": key, "value": value} for key, value in list(found)] if found else None
