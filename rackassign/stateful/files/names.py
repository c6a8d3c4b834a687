"""The names of state files: they contain the topic, the partition, and the topic ID of the changelog."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from rackassign.model import TOPIC_NAME, TopicPartition
from rackassign.stateful.files.sqlite_file import StoreError

DAMAGED = ".damaged"
LOCK = "lock"
"""The file by which a directory is locked for one process."""

NAMED = re.compile(
    rf"(?P<topic>[A-Za-z0-9._~-]+)-(?P<partition>[0-9]+)@(?P<id>[0-9A-Za-z_-]*)\.sqlite(?P<damaged>{DAMAGED})?"
)
"""The name of a partition's SQLite file, also of one that was set aside."""

_ENDS = ("", "-wal", "-shm")

_MOST = 150
_KEPT = 120
"""A file name has 255 bytes at most, and the ID, a number and the endings need up to 80 of them."""


def state_file_name(tp: TopicPartition, changelog_id: str) -> str:
    """Return the name of a partition's file.

    Args:
        tp: The partition.
        changelog_id: Topic ID of its changelog.

    Raises:
        StoreError: The topic has no valid name.
    """
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
