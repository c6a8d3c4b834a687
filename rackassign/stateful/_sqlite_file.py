"""A SQLite file that only its owner can read: errors that state what to do, and rows with a checksum, by key.

Local files are a cache of what changelogs contain. This is the only module that writes with SQLite.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rackassign.errors import RackassignError
from rackassign.text import short_repr

_MOST_BYTES = 500
"""SQLite refuses paths of more than 512 bytes, and those of its other files are a little longer."""

_BUSY_MS = 1000

_LOG_BYTES = 4 << 20
"""Size of the write-ahead log from which on it is taken into the file; as SQLite does by itself."""

_FILES = "each partition needs three open files (ulimit -n)"
_FULL = "database or disk is full"
_IO = "disk I/O error"
_LIMITS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a write to a full disk, over a quota, or over the limit of a file's size (ulimit -f)."""
_PROBE_BYTES = 1 << 16
"""More than SQLite writes at once."""
_NO_DAMAGE = (
    _FULL,
    "unable to open",
    "locked",
    "locking protocol",
    "readonly",
    "out of memory",
    "interrupted",
    "too many",
)
"""What operational errors report that has nothing to do with the content of a file. "locking protocol" is that another
process, as a reader of a snapshot, was in the way of the write-ahead log for too long."""


class StoreError(RackassignError):
    """A local file cannot be used."""


class DamagedError(StoreError):
    """It is not a file of rackassign, or it is damaged."""


class DiskFullError(StoreError):
    """There is no space to write."""


class SqliteFile:
    """An open SQLite file in which transactions begin explicitly."""

    def __init__(self, file: Path, schema: str, version: int) -> None:
        self._file = file
        self.damage: DamagedError | None = None
        """The first damage that was found; the file is not to be used after that."""
        self._checkpoint_at = _LOG_BYTES
        check_path(file)
        self._create()
        with self._mapped():
            # Transactions begin explicitly only, in whichever thread.
            self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000)
        try:
            with self._mapped():
                self._prepare(schema, version)
        except BaseException:
            self._abandon()
            raise

    def _create(self) -> None:
        """Create the file: SQLite would let others read it, and reports each failure in the same words."""
        try:
            os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            hint = f"; {_FILES}" if error.errno in {errno.EMFILE, errno.ENFILE} else ""
            if error.errno == errno.EIO:
                raise DamagedError(f"{self._file}: {error.strerror}") from None
            if error.errno in _LIMITS:
                raise DiskFullError(f"{self._file}: {error.strerror}") from None
            raise StoreError(f"{self._file}: {error.strerror}{hint}") from None

    def _prepare(self, schema: str, version: int) -> None:
        ((written,),) = self._db.execute("PRAGMA user_version").fetchall()
        if written not in {0, version}:
            raise DamagedError(f"{self._file} has format {written}, only {version} can be read")
        # A damaged page is then found before its content is used.
        self._db.execute("PRAGMA cell_size_check = ON")
        self._db.execute("PRAGMA journal_mode = WAL")
        # After a crash of the machine the last transactions may be missing; the changelog has them.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
        if not written:
            self._db.executescript(f"BEGIN; {schema}; PRAGMA user_version = {version}; COMMIT;")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Execute a statement and return its rows; a StoreError if the file cannot be used now, or is damaged."""
        with self._mapped():
            return self._db.execute(statement, values).fetchall()

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement with each row of values; raises as `execute`."""
        with self._mapped():
            self._db.executemany(statement, rows)

    def verify(self) -> None:
        """Check the structure of the whole file; values are checked by their checksums."""
        rows = self.execute("PRAGMA quick_check(1)")
        if rows != [("ok",)]:
            raise self.damaged(f"quick_check: {short_repr(rows[0][0] if rows else None)}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, which is committed at the end, or rolled back after any error."""
        try:
            self.execute("BEGIN IMMEDIATE")
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def checkpoint(self) -> None:
        """Take a long write-ahead log into the file, and empty it."""
        # SQLite itself would keep the log, to overwrite it. If a page of such a log is damaged, the pages before it are
        # read from the log, and newer versions of others from the file: a tree that fits together by chance only.
        try:
            size = Path(f"{self._file}-wal").stat().st_size
        except OSError:
            return
        if size < self._checkpoint_at:
            return
        # A reader beside the member would be waited for.
        self.execute("PRAGMA busy_timeout = 0")
        try:
            ((busy, _, _),) = self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        self._checkpoint_at = size + _LOG_BYTES if busy else _LOG_BYTES

    def _roll_back(self) -> None:
        """End a transaction that SQLite has not ended itself; a refused COMMIT leaves it open."""
        try:
            with self._mapped():
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
        except StoreError:
            # Half of a transaction must not be read: from now on each call fails.
            self._abandon()
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Close the file after an error, which is the one to be raised."""
        with suppress(sqlite3.Error):
            self._db.close()

    def damaged(self, problem: str) -> DamagedError:
        """Return the error of a damaged file, which is not to be used any more."""
        self.damage = DamagedError(f"{self._file}: {problem}")
        return DamagedError(str(self.damage))

    def close(self) -> None:
        """Close the file; may be called again."""
        with self._mapped():
            self._db.close()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            if _IO in text and (number := _errno_of_writes(self._file)) in _LIMITS:
                # SQLite reports a disk that is full as such, and neither a quota nor a limit of the file's size.
                raise DiskFullError(f"{self._file}: {os.strerror(number)}") from None
            if _is_damage(error, text):
                raise self.damaged(text) from None
            if _FULL in text:
                raise DiskFullError(f"{self._file}: {text}") from None
            hint = f"; {_FILES}" if "unable to open" in text else ""
            raise StoreError(f"{self._file}: {text}{hint}") from None
        except UnicodeDecodeError:
            # SQLite quotes what it has found in its messages.
            raise self.damaged("its schema is no text") from None


def check_path(file: Path) -> None:
    """Refuse a path that SQLite does not open; it would report that the file cannot be opened."""
    size = len(os.fsencode(file.absolute()))
    if size > _MOST_BYTES:
        raise StoreError(
            f"the path of {file.name} has {size} bytes, of which SQLite allows {_MOST_BYTES}: use a shorter state_dir"
        )


def _errno_of_writes(file: Path) -> int:
    """Return the number of the error with which a file beside this one, of its size, cannot grow; 0 if it can."""
    sizes = [each.stat().st_size for each in (file, Path(f"{file}-wal")) if each.exists()]
    try:
        with tempfile.TemporaryFile(dir=file.parent) as probe:
            probe.seek(max(sizes, default=0))
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno or 0
    return 0


def _is_damage(error: sqlite3.Error, text: str) -> bool:
    """Return whether the content of a file is damaged, unlike for a full disk, missing descriptors or a closed file."""
    # A damaged page can cause any message, so what is no damage is listed. Error codes exist from Python 3.11 on only.
    if isinstance(error, sqlite3.OperationalError):
        return not any(each in text for each in _NO_DAMAGE)
    return not isinstance(error, sqlite3.ProgrammingError | sqlite3.DataError | sqlite3.InterfaceError)


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
    """Yield keys with what is stored as their values, in order; None for a value behind which the order is damaged."""
    # `read` is called for each few rows, so that no cursor stays open.
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
