"""Numbers, strings and arrays of Kafka's classic (non-flexible) messages: big-endian, prefixed with their length."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain

from rackassign.errors import WireError

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

_EMPTY_TOPIC = _INT16.size + _INT32.size
"""Size in bytes of a topic without name and partitions."""

MAX_STRING = 2**15 - 1


class Reader:
    """Reads values one after the other and keeps the position.

    Every read checks the remaining bytes first, so an encoded length never causes more allocation or iteration than the
    bytes themselves could fill.
    """

    __slots__ = ("_data", "offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.offset = 0

    def _take(self, count: int, what: str) -> int:
        """Advance by `count` bytes; return their start."""
        start = self.offset
        left = len(self._data) - start
        if count > left:
            raise WireError(start, f"expected {count} bytes of {what}, only {left} are left")
        self.offset = start + count
        return start

    def remaining(self) -> int:
        return len(self._data) - self.offset

    def read_bytes(self, count: int, what: str) -> bytes:
        start = self._take(count, what)
        return bytes(self._data[start : start + count])

    def int8(self, what: str) -> int:
        value: int = _INT8.unpack_from(self._data, self._take(1, what))[0]
        return value

    def int64(self, what: str) -> int:
        value: int = _INT64.unpack_from(self._data, self._take(8, what))[0]
        return value

    def int16(self, what: str) -> int:
        value: int = _INT16.unpack_from(self._data, self._take(2, what))[0]
        return value

    def int32(self, what: str) -> int:
        value: int = _INT32.unpack_from(self._data, self._take(4, what))[0]
        return value

    def nullable_string(self, what: str) -> str | None:
        """Read a UTF-8 string; any negative length is null."""
        length = self.int16(f"the length of {what}")
        if length < 0:
            return None
        start = self._take(length, what)
        try:
            return str(self._data[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(start + error.start, f"{what} is not UTF-8") from None

    def string(self, what: str) -> str:
        """Read a string that must not be null."""
        start = self.offset
        value = self.nullable_string(what)
        if value is None:
            raise WireError(start, f"{what} is null")
        return value

    def nullable_bytes(self, what: str) -> bytes | None:
        """Read bytes; any negative length is null."""
        length = self.int32(f"the length of {what}")
        if length < 0:
            return None
        start = self._take(length, what)
        return bytes(self._data[start : start + length])

    def count(self, what: str, smallest: int) -> int | None:
        """Read the length of an array; None if it is null. That many elements of `smallest` bytes have to remain."""
        start = self.offset
        count = self.int32(f"the number of {what}")
        if count < 0:
            return None
        left = len(self._data) - self.offset
        if count * smallest > left:
            raise WireError(start, f"{count} {what} cannot fit into the {left} bytes left")
        return count

    def int32s(self, what: str) -> tuple[int, ...]:
        """Read an array of 32-bit numbers; null is empty."""
        count = self.count(what, 4) or 0
        start = self._take(4 * count, what)
        return struct.unpack_from(f">{count}i", self._data, start)

    def ids_by_topic(self, what: str, known: KnownTopics) -> dict[str, tuple[int, ...]]:
        """Read an array of topics, each with an array of partition IDs; null is empty.

        Topics without partitions are omitted, and the arrays of a topic that is listed twice are merged. New topics are
        added to `known`.
        """
        count = self.count(what, _EMPTY_TOPIC) or 0
        data, heads, begin = self._data, known.heads, self.offset
        by_topic: dict[str, tuple[int, ...]] = {}
        offset = begin
        for _ in range(count):
            # Most of what a leader decodes is read here: a topic and a few numbers, tens of thousands of times. Only
            # complete bytes can be a known head, and a name of 256 bytes or more has none.
            try:
                start = offset + _EMPTY_TOPIC + data[offset + 1]
                topic, size, unpack = heads[data[offset:start]]
                by_topic[topic] = unpack(data, start)
                offset = start + size
            except (KeyError, IndexError, struct.error):  # noqa: PERF203 - nothing is cheaper than to try
                # With the methods above, so that errors are equal.
                self.offset = offset
                topic, ids = self._topic(known)
                by_topic[topic] = ids
                offset = self.offset
        self.offset = offset
        if len(by_topic) == count and all(by_topic.values()):
            return by_topic
        self.offset = begin
        arrays: dict[str, list[tuple[int, ...]]] = {}
        for topic, ids in (self._topic(known) for _ in range(count)):
            if ids:
                arrays.setdefault(topic, []).append(ids)
        return {topic: tuple(chain.from_iterable(of_topic)) for topic, of_topic in arrays.items()}

    def _topic(self, known: KnownTopics) -> tuple[str, tuple[int, ...]]:
        """Read a topic and its partition IDs, and remember the bytes in front of the IDs."""
        offset = self.offset
        topic = self.string("a topic")
        start = self.offset + _INT32.size
        ids = self.int32s("partitions")
        known.add(self._data[offset:start], topic, len(ids))
        return topic, ids


class KnownTopics:
    """The heads of topics in arrays of partitions: the bytes of a name and of the number of its partitions."""

    __slots__ = ("_arrays", "_topics", "heads")

    def __init__(self) -> None:
        # For each head the topic, the size of its partition IDs in bytes, and the function that reads them.
        self.heads: dict[bytes, tuple[str, int, Callable[[bytes, int], tuple[int, ...]]]] = {}
        self._topics: dict[str, str] = {}
        self._arrays: dict[int, struct.Struct] = {}

    def add(self, head: bytes, topic: str, count: int) -> None:
        """Add a head; a topic is the identical string in all of them."""
        if head[0]:
            return
        if count not in self._arrays:
            self._arrays[count] = struct.Struct(f">{count}i")
        array = self._arrays[count]
        self.heads[head] = self._topics.setdefault(topic, topic), array.size, array.unpack_from


class Writer:
    """Collects values as bytes; raises `WireError` for values that the format cannot hold."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def done(self) -> bytes:
        return bytes(self._data)

    def write_bytes(self, value: bytes) -> None:
        self._data += value

    def int8(self, value: int) -> None:
        self._pack(_INT8, value)

    def int64(self, value: int) -> None:
        self._pack(_INT64, value)

    def int16(self, value: int) -> None:
        self._pack(_INT16, value)

    def int32(self, value: int) -> None:
        self._pack(_INT32, value)

    def _pack(self, form: struct.Struct, value: int) -> None:
        try:
            self._data += form.pack(value)
        except struct.error:
            raise WireError(len(self._data), f"{value!r} does not fit into {form.size * 8} bits") from None

    def string(self, value: str) -> None:
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise WireError(len(self._data), f"{value!r} cannot be written as UTF-8") from None
        if len(encoded) > MAX_STRING:
            raise WireError(len(self._data), f"a string of {len(encoded)} bytes, {MAX_STRING} is the most")
        self.int16(len(encoded))
        self._data += encoded

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.int16(-1)
        else:
            self.string(value)

    def nullable_bytes(self, value: bytes | None) -> None:
        if value is None:
            self.int32(-1)
        else:
            self.int32(len(value))
            self._data += value

    def int32s(self, values: Sequence[int]) -> None:
        self.int32(len(values))
        try:
            self._data += struct.pack(f">{len(values)}i", *values)
        except struct.error:
            raise WireError(len(self._data), "a number does not fit into 32 bits") from None
