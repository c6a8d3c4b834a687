"""Stores: how an application sees the state of a task.

* `Serde` is how keys and values of a store become bytes, and back. `Store` is what an application declares.
* `StateStore` is what `process` receives. It knows neither files nor changelogs, only something that has keys in order.

Each key of a task's state begins with the store that it belongs to. So standbys and `rackassign state` can interpret a
changelog without knowing the stores of the application.

=========================  ==================================================
first bytes                store
=========================  ==================================================
1                          the store without a name
2, length and name         a named store
3, length and name         a named store with a time to live, whose values begin with the time at which they expire
4                          the progress of the task (`progress`), a single key
=========================  ==================================================
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, overload

from rackassign.errors import ConfigError
from rackassign.text import describe_error, join_first, short_repr

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Without types a store is one of bytes.
    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

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
    """Return bytes as they are; `bytes` of a number would be that many zeros."""
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


DEFAULT = b"\1"
PROGRESS = b"\4"

EXPIRY_BYTES = 8
"""Values of a store with a time to live begin with the time at which they expire, in milliseconds."""

_NAMED_STORE, _EXPIRING = 2, 3
_NAME_AT = 2
LONGEST_NAME = 100


def store_prefix(name: str, *, expiring: bool) -> bytes:
    encoded = name.encode()
    return bytes((_EXPIRING if expiring else _NAMED_STORE, len(encoded))) + encoded


def is_state_key(key: bytes) -> bool:
    """Return whether a key has one of the forms above."""
    return bool(key) and (1 <= key[0] <= _EXPIRING or key == PROGRESS)


def expires(key: bytes) -> bool:
    """Return whether the value of a key begins with the time at which it expires."""
    return key[0] == _EXPIRING


def behind(prefix: bytes) -> bytes | None:
    """Return the first key behind all those with a prefix; None if there is none."""
    shorter = prefix.rstrip(b"\xff")
    # No key with this beginning is greater than the beginning with its last byte increased.
    return shorter[:-1] + bytes([shorter[-1] + 1]) if shorter else None


def expiry_of(value: bytes) -> int:
    """Return when a value of a store with a time to live expires, in milliseconds; 0 if it has no time."""
    return int.from_bytes(value[:EXPIRY_BYTES], "big", signed=True)


_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")
_NAMED = 10
_LONGEST_S = 100 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class Store(Generic[K, V]):
    """A named store of a task: `state[counts]` in `process` is its content.

    Args:
        name: Letters, digits, `.`, `_` and `-`.
        key: Serde of keys.
        value: Serde of values.
        ttl_s: Seconds of stream time after which a value that was not set again expires; None for never.

    Raises:
        ConfigError: An option is invalid.
    """

    name: str
    # A store without types is one of bytes.
    key: Serde[K] = BYTES  # type: ignore[assignment]
    value: Serde[V] = BYTES  # type: ignore[assignment]
    ttl_s: float | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        name: object = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"the name of a store has up to {LONGEST_NAME} letters, digits, '.', '_' and '-',"
                f" got {short_repr(name)}"
            )
        for option in ("key", "value"):
            serde: object = getattr(self, option)
            if not isinstance(serde, Serde):
                hint = "; call it" if callable(serde) else ""
                raise ConfigError(f"{option} of store {self.name} must be a Serde, got {short_repr(serde)}{hint}")
        ttl_s: object = self.ttl_s
        if ttl_s is not None and (
            isinstance(ttl_s, bool) or not isinstance(ttl_s, (int, float)) or not 0 < ttl_s <= _LONGEST_S
        ):
            raise ConfigError(
                f"ttl_s of store {self.name} must be a number of seconds, more than 0 and up to {_LONGEST_S},"
                f" got {short_repr(ttl_s)}"
            )

    def prefix(self) -> bytes:
        """Return the first bytes of its keys."""
        return store_prefix(self.name, expiring=self.ttl_s is not None)


AnyStore = Store[Any, Any]


def stores_by_name(stores: Iterable[AnyStore]) -> Mapping[str, AnyStore]:
    if isinstance(stores, (str, Store)) or not isinstance(stores, Iterable):
        raise ConfigError(f"stores must be a list of Store, got {short_repr(stores)}")
    by_name: dict[str, AnyStore] = {}
    for store in stores:
        if not isinstance(store, Store):
            raise ConfigError(f"stores must be a list of Store, got {short_repr(store)} in it")
        if store.name in by_name:
            raise ConfigError(f"two stores have the name {store.name}")
        by_name[store.name] = store
    return by_name


def unknown_store(asked: object, declared: Iterable[AnyStore]) -> ConfigError:
    """Return the error for a store that was not declared, or not with these options."""
    known = {store.name for store in declared}
    if isinstance(asked, Store) and asked.name in known:
        return ConfigError(f"store {asked.name} is declared in stores= with other options")
    name = asked.name if isinstance(asked, Store) else asked
    names = f"declared are {join_first(sorted(known), _NAMED)}" if known else "none is declared"
    return ConfigError(f"store {short_repr(name)} is not declared in stores=: {names}")


Now = Callable[[], int]
"""Returns the stream time of a task, in milliseconds."""


class StateSource(Protocol):
    """What contains the keys of all stores of a task, in the order of bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None without one."""

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys from one up to another, or all, with their values, in order."""

    def change(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key, or delete it."""


class StateStore(Generic[K, V]):
    """A store of a task.

    While an input record is processed, reads include the changes of that record so far. Keys are in the order of their
    bytes. Only `process` and functions of `punctuate` may change a store, that of their task.

    Args:
        file: The local file of the task.
        prefix: First bytes of the store's keys.
        key: Serde of keys.
        value: Serde of values.
        ttl_ms: How long values are valid, in milliseconds of stream time; None for ever.
        now: Returns the stream time.
    """

    __slots__ = ("_deserialize", "_end", "_file", "_key_bytes", "_key_of", "_now", "_prefix", "_serialize", "_ttl_ms")

    def __init__(
        self,
        file: StateSource,
        prefix: bytes,
        key: Serde[K],
        value: Serde[V],
        *,
        ttl_ms: int | None = None,
        now: Now = int,
    ) -> None:
        self._file = file
        self._prefix = prefix
        self._end = behind(prefix)
        self._key_bytes = key.serialize
        self._key_of = key.deserialize
        self._serialize = value.serialize
        self._deserialize = value.deserialize
        self._ttl_ms = ttl_ms
        self._now = now

    def __iter__(self) -> NoReturn:
        """Refuse `for key in store`.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a store is iterated with items(), range(..) or prefix(..)")

    def get(self, key: K, default: V | None = None) -> V | None:
        """Return the value of a key, or the default without one.

        Raises:
            TypeError: The key has another type than the store's keys; bytes, if they have no serde.
            ValueError: The serde cannot read the value.
            StoreError: The local file cannot be read. In `process` the partition is restored, whatever it raises.
        """
        stored_key = self._prefixed(key)
        value = self._file.get(stored_key)
        if value is None:
            return default
        if self._ttl_ms is not None:
            if expiry_of(value) <= self._now():
                return default
            value = value[EXPIRY_BYTES:]
        try:
            return self._deserialize(value)
        except Exception as error:
            raise self._unreadable(stored_key, error) from error

    def put(self, key: K, value: V) -> None:
        """Set the value of a key; only while an input record is processed.

        Raises:
            TypeError: The key or the value has another type than those of the store.
            ValueError: They have more than a million bytes.
            StoreError: No record is being processed.
        """
        # As they are now: a function of the user may return a buffer that it uses again, or something else.
        stored = as_bytes(self._serialize(value))
        if self._ttl_ms is not None:
            stored = (self._now() + self._ttl_ms).to_bytes(EXPIRY_BYTES, "big", signed=True) + stored
        self._file.change(self._prefixed(key), stored)

    def delete(self, key: K) -> None:
        """Delete a key; only while an input record is processed.

        Raises:
            TypeError: The key has another type than the store's keys.
            StoreError: No record is being processed.
        """
        self._file.change(self._prefixed(key), None)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield all keys with their values, in order of the keys.

        Raises:
            ValueError: A serde cannot read a key or a value.
            StoreError: The local file cannot be read, or the next `poll` has changed it.
        """
        return self._between(self._prefix, self._end)

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Yield the keys from one up to another, with their values, in order.

        Rows are read when they are needed. Changes after this call do not show, so `process` may write meanwhile.

        Args:
            start: The first key; None for that of the store.
            end: The key behind the last one; None for all.

        Raises:
            TypeError: A key has another type than the store's keys.
            ValueError: A serde cannot read a key or a value.
            StoreError: The local file cannot be read, or the next `poll` has changed it.
        """
        first = self._prefix if start is None else self._prefixed(start)
        return self._between(first, self._end if end is None else self._prefixed(end))

    def prefix(self, start: K) -> Iterator[tuple[K, V]]:
        """Yield the keys that begin with these bytes or characters, with their values, in order; as `range` does.

        Args:
            start: The common beginning of the keys.

        Raises:
            TypeError: It has another type than the store's keys.
            ValueError: A serde cannot read a key or a value.
            StoreError: The local file cannot be read, or the next `poll` has changed it.
        """
        first = self._prefixed(start)
        return self._between(first, behind(first))

    def _prefixed(self, key: K) -> bytes:
        return self._prefix + as_bytes(self._key_bytes(key))

    def _between(self, first: bytes, end: bytes | None) -> Iterator[tuple[K, V]]:
        return self._decoded(self._file.between(first, end))

    def _decoded(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        size, now = len(self._prefix), self._now()
        for key, stored in rows:
            value = stored
            if self._ttl_ms is not None:
                if expiry_of(stored) <= now:
                    continue
                value = stored[EXPIRY_BYTES:]
            try:
                row = self._key_of(key[size:]), self._deserialize(value)
            except Exception as error:
                raise self._unreadable(key, error) from error
            yield row

    def _unreadable(self, key: bytes, error: Exception) -> ValueError:
        """Return the error for a row that the serdes of the store cannot read."""
        name, own = self._prefix[_NAME_AT:].decode(), key[len(self._prefix) :]
        return ValueError(
            f"store {name}: its serdes cannot read the key {short_repr(own)} or its value ({describe_error(error)}):"
            " they must read what earlier ones have written, or the store needs another name"
        )


class State(StateStore[bytes, bytes]):
    """The state of a task: a store of bytes without a name, and the named ones in brackets.

    Args:
        file: The local file of the task.
        stores: The named stores that were declared.
        now: Returns the stream time.

    Raises:
        ConfigError: A store has values that were written with a time to live and is declared without, or vice versa.
        StoreError: The local file cannot be read.
    """

    __slots__ = ("_declared", "_stores")

    def __init__(self, file: StateSource, stores: Mapping[str, AnyStore] | None = None, now: Now = int) -> None:
        super().__init__(file, DEFAULT, BYTES, BYTES)
        self._declared = stores or {}
        for each in self._declared.values():
            # A time to live is part of the key: these values would still be there, and never be found.
            other = store_prefix(each.name, expiring=each.ttl_s is None)
            if next(iter(file.between(other, behind(other))), None) is not None:
                before = "with a ttl_s" if each.ttl_s is None else "without ttl_s"
                raise ConfigError(
                    f"store {each.name} has values that were written {before}, which it would not find: declare it"
                    f" {before}, as before, or use another name, with which it begins empty. To drop its values, delete"
                    " its keys in process while it is declared as before"
                )
        self._stores: dict[str, StateStore[Any, Any]] = {
            name: StateStore(file, each.prefix(), each.key, each.value, ttl_ms=_milliseconds(each.ttl_s), now=now)
            for name, each in self._declared.items()
        }

    @overload
    def __getitem__(self, store: Store[K, V]) -> StateStore[K, V]: ...

    @overload
    def __getitem__(self, store: str) -> StateStore[Any, Any]: ...

    def __getitem__(self, store: Store[K, V] | str) -> StateStore[Any, Any]:
        """Return a named store.

        Raises:
            ConfigError: It is not declared in `stores` of the consumer.
        """
        name = store.name if isinstance(store, Store) else store
        if name not in self._stores or (isinstance(store, Store) and store != self._declared[name]):
            raise unknown_store(store, self._declared.values())
        return self._stores[name]


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))
