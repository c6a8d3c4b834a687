"""The state of a partition in a local SQLite file, together with its changelog position, in one transaction.

Age
---
The age of local state grows while a machine is suspended as well. State that was not read on for too long may miss
deletions: compaction removes their records after the time of `delete.retention.ms`, a day by default, whether this
machine was awake or not. Linux' monotonic clock stops with the machine, so `CLOCK_BOOTTIME` is used where it exists;
elsewhere (macOS) `CLOCK_MONOTONIC` itself continues. Both stop with a virtual machine that is paused from outside. The
time of day is corrected after that, so the longer of both times counts. A time of day that jumps forwards costs a
restore at most, and one that jumps backwards has no effect.

`Overlay` has the changes that the file does not have yet.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from pathlib import Path
from typing import Any

from rackassign.stateful._changelog import DELETES_MS, LARGEST_BYTES, ChangelogRecord
from rackassign.stateful._sqlite_file import (
    DIFFERENT,
    EXPIRED,
    FIRST_EXPIRY,
    FORMAT,
    SCHEMA,
    DamagedError,
    SqliteFile,
    StoreError,
    read_rows,
    read_value,
    sealed,
    unsealed,
)
from rackassign.stateful._statistics import StateCounts
from rackassign.stateful._stores import expires, expiry_of

log = logging.getLogger(__name__)


def longest_left_s(deletes_ms: int) -> float:
    """Return the greatest age of a state in seconds, half of the time that the records of deletions are kept."""
    return deletes_ms / 2000


_FUTURE_S = 3600.0
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ElapsedTime:
    """The time since it was started."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._since = _now()

    def seconds(self) -> float:
        """Return the seconds since then, including those in which the machine was suspended."""
        return _between(self._since, _now())

    def lap(self) -> float:
        """Return the seconds as `seconds` does, and start from now; no time is between the two."""
        since, self._since = self._since, _now()
        return _between(since, self._since)


def _now() -> tuple[float, float]:
    return time.clock_gettime(_CLOCK), time.time()


def _between(since: tuple[float, float], now: tuple[float, float]) -> float:
    return max(end - begin for begin, end in zip(since, now, strict=True))


def time_of_day_ms() -> int:
    """Return the time to be stored with a state, in milliseconds since 1970."""
    return int(time.time() * 1000)


def is_too_old(stored_ms: int, deletes_ms: int) -> bool:
    """Return whether a state that was known to be current at a time may miss deletions."""
    # A time in the future shows that one of two clocks was wrong.
    return not -_FUTURE_S <= time.time() - stored_ms / 1000 <= longest_left_s(deletes_ms)


