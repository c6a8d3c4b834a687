"""The directory with the state stores of a member: one file for each partition, locked for one process."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from rackassign.model import TOPIC_NAME, TopicPartition
from rackassign.stateful.state_store import _ENDS, DamagedError, StateStore, StoreError
from rackassign.util.file_lock import try_lock


class StateDirectory:
    """The directory with the files of a member, one for each partition.

    The name of a file contains the topic ID of its changelog.

    Args:
        folder: Directory, created if missing.

    Raises:
        StoreError: Another process uses it, or it cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: Mapping[str, str] = {}
        self._open: dict[TopicPartition, StateStore] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
        except OSError as error:
            raise StoreError(f"state_dir: {folder} cannot be used: {error.strerror}") from None
        if not try_lock(self._lock):
            self._lock.close()
            raise StoreError(f"{folder} is in use: each member needs a folder of its own")

    def open_existing(self, ids: Mapping[str, str]) -> None:
        """Open existing files of these changelogs; delete those of others, and those older than half a day.

        Args:
            ids: Current topic IDs of the changelogs, by topic.
        """
        self._ids = ids
        for file in sorted(self._folder.glob("*.sqlite")):
            named = _NAMED.fullmatch(file.name)
            if named is None or not file.is_file():
                continue
            tp = TopicPartition(named["topic"], int(named["partition"]))
            if named["id"] != ids.get(tp.topic) or time.time() - _newest(file) > LONGEST_LEFT_S:
                _remove(file)
            else:
                self.open(tp)

    def open(self, tp: TopicPartition) -> StateStore:
        """Return the store of a partition, opened once; recreate a damaged file, as the changelog has everything."""
        if tp not in self._open:
            file = self._file(tp)
            try:
                self._open[tp] = StateStore(file)
            except DamagedError:
                _remove(file)
                self._open[tp] = StateStore(file)
        return self._open[tp]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the position of each open file, new or left from before."""
        return {tp: store.position for tp, store in sorted(self._open.items())}

    def delete(self, tp: TopicPartition) -> None:
        """Delete a file."""
        store = self._open.pop(tp, None)
        if store is not None:
            store.close()
        _remove(self._file(tp))

    def close(self) -> None:
        """Close all files; may be called again."""
        for store in self._open.values():
            store.close()
        self._open = {}
        self._lock.close()

    def _file(self, tp: TopicPartition) -> Path:
        if not TOPIC_NAME.fullmatch(tp.topic):
            raise StoreError(f"{tp.topic!r} is no name of a topic")
        return self._folder / f"{tp.topic}-{tp.partition}@{self._ids.get(tp.topic, '')}.sqlite"


_NAMED = re.compile(rf"(?P<topic>{TOPIC_NAME.pattern})-(?P<partition>\d+)@(?P<id>[0-9a-f-]*)\.sqlite")


LONGEST_LEFT_S = 12 * 3600.0
"""Half of the time that Kafka keeps the record of a deletion; an older file might miss one."""


def _newest(file: Path) -> float:
    """Return when a file was last written; that may be in its write-ahead log."""
    return max(each.stat().st_mtime for each in _parts(file) if each.is_file())


def _remove(file: Path) -> None:
    for each in _parts(file):
        each.unlink(missing_ok=True)


def _parts(file: Path) -> list[Path]:
    return [Path(f"{file}{end}") for end in _ENDS]
