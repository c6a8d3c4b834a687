"""The producers of a process whose figures are exported, summed up, for any metrics library.

A counter that sinks is taken for a reset. So what a producer has written stays part of the sum after it was closed. A
pool keeps neither a producer alive nor its meter, only what that has counted. The meter decides when that is all: a
producer of kafka-python that is garbage-collected sends on for a second, and counts.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rackassign.clients.fetch_metrics import is_foreign
from rackassign.clients.write_metrics import WriteMeter, Written, meter_of
from rackassign.locality import read_locality
from rackassign.monitoring.consumer_pool import rack_label

WRITTEN_BYTES = (
    "Bytes of record batches that producers have sent, by the producer's rack, the leader's rack, and whether these"
    " are equal: local, cross or unknown."
)
_RACK_LABELS = ("rack", "to_rack", "locality")


class ProducerPool:
    """The producers that are exported together.

    It may be used from any thread.
    """

    def __init__(self, *, by_partition: bool = False) -> None:
        # `by_partition`: whether partitions have series of their own. A process has as many as it writes to, and not
        # only as many as there are topics and racks.
        self.labels = ("topic", *(("partition",) if by_partition else ()), *_RACK_LABELS)
        self._by_partition = by_partition
        self._lock = threading.Lock()
        self._open: list[_Producer] = []
        self._finished: dict[tuple[str, ...], int] = {}

    def add(self, producer: object) -> None:
        """Add a producer; a second time has no effect."""
        meter = meter_of(producer)
        with self._lock:
            self._fold()
            if all(known.meter() is not meter for known in self._open):
                self._open.append(_Producer(weakref.ref(meter), meter.rack, meter.racks, meter.counts))

    def written(self) -> Mapping[tuple[str, ...], int]:
        """Return the bytes written so far, by the values of the labels."""
        with self._lock:
            self._fold()
            sums = dict(self._finished)
            for known in self._open:
                meter = known.meter()
                self._add(sums, known, known.counts if meter is None else meter.by_partition())
        return sums

    def _fold(self) -> None:
        """Keep only the sums of meters that were garbage-collected."""
        kept = []
        for known in self._open:
            # Asked once: the meter may be collected meanwhile.
            if known.meter() is None:
                self._add(self._finished, known, known.counts)
            else:
                kept.append(known)
        self._open = kept

    def _add(self, sums: dict[tuple[str, ...], int], known: _Producer, counts: Written) -> None:
        foreign = is_foreign(known.rack, known.racks(), (leader for _, leader in counts))
        for (partition, leader), amount in counts.items():
            number = (str(partition.partition),) if self._by_partition else ()
            locality = "unknown" if foreign else read_locality(leader, known.rack)
            labels = (partition.topic, *number, rack_label(known.rack), rack_label(leader), locality)
            sums[labels] = sums.get(labels, 0) + amount.bytes


class _Producer(NamedTuple):
    """What is kept of a producer: its meter as long as that counts, and what outlives it."""

    meter: weakref.ref[WriteMeter]
    rack: str | None
    racks: Callable[[], Iterable[str | None]]
    counts: Written