class Overlay:
    """Changes by key, None for a deletion.

    Keys are sorted when they are first read in order, and kept sorted from then on: most tasks never read them so.
    """

    __slots__ = ("_sorted", "changes")

    def __init__(self) -> None:
        self.changes: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] | None = None

    def update(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Add changes, in place of earlier ones of their keys."""
        if self._sorted is not None:
            for key in changes:
                if key not in self.changes:
                    insort(self._sorted, key)
        self.changes.update(changes)

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the changes of keys from one up to another, in order."""
        if not self.changes:
            return
        if self._sorted is None:
            self._sorted = sorted(self.changes)
        first = bisect_left(self._sorted, start)
        last = None if end is None else bisect_left(self._sorted, end)
        for key in self._sorted[first:last]:
            yield key, self.changes[key]


_NO_RECORD = -1

_LONG_S, _CONFIRM_MS = 5.0, 3_600_000


class StateFile:
    """The state of a partition in a local file.

    After a failure that leaves it open what is in memory and in the file, it refuses everything until `recover`
    succeeds.
    """

    def __init__(
        self,
        file: Path,
        counts: StateCounts | None = None,
        deletes_ms: int = DELETES_MS,
        largest_bytes: int = LARGEST_BYTES,
    ) -> None:
        self.file = file
        self._deletes_ms = deletes_ms
        self._largest_bytes = largest_bytes
        self._counts = StateCounts() if counts is None else counts
        self.position = 0
        """Offset in the changelog up to which it was read."""
        # Offset of the last record that was applied: brokers may elect a leader without it, whose log soon is as long
        # again.
        self._last = _NO_RECORD
        self._verified = False
        self._takes = False
        # Of the current input record, and of the records since the last commit.
        self._changed: dict[bytes, bytes | None] = {}
        self._uncommitted = Overlay()
        self._bytes = 0
        self.changes = 0  # Calls of `change` so far.
        self._failure: StoreError | None = None
        self._expired = False
        self._version = 0
        self._written_ms = 0
        self._db = SqliteFile(file, SCHEMA, FORMAT)
        try:
            self._load()
            self._verified = self._last == _NO_RECORD
            self._verify()
        except BaseException:
            with suppress(StoreError):
                # The first error is raised.
                self._db.close()
            raise

    @property
    def failure(self) -> StoreError | None:
        """Why it is not to be used until `recover` succeeds; None if it can be."""
        return self._db.damage or self._failure

    @property
    def expired(self) -> bool:
        """Whether the whole state is to be discarded before anything else is done with it."""
        return self._expired

    def fail(self, failure: StoreError) -> None:
        """Refuse everything from now on, until `recover` succeeds."""
        # Not the error itself: its traceback may refer to a cursor, which keeps the file locked.
        self._failure = self._failure or _copied(failure)
        self.discard_uncommitted()

    def expire(self) -> None:
        """Refuse everything from now on, until `recover` has discarded the whole state."""
        self._expired = True
        self.fail(StoreError(f"{self.file}: its state is too old, or of another changelog"))

    def recover(self) -> None:
        """Open the file again after a failure, and discard a state that has expired or is too old by now."""
        if self._db.damage is not None:
            raise _copied(self._db.damage)
        if self._failure is None:
            return
        self.discard_uncommitted()
        self._db.close()
        self._db = SqliteFile(self.file, SCHEMA, FORMAT)
        self._load()
        if self._expired or self.is_old():
            self._clear()
        self._failure = None

    def is_old(self) -> bool:
        """Return whether deletions may have been removed from the changelog since it was read."""
        return self.position > 0 and is_too_old(self._written_ms, self._deletes_ms)

    def _check(self) -> None:
        if self.failure is not None:
            raise _copied(self.failure)

    def _load(self) -> None:
        about = dict(self._db.execute("SELECT name, value FROM about"))
        if not all(isinstance(value, int) for value in about.values()):
            raise self._db.damaged(DIFFERENT)
        self.position = about.get("position", 0)
        self._last = about.get("last_offset", _NO_RECORD)
        self._written_ms = about.get("written_ms", 0)
        self._version += 1

    def _verify(self) -> None:
        """Check each row once: a damaged key would hide its row, and others, from a search."""
        begun = time.monotonic()
        # Rows that a damaged page has lost, or that are not where a search looks for them, are no damaged rows.
        if self._db.execute("PRAGMA integrity_check(1)") != [("ok",)]:
            raise self._db.damaged(DIFFERENT)
        for key, stored in read_rows(self._db.execute, b"", None):
            self._unsealed(key, stored)
        took_s = time.monotonic() - begun
        if took_s > _LONG_S:
            log.info("%s was checked in %.1f s", self.file, took_s)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, with the changes that are not in the file; None without one."""
        self._check()
        self._counts.gets += 1
        # Called for each record, mostly for a key that another record of the interval has changed.
        for changed in (self._changed, self._uncommitted.changes):
            if key in changed:
                return changed[key]
        return self.stored_value(key)

    def stored_value(self, key: bytes) -> bytes | None:
        self._check()
        stored = read_value(self._read, key)
        return None if stored is None else self._unsealed(key, stored)

    def _read(self, statement: str, values: tuple[bytes | int, ...]) -> list[Any]:
        """Return rows; after an error refuse everything, since `process` may ignore it."""
        try:
            return self._db.execute(statement, values)
        except StoreError as error:
            self.fail(error)
            raise

    def _unsealed(self, key: object, stored: object) -> bytes:
        value = unsealed(key, stored)
        if value is None:
            raise self._db.damaged(DIFFERENT)
        return value

    def change(self, key: bytes, value: bytes | None) -> None:
        """Set the value of a key, or delete it; only while an input record is processed."""
        self._check()
        if not self._takes:
            raise StoreError(f"{self.file.name} is changed by input records alone, in process")
        size = len(key) if value is None else len(key) + len(value)
        if size > self._largest_bytes:
            # Kafka would refuse the whole commit, and each time again.
            raise ValueError(
                f"{self.file.name}: a key of {len(key):,} bytes and its value have {size:,} bytes, of which the"
                f" changelog takes {self._largest_bytes:,} (its max.message.bytes, and {LARGEST_BYTES:,} at most)"
            )
        self._counts.puts += 1
        self._changed[key] = value
        self.changes += 1
        self._bytes += size

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys from one up to another, with their values, in order; later changes do not show."""
        self._check()
        changed = dict(self._uncommitted.between(start, end))
        changed.update(
            (key, value) for key, value in self._changed.items() if key >= start and (end is None or key < end)
        )
        kept = (row for row in self._rows(start, end, self._version) if row[0] not in changed)
        return merge(kept, sorted((key, value) for key, value in changed.items() if value is not None))

    def _rows(self, start: bytes, end: bytes | None, version: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows of the file; a cursor that stays open would see, and delay, later transactions."""

        def read(statement: str, values: tuple[bytes, ...]) -> list[Any]:
            self._check()
            if self._version != version:
                raise StoreError(f"{self.file.name} was changed since this iteration began")
            return self._read(statement, values)

        for key, stored in read_rows(read, start, end):
            yield key, self._unsealed(key, stored)

    def begin(self) -> None:
        """Begin an input record: accept its changes until it is committed or rolled back."""
        self._check()
        self._takes = True

    def commit_record(self) -> None:
        """Keep the changes of an input record for the next commit; the next record sees them."""
        # The file could not be read meanwhile, whatever `process` has made of that.
        self._check()
        if self._changed:
            self._uncommitted.update(self._changed)
            self._changed = {}
        self._takes = False

    def rollback_record(self) -> None:
        self._changed, self._takes = {}, False

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes of the changes since the last commit, those that were replaced included."""
        return self._bytes

    @property
    def uncommitted(self) -> Mapping[bytes, bytes | None]:
        """The changes since the last commit."""
        return self._uncommitted.changes

    def discard_uncommitted(self) -> None:
        """Discard what is not in the file, or is by now."""
        self._changed, self._uncommitted, self._takes = {}, Overlay(), False
        self._bytes = 0

    def expired_keys(self, time_ms: int, most: int, after: tuple[int, bytes] = FIRST_EXPIRY) -> list[tuple[int, bytes]]:
        """Return keys in the file whose time was over at a stream time, each behind that time, the earliest first."""
        # Changes that are not in the file may have deleted or renewed them: from the first one, `most` is beside those.
        self._check()
        changed = len(self._uncommitted.changes) if after == FIRST_EXPIRY else 0
        return [(at, key) for at, key in self._read(EXPIRED, (time_ms, *after, most + changed))]

    def clear(self) -> None:
        """Discard the whole state; if that fails, nothing else is done with it before `recover` has done it."""
        self._check()
        self.expire()
        self._clear()
        self._failure = None

    def _clear(self) -> None:
        self._version += 1
        with self._db.transaction():
            self._db.execute("DELETE FROM state")
            self._db.execute("DELETE FROM expiry")
            self._keep(0, _NO_RECORD)
        self.position, self._expired = 0, False
        self._last, self._verified = _NO_RECORD, True

    @property
    def verified(self) -> bool:
        """Whether the changelog is known to have the last record that was applied."""
        return self._verified

    @property
    def reads_from(self) -> int:
        """Offset in the changelog from which it is to be read: that of the last record until this was verified."""
        return self.position if self._verified else self._last

    @property
    def reached(self) -> int:
        """Offset up to which it has all of the changelog, with the end of the last transaction."""
        # Its owner applies a commit whose end may not be in the log yet, so the position is in front of that.
        return self.position + (self.position == self._last + 1 > 0)

    def verify(self, changes: Sequence[ChangelogRecord], end: int) -> Sequence[ChangelogRecord] | None:
        """Return the records of a read that are not applied yet; None if the changelog lacks the last one that is."""
        if self._verified or end <= self._last:
            return changes
        if not changes or changes[0].offset != self._last or self.stored_value(changes[0].key) != changes[0].value:
            return None
        self._verified = True
        return changes[1:]

    def apply(self, changes: Mapping[bytes, bytes | None], position: int, last: int | None = None) -> None:
        """Apply the next changes of the changelog, all or none; `last` is the offset of the last of their records."""
        self._check()
        self._version += 1
        last = self._last if last is None else last
        # Until memory and file are known to agree again.
        self._failure = StoreError(f"{self.file}: records were being applied")
        try:
            with self._db.transaction():
                self._write(changes)
                self._keep(position, last)
            self.position, self._last = position, last
            self._failure = None
        except BaseException:
            # Records applied before the failure are not in the file.
            self.discard_uncommitted()
            with suppress(StoreError):
                # The first error is raised. After a second one the failure stays, and `recover` loads.
                self._load()
                self._failure = None
            raise
        try:
            self._db.checkpoint()
        except DamagedError:
            raise
        except StoreError:
            # The log has everything, and the next transaction finds out whether the file can be written.
            log.debug("%s: its log is not taken into it now", self.file, exc_info=True)

    def confirm(self) -> None:
        """Note that the changelog has no further records; the file contains this at intervals of an hour."""
        self._check()
        if self.position and self._verified and time_of_day_ms() - self._written_ms > _CONFIRM_MS:
            self.apply({}, self.position)

    def close(self) -> None:
        """Close the file; may be called again."""
        self._db.close()

    def _write(self, changes: Mapping[bytes, bytes | None]) -> None:
        gone = [(key,) for key, value in changes.items() if value is None]
        puts = [(key, sealed(key, value)) for key, value in changes.items() if value is not None]
        self._db.execute_many("DELETE FROM state WHERE key = ?", gone)
        self._db.execute_many("INSERT OR REPLACE INTO state VALUES (?, ?)", puts)
        self._db.execute_many("DELETE FROM expiry WHERE key = ?", (row for row in gone if expires(row[0])))
        self._db.execute_many(
            "INSERT OR REPLACE INTO expiry VALUES (?, ?)",
            ((key, expiry_of(value)) for key, value in changes.items() if value is not None and expires(key)),
        )

    def _keep(self, position: int, last: int) -> None:
        """Write the position, the offset of the last record, and the time."""
        written_ms = time_of_day_ms()
        about = {"position": position, "last_offset": last, "written_ms": written_ms}
        self._db.execute_many("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())
        self._written_ms = written_ms


def _copied(failure: StoreError) -> StoreError:
    """Return a failure to be raised again, without the traceback of the first time."""
    return type(failure)(str(failure))
