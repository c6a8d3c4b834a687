"""Offsets as the JVM source writes them, and how much of what is there one batch takes.

Pure: neither Spark nor Kafka. An offset map has an offset for each partition; in JSON it is
`{"topic": {"0": 123}}`, with -1 for latest and -2 for earliest where a user may say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rackassign.errors import ConfigError, InputError
from rackassign.model import TopicPartition
from rackassign.util.text import short_repr

Offsets = Mapping[TopicPartition, int]

LATEST, EARLIEST = -1, -2
"""What these numbers mean in the options."""

LARGEST = 2**63 - 1
"""Of offsets and timestamps."""

_LARGEST_PARTITION = 2**31 - 1
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


def parse_offsets(name: str, text: str, *, lowest: int = EARLIEST) -> dict[TopicPartition, int]:
    """Read offsets (or timestamps) by partition from an option.

    Args:
        name: Of the option, for errors.
        text: `{"topic": {"0": 123}}`.
        lowest: The least number that means something.

    Raises:
        ConfigError: It is something else; says what.
    """
    return _numbers(name, _object(name, text), lowest)


def parse_assignment(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Read partitions from an option: `{"topic": [0, 1]}`; sorted, each once.

    Raises:
        ConfigError: It is something else, or names no partition; says what.
    """
    found: set[TopicPartition] = set()
    for topic, partitions in _object(name, text).items():
        if not isinstance(partitions, list):
            raise ConfigError(
                f"{name}: {short_repr(topic)}: expected a list of partitions, got {short_repr(partitions)}"
            )
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= _LARGEST_PARTITION:
                raise ConfigError(f"{name}: {short_repr(topic)}: expected a partition, got {short_repr(partition)}")
            found.add(TopicPartition(topic, partition))
    if not found:
        raise ConfigError(f"{name}: names no partition")
    return tuple(sorted(found))


def from_json(offset: object) -> dict[TopicPartition, int]:
    """Return what a checkpoint holds.

    Args:
        offset: As `to_json` has made it, or the JVM source.

    Raises:
        InputError: It holds something else: the checkpoint is of another source.
    """
    if not isinstance(offset, dict):
        raise InputError("checkpoint", f"expected offsets by topic, got {short_repr(offset)}")
    try:
        return _numbers("offset", offset, 0)
    except ConfigError as error:
        raise InputError("checkpoint", f"not offsets of a Kafka source: {error}") from None


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in the form of the JVM source, sorted."""
    written: dict[str, dict[str, int]] = {}
    for place in sorted(offsets):
        written.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return written


def limit_offsets(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return where a batch ends that takes at most so many offsets.

    Each partition gets the share of the limit that it has of all that is there, rounded down; one whose share is less
    than one offset gets one, so that none starves. So a batch may hold a few offsets less than the limit, or one more
    for each very small partition: as in the JVM source.

    Args:
        start: Where the batch begins, for every partition of `latest`.
        latest: What is there.
        limit: 1 or more.
    """
    waiting = {place: latest[place] - start[place] for place in latest if latest[place] > start[place]}
    total = sum(waiting.values())
    ends = dict(latest)
    if total <= limit:
        return ends
    for place, size in waiting.items():
        # Whole numbers: a float loses offsets past 2**53.
        ends[place] = start[place] + max(1, limit * size // total)
    return ends


def places(offsets: Iterable[TopicPartition], most: int = 5) -> str:
    """Name partitions for a message, not too many of them."""
    known = sorted(offsets)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(f"{place.topic}-{place.partition}" for place in known[:most]) + more


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{name}: expected JSON, got {short_repr(text)}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: expected an object by topic, got {short_repr(value)}")
    return value


def _numbers(name: str, by_topic: Mapping[str, Any], lowest: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in by_topic.items():
        if not isinstance(by_partition, dict):
            raise ConfigError(
                f"{name}: {short_repr(topic)}: expected an object by partition, got {short_repr(by_partition)}"
            )
        for partition, number in by_partition.items():
            if not _PARTITION.fullmatch(partition) or int(partition) > _LARGEST_PARTITION:
                raise ConfigError(f"{name}: {short_repr(topic)}: expected a partition, got {short_repr(partition)}")
            if type(number) is not int or not lowest <= number <= LARGEST:
                raise ConfigError(
                    f"{name}: {short_repr(topic)}: {partition}: expected a number from {lowest} to {LARGEST}, "
                    f"got {short_repr(number)}"
                )
            found[TopicPartition(topic, int(partition))] = number
    return found
