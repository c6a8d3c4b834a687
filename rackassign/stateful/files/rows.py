"""The rows of a state file: values with a checksum, read in the order of keys."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

FORMAT = 3
"""Version of the file format (`PRAGMA user_version`)."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS expiry (key BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS expiry_at ON expiry (at);
CREATE TABLE IF NOT EXISTS pending (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spoiled (key BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID
"""

EXPIRED = "SELECT at, key FROM expiry WHERE at <= ? AND (at, key) > (?, ?) ORDER BY at, key LIMIT ?"
"""Keys whose time is over, behind one of them."""

FIRST_EXPIRY = (-(1 << 63), b"")
"""Before all expiry times."""

DIFFERENT = "it contains other values than were written"

_SEAL = 4
"""Bytes of a checksum."""

_KEYS = 500
"""Keys that are looked up at once: SQLite has a limit of parameters."""

_AT_ONCE = 64
"""Rows that are read at once: a value may have a megabyte."""

Read = Callable[[str, tuple[bytes, ...]], list[Any]]
"""Executes a statement and returns its rows."""


def sealed(key: bytes, value: bytes) -> bytes:
    """Return what is stored as the value of a key: its checksum and the value."""
    return zlib.crc32(value, zlib.crc32(key)).to_bytes(_SEAL, "big") + value


def checksum_of(stored: bytes) -> int:
    """Return the checksum of a key and its value, from what is stored as the value or its beginning."""
    return int.from_bytes(stored[:_SEAL], "big")


def read_checksums(read: Read, keys: Sequence[bytes]) -> dict[bytes, int]:
    """Return the checksums of those of these keys that exist."""
    found: dict[bytes, int] = {}
    for begin in range(0, len(keys), _KEYS):
        some = tuple(keys[begin : begin + _KEYS])
        statement = f"SELECT key, substr(value, 1, {_SEAL}) FROM state WHERE key IN ({','.join('?' * len(some))})"  # noqa: S608
        found.update((key, checksum_of(seal)) for key, seal in read(statement, some))
    return found


def checksum_of_rest(about: Mapping[str, int], pending: Mapping[bytes, bytes | None], stale: Iterable[bytes]) -> int:
    """Return the checksum of everything but the state."""
    return zlib.crc32(repr((sorted(about.items()), sorted(pending.items()), sorted(stale))).encode())


def unsealed(key: object, stored: object) -> bytes | None:
    """Return the value of a row; None if it is damaged, which SQLite itself does not find within values."""
    if isinstance(key, bytes) and isinstance(stored, bytes):
        value = stored[_SEAL:]
        if stored == sealed(key, value):
            return value
    return None


def read_value(read: Read, key: bytes) -> Any:  # noqa: ANN401 - whatever a damaged file contains
    """Return what is stored as the value of a key; None without one."""
    rows = read("SELECT value FROM state WHERE key = ?", (key,))
    return rows[0][0] if rows else None


def read_rows(read: Read, start: bytes, end: bytes | None) -> Iterator[tuple[Any, Any]]:
    """Yield keys with what is stored as their values, in order; None for a value behind which the order is damaged.

    Args:
        read: Executes a statement; called for each few rows, so that no cursor stays open.
        start: The first key.
        end: The key behind the last one; None for all.
    """
    condition, upper = ("", ()) if end is None else (" AND key < ?", (end,))
    statement = f"SELECT key, value FROM state WHERE key >= ?{condition} ORDER BY key LIMIT {_AT_ONCE}"  # noqa: S608
    while True:
        rows = read(statement, (start, *upper))
        for key, stored in rows:
            if not isinstance(key, bytes) or key < start:
                # In a damaged tree the same rows could be found for ever.
                yield key, None
                return
            yield key, stored
            # The next key in the order of bytes.
            start = key + b"\0"
        if len(rows) < _AT_ONCE:
            return
