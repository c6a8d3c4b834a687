"""Plans the splits of a batch from the options and the metadata of the brokers. This module does not use Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from rackassign.errors import ConfigError, RackassignError
from rackassign.model import TopicPartition
from rackassign.spark import splits
from rackassign.spark.fetch_size import UNKNOWN, RecordStats, fetch_size
from rackassign.spark.metadata import NO_LATER, TopicLayout
from rackassign.spark.offsets import EARLIEST, LATEST, Offsets, limit_offsets, places
from rackassign.spark.options import Options, StartingOffsets, Topics
from rackassign.spark.range_reader import DataLossError
from rackassign.spark.splits import OffsetRange, Split
from rackassign.util.text import truncate

log = logging.getLogger(__name__)

_GRAIN_LASTS_S = 600.0
_SETTLED_S, _AGAIN_S = 2.0, 0.2
_LOOKING_S = 3.0
"""Seconds for which a plan samples topics. It assumes defaults for the others, which a stream samples later."""

_WORTH_A_LOOK = 100
"""Records that make sampling worthwhile. A smaller range is fetched one record batch at a time in any case."""


class MetadataSource(Protocol):
    """The requests that a planner sends to the brokers. `metadata.KafkaMetadata` implements them."""

    def describe_topics(self, topics: Topics) -> TopicLayout:
        """Return the partitions of topics."""

    def offsets(self, places: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        """Return the earliest or the latest offsets."""

    def high_watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks, which include open transactions."""

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition with its timestamp or a later one."""


class Planner:
    """Plans the splits of batch queries, and the batches of streams.

    Args:
        options: The options of the reader.
        brokers: The source of metadata and offsets.
        look: Samples the records of a range and returns their sizes.
    """

    def __init__(self, options: Options, brokers: MetadataSource, look: Callable[[OffsetRange], RecordStats]) -> None:
        self._options = options
        self._brokers = brokers
        self._look = look
        self._grains: dict[str, tuple[RecordStats, float]] = {}
        self._start: Offsets = {}
        self._warned: set[str] = set()

    def batch(self) -> list[Split]:
        """Return the splits of a batch query.

        Raises:
            RackassignError: An option does not match the topics, or Kafka does not respond.
        """
        known = self._brokers.describe_topics(self._options.topics)
        starts = self._resolved("startingOffsets", self._options.start, known.partitions)
        ends = self._resolved("endingOffsets", self._options.end, known.partitions)
        for place in sorted(ends):
            if ends[place] < starts[place]:
                raise ConfigError(
                    f"endingOffsets: {_name(place)} would end at {ends[place]}, and starts at {starts[place]}"
                )
        return self._splits(known, {place: (starts[place], ends[place]) for place in ends})

    def initial(self) -> dict[TopicPartition, int]:
        """Return the offsets at which a stream without a checkpoint starts."""
        known = self._brokers.describe_topics(self._options.topics)
        return self._resolved("startingOffsets", self._options.start, known.partitions)

    def latest(self) -> dict[TopicPartition, int]:
        """Return the latest offsets of all partitions."""
        return self._brokers.offsets(self._brokers.describe_topics(self._options.topics).partitions, LATEST)

    def next(self, start: Offsets, latest: Offsets, limit: int | None) -> dict[TopicPartition, int]:
        """Return the offsets at which the next batch of a stream ends.

        Args:
            start: The offsets at which the batch starts.
            latest: The latest offsets.
            limit: The highest number of offsets in the batch; None for no limit.

        Returns:
            An end for each partition. It is before the start only if the log now ends before the start. In that case
            the stream continues from the new end of the log with `failOnDataLoss=false`, as with the JVM source.

        Raises:
            DataLossError: A partition, or the end of its log, is lost.
        """
        self._begin(start)
        self._check_gone(start, latest)
        begun = self._begun(start, latest)
        # Offsets that were read behind the start of an open transaction are not lost; there are no new ones yet.
        latest = {**latest, **{place: begun[place] for place in self._still_there(begun, latest)}}
        return dict(latest) if limit is None else limit_offsets(begun, latest, limit)

    def stream(self, start: Offsets, end: Offsets) -> list[Split]:
        """Return the splits of a batch of a stream.

        Args:
            start: The offsets at which the batch starts. A partition without one is new and read from its first record.
            end: The offsets at which the batch ends.

        Raises:
            DataLossError: A partition is lost, or the first records of a new one, or the end of a log that was read
                further before.
        """
        self._begin(start)
        known = self._known_with(end)
        self._check_gone(start, end)
        self._check_gone(end, known.partitions)
        begun = self._begun(start, {place: end[place] for place in end if place in known.partitions})
        for place in sorted(set(begun) - set(start)):
            if begun[place] > 0:
                self._lost(f"{_name(place)} is new and starts at {begun[place]} instead of 0")
        # Before Spark 4.2, Spark does not pass the start to `next`. So this may be the first comparison of both.
        for place in self._still_there(begun, {place: end[place] for place in begun if place in start}):
            self._lost(
                f"{_name(place)} was read to {begun[place]}, and the next batch would begin at {end[place]}",
                "records would be read again",
                "reads them",
            )
        return self._splits(known, {place: (begun[place], max(begun[place], end[place])) for place in begun})

    def _still_there(self, begun: Offsets, end: Offsets) -> list[TopicPartition]:
        """Return the partitions whose end is before their start although their log reaches the start.

        With `read_committed` the end of a range is the start of the first open transaction, and a batch may have read
        further before.

        Args:
            begun: The offsets at which ranges start, for every partition of `end`.
            end: The offsets at which ranges would end.

        Raises:
            DataLossError: The log of a partition ends before the start.
        """
        behind = [place for place in sorted(end) if end[place] < begun[place]]
        high = self._brokers.high_watermarks(behind) if behind else {}
        for place in behind:
            if high[place] < begun[place]:
                self._lost(f"{_name(place)} ends at {end[place]}, and was read to {begun[place]}")
        return [place for place in behind if high[place] >= begun[place]]

    def _begin(self, start: Offsets) -> None:
        """Enable warnings again if the batch has another start; a batch is planned in two steps, and repeatedly."""
        if start != self._start:
            self._start = dict(start)
            self._warned.clear()

    def _known_with(self, end: Offsets) -> TopicLayout:
        """Return the partitions, waiting for those of `end`: the metadata of a broker may be older than another's."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            known = self._brokers.describe_topics(self._options.topics)
            if known.partitions.keys() >= end.keys() or time.monotonic() >= deadline:
                return known
            time.sleep(_AGAIN_S)

    def _begun(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Return the start of each partition of `end`; a new partition starts at its earliest offset."""
        added = self._brokers.offsets([place for place in end if place not in start], EARLIEST)
        return {place: start[place] if place in start else added[place] for place in end}

    def _check_gone(self, before: Iterable[TopicPartition], now: Iterable[TopicPartition]) -> None:
        gone = set(before) - set(now)
        if gone:
            self._lost(f"{places(gone)} do not exist any more")

    def _lost(self, what: str, means: str = "records may be gone", then: str = "goes on without them") -> None:
        if self._options.fail_on_loss:
            raise DataLossError(f"{what}: {means}; failOnDataLoss=false {then}")
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s: %s, and failOnDataLoss=false %s", what, means, then)

    def _resolved(
        self, name: str, bound: StartingOffsets, known: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offsets that an option denotes."""
        wanted = set(known)
        if bound.everywhere is not None:
            return self._brokers.offsets(wanted, bound.everywhere)
        if bound.timestamp is not None:
            return self._as_late(name, dict.fromkeys(wanted, bound.timestamp))
        if bound.timestamps is not None:
            _check_covers(f"{name}ByTimestamp", bound.timestamps, wanted)
            return self._as_late(name, bound.timestamps)
        told = bound.offsets or {}
        _check_covers(name, told, wanted)
        found = {place: offset for place, offset in told.items() if offset >= 0}
        for logical in (LATEST, EARLIEST):
            found |= self._brokers.offsets([place for place, offset in told.items() if offset == logical], logical)
        return found

    def _as_late(self, name: str, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = self._brokers.offsets_at(timestamps)
        none = [place for place, offset in found.items() if offset == NO_LATER]
        if none and name == "startingOffsets" and self._options.no_later_record == "error":
            raise ConfigError(
                f"startingTimestamp: no record of {places(none)} is as late as that; "
                "startingOffsetsByTimestampStrategy=latest starts there at the end"
            )
        return found | self._brokers.offsets(none, LATEST)

    def _splits(self, known: TopicLayout, bounds: Mapping[TopicPartition, tuple[int, int]]) -> list[Split]:
        """Return the splits of these ranges, divided according to the options."""
        # `split_ranges` omits empty ranges, and a range that ends before its start is an error: none is dropped here.
        whole = [OffsetRange(place, start, end) for place, (start, end) in bounds.items()]
        pieces = splits.split_ranges(whole, least=self._options.least_splits, most_records=self._options.most_records)
        grains = self._grains_of(whole)
        return [
            Split(
                piece,
                known.racks_of(piece.place),
                round(len(piece) * grains[piece.place.topic].record),
                fetch_size(len(piece), grains[piece.place.topic], self._options.most_fetched),
            )
            for piece in pieces
        ]

    def _grains_of(self, whole: Iterable[OffsetRange]) -> dict[str, RecordStats]:
        """Return the record sizes of each topic, sampling topics that have no recent sample."""
        largest: dict[str, OffsetRange] = {}
        for each in whole:
            if each.place.topic not in largest or len(each) > len(largest[each.place.topic]):
                largest[each.place.topic] = each
        now = time.monotonic()
        # The largest first: with many topics the time is not sufficient for all of them.
        for topic, wanted in sorted(largest.items(), key=lambda item: (-len(item[1]), item[0])):
            grain, since = self._grains.get(topic, (UNKNOWN, -_GRAIN_LASTS_S))
            due = now - since >= _GRAIN_LASTS_S and time.monotonic() - now < _LOOKING_S
            if due and len(wanted) >= _WORTH_A_LOOK:
                self._grains[topic] = (self._looked(wanted, grain), now)
        return {topic: self._grains.get(topic, (UNKNOWN, now))[0] for topic in largest}

    def _looked(self, wanted: OffsetRange, otherwise: RecordStats) -> RecordStats:
        try:
            return self._look(wanted)
        except RackassignError as error:
            # The sample only determines the size of fetches. A persistent problem fails the read of the range.
            log.warning("cannot look at the records of %s: %s", truncate(wanted.place.topic), error)
            return otherwise


def _check_covers(name: str, told: Iterable[TopicPartition], wanted: Iterable[TopicPartition]) -> None:
    """Reject offsets that do not name exactly the existing partitions, as the JVM source does."""
    missing, more = set(wanted) - set(told), set(told) - set(wanted)
    if missing:
        raise ConfigError(f"{name}: {places(missing)} missing; -1 is for latest and -2 for earliest")
    if more:
        raise ConfigError(f"{name}: {places(more)} named, and not among what is read")


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"
