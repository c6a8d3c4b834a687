"""Bounds of the rows that a query asks for, as far as they follow from offsets.

This module uses neither Spark nor a Kafka client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rackassign.errors import InputError
from rackassign.model import TopicPartition


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Bounds that all rows of a query satisfy. Rows within them need not be rows of the query.

    Args:
        topics: The topics; None for all.
        partitions: The numbers of partitions; None for all.
        first: The lowest offset.
        end: The offset behind the highest one; None for no limit.
        since_ms: The lowest timestamp in milliseconds; None for no limit. There is none for the highest timestamp: a
            record with a lower one may be behind it in the log.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    end: int | None = None
    since_ms: int | None = None

    def __post_init__(self) -> None:
        if self.first < 0 or (self.end is not None and self.end < 0):
            raise InputError("bounds", f"expected offsets of 0 or more, got {self.first} and {self.end}")

    def and_topics(self, names: frozenset[str]) -> RowBounds:
        """Return the bounds of rows that are also of one of these topics."""
        return replace(self, topics=names if self.topics is None else self.topics & names)

    def and_partitions(self, numbers: frozenset[int]) -> RowBounds:
        """Return the bounds of rows that are also of a partition with one of these numbers."""
        return replace(self, partitions=numbers if self.partitions is None else self.partitions & numbers)

    def and_from(self, offset: int) -> RowBounds:
        """Return the bounds of rows that also have this offset or a higher one."""
        return replace(self, first=max(self.first, offset))

    def and_before(self, offset: int) -> RowBounds:
        """Return the bounds of rows that also have a lower offset."""
        end = max(0, offset)
        return replace(self, end=end if self.end is None else min(self.end, end))

    def and_since(self, timestamp_ms: int) -> RowBounds:
        """Return the bounds of rows that also have this timestamp or a later one.

        A timestamp before 1970 is no bound: Kafka finds no offset by it, and records without a timestamp have -1.
        """
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
        """Return the parts of ranges that may have rows of the query.

        Args:
            ranges: The first offset of each partition, and the one behind the last.
            since: The first offset that may have the timestamp `since_ms` or a later one, of partitions that have any.
                The others of `ranges` have no rows if `since_ms` is set.
        """
        narrowed: dict[TopicPartition, tuple[int, int]] = {}
        for tp, (start, end) in ranges.items():
            first = max(start, self.first, since.get(tp, end) if self.since_ms is not None else 0)
            last = end if self.end is None else min(end, self.end)
            if self.includes(tp) and first < last:
                narrowed[tp] = first, last
        return narrowed
