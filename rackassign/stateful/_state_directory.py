"""The directory with the state files of a member: one file for each partition, locked for one process.

The names of files contain the topic, the partition, and the topic ID of the changelog. State has the content of
records, so only its owner can read it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rackassign.model import TOPIC_NAME, TopicPartition
from rackassign.stateful._changelog import DELETES_MS, LARGEST_BYTES
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._sqlite_file import DamagedError, StoreError
from rackassign.stateful._statistics import StateCounts
from rackassign.util.files import try_lock

log = logging.getLogger(__name__)

LOCK = "lock"
"""The file by which a directory is locked for one process."""

NAMED = re.compile(r"(?P<topic>[A-Za-z0-9._~-]+)-(?P<partition>[0-9]+)@(?P<id>[0-9A-Za-z_-]*)\.sqlite")
"""The name of a partition's SQLite file."""

_MEMBER_ID = "member-id"

_ENDS = ("", "-wal", "-shm")

_MOST = 150
_KEPT = 120
"""A file name has 255 bytes at most, and the ID, a number and the endings need up to 80 of them."""


def state_file_name(tp: TopicPartition, changelog_id: str) -> str:
    if not TOPIC_NAME.fullmatch(tp.topic):
        raise StoreError(f"{tp.topic!r} is no name of a topic")
    return f"{_short(tp.topic)}-{tp.partition}@{changelog_id}.sqlite"


def topic_names(topics: Iterable[str]) -> dict[str, str]:
    """Return the topics by their name in file names."""
    return {_short(topic): topic for topic in topics}


def parts(file: Path) -> list[Path]:
    """Return a SQLite file and the files that SQLite keeps beside it."""
    return [Path(f"{file}{end}") for end in _ENDS]


def _short(topic: str) -> str:
    """Return a topic's name, or the beginning of a long one and a hash; no topic has the character between them."""
    if len(topic) <= _MOST:
        return topic
    return f"{topic[:_KEPT]}~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"


_RETRY_S = 1.0
_DAMAGED_RETRY_S = 60.0
"""How long a file waits that is damaged again: each restore reads the whole changelog."""
_SETTLED_S = 60.0
"""A file that fails within this time after the last attempt has the same problem as before."""


