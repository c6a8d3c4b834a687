"""The local files of state as seen from outside: listed and measured beside a running member, and never opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rackassign.model import TopicPartition
from rackassign.stateful.files.names import LOCK, NAMED, topic_names
from rackassign.stateful.files.sqlite_file import StoreError

_BESIDE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A SQLite file of a partition, together with the files that SQLite keeps beside it.

    Args:
        name: Name of the SQLite file.
        topic: The topic as it is in the name: a long one is shortened.
        partition: The partition.
        changelog_id: Topic ID of the changelog; empty with brokers before 2.8.
        damaged: Whether it was set aside.
        sizes: Bytes of each of its files that exist, by name; without `name` itself, only files beside it are left.
        modified_s: Time of the last change of one of them, in seconds since 1970.
    """

    name: str
    topic: str
    partition: int
    changelog_id: str
    damaged: bool
    sizes: Mapping[str, int]
    modified_s: float

    @property
    def bytes(self) -> int:
        """The size of all its files."""
        return sum(self.sizes.values())

    @property
    def is_rest(self) -> bool:
        """Whether the SQLite file itself is missing."""
        return self.name not in self.sizes


def list_local_files(folder: Path, opened: int | None = None) -> tuple[LocalFile, ...]:
    """Return the files of state in a directory, in order of their names; symbolic links and other files are skipped.

    Args:
        folder: A `state_dir`.
        opened: Descriptor of the same directory, which is read instead of the path; omitted to open it.

    Raises:
        StoreError: It cannot be read, or is not the `state_dir` of a member.
    """
    try:
        with os.scandir(folder if opened is None else opened) as entries:
            found = {entry.name: status for entry in entries if (status := _regular_file(entry)) is not None}
    except OSError as error:
        raise StoreError(f"state-dir: {folder} cannot be read: {error.strerror}") from None
    if LOCK not in found:
        raise StoreError(f"state-dir: {folder} is not the state_dir of a StatefulConsumer: it has no file {LOCK!r}")
    alike: dict[str, list[str]] = {}
    for name in sorted(found):
        alike.setdefault(_without_end(name), []).append(name)
    return tuple(
        _local_file(name, {each: found[each] for each in names})
        for name, names in alike.items()
        if NAMED.fullmatch(name)
    )


def by_partition(
    files: Iterable[LocalFile], topics: Iterable[str]
) -> tuple[dict[TopicPartition, list[LocalFile]], list[LocalFile]]:
    """Return the files of each partition of these topics, and the files of other topics.

    Args:
        files: Files of one directory.
        topics: Full names of topics.
    """
    full, others = topic_names(topics), list[LocalFile]()
    found: dict[TopicPartition, list[LocalFile]] = {}
    for file in files:
        if file.topic in full:
            found.setdefault(TopicPartition(full[file.topic], file.partition), []).append(file)
        else:
            others.append(file)
    return found, others


def _regular_file(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of a regular file; None for anything else, and for a file that was deleted meanwhile."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _without_end(name: str) -> str:
    return next((name.removesuffix(end) for end in _BESIDE if name.endswith(end)), name)


def _local_file(name: str, found: Mapping[str, os.stat_result]) -> LocalFile:
    named = NAMED.fullmatch(name)
    assert named is not None  # noqa: S101 - the caller has checked it
    return LocalFile(
        name,
        named["topic"],
        int(named["partition"]),
        named["id"],
        named["damaged"] is not None,
        {each: status.st_size for each, status in found.items()},
        max(status.st_mtime for status in found.values()),
    )
