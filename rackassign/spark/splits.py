"""What is to be read, cut into splits. Pure: neither Spark nor Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rackassign.errors import InputError
from rackassign.model import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition.

    Args:
        place: The partition.
        start: The first offset.
        end: The offset behind the last; not all between need exist.
    """

    place: TopicPartition
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise InputError("range", f"expected 0 <= start <= end, got {self.start} and {self.end}")

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads, or one answer of a coordinator gives out.

    Args:
        range: Which offsets.
        racks: Racks with a replica of it, sorted; brokers without a rack count for none.
        size: Bytes it is thought to have on the wire.
        fetch_bytes: How much may be fetched at once.
    """

    range: OffsetRange
    racks: tuple[str, ...]
    size: int
    fetch_bytes: int


def split_ranges(ranges: Iterable[OffsetRange], *, least: int = 0, most_records: int = 0) -> list[OffsetRange]:
    """Cut ranges until there are enough of them, and none is too large; empty ones are left out.

    Args:
        ranges: One for each partition.
        least: So many pieces or more, if there are as many records; each range gets as many as its share asks for.
        most_records: At most so many offsets in a piece; 0 for no bound.

    Returns:
        The pieces, those of a range in order and of sizes that differ by at most one.
    """
    whole = sorted((each for each in ranges if len(each)), key=lambda each: (each.place, each.start))
    pieces = [max(1, -(-len(each) // most_records) if most_records else 1) for each in whole]
    if sum(pieces) < least:
        pieces = _shared_out(whole, pieces, least)
    return [part for each, count in zip(whole, pieces, strict=True) for part in _parts(each, min(count, len(each)))]


def _shared_out(whole: Sequence[OffsetRange], pieces: Sequence[int], least: int) -> list[int]:
    """Give each range as many pieces as its share of all records asks for, at least what it has."""
    total = sum(map(len, whole))
    return [max(count, -(-least * len(each) // total)) for each, count in zip(whole, pieces, strict=True)]


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [whole.start + len(whole) * i // count for i in range(count + 1)]
    return [OffsetRange(whole.place, *pair) for pair in pairwise(bounds)]
