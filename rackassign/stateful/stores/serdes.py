"""Serdes: how keys and values of a store become bytes, and back."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

_INT = struct.Struct(">Q")
_SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """A pair of functions, such as those of an Avro library.

    Keys are in the order of their bytes, and equal keys must have equal bytes.

    Args:
        serialize: Return the bytes of an object.
        deserialize: Return the object of bytes.

    Raises:
        ConfigError: One of them is no function.
    """

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def __post_init__(self) -> None:
        """Check that both can be called."""
        for name in ("serialize", "deserialize"):
            value = getattr(self, name)
            if not callable(value):
                raise ConfigError(f"{name} of a serde must be a function, got {short_repr(value)}")


def as_bytes(given: bytes) -> bytes:
    """Return bytes as they are; `bytes` of a number would be that many zeros.

    Raises:
        TypeError: It is something else.
    """
    if type(given) is bytes:
        return given
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"keys and values of a state are bytes, got {type(given).__name__}")
    return bytes(given)


def _str_bytes(given: str) -> bytes:
    if not isinstance(given, str):
        raise TypeError(f"expected str, got {type(given).__name__}")
    return given.encode()


def _int_bytes(given: int) -> bytes:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"expected int, got {type(given).__name__}")
    if not -_SIGN <= given < _SIGN:
        raise ValueError(f"expected an int of 64 bits, got {short_repr(given)}")
    return _INT.pack(given + _SIGN)


def _int_of(stored: bytes) -> int:
    number: int = _INT.unpack(stored)[0]
    return number - _SIGN


def _json_bytes(given: Any) -> bytes:  # noqa: ANN401 - what JSON can have
    return json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


BYTES: Serde[bytes] = Serde(as_bytes, as_bytes)
"""Bytes as they are."""

STR: Serde[str] = Serde(_str_bytes, bytes.decode)
"""UTF-8, in the order of code points."""

INT: Serde[int] = Serde(_int_bytes, _int_of)
"""Integers of 64 bits, in their order."""

JSON: Serde[Any] = Serde(_json_bytes, json.loads)
"""JSON without NaN; keys of objects are sorted, so that equal objects have equal bytes."""


def msgpack() -> Serde[Any]:
    """Return the serde of MessagePack.

    Raises:
        ConfigError: The package `msgpack` is not installed.
    """
    try:
        from msgpack import packb, unpackb  # noqa: PLC0415 - of an extra
    except ImportError:
        raise ConfigError("msgpack is not installed: pip install 'rackassign[msgpack]'") from None
    # By default it refuses, when it reads, what it has written: maps with other keys than strings.
    return Serde(packb, partial(unpackb, strict_map_key=False))


def pair(first: Serde[A], second: Serde[B]) -> Serde[tuple[A, B]]:
    """Return the serde of pairs, in the order of the first parts and then of the second.

    It is for keys with two parts, such as a user and a time.

    Args:
        first: Serde of the first part.
        second: Serde of the second part.

    Raises:
        ConfigError: One of them is no serde.
    """
    for each in (first, second):
        if not isinstance(each, Serde):
            raise ConfigError(f"pair takes two of Serde, got {short_repr(each)}")

    def serialize(given: tuple[A, B]) -> bytes:
        # Typed as a pair, but users pass the first part alone.
        parts: Any = given
        if not isinstance(parts, (tuple, list)) or len(parts) != 2:  # noqa: PLR2004
            raise TypeError(
                f"expected a pair (first, second), got {short_repr(given)}; the keys with one first part are"
                " range((first, lowest), (first, highest)), or prefix((first, '')) if the second part is text"
            )
        one, other = parts
        # No first part is the beginning of another one: a zero byte within it has 255 behind it.
        return first.serialize(one).replace(b"\0", b"\0\xff") + b"\0\1" + second.serialize(other)

    def deserialize(stored: bytes) -> tuple[A, B]:
        one, _, other = stored.partition(b"\0\1")
        return first.deserialize(one.replace(b"\0\xff", b"\0")), second.deserialize(other)

    return Serde(serialize, deserialize)
