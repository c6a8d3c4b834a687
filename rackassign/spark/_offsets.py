"""Offsets in the JSON of the JVM source, the limit of offsets in a batch, and bounds of rows.

This module uses neither Spark nor a Kafka client. A map of offsets has an offset for each partition. Its JSON is
`{"topic": {"0": 123}}`. In options -1 denotes latest and -2 denotes earliest.

The rows that a query asks for are bounded as far as that follows from offsets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rackassign.errors import ConfigError, InputError
from rackassign.model import TopicPartition
from rackassign.text import join_first, short_repr

Offsets = Mapping[TopicPartition, int]

LATEST, EARLIEST = -1, -2
"""The numbers that denote the latest and the earliest offset in options."""

MAX_OFFSET = 2**63 - 1
"""The highest offset and the highest timestamp."""

_START = "start of a new query: "

_MAX_PARTITION = 2**31 - 1
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


def parse_offsets(name: str, text: str, *, lowest: int = EARLIEST) -> dict[TopicPartition, int]:
    return _numbers(name, _object(name, text), lowest)


def parse_assignment(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Parse partitions from an option such as `{"topic": [0, 1]}`, and return them sorted without duplicates."""
    assignment: set[TopicPartition] = set()
    for topic, partitions in _object(name, text).items():
        if not isinstance(partitions, list):
            raise ConfigError(
                f"{name}: {short_repr(topic)}: expected a list of partitions, got {short_repr(partitions)}"
            )
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= _MAX_PARTITION:
                raise ConfigError(f"{name}: {short_repr(topic)}: expected a partition, got {short_repr(partition)}")
            assignment.add(TopicPartition(topic, partition))
    if not assignment:
        raise ConfigError(f"{name}: expected at least one partition, got none")
    return tuple(sorted(assignment))


def from_json(offset: object) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint from the parsed JSON, which `to_json` or the JVM source has written."""
    if not isinstance(offset, dict):
        raise InputError("checkpoint", f"expected offsets by topic, got {short_repr(offset)}")
    try:
        return _numbers("offset", offset, 0)
    except ConfigError as error:
        raise InputError("checkpoint", f"expected the offsets of a Kafka source: {error}") from None


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return sorted offsets in the form of the JVM source."""
    written: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        written.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return written


def with_start(end: Offsets, start: Offsets) -> dict[str, dict[str, int]]:
    """Return the end of a query's first batch with the start of the query, which Spark stores nowhere else."""
    # The start is in the name of a topic that has no partitions and cannot exist, so the JVM source ignores it.
    return {**to_json(end), _START + json.dumps(to_json(start), separators=(",", ":")): {}}


def recorded_start(offset: Mapping[str, Any]) -> dict[TopicPartition, int] | None:
    """Return the start that `with_start` has added; None if there is none."""
    for name in offset:
        if name.startswith(_START):
            try:
                return from_json(json.loads(name.removeprefix(_START)))
            except ValueError:
                raise InputError("checkpoint", f"cannot read {short_repr(name)}") from None
    return None


def limit_offsets(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return the offsets at which a batch with a limit of offsets ends."""
    # The limit is divided in proportion to the offsets that each partition has available, rounded down. A partition
    # whose share is less than one offset gets one, so that none starves. So a batch may contain a few offsets less than
    # the limit, or one more for each very small partition, as with the JVM source.
    waiting = {tp: latest[tp] - start[tp] for tp in latest if latest[tp] > start[tp]}
    total = sum(waiting.values())
    ends = dict(latest)
    if total <= limit:
        return ends
    for tp, size in waiting.items():
        # Integer division: a float is not exact for offsets above 2**53.
        ends[tp] = start[tp] + max(1, limit * size // total)
    return ends


def format_partitions(tps: Iterable[TopicPartition], limit: int = 5) -> str:
    return join_first([f"{tp.topic}-{tp.partition}" for tp in sorted(tps)], limit)


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{name}: expected JSON, got {short_repr(text)}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: expected an object by topic, got {short_repr(value)}")
    return value


def _numbers(name: str, by_topic: Mapping[str, Any], lowest: int) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for topic, by_partition in by_topic.items():
        if not isinstance(by_partition, dict):
            raise ConfigError(
                f"{name}: {short_repr(topic)}: expected an object by partition, got {short_repr(by_partition)}"
            )
        for partition, number in by_partition.items():
            if not _PARTITION.fullmatch(partition) or int(partition) > _MAX_PARTITION:
                raise ConfigError(f"{name}: {short_repr(topic)}: expected a partition, got {short_repr(partition)}")
            if type(number) is not int or not lowest <= number <= MAX_OFFSET:
                raise ConfigError(
                    f"{name}: {short_repr(topic)}: {partition}: expected a number from {lowest} to {MAX_OFFSET}, "
                    f"got {short_repr(number)}"
                )
            offsets[TopicPartition(topic, int(partition))] = number
    return offsets


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Bounds that all rows of a query satisfy. Rows within them need not be rows of the query."""

    # None is for no bound, and `end` is the offset behind the highest one.
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    end: int | None = None
    # There is no bound for the highest timestamp: a record with a lower one may be behind it in the log.
    since_ms: int | None = None

    def __post_init__(self) -> None:
        if self.first < 0 or (self.end is not None and self.end < 0):
            raise InputError("bounds", f"expected offsets of 0 or more, got {self.first} and {self.end}")

    def and_topics(self, names: frozenset[str]) -> RowBounds:
        return replace(self, topics=names if self.topics is None else self.topics & names)

    def and_partitions(self, numbers: frozenset[int]) -> RowBounds:
        return replace(self, partitions=numbers if self.partitions is None else self.partitions & numbers)

    def and_from(self, offset: int) -> RowBounds:
        return replace(self, first=max(self.first, offset))

    def and_before(self, offset: int) -> RowBounds:
        end = max(0, offset)
        return replace(self, end=end if self.end is None else min(self.end, end))

    def and_since(self, timestamp_ms: int) -> RowBounds:
        # A timestamp before 1970 is no bound: Kafka finds no offset by it, and records without a timestamp have -1.
        if timestamp_ms < 0:
            return self
        return replace(self, since_ms=timestamp_ms if self.since_ms is None else max(self.since_ms, timestamp_ms))

    def includes(self, tp: TopicPartition) -> bool:
        """Return whether a partition may have rows of the query."""
        return (self.topics is None or tp.topic in self.topics) and (
            self.partitions is None or tp.partition in self.partitions
        )

    def narrow(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], since: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the parts of ranges that may have rows of the query."""
        # `since`: the first offset with the timestamp `since_ms` or a later one, of partitions that have any.
        narrowed: dict[TopicPartition, tuple[int, int]] = {}
        for tp, (start, end) in ranges.items():
            first = max(start, self.first, since.get(tp, end) if self.since_ms is not None else 0)
            last = end if self.end is None else min(end, self.end)
            if self.includes(tp) and first < last:
                narrowed[tp] = first, last
        return narrowed
