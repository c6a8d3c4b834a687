"""The producers of a process whose figures are exported, summed up, for any metrics library.

A counter that sinks is taken for a reset. So what a producer has written stays part of the sum after it was closed. A
pool keeps neither a producer alive nor its meter, only what that has counted. The meter decides when that is all: a
producer of kafka-python that is garbage-collected sends on for a second, and counts.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping

from rackassign.clients.write_metrics import WriteMeter, Written, meter_of
from rackassign.locality import read_locality
from rackassign.model import TopicPartition
from rackassign.monitoring.consumer_pool import rack_label

WRITTEN_BYTES = (
    "Bytes of record batches that producers have sent, by the producer's rack, the leader's rack, and whether these"
    " are equal: local, cross or unknown."
)
_RACK_LABELS = ("rack", "to_rack", "locality")

_Sums = dict[tuple[TopicPartition, str | None, str | None], int]
"""Bytes by partition, rack of the producer and rack of the leader."""


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
        self._meters: list[tuple[weakref.ref[WriteMeter], str | None, Written]] = []
        self._finished: _Sums = {}

    def add(self, producer: object) -> None:
        """Add a producer; a second time has no effect."""
        meter = meter_of(producer)
        with self._lock:
            self._fold()
            if all(known() is not meter for known, _, _ in self._meters):
                self._meters.append((weakref.ref(meter), meter.rack, meter.counts))

    def written(self) -> Mapping[tuple[str, ...], int]:
        """Return the bytes written so far, by the values of the labels."""
        with self._lock:
            self._fold()
            sums = dict(self._finished)
            for known, rack, counts in self._meters:
                meter = known()
                _add(sums, rack, counts if meter is None else meter.by_partition())
        totals: dict[tuple[str, ...], int] = {}
        for (partition, home, leader), size in sums.items():
            number = (str(partition.partition),) if self._by_partition else ()
            racks = rack_label(home), rack_label(leader), read_locality(leader, home)
            labels = (partition.topic, *number, *racks)
            totals[labels] = totals.get(labels, 0) + size
        return totals

    def _fold(self) -> None:
        """Keep only the sums of meters that were garbage-collected."""
        kept = []
        for each in self._meters:
            known, rack, counts = each
            # Asked once: the meter may be collected meanwhile.
            if known() is None:
                _add(self._finished, rack, counts)
            else:
                kept.append(each)
        self._meters = kept


def _add(sums: _Sums, rack: str | None, counts: Written) -> None:
    for (partition, leader), amount in counts.items():
        key = partition, rack, leader
        sums[key] = sums.get(key, 0) + amount.bytes
