"""The state of a partition in a local SQLite file, together with its changelog position, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from pathlib import Path

from rackassign.errors import RackassignError
from rackassign.stateful.claims import Claim
from rackassign.stateful.records import NO_SOURCE, ChangelogRecord
from rackassign.stateful.replay import NO_EPOCH, ChangelogReplay

_FORMAT = 1
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spoiled (key BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {_FORMAT};
"""
_CLAIM = ("claim_term", "claim_generation", "claim_member")
_ENDS = ("", "-wal", "-shm")


class StoreError(RackassignError):
    """A local file cannot be used."""


class DamagedError(StoreError):
    """It is not a file of rackassign, or it is damaged."""


class StateStore:
    """The state of a partition in a local file.

    While an input record is processed, reads include the changes of that record so far.

    Args:
        file: File, created if missing.

    Raises:
        DamagedError: It is not a file of rackassign, or it is damaged.
        StoreError: It cannot be opened.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.position = 0
        """Offset in the changelog up to which it was read."""
        self.replay = ChangelogReplay()
        self._takes = False
        self._changed: dict[bytes, bytes | None] = {}
        self._before: dict[bytes, bytes | None] = {}
        try:
            self._open()
        except sqlite3.OperationalError as error:
            raise StoreError(f"{file}: {error}; each partition needs two open files (ulimit -n)") from None
        except sqlite3.Error as error:
            raise DamagedError(f"{file}: {error}") from None

    def _open(self) -> None:
        # Transactions begin explicitly only, in whichever thread.
        self._db = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in {0, _FORMAT}:
            self._db.close()
            raise DamagedError(f"{self.file} has format {version}, only {_FORMAT} can be read")
        # Only one process uses the file, and this mode needs one file less for each partition.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        # After a crash of the machine the last transactions may be missing; the changelog has them.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)
        self._load()

    def _load(self) -> None:
        about = dict(self._db.execute("SELECT name, value FROM about"))
        self.position = about.get("position", 0)
        self.replay = ChangelogReplay(
            about.get("epoch", NO_EPOCH),
            about.get("fences", 0),
            about.get("source", NO_SOURCE),
            dict(self._db.execute("SELECT key, value FROM pending ORDER BY key")),
            (about.get("pending_epoch", NO_EPOCH), about.get("pending_source", NO_SOURCE)),
            {key for (key,) in self._db.execute("SELECT key FROM spoiled")},
            bool(about.get("unfenced")),
            bool(about.get("unmarked")),
            bool(about.get("lost")),
            Claim(*(about[name] for name in _CLAIM)) if about.get("claimed") else None,
        )

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None without one."""
        for changed in (self._changed, self._before):
            if key in changed:
                return changed[key]
        return self.stored_value(key)

    def stored_value(self, key: bytes) -> bytes | None:
        """Return the value of a key in the file."""
        row = self._db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key; only while an input record is processed.

        Raises:
            TypeError: The key or the value is not bytes.
            StoreError: No record is being processed.
        """
        self._change(key, _bytes(value))

    def delete(self, key: bytes) -> None:
        """Delete a key; only while an input record is processed.

        Raises:
            TypeError: The key is not bytes.
            StoreError: No record is being processed.
        """
        self._change(key, None)

    def _change(self, key: bytes, value: bytes | None) -> None:
        if not self._takes:
            raise StoreError(f"{self.file.name} is changed by input records alone, in process")
        self._changed[_bytes(key)] = value

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys with their values, in order of the keys."""
        changed = {**self._before, **self._changed}
        rows = self._db.execute("SELECT key, value FROM state ORDER BY key")
        kept = ((key, value) for key, value in rows if key not in changed)
        return merge(kept, sorted((key, value) for key, value in changed.items() if value is not None))

    def begin(self) -> None:
        """Begin an input record: accept its changes until it is committed or rolled back."""
        self._takes = True

    def commit_record(self) -> dict[bytes, bytes | None]:
        """Return the changes of an input record; the next one sees them, although they are not in the file yet."""
        changed, self._changed, self._takes = self._changed, {}, False
        self._before.update(changed)
        return changed

    def rollback_record(self) -> None:
        """Discard the changes of the current input record."""
        self._changed, self._takes = {}, False

    def discard_uncommitted(self) -> None:
        """Discard what is not in the file."""
        self._changed, self._before, self._takes = {}, {}, False

    def clear(self) -> None:
        """Discard the whole state.

        Raises:
            StoreError: The file cannot be written.
        """
        self.replay = ChangelogReplay()
        try:
            with self._transaction():
                self._db.execute("DELETE FROM state")
                self._keep(0)
        except sqlite3.Error as error:
            raise StoreError(f"{self.file}: {error}") from None
        self.position = 0
        self.discard_uncommitted()

    def apply(self, changes: Iterable[ChangelogRecord], position: int) -> None:
        """Apply the next records of the changelog, all or none.

        Args:
            changes: Records in order.
            position: The offset behind them.

        Raises:
            StoreError: They cannot be written.
        """
        try:
            with self._transaction():
                for change in changes:
                    self._write(self.replay.take(change))
                self._keep(position)
        except BaseException as error:
            # Records applied before the failure are not in the file.
            self._load()
            self.discard_uncommitted()
            if isinstance(error, sqlite3.Error):
                raise StoreError(f"{self.file}: {error}") from None
            raise
        self.position = position
        self.discard_uncommitted()

    def close(self) -> None:
        """Close the file; may be called again."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in changes:
            if value is None:
                self._db.execute("DELETE FROM state WHERE key = ?", (key,))
            else:
                self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

    def _keep(self, position: int) -> None:
        """Write the position."""
        replay = self.replay
        self._db.execute("DELETE FROM pending")
        self._db.executemany("INSERT INTO pending VALUES (?, ?)", replay.uncommitted.items())
        self._db.execute("DELETE FROM spoiled")
        self._db.executemany("INSERT INTO spoiled VALUES (?)", ((key,) for key in replay.stale_keys))
        epoch, source = replay.pending_of
        about = {
            "position": position,
            "epoch": replay.epoch,
            "fences": replay.fences,
            "source": replay.source,
            "pending_epoch": epoch,
            "pending_source": source,
            "unfenced": replay.fence_overwritten,
            "unmarked": replay.checkpoint_missing,
            "lost": replay.lost,
            "claimed": replay.claim is not None,
            **dict(zip(_CLAIM, replay.claim or (), strict=False)),
        }
        self._db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())


def _bytes(given: bytes) -> bytes:
    """Return bytes as they are; `bytes` of a number would be that many zeros."""
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"keys and values of a state are bytes, got {type(given).__name__}")
    return bytes(given)
