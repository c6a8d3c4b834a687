"""What `process` receives: the state of its partition."""

from __future__ import annotations

from collections.abc import Iterator

from rackassign.stateful.state_file import StateFile


class StateStore:
    """The state of a partition.

    While an input record is processed, reads include the changes of that record so far. Keys and values are bytes, and
    keys are in the order of bytes. Only `process` may change a state, that of the partition of its record.

    Args:
        file: The local file.
    """

    __slots__ = ("_file",)

    def __init__(self, file: StateFile) -> None:
        self._file = file

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None without one.

        Raises:
            TypeError: The key is not bytes.
            StoreError: The local file cannot be read. In `process` the partition is restored, whatever it raises.
        """
        return self._file.get(_bytes(key))

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key; only while an input record is processed.

        Raises:
            TypeError: The key or the value is not bytes.
            StoreError: No record is being processed.
        """
        self._file.change(_bytes(key), _bytes(value))

    def delete(self, key: bytes) -> None:
        """Delete a key; only while an input record is processed.

        Raises:
            TypeError: The key is not bytes.
            StoreError: No record is being processed.
        """
        self._file.change(_bytes(key), None)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys with their values, in order of the keys.

        Raises:
            StoreError: The local file cannot be read, or the next `poll` has changed it.
        """
        return self._file.between(b"", None)

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys from one up to another, with their values, in order.

        Rows are read when they are needed. Changes after this call do not show, so `process` may write meanwhile.

        Args:
            start: The first key.
            end: The key behind the last one.

        Raises:
            TypeError: A key is not bytes.
            StoreError: The local file cannot be read, or the next `poll` has changed it.
        """
        return self._file.between(_bytes(start), _bytes(end))

    def prefix(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with these bytes, with their values, in order; as `range` does.

        Args:
            start: The common beginning of the keys.

        Raises:
            TypeError: It is not bytes.
            StoreError: The local file cannot be read, or the next `poll` has changed it.
        """
        first = _bytes(start)
        shorter = first.rstrip(b"\xff")
        # No key with this beginning is greater than the beginning with its last byte increased.
        end = shorter[:-1] + bytes([shorter[-1] + 1]) if shorter else None
        return self._file.between(first, end)


def _bytes(given: bytes) -> bytes:
    """Return bytes as they are; `bytes` of a number would be that many zeros."""
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"keys and values of a state are bytes, got {type(given).__name__}")
    return bytes(given)
