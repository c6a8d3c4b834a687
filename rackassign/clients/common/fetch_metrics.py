"""Fetched bytes and records of a consumer, by topic and by rack of the broker."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rackassign.model import TopicPartition


class Traffic(NamedTuple):
    """Fetched bytes and records.

    Args:
        bytes: Bytes of record batches, as stored in the log, compressed if they are.
        records: Records in these batches; if a batch is fetched because of its last record, all its records count.
    """

    bytes: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class FetchLocality:
    """Fetched traffic of a consumer, by topic and by rack.

    Args:
        rack: Rack of the consumer; None if it has none.
        topics: For each topic the traffic from each rack. None is the key of brokers without a known rack.
    """

    rack: str | None
    topics: Mapping[str, Mapping[str | None, Traffic]]

    def by_rack(self, topic: str | None = None) -> dict[str | None, Traffic]:
        """Return the traffic from each rack, of one topic or of all."""
        totals: dict[str | None, Traffic] = {}
        for name, of_topic in self.topics.items():
            if topic in {None, name}:
                for rack, amount in of_topic.items():
                    bytes_, records = totals.get(rack, Traffic())
                    totals[rack] = Traffic(bytes_ + amount.bytes, records + amount.records)
        return totals

    def local(self, topic: str | None = None) -> Traffic:
        """Return the traffic from the consumer's own rack."""
        return Traffic() if self.rack is None else self.by_rack(topic).get(self.rack, Traffic())

    def unknown(self, topic: str | None = None) -> Traffic:
        """Return the traffic that is neither local nor cross-rack, because one of the two racks is not known."""
        by_rack = self.by_rack(topic)
        return _sum(by_rack.values()) if self.rack is None else by_rack.get(None, Traffic())

    def cross(self, topic: str | None = None) -> Traffic:
        """Return the traffic from other racks."""
        if self.rack is None:
            return Traffic()
        return _sum(amount for rack, amount in self.by_rack(topic).items() if rack not in {None, self.rack})

    def local_share(self, topic: str | None = None) -> float | None:
        """Return the local share of the bytes with known racks, 0 to 1; None if there are none."""
        local, cross = self.local(topic).bytes, self.cross(topic).bytes
        return local / (local + cross) if local + cross else None


def _sum(amounts: Iterable[Traffic]) -> Traffic:
    bytes_ = records = 0
    for amount in amounts:
        bytes_, records = bytes_ + amount.bytes, records + amount.records
    return Traffic(bytes_, records)


class FetchedPartitionLike(Protocol):
    """One partition of a fetch response."""

    @property
    def topic(self) -> str:
        """The partition's topic."""

    @property
    def size(self) -> int:
        """Bytes of record batches."""

    @property
    def records(self) -> int:
        """Records in these batches."""


class LocalityMeter:
    """Counts the traffic of one consumer, by topic and rack. Thread-safe for readers.

    Args:
        rack: Rack of the consumer.
        rack_of: Returns the rack of a broker, None if it is not known.
        on_pair: Called when a topic is read from a rack for the first time, or again after `forget_pairs`.
    """

    __slots__ = ("_counts", "_known", "_lock", "_on_pair", "_rack_of", "rack")

    def __init__(
        self,
        rack: str | None,
        rack_of: Callable[[int], str | None],
        on_pair: Callable[[str, str | None], None] | None = None,
    ) -> None:
        self.rack = rack
        self._rack_of = rack_of
        self._on_pair = on_pair
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str | None], Traffic] = {}
        self._known: set[tuple[str, str | None]] = set()

    def __call__(self, broker: int, fetched: Iterable[FetchedPartitionLike]) -> None:
        """Count one fetch response of a broker."""
        rack = self._rack_of(broker)
        new: list[str] = []
        with self._lock:
            for part in fetched:
                if part.size:
                    key = (part.topic, rack)
                    before = self._counts.get(key, Traffic())
                    if key not in self._known:
                        self._known.add(key)
                        new.append(part.topic)
                    self._counts[key] = Traffic(before.bytes + part.size, before.records + part.records)
        if self._on_pair is not None:
            for topic in new:
                self._on_pair(topic, rack)

    def forget_pairs(self, topics: Collection[str]) -> list[tuple[str, str | None]]:
        """Forget and return the pairs of all topics except these; their traffic stays counted."""
        with self._lock:
            over = [pair for pair in self._known if pair[0] not in topics]
            self._known.difference_update(over)
        return over

    def amount(self, topic: str, rack: str | None) -> Traffic:
        """Return the traffic of a topic from a rack."""
        with self._lock:
            return self._counts.get((topic, rack), Traffic())

    def locality(self) -> FetchLocality:
        """Return all traffic counted so far."""
        with self._lock:
            counts = dict(self._counts)
        topics: dict[str, dict[str | None, Traffic]] = {}
        for (topic, rack), amount in sorted(counts.items(), key=lambda pair: (pair[0][0], pair[0][1] or "")):
            topics.setdefault(topic, {})[rack] = amount
        return FetchLocality(self.rack, topics)


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of a fetch response.

    Args:
        partition: The partition.
        size: Bytes of record batches.
        records: Records in the batches that are complete.
        preferred_replica: The preferred read replica, if the response names one (KIP-392).
    """

    partition: TopicPartition
    size: int
    records: int
    preferred_replica: int | None

    @property
    def topic(self) -> str:
        """Return the partition's topic."""
        return self.partition.topic


Observer = Callable[[int, Sequence[FetchedPartition]], None]
"""Called on the client's IO thread with a broker's node ID and the partitions of one of its fetch responses."""


_BATCH = struct.Struct(">8x i 4x b 4x h 34x i")
"""Header of a record batch: remaining length, version of the format, attributes, number of records."""

_LENGTH_FROM = 12
_CONTROL = 0x20


def count_records(batches: bytes) -> int:
    """Count the records in complete batches, by their headers; transaction markers are not counted."""
    count = place = 0
    while place + _BATCH.size <= len(batches):
        length, magic, attributes, records = _BATCH.unpack_from(batches, place)
        place += _LENGTH_FROM + max(length, 1)
        if place > len(batches):
            break
        if magic < _FIRST_WITH_COUNT:
            count += 1
        elif not attributes & _CONTROL:
            count += records
    return count


_FIRST_WITH_COUNT = 2
