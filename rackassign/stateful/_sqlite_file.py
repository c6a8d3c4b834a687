"""A SQLite file that only its owner can read: errors that state what to do, and rows with a checksum, by key.

Local files are a cache of what changelogs contain. This is the only module that writes with SQLite.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rackassign.errors import RackassignError

_BUSY_MS = 1000

_LOG_BYTES = 4 << 20
"""Size of the write-ahead log from which on it is taken into the file; as SQLite does by itself."""

_LOG_HEADER, _FRAME_HEADER = 32, 24
"""Bytes of the headers of the write-ahead log and of its frames."""

_FILES = "each partition needs three open files (ulimit -n)"
_NO_DAMAGE = (
    "database or disk is full",
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


class SqliteFile:
    """An open SQLite file in which transactions begin explicitly."""

    def __init__(self, file: Path, schema: str, version: int) -> None:
        self._file = file
        self.damage: DamagedError | None = None
        """The first damage that was found; the file is not to be used after that."""
        self._checkpoint_at = _LOG_BYTES
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
        """Create the file: SQLite would let others read it."""
        try:
            os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            hint = f"; {_FILES}" if error.errno in {errno.EMFILE, errno.ENFILE} else ""
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
        self._check_log()

    def _check_log(self) -> None:
        """Find a damaged page in the write-ahead log, of which SQLite would take what is before it."""
        # If the process was killed while the log was taken into the file, newer pages of the file would be combined
        # with older ones of the log. Behind the frames that count there may be a transaction that was not completed,
        # and frames from before the log was begun again, which have other salts, but no commit.
        log = Path(f"{self._file}-wal")
        if not log.exists():
            return
        ((_, frames, _),) = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        ((page_bytes,),) = self._db.execute("PRAGMA page_size").fetchall()
        frame_bytes = _FRAME_HEADER + page_bytes
        with log.open("rb") as opened:
            salts = opened.read(_LOG_HEADER)[16:24]
            for at in range(_LOG_HEADER + frames * frame_bytes, log.stat().st_size - frame_bytes + 1, frame_bytes):
                opened.seek(at)
                header = opened.read(_FRAME_HEADER)
                # The size of the file if the frame ends a commit, and the salts.
                if any(header[4:8]) and header[8:16] == salts:
                    raise self.damaged("a page of its log is damaged")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Execute a statement and return its rows; a StoreError if the file cannot be used now, or is damaged."""
        with self._mapped():
            return self._db.execute(statement, values).fetchall()

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement with each row of values; raises as `execute`."""
        with self._mapped():
            self._db.executemany(statement, rows)

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
            if _is_damage(error, text):
                raise self.damaged(text) from None
            hint = f"; {_FILES}" if "unable to open" in text else ""
            raise StoreError(f"{self._file}: {text}{hint}") from None
        except UnicodeDecodeError:
            # SQLite quotes what it has found in its messages.
            raise self.damaged("its schema is no text") from None


def _is_damage(error: sqlite3.Error, text: str) -> bool:
    """Return whether the content of a file is damaged, unlike for a full disk, missing descriptors or a closed file."""
    # A damaged page can cause any message, so what is no damage is listed. Error codes exist from Python 3.11 on only.
    if isinstance(error, sqlite3.OperationalError):
        return not any(each in text for each in _NO_DAMAGE)
    return not isinstance(error, sqlite3.ProgrammingError | sqlite3.DataError | sqlite3.InterfaceError)


FORMAT = 4
"""Version of the file format (`PRAGMA user_version`)."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS expiry (key BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS expiry_at ON expiry (at);
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID
"""

EXPIRED = "SELECT at, key FROM expiry WHERE at <= ? AND (at, key) > (?, ?) ORDER BY at, key LIMIT ?"
"""Keys whose time is over, behind one of them."""

FIRST_EXPIRY = (-(1 << 63), b"")
"""Before all expiry times."""

DIFFERENT = "it contains other values than were written"

_SEAL = 4
"""Bytes of a checksum."""

_AT_ONCE = 64
"""Rows that are read at once: a value may have a megabyte."""

Read = Callable[[str, tuple[bytes, ...]], list[Any]]
"""Executes a statement and returns its rows."""


def sealed(key: bytes, value: bytes) -> bytes:
    """Return what is stored as the value of a key: its checksum and the value."""
    return zlib.crc32(value, zlib.crc32(key)).to_bytes(_SEAL, "big") + value


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
