"""Plans the splits of a batch from the options and the metadata of the brokers. This module does not use Spark."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from rackassign.errors import ConfigError, RackassignError
from rackassign.model import TopicPartition
from rackassign.spark import _splits as splits
from rackassign.spark._fetch_size import UNKNOWN, RecordStats, fetch_size
from rackassign.spark._metadata import NO_LATER, TopicLayout, UnknownPartitionError
from rackassign.spark._offsets import EARLIEST, LATEST, Offsets, RowBounds, format_partitions, limit_offsets
from rackassign.spark._options import Options, StartingOffsets, Topics
from rackassign.spark._range_reader import DataLossError
from rackassign.spark._splits import OffsetRange, Split
from rackassign.text import truncate

log = logging.getLogger(__name__)

_Resolved = TypeVar("_Resolved")

_ALL_ROWS = RowBounds()
_SAMPLE_TTL_S = 600.0
_PROPAGATION_S, _RETRY_S = 2.0, 0.2
_MAX_SAMPLING_S = 3.0
"""Seconds for which a plan samples topics. It assumes defaults for the others, which a stream samples later."""

_MIN_SAMPLED_RECORDS = 100
"""Records of a topic that make sampling worthwhile. Fewer are read by one task, one record batch at a time."""


class MetadataSource(Protocol):
    """The requests that a planner sends to the brokers. `metadata.KafkaMetadata` implements them."""

    def describe_topics(self, topics: Topics) -> TopicLayout:
        """Return the partitions of topics."""

    def offsets(self, tps: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        """Return the earliest or the latest offsets."""

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks, which include open transactions."""

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition with its timestamp or a later one."""


class Planner:
    def __init__(self, options: Options, brokers: MetadataSource, sample: Callable[[OffsetRange], RecordStats]) -> None:
        self._options = options
        self._brokers = brokers
        self._sample = sample
        self._record_stats: dict[str, tuple[RecordStats, float]] = {}
        self._start: Offsets = {}
        self._log_ends: Offsets = {}
        """The latest offsets as of the last request for them."""
        self._warned: set[str] = set()
        self._removed: frozenset[TopicPartition] = frozenset()
        """Partitions of the stream that do not exist, of which it was warned."""

    def batch(self, bounds: RowBounds = _ALL_ROWS) -> list[Split]:
        layout, (starts, ends) = self._described(
            lambda partitions: (
                self._resolve("startingOffsets", self._options.start, partitions),
                self._resolve("endingOffsets", self._options.end, partitions),
            )
        )
        behind = [tp for tp in sorted(ends) if ends[tp] < starts[tp]]
        # With `read_committed` the latest offset is the start of the first open transaction. A start behind that is in
        # the log, and there are no records to read yet.
        latest = behind if self._options.end.everywhere is not None else []
        high = self._brokers.high_watermarks(latest) if latest else {}
        for tp in behind:
            if starts[tp] <= high.get(tp, -1):
                continue
            if self._options.start.everywhere != EARLIEST:
                raise ConfigError(self._reversed(tp, starts[tp], ends[tp]))
            self._report_loss(f"the records of {_format(tp)} before offset {ends[tp]} are deleted")
        ranges = {tp: (starts[tp], max(starts[tp], ends[tp])) for tp in ends}
        return self._splits(layout, ranges if bounds == _ALL_ROWS else self._narrowed(ranges, bounds))

    def _reversed(self, tp: TopicPartition, start: int, end: int) -> str:
        if self._options.end.everywhere is not None:
            return f"startingOffsets: {_format(tp)} starts at offset {start}, after the end of its log at {end}"
        return f"endingOffsets: {_format(tp)} ends at offset {end}, before its start at {start}"

    def _narrowed(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], bounds: RowBounds
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the parts of ranges within bounds, requesting the offsets of a timestamp if there is one."""
        since: dict[TopicPartition, int] = {}
        if bounds.since_ms is not None:
            asked = dict.fromkeys(filter(bounds.includes, ranges), bounds.since_ms)
            # Records behind the latest offset, to which `endingOffsets` may extend, can have any timestamp: those of an
            # open transaction, for example. Requested first, so that no record arrives in between.
            since = self._brokers.offsets(asked, LATEST) if asked and self._options.end.offsets else {}
            found = self._brokers.offsets_at(asked) if asked else {}
            since |= {tp: offset for tp, offset in found.items() if offset != NO_LATER}
        return bounds.narrow(ranges, since)

    def initial(self) -> dict[TopicPartition, int]:
        """Return the offsets at which a stream without a checkpoint starts."""
        return self._described(lambda partitions: self._resolve("startingOffsets", self._options.start, partitions))[1]

    def latest(self) -> dict[TopicPartition, int]:
        return self._described(self._latest)[1]

    def _described(self, resolve: Callable[[Collection[TopicPartition]], _Resolved]) -> tuple[TopicLayout, _Resolved]:
        """Describe the topics and request offsets, again if a topic is deleted or created in between."""
        deadline = time.monotonic() + _PROPAGATION_S
        while True:
            layout = self._brokers.describe_topics(self._options.topics)
            try:
                return layout, resolve(layout.partitions.keys())
            except UnknownPartitionError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_S)

    def next(self, start: Offsets, latest: Offsets, limit: int | None) -> dict[TopicPartition, int]:
        """Return the offsets at which the next batch of a stream ends.

        Partitions that no longer exist have one, too: metadata may lack a topic for a while, and without an offset it
        would be read again from its first record. An end is before the start only if the log now ends before the start.
        With `failOnDataLoss=false` the stream then continues from the new end of the log, as with the JVM source.
        """
        self._reset_warnings(start)
        self._check_removed(start, latest)
        starts = self._starts(start, latest)
        # Offsets that were read behind the start of an open transaction are not lost; there are no new ones yet.
        latest = {**latest, **{tp: starts[tp] for tp in self._behind_start(starts, latest)}}
        return {**start, **(latest if limit is None else limit_offsets(starts, latest, limit))}

    def stream(self, start: Offsets, end: Offsets, *, guessed: bool = False) -> list[Split]:
        """Return the splits of a batch of a stream; a partition without a start is read from its first record."""
        # `guessed`: the start is where the query would start now; the checkpoint has the end of its first batch only.
        if guessed:
            start = {tp: offset for tp, offset in start.items() if tp in end}
        self._reset_warnings(start)
        layout = self._layout_with(end)
        self._check_removed({*start, *end}, end.keys() & layout.partitions.keys())
        starts = self._starts(start, {tp: end[tp] for tp in end if tp in layout.partitions})
        for tp in sorted(set(starts) - set(start)):
            if starts[tp] > 0:
                self._report_loss(f"the new partition {_format(tp)} starts at offset {starts[tp]} instead of 0")
        # Before Spark 4.2, Spark does not pass the start to `next`. So this may be the first comparison of both.
        for tp in self._behind_start(starts, {tp: end[tp] for tp in starts if tp in start}):
            if guessed:
                self._report_loss(
                    f"the first batch of the query ends at offset {end[tp]} of {_format(tp)}, and where it started is "
                    "not in the checkpoint"
                )
            else:
                self._report_loss(
                    f"{_format(tp)} was read up to offset {starts[tp]}, but the next batch would start at {end[tp]}",
                    "records would be read again",
                    "reads them again",
                )
        return self._splits(layout, {tp: (starts[tp], max(starts[tp], end[tp])) for tp in starts})

    def _behind_start(self, starts: Offsets, end: Offsets) -> list[TopicPartition]:
        """Return the partitions whose end is before their start although their log reaches the start."""
        # With `read_committed` a range ends at the first open transaction, and a batch may have read further before.
        behind = [tp for tp in sorted(end) if end[tp] < starts[tp]]
        high = self._brokers.high_watermarks(behind) if behind else {}
        for tp in behind:
            if high[tp] < starts[tp]:
                self._report_loss(f"the log of {_format(tp)} ends at offset {end[tp]}, but was read up to {starts[tp]}")
        return [tp for tp in behind if high[tp] >= starts[tp]]

    def _reset_warnings(self, start: Offsets) -> None:
        """Enable warnings again if the batch has another start; a batch is planned in two steps, and repeatedly."""
        if start != self._start:
            self._start = dict(start)
            self._warned.clear()

    def _layout_with(self, end: Offsets) -> TopicLayout:
        """Return the partitions, waiting for those of `end`: the metadata of a broker may be older than another's."""
        deadline = time.monotonic() + _PROPAGATION_S
        while True:
            layout = self._brokers.describe_topics(self._options.topics)
            if layout.partitions.keys() >= end.keys() - self._removed or time.monotonic() >= deadline:
                return layout
            time.sleep(_RETRY_S)

    def _starts(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Return the start of each partition of `end`; a new partition starts at its earliest offset."""
        added = self._brokers.offsets([tp for tp in end if tp not in start], EARLIEST)
        return {tp: start[tp] if tp in start else added[tp] for tp in end}

    def _check_removed(self, before: Iterable[TopicPartition], now: Iterable[TopicPartition]) -> None:
        removed = frozenset(before).difference(now)
        if new := removed - self._removed:
            self._report_loss(f"partitions {format_partitions(new)} no longer exist")
        # One that is back is missed again when it is gone again.
        self._removed = removed

    def _report_loss(
        self, what: str, consequence: str = "records may be lost", alternative: str = "continues without them"
    ) -> None:
        if self._options.fail_on_loss:
            raise DataLossError(f"{what}: {consequence}; failOnDataLoss=false {alternative}")
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s: %s; failOnDataLoss=false %s", what, consequence, alternative)

    def _resolve(
        self, name: str, option: StartingOffsets, known: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        partitions = set(known)
        if option.everywhere is not None:
            return (
                self._latest(partitions) if option.everywhere == LATEST else self._brokers.offsets(partitions, EARLIEST)
            )
        if option.timestamp is not None:
            return self._offsets_at(name, dict.fromkeys(partitions, option.timestamp))
        if option.timestamps is not None:
            _check_covers(f"{name}ByTimestamp", option.timestamps, partitions, "timestamp")
            return self._offsets_at(name, option.timestamps)
        offsets = option.offsets or {}
        _check_covers(name, offsets, partitions, "offset")
        found = {tp: offset for tp, offset in offsets.items() if offset >= 0}
        for logical in (LATEST, EARLIEST):
            found |= self._brokers.offsets([tp for tp, offset in offsets.items() if offset == logical], logical)
        return found

    def _latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._brokers.offsets(partitions, LATEST)
        self._log_ends = found
        return found

    def _offsets_at(self, name: str, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        offsets = self._brokers.offsets_at(timestamps)
        none = [tp for tp, offset in offsets.items() if offset == NO_LATER]
        if none and name == "startingOffsets" and self._options.no_later_record == "error":
            raise ConfigError(
                f"startingTimestamp: {format_partitions(none)}: no record with this timestamp or a later one; "
                "startingOffsetsByTimestampStrategy=latest starts at the latest offset instead"
            )
        return offsets | self._brokers.offsets(none, LATEST)

    def _splits(self, layout: TopicLayout, bounds: Mapping[TopicPartition, tuple[int, int]]) -> list[Split]:
        # `split_ranges` omits empty ranges, and a range that ends before its start is an error: none is dropped here.
        ranges = [OffsetRange(tp, start, end) for tp, (start, end) in bounds.items()]
        parts = splits.split_ranges(ranges, min_splits=self._options.min_splits, max_records=self._options.max_records)
        stats = self._stats_of_topics(ranges)
        return [
            Split(
                part,
                layout.racks_of(part.tp),
                round(len(part) * stats[part.tp.topic].record),
                fetch_size(
                    len(part),
                    stats[part.tp.topic],
                    self._options.max_fetch_bytes,
                    ends_log=self._log_ends.get(part.tp) == part.end,
                ),
            )
            for part in parts
        ]

    def _stats_of_topics(self, ranges: Iterable[OffsetRange]) -> dict[str, RecordStats]:
        """Return the record sizes of each topic, sampling topics that have no recent sample."""
        largest: dict[str, OffsetRange] = {}
        records: Counter[str] = Counter()
        for each in ranges:
            records[each.tp.topic] += len(each)
            if each.tp.topic not in largest or len(each) > len(largest[each.tp.topic]):
                largest[each.tp.topic] = each
        now = time.monotonic()
        # The largest first: with many topics the time is not sufficient for all of them.
        for topic, offsets in sorted(largest.items(), key=lambda item: (-len(item[1]), item[0])):
            known_stats, since = self._record_stats.get(topic, (UNKNOWN, -_SAMPLE_TTL_S))
            due = now - since >= _SAMPLE_TTL_S and time.monotonic() - now < _MAX_SAMPLING_S
            if due and records[topic] >= _MIN_SAMPLED_RECORDS:
                self._record_stats[topic] = (self._try_sample(offsets, known_stats), now)
        return {topic: self._record_stats.get(topic, (UNKNOWN, now))[0] for topic in largest}

    def _try_sample(self, offsets: OffsetRange, otherwise: RecordStats) -> RecordStats:
        try:
            return self._sample(offsets)
        except RackassignError as error:
            # The sample only determines the size of fetches. A persistent problem fails the read of the range.
            log.warning("cannot sample the records of topic %s: %s", truncate(offsets.tp.topic), error)
            return otherwise


def _check_covers(
    name: str, offsets: Iterable[TopicPartition], partitions: Iterable[TopicPartition], what: str
) -> None:
    """Reject offsets that do not name exactly the existing partitions, as the JVM source does."""
    missing, more = set(partitions) - set(offsets), set(offsets) - set(partitions)
    if missing:
        hint = "; use -1 for latest or -2 for earliest" if what == "offset" else ""
        raise ConfigError(f"{name}: no {what} for {format_partitions(missing)}{hint}")
    if more:
        raise ConfigError(f"{name}: {format_partitions(more)}: not among the partitions to read")


def _format(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
