"""What a batch holds: from options and what the brokers say to splits. Knows no Spark."""

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
"""A plan looks at topics for so long, and guesses the others; a stream looks at those the next time."""

_WORTH_A_LOOK = 100
"""Records; fewer are read one batch at a time, whatever the batches are."""


class MetadataSource(Protocol):
    """What is asked of the brokers; see `metadata.KafkaMetadata`."""

    def describe_topics(self, topics: Topics) -> TopicLayout:
        """Return the partitions of topics."""

    def offsets(self, places: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        """Return the earliest or the latest offsets."""

    def high_watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs end, open transactions included."""

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offsets that are as late."""


class Planner:
    """Plans what is read.

    Args:
        options: What the user wants.
        brokers: Who is asked.
        look: Finds out what the records of a range are like.
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
            RackassignError: An option does not fit to what there is, or there is no answer.
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
        """Return where a stream begins that has no checkpoint."""
        known = self._brokers.describe_topics(self._options.topics)
        return self._resolved("startingOffsets", self._options.start, known.partitions)

    def latest(self) -> dict[TopicPartition, int]:
        """Return all there is now."""
        return self._brokers.offsets(self._brokers.describe_topics(self._options.topics).partitions, LATEST)

    def next(self, start: Offsets, latest: Offsets, limit: int | None) -> dict[TopicPartition, int]:
        """Return where the next batch of a stream ends.

        Args:
            start: Where it begins.
            latest: What there is.
            limit: At most so many offsets; None for all.

        Returns:
            Ends that are not before their starts, but for logs that end there: with `failOnDataLoss=false` the stream
            goes on from the end that such a log has now, as with the JVM source.

        Raises:
            DataLossError: A partition, or the end of one, is gone.
        """
        self._begin(start)
        self._check_gone(start, latest)
        begun = self._begun(start, latest)
        # What was read of open transactions before is not gone: there is nothing new yet.
        latest = {**latest, **{place: begun[place] for place in self._still_there(begun, latest)}}
        return dict(latest) if limit is None else limit_offsets(begun, latest, limit)

    def stream(self, start: Offsets, end: Offsets) -> list[Split]:
        """Return the splits of a batch of a stream.

        Args:
            start: Where it begins; a partition that is not in it is new, and read from its first record.
            end: Where it ends.

        Raises:
            DataLossError: A partition is gone, the beginning of a new one, or the end of one that was read further.
        """
        self._begin(start)
        known = self._known_with(end)
        self._check_gone(start, end)
        self._check_gone(end, known.partitions)
        begun = self._begun(start, {place: end[place] for place in end if place in known.partitions})
        for place in sorted(set(begun) - set(start)):
            if begun[place] > 0:
                self._lost(f"{_name(place)} is new and starts at {begun[place]} instead of 0")
        # Where Spark does not tell `next` of starts, this is the first that is known of both ends.
        for place in self._still_there(begun, {place: end[place] for place in begun if place in start}):
            self._lost(
                f"{_name(place)} was read to {begun[place]}, and the next batch would begin at {end[place]}",
                "records would be read again",
                "reads them",
            )
        return self._splits(known, {place: (begun[place], max(begun[place], end[place])) for place in begun})

    def _still_there(self, begun: Offsets, end: Offsets) -> list[TopicPartition]:
        """Return the partitions whose end is before their start although their log is not.

        With `read_committed` an end is where the first open transaction begins, and more may have been read before.

        Args:
            begun: Where ranges start, for every partition of `end`.
            end: Where they would end.

        Raises:
            DataLossError: The log of another ends before the start as well.
        """
        behind = [place for place in sorted(end) if end[place] < begun[place]]
        high = self._brokers.high_watermarks(behind) if behind else {}
        for place in behind:
            if high[place] < begun[place]:
                self._lost(f"{_name(place)} ends at {end[place]}, and was read to {begun[place]}")
        return [place for place in behind if high[place] >= begun[place]]

    def _begin(self, start: Offsets) -> None:
        """Warn anew of a batch that starts elsewhere; the same one is planned in two steps, and more than once."""
        if start != self._start:
            self._start = dict(start)
            self._warned.clear()

    def _known_with(self, end: Offsets) -> TopicLayout:
        """Return the partitions there are; one broker may not know yet what another has told of."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            known = self._brokers.describe_topics(self._options.topics)
            if known.partitions.keys() >= end.keys() or time.monotonic() >= deadline:
                return known
            time.sleep(_AGAIN_S)

    def _begun(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Return where to begin for each partition of the end."""
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
        """Return the offsets that an option means."""
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
        """Return what is to be read, cut as the options say."""
        # Empty ones are left out where they are cut, and one that runs backwards is an error: nothing is dropped here.
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
        """Return what the records of each topic are like, looking where that is not known or long ago."""
        largest: dict[str, OffsetRange] = {}
        for each in whole:
            if each.place.topic not in largest or len(each) > len(largest[each.place.topic]):
                largest[each.place.topic] = each
        now = time.monotonic()
        # The largest first: with many topics not all get their turn at once.
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
            # It only decides how much is fetched at once; what is wrong will come out where the range is read.
            log.warning("cannot look at the records of %s: %s", truncate(wanted.place.topic), error)
            return otherwise


def _check_covers(name: str, told: Iterable[TopicPartition], wanted: Iterable[TopicPartition]) -> None:
    """Refuse what does not name just the partitions there are, as the JVM source does."""
    missing, more = set(wanted) - set(told), set(told) - set(wanted)
    if missing:
        raise ConfigError(f"{name}: {places(missing)} missing; -1 is for latest and -2 for earliest")
    if more:
        raise ConfigError(f"{name}: {places(more)} named, and not among what is read")


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"
