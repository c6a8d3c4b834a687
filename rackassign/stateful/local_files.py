"""The local files of state, from outside: listed beside a running member, and deleted if no member needs them.

Listing opens no file. Files are deleted that are too old, or that are rests of others.

A file whose time cannot be read is as old as its last change. SQLite's log is not read, because that would change the
file: a state with a log is therefore at least as young as the log.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.stateful._changelog import DELETES_MS
from rackassign.stateful._local_state import longest_left_s
from rackassign.stateful._sqlite_file import StoreError
from rackassign.stateful._state_directory import LOCK, NAMED, topic_names
from rackassign.util.files import try_lock

_BESIDE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A SQLite file of a partition, together with the files that SQLite keeps beside it."""

    name: str
    # As it is in the name: a long one is shortened.
    topic: str
    partition: int
    # Topic ID of the changelog; empty with brokers before 2.8.
    changelog_id: str
    # Bytes of each of its files that exist, by name; without `name` itself, only files beside it are left.
    sizes: Mapping[str, int]
    # Time of the last change of one of them, in seconds since 1970.
    modified_s: float

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def is_rest(self) -> bool:
        """Whether the SQLite file itself is missing."""
        return self.name not in self.sizes


def list_local_files(folder: Path) -> tuple[LocalFile, ...]:
    """Return the files of state in a directory, in order of their names; symbolic links and other files are skipped."""
    try:
        with os.scandir(folder) as entries:
            files = {entry.name: status for entry in entries if (status := _regular_file(entry)) is not None}
    except OSError as error:
        raise StoreError(f"state-dir: {folder} cannot be read: {error.strerror}") from None
    if LOCK not in files:
        raise StoreError(f"state-dir: {folder} is not the state_dir of a StatefulConsumer: it has no file {LOCK!r}")
    alike: dict[str, list[str]] = {}
    for name in sorted(files):
        whole = next((name.removesuffix(end) for end in _BESIDE if name.endswith(end)), name)
        alike.setdefault(whole, []).append(name)
    return tuple(
        _local_file(name, {each: files[each] for each in names})
        for name, names in alike.items()
        if NAMED.fullmatch(name)
    )


def by_partition(
    files: Iterable[LocalFile], topics: Iterable[str]
) -> tuple[dict[TopicPartition, list[LocalFile]], list[LocalFile]]:
    """Return the files of each partition of these topics, and the files of other topics."""
    full, other_files = topic_names(topics), list[LocalFile]()
    found: dict[TopicPartition, list[LocalFile]] = {}
    for file in files:
        if file.topic in full:
            found.setdefault(TopicPartition(full[file.topic], file.partition), []).append(file)
        else:
            other_files.append(file)
    return found, other_files


def _regular_file(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of a regular file; None for anything else, and for a file that was deleted meanwhile."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _local_file(name: str, found: Mapping[str, os.stat_result]) -> LocalFile:
    named = NAMED.fullmatch(name)
    assert named is not None  # noqa: S101 - the caller has checked it
    return LocalFile(
        name,
        named["topic"],
        int(named["partition"]),
        named["id"],
        {each: status.st_size for each, status in found.items()},
        max(status.st_mtime for status in found.values()),
    )


OLD_HOURS = longest_left_s(DELETES_MS) / 3600
"""Age in hours from which on a member discards a file itself."""

_FUTURE_S = 3600.0
_TABLES = frozenset({"state", "about"})


@dataclass(frozen=True, slots=True)
class UnneededFile:
    file: LocalFile
    reason: str


@dataclass(frozen=True, slots=True)
class CleanResult:
    """What is not needed in a directory, and what was deleted."""

    unneeded: tuple[UnneededFile, ...]
    kept: int
    # Bytes of the files that were deleted, and why others could not be, by name.
    freed: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(each.file.bytes for each in self.unneeded)


def clean(folder: Path, older_than_h: float = OLD_HOURS, *, execute: bool = False) -> CleanResult:
    """Find the files of a directory that no member needs, and delete them if that is requested."""
    if not older_than_h >= 0:
        raise ConfigError(f"older-than: expected a number of hours from 0, got {older_than_h:g}")
    with _locked(folder):
        files = list_local_files(folder)
        reasons = [(file, _reason(folder, file, older_than_h * 3600)) for file in files]
        unneeded = tuple(UnneededFile(file, reason) for file, reason in reasons if reason)
        kept = len(files) - len(unneeded)
        if not execute:
            return CleanResult(unneeded, kept)
        freed, failures = _deleted(folder, [each.file for each in unneeded])
        return CleanResult(unneeded, kept, freed, failures)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a directory as a member does."""
    # It has the lock as a regular file, so nothing is created.
    list_local_files(folder)
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"state-dir: {folder / LOCK} cannot be opened: {error.strerror}") from None
    try:
        try:
            locked = try_lock(lock)
        except OSError as error:
            raise StoreError(f"state-dir: {folder / LOCK} cannot be locked: {error.strerror}") from None
        if not locked:
            raise StoreError(f"state-dir: {folder} is in use: stop its member first")
        yield
    finally:
        os.close(lock)


def _reason(folder: Path, file: LocalFile, old_s: float) -> str:
    """Return why a file is not needed; empty if it may be."""
    if file.is_rest:
        return "its file is missing"
    logged = any(size for name, size in file.sizes.items() if name != file.name)
    if not file.bytes:
        return "empty"
    about = _about(folder / file.name)
    if about is None:
        return _age(time.time() - file.modified_s, old_s)
    if about.foreign:
        return ""
    if not about.position and not logged:
        return "it has no state"
    written_s = about.written_ms / 1000
    if time.time() - written_s < -_FUTURE_S:
        return "its time is in the future"
    return _age(time.time() - (max(written_s, file.modified_s) if logged else written_s), old_s)


def _age(age_s: float, old_s: float) -> str:
    return f"{age_s / 3600:.1f} hours old" if age_s > old_s else ""


@dataclass(frozen=True, slots=True)
class _About:
    """What a file states about itself: its position in the changelog and the time, in milliseconds since 1970."""

    position: int = 0
    written_ms: int = 0
    foreign: bool = False


def _about(file: Path) -> _About | None:
    """Return what a file states about itself; None if that cannot be read."""
    # Without its log, and without any change to it.
    where = f"file:{quote(os.fsencode(file.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(where, uri=True)) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and not tables >= _TABLES:
                return _About(foreign=True)
            rows = dict(db.execute("SELECT name, value FROM about")) if tables else {}
    except sqlite3.Error:
        return None
    position, written_ms = (rows.get(name, 0) for name in ("position", "written_ms"))
    if not (isinstance(position, int) and isinstance(written_ms, int)):
        return None
    return _About(position, written_ms)


def _deleted(folder: Path, files: Sequence[LocalFile]) -> tuple[int, dict[str, str]]:
    """Delete files; return the freed bytes, and why others could not be deleted."""
    freed, failures = 0, dict[str, str]()
    for file in files:
        # The SQLite file is the last one: without its log it is only older.
        for name in sorted(file.sizes, key=lambda name, file=file: name == file.name):  # type: ignore[misc]
            try:
                (folder / name).unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                failures[name] = error.strerror or type(error).__name__
                break
            freed += file.sizes[name]
    return freed, failures