class StateDirectory:
    """The directory with the files of a member, one for each partition.

    The files are a cache: one that is damaged is deleted, and its state restored from the changelog. A file that cannot
    be used for other reasons (a full disk) is kept and tried again.
    """

    def __init__(self, folder: Path, counts: StateCounts | None = None) -> None:
        self._folder = folder
        self._counts = StateCounts() if counts is None else counts
        self.ids: Mapping[str, str] = {}
        """Topic IDs of the changelogs whose files these are, by topic."""
        self.deletes_ms = DELETES_MS
        """How long these changelogs keep the records of deletions, in milliseconds."""
        self.largest_bytes = LARGEST_BYTES
        """Size of a key and a value that these changelogs take."""
        self._open: dict[TopicPartition, StateFile] = {}
        # When each file is used again that has failed, or was.
        self._due: dict[TopicPartition, float] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A file of this name may be another program's.
            self._lock = os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StoreError(f"state_dir: {folder} cannot be used: {error.strerror}") from None
        try:
            locked = try_lock(self._lock)
        except OSError as error:
            self._lock.close()
            raise StoreError(
                f"state_dir: {folder} cannot be locked: {error.strerror}; use a directory on a local disk"
            ) from None
        if not locked:
            self._lock.close()
            raise StoreError(
                f"{folder} is in use: each member needs a folder of its own. If its member was killed, a process that"
                f" this member had forked may still use it: `fuser {folder / LOCK}` shows it"
            )

    def member_id(self) -> str:
        """Return an ID that no other directory has, the same each time."""
        file = self._folder / _MEMBER_ID
        try:
            if file.exists() and re.fullmatch(r"[0-9a-f]{32}", found := file.read_text("ascii", "replace")):
                return found
            made = uuid.uuid4().hex
            with open(file, "w", opener=partial(os.open, mode=0o600), encoding="ascii") as opened:
                opened.write(made)
        except OSError as error:
            raise StoreError(f"state_dir: {file} cannot be used: {error.strerror}") from None
        return made

    def open_existing(self, ids: Mapping[str, str]) -> None:
        """Open existing files of these changelogs; delete those of others, and those that may miss deletions."""
        self.ids = ids
        topics = topic_names(ids)
        for file in sorted(self._folder.glob("*.sqlite*")):
            named = NAMED.fullmatch(file.name)
            if named is None or not file.is_file():
                continue
            topic = topics.get(named["topic"], "")
            if named["id"] != ids.get(topic):
                _remove(file)
            elif file.suffix == ".sqlite":
                self._open_existing(TopicPartition(topic, int(named["partition"])))

    def discard_others(self, ids: Mapping[str, str]) -> None:
        """Delete the files of changelogs that are other topics by now."""
        others = {topic for topic, former in self.ids.items() if ids.get(topic) != former}
        for topic in sorted(others):
            log.warning("the changelog of %s is another topic than before: discarding the local state", topic)
        for tp in [tp for tp in self._open if tp.topic in others]:
            self.delete(tp)
        self.ids = ids

    def _open_existing(self, tp: TopicPartition) -> None:
        """Open a file; delete one that has no state, or had one of no use."""
        try:
            store = self.open(tp)
        except StoreError as error:
            self.failed(tp, error)
            return
        if not store.position:
            self.delete(tp)

    def open(self, tp: TopicPartition) -> StateFile:
        """Return the file of a partition, opened once; a damaged or too old one is replaced with an empty one."""
        store = self._open.get(tp)
        try:
            if store is None:
                store = self._new(tp)
            elif store.expired:
                # A full disk may have no space for a transaction that deletes so much.
                store = self._replaced(tp)
            elif store.failure is not None:
                store.recover()
        except DamagedError as error:
            self._counts.damaged_files += 1
            log.warning("%s: it is deleted, and the state of %s-%d is restored from its changelog", error, *tp)
            store = self._replaced(tp)
        return store

    def _replaced(self, tp: TopicPartition) -> StateFile:
        """Replace a file with an empty one."""
        store = self._open.get(tp)
        if store is not None:
            _close(store)
        _remove(self._file(tp))
        # Not before: if that is interrupted, the file is not to be taken for one that may be used.
        self._open.pop(tp, None)
        return self._new(tp)

    def _new(self, tp: TopicPartition) -> StateFile:
        file = self._file(tp)
        store = StateFile(file, self._counts, self.deletes_ms, self.largest_bytes)
        if store.is_old():
            store.close()
            _remove(file)
            store = StateFile(file, self._counts, self.deletes_ms, self.largest_bytes)
        self._open[tp] = store
        return store

    def available(self, tp: TopicPartition) -> StateFile | None:
        """Return the file of a partition as `open` does; None while it cannot be used, about which a warning is logged.

        It is tried again after some time.
        """
        if time.monotonic() < self._due.get(tp, float("-inf")):
            return None
        try:
            return self.open(tp)
        except StoreError as error:
            self.failed(tp, error)
            return None

    def failed(self, tp: TopicPartition, error: StoreError) -> None:
        """Have a file that has failed recovered before it is used again, without delay if it is damaged."""
        store = self._open.get(tp)
        if store is not None:
            store.fail(error)
        now = time.monotonic()
        again = now < self._due.get(tp, float("-inf")) + _SETTLED_S
        if isinstance(error, DamagedError):
            self._due[tp] = now + (_DAMAGED_RETRY_S if again else 0.0)
            return
        self._due[tp] = now + _RETRY_S
        if not again:
            log.warning("%s: %s-%d waits until its local file can be used again", error, *tp)

    def expire(self) -> None:
        """Have all states discarded, each before it is used again."""
        for store in self._open.values():
            store.expire()

    def confirm(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note which files contain their changelog up to its end, so that their age counts from now on."""
        for tp, store in list(self._open.items()):
            if store.failure is None and ends.get(tp) in {store.position, store.reached}:
                try:
                    store.confirm()
                except StoreError as error:
                    self.failed(tp, error)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the position of each open file that can be used, new or left from before."""
        return {tp: store.position for tp, store in sorted(self._open.items()) if store.failure is None}

    def find(self, tp: TopicPartition) -> StateFile | None:
        """Return the file of a partition if it is open, whether it can be used or not."""
        return self._open.get(tp)

    def path(self, tp: TopicPartition) -> Path:
        """Return the path of a partition's file; may be called in any thread."""
        file = self._file(tp)
        if not file.exists():
            raise StoreError(f"{tp.topic}-{tp.partition} has no local state")
        return file

    def tps(self) -> set[TopicPartition]:
        """Return the partitions that have an open file, whether it can be used or not."""
        return set(self._open)

    def delete(self, tp: TopicPartition) -> None:
        """Delete a file."""
        store = self._open.pop(tp, None)
        self._due.pop(tp, None)
        try:
            if store is not None:
                store.close()
            _remove(self._file(tp))
        except StoreError as error:
            # If it is needed again, it is as usable as before, or too old.
            log.warning("%s", error)

    def close(self) -> None:
        """Close all files, whatever closing one of them raises; may be called again."""
        stores, self._open = self._open, {}
        with ExitStack() as left:
            left.callback(self._lock.close)
            for store in stores.values():
                left.callback(_close, store)

    def _file(self, tp: TopicPartition) -> Path:
        return self._folder / state_file_name(tp, self.ids.get(tp.topic, ""))


def _close(store: StateFile) -> None:
    """Close a file; what it lacks after an error the changelog has."""
    try:
        store.close()
    except StoreError as error:
        log.warning("%s", error)


def _remove(file: Path) -> None:
    """Delete a file with those that SQLite keeps beside it."""
    try:
        for each in parts(file):
            each.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{file} cannot be deleted: {error.strerror}") from None
