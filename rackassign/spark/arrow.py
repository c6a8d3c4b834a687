"""Converts records to Arrow batches with the columns of the JVM source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rackassign.errors import ConfigError, RackassignError
from rackassign.model import TopicPartition
from rackassign.util.text import truncate

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyarrow import RecordBatch

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"


def check_columns(names: Sequence[str], *, headers: bool) -> None:
    """Reject columns that do not exist.

    Raises:
        ConfigError: A column does not exist. The message names it and the existing columns.
    """
    known = (*COLUMNS, HEADERS) if headers else COLUMNS
    for name in names:
        if name == HEADERS and not headers:
            raise ConfigError("headers: this column requires includeHeaders=true")
        if name not in known:
            raise ConfigError(f"unknown column {truncate(name)}: expected one of {', '.join(known)}")


def to_batch(messages: Sequence[Message], tp: TopicPartition, names: Sequence[str]) -> RecordBatch:
    """Return records as an Arrow batch.

    Args:
        messages: Records of one partition.
        tp: The partition.
        names: The columns, in order.
    """
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    types = _types()
    columns = [_BUILDERS[name](messages, tp, types[name]) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([(name, types[name]) for name in names]))


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


def _repeated(value: object, messages: Sequence[Message], kind: Any) -> Any:  # noqa: ANN401 - pyarrow has no annotations
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    return pa.repeat(pa.scalar(value, kind), len(messages))


def _array(values: list[Any], kind: Any) -> Any:  # noqa: ANN401 - pyarrow has no annotations
    import pyarrow as pa  # noqa: PLC0415 - loaded on first use

    return pa.array(values, kind)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    try:
        found = message.headers()
    except (SystemError, UnicodeDecodeError):
        # In confluent-kafka 2.12, and in versions before and after it, only these errors show an undecodable key.
        at = f"{message.topic()}-{message.partition()}, offset {message.offset()}"
        raise RackassignError(f"{at}: a header key is not valid UTF-8; read the topic without includeHeaders") from None
    # A list in practice, although the client's type annotations allow other types.
    return [{"key": key, "value": value} for key, value in list(found)] if found else None


_Builder = Callable[[Sequence["Message"], TopicPartition, Any], Any]

_BUILDERS: Mapping[str, _Builder] = {
    "key": lambda messages, _, kind: _array([message.key() for message in messages], kind),
    "value": lambda messages, _, kind: _array([message.value() for message in messages], kind),
    "topic": lambda messages, tp, kind: _repeated(tp.topic, messages, kind),
    "partition": lambda messages, tp, kind: _repeated(tp.partition, messages, kind),
    "offset": lambda messages, _, kind: _array([message.offset() for message in messages], kind),
    # Kafka's timestamps are in milliseconds, Spark's in microseconds.
    "timestamp": lambda messages, _, kind: _array([message.timestamp()[1] * 1000 for message in messages], kind),
    # The type for "no timestamp" is 0 in librdkafka, and -1 in Java.
    "timestampType": lambda messages, _, kind: _array([message.timestamp()[0] - 1 for message in messages], kind),
    HEADERS: lambda messages, _, kind: _array([_headers(message) for message in messages], kind),
}
