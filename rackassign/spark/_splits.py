"""Splits, the division of offset ranges into splits, and the distribution of splits over tasks.

This module uses neither Spark nor a Kafka client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise

from rackassign.errors import ConfigError, InputError
from rackassign.model import TopicPartition
from rackassign.spark._fetch_size import ONE_BATCH, SMALL_RANGE_BYTES

TASK_RECORDS = 50_000
TASK_BYTES = 16 * 2**20
"""What a task reads at least, on average, unless options determine the number of tasks.

Spark 4.0 itself needs 0.16 s of CPU for a Python task that reads nothing, if `worker_process` does not avoid most of
it. A task needs about as long for this many records of 100 bytes, or for this many bytes in large records.
"""

MOST_SPLITS = 1_000_000
"""The highest number of splits of a batch. Planning so many takes 5 seconds and 250 MB on the driver."""

MAX_TOGETHER = 512
_MOST_TOGETHER_BY_BATCH = 16
"""Splits that are read at the same time; with fetches of one record batch, a response has records of one split only.

With more, a fetch takes longer: a request and its response name each split.
"""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A range of offsets of one partition, without its end. Not every offset in it need have a record."""

    tp: TopicPartition
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise InputError("range", f"expected 0 <= start <= end, got {self.start} and {self.end}")

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Split:
    """A range that a task reads as one unit, or that a coordinator assigns in one response."""

    range: OffsetRange
    # Racks with a replica of the partition, sorted. Replicas on brokers without a rack are ignored.
    racks: tuple[str, ...]
    # The estimated bytes on the wire.
    size: int
    fetch_bytes: int


def split_ranges(ranges: Iterable[OffsetRange], *, min_splits: int = 0, max_records: int = 0) -> list[OffsetRange]:
    """Divide ranges into pieces until there are enough of them and none is too large; empty ranges are omitted."""
    # `min_splits` pieces are made if there are as many records, and more only if there are more ranges or `max_records`
    # needs more. The largest pieces are as small as possible. Those of a range are in order and differ by one at most.
    by_start = sorted((each for each in ranges if len(each)), key=lambda each: (each.tp, each.start))
    pieces = [max(1, -(-len(each) // max_records) if max_records else 1) for each in by_start]
    records = sum(map(len, by_start))
    _check_number(records, sum(pieces), f"maxRecordsPerPartition={max_records}")
    _check_number(records, min_splits, f"minPartitions={min_splits}")
    _add_pieces(by_start, pieces, min(min_splits, records) - sum(pieces))
    return [part for each, count in zip(by_start, pieces, strict=True) for part in _parts(each, count)]


def worthwhile_tasks(splits: Sequence[Split], minimum: int = 1) -> int:
    """Return the number of tasks of which each reads enough to be worth its own cost."""
    records, size = sum(len(split.range) for split in splits), sum(split.size for split in splits)
    return min(len(splits), max(minimum, records // TASK_RECORDS, size // TASK_BYTES))


def distribute(splits: Sequence[Split], tasks: int) -> list[tuple[Split, ...]]:
    """Distribute splits over tasks, evenly by size: each split, the largest first, to the task with the least."""
    # The splits of a task are in order of partition and offset, and no task is empty.
    if tasks <= 0 or tasks >= len(splits):
        return [(split,) for split in splits]
    shares: list[list[Split]] = [[] for _ in range(tasks)]
    # With the number of splits, so that splits without bytes are distributed too.
    least = [(0, 0, task) for task in range(tasks)]
    for split in sorted(splits, key=lambda each: (-each.size, each.range.tp, each.range.start)):
        size, count, task = heappop(least)
        shares[task].append(split)
        heappush(least, (size + split.size, count + 1, task))
    return [tuple(sorted(each, key=lambda split: (split.range.tp, split.range.start))) for each in shares]


def read_together(splits: Iterable[Split], max_bytes: int) -> list[tuple[Split, ...]]:
    """Return the groups of splits that a task reads at the same time, with one consumer each."""
    # One fetch for each split of a group is no larger than the largest fetch for one split, so that a group takes no
    # more memory than a split. Small fetches are the exception: 512 of them are 32 MiB if each partition is written to
    # meanwhile. The splits of a group have the same size of fetches, and different partitions.
    groups: list[dict[TopicPartition, Split]] = []
    open_groups: dict[int, dict[TopicPartition, Split]] = {}
    for split in splits:
        group = open_groups.get(split.fetch_bytes)
        if group is None or len(group) >= _most_together(split.fetch_bytes, max_bytes) or split.range.tp in group:
            open_groups[split.fetch_bytes] = group = {}
            groups.append(group)
        group[split.range.tp] = split
    return [tuple(group.values()) for group in groups]


def _most_together(fetch_bytes: int, max_bytes: int) -> int:
    if fetch_bytes == ONE_BATCH:
        return _MOST_TOGETHER_BY_BATCH
    return MAX_TOGETHER if fetch_bytes <= SMALL_RANGE_BYTES else max_bytes // fetch_bytes


def _check_number(records: int, pieces: int, option: str) -> None:
    """Reject more splits than the driver can plan, before any of them is made; `option` is what divides the ranges."""
    if min(pieces, records) > MOST_SPLITS:
        raise ConfigError(
            f"{option}: the {records} offsets of this batch would be {min(pieces, records)} splits, of which the driver"
            f" can plan {MOST_SPLITS}"
        )


def _add_pieces(by_start: Sequence[OffsetRange], pieces: list[int], added: int) -> None:
    """Add so many pieces, each to the range that has the largest ones."""
    largest = [(-len(each) / count, place) for place, (each, count) in enumerate(zip(by_start, pieces, strict=True))]
    heapify(largest)
    for _ in range(added):
        place = largest[0][1]
        pieces[place] += 1
        heapreplace(largest, (-len(by_start[place]) / pieces[place], place))


def _parts(offsets: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [offsets.start + len(offsets) * i // count for i in range(count + 1)]
    return [OffsetRange(offsets.tp, *pair) for pair in pairwise(bounds)]
