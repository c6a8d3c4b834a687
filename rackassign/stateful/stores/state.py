"""What `process` receives: the state of its task, as one or more stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, overload

from rackassign.stateful.stores.declaration import AnyStore, Store, unknown_store
from rackassign.stateful.stores.keys import DEFAULT, EXPIRY_BYTES, behind, expiry_of
from rackassign.stateful.stores.serdes import BYTES, Serde, as_bytes

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Without types a store is one of bytes.
    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

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
            StoreError: The local file cannot be read. In `process` the partition is restored, whatever it raises.
        """
        value = self._file.get(self._prefixed(key))
        if value is None:
            return default
        if self._ttl_ms is not None:
            if expiry_of(value) <= self._now():
                return default
            value = value[EXPIRY_BYTES:]
        return self._deserialize(value)

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
            yield self._key_of(key[size:]), self._deserialize(value)


class State(StateStore[bytes, bytes]):
    """The state of a task: a store of bytes without a name, and the named ones in brackets.

    Args:
        file: The local file of the task.
        stores: The named stores that were declared.
        now: Returns the stream time.
    """

    __slots__ = ("_declared", "_stores")

    def __init__(self, file: StateSource, stores: Mapping[str, AnyStore] | None = None, now: Now = int) -> None:
        super().__init__(file, DEFAULT, BYTES, BYTES)
        self._declared = stores or {}
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
