"""The consumers of a process whose figures are exported, summed up by group, for any metrics library.

A report (`report_metrics`) has the same labels. It measures what is written, a consumer what it fetches. In the long
run a group that keeps up reads what is written, so the sum of its consumers equals what reports of it measure.

Theory of operation
-------------------
A counter that sinks is taken for a reset, and a series that occurs twice for an error. So the consumers of a group are
one set of series, and their bytes are summed up. What a closed consumer has read stays part of the sum while another
consumer of its group is open. With the last one all series of the group go. Partitions are a gauge, and only open
consumers have any.

No client library reports that a consumer was closed, so that is checked whenever the figures are read, and when a
consumer is added. A pool does not keep a consumer alive. It keeps the meter of an attached consumer until the next
check, so that a consumer that was closed and released between two scrapes is counted completely.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rackassign.clients.fetch_metrics import RackTraffic, view_of
from rackassign.errors import ConfigError
from rackassign.locality import Kind, Locality, read_locality
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)

RackPair = tuple[str | None, str | None]
"""The rack of the replica, and the rack of the reader."""

UNKNOWN = "unknown"
"""Label of an unknown rack."""

# PromQL cannot compare two labels, so the comparison of the racks is a label of its own.
READ_BYTES_LABELS = ("group", "rack", "from_rack", "locality")
ReadLabels = tuple[str, str, str, Kind]
READ_BYTES = (
    "Bytes of record batches, by the reader's rack, the rack they come from, and whether these are equal:"
    " local, cross or unknown."
)
PARTITIONS_LABELS = ("group", "locality")
PARTITIONS = "Partitions by whether they are read from their reader's own rack: local, cross or unknown."


def rack_label(rack: str | None) -> str:
    """Return the label of a rack."""
    return UNKNOWN if rack is None else rack


def by_labels(read: Mapping[tuple[str, RackPair], float]) -> dict[ReadLabels, float]:
    """Return bytes of groups by the values of `READ_BYTES_LABELS`."""
    # A rack may have the name that is the label of unknown ones.
    sums: dict[ReadLabels, float] = {}
    for (group, (source, home)), total in read.items():
        labels = group, rack_label(home), rack_label(source), read_locality(source, home)
        sums[labels] = sums.get(labels, 0.0) + total
    return sums


class Metered(Protocol):
    """A consumer that meters its fetches."""

    def locality(self) -> RackTraffic:
        """Return the bytes fetched so far."""


@dataclass(frozen=True, slots=True)
class ConsumerTotals:
    """Figures of consumers, summed up by group."""

    read: Mapping[ReadLabels, float]
    owned: Mapping[str, Locality]


class ConsumerPool:
    """The consumers that are exported together, and the sums of those that were closed.

    It may be used from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: list[OpenConsumer] = []
        self._finished: dict[str, dict[ReadLabels, float]] = {}
        """What closed consumers have read, by group; only of groups with an open consumer."""

    def add(self, consumer: Metered, group: str | None = None) -> None:
        """Add a consumer until it is closed or garbage-collected; a second time has no effect."""
        # `group`: its group; None for that of its configuration.
        added = OpenConsumer(consumer, _group_of(consumer, group))
        with self._lock:
            self._remove_closed()
            if all(known.consumer() is not consumer for known in self._open):
                self._open.append(added)

    def totals(self) -> ConsumerTotals:
        """Return the current figures."""
        read: dict[ReadLabels, float] = {}
        owned: dict[str, Locality] = {}
        with self._lock:
            self._remove_closed()
            readable = {each.group for each in self._open if each.read()}
            for each in self._open:
                # A consumer that cannot be read now keeps its last share: without it the sum of the others would sink.
                if each.group in readable:
                    _add(read, each.last)
            for group in readable:
                _add(read, self._finished.get(group, {}))
            for each in self._open:
                counted = each.assigned_locality()
                if counted is not None:
                    owned[each.group] = owned.get(each.group, Locality(0, 0, 0)) + counted
        return ConsumerTotals(read, owned)

    def _remove_closed(self) -> None:
        """Move what closed consumers have read to the finished sums, and forget groups without open consumers."""
        still: list[OpenConsumer] = []
        for each in self._open:
            if not each.is_closed():
                still.append(each)
                continue
            each.read()
            _add(self._finished.setdefault(each.group, {}), each.last)
        self._open = still
        groups = {each.group for each in still}
        self._finished = {group: sums for group, sums in self._finished.items() if group in groups}


def _group_of(consumer: Metered, group: str | None) -> str:
    if not callable(getattr(consumer, "locality", None)):
        raise ConfigError(f"{type(consumer).__name__} counts nothing: give a RackAwareConsumer, or attach() first")
    if group is not None:
        return group
    view = view_of(consumer)
    known = getattr(consumer, "config", {}).get("group_id") if view is None else view.group
    if not isinstance(known, str):
        raise ConfigError("group: not known of this consumer, so it must be given")
    return known


def _add(sums: dict[ReadLabels, float], sizes: Mapping[ReadLabels, float]) -> None:
    for labels, size in sizes.items():
        sums[labels] = sums.get(labels, 0.0) + size


class OpenConsumer:
    """A consumer that is exported; used under the lock of its pool."""

    def __init__(self, consumer: Metered, group: str) -> None:
        self.group = group
        self.consumer: Callable[[], Metered | None] = weakref.ref(consumer)
        self.last: dict[ReadLabels, float] = {}
        self._view = view_of(consumer)
        self._readable = True
        self._once = WarnOnce(log)

    def is_closed(self) -> bool:
        """Return whether the consumer was closed or garbage-collected."""
        consumer = self.consumer()
        return consumer is None or (self._view is not None and self._view.is_closed(consumer))

    def read(self) -> bool:
        """Read how much the consumer has fetched; return whether that was possible."""
        try:
            fetched = self._fetched()
            if fetched is not None:
                self.last = {}
                for source, size in fetched.by_rack().items():
                    labels = self.group, rack_label(fetched.rack), rack_label(source), fetched.kind(source)
                    self.last[labels] = self.last.get(labels, 0.0) + size.bytes
            self._readable = fetched is not None
        except Exception:  # noqa: BLE001 - one consumer must not prevent the scrape of the others
            self._readable = False
            self._warn()
        return self._readable

    def assigned_locality(self) -> Locality | None:
        """Count its partitions; None if they are not known, or the consumer could not be read."""
        consumer = self.consumer()
        if consumer is None or self._view is None or not self._readable:
            return None
        try:
            return self._view.assigned_locality(consumer)
        except Exception:  # noqa: BLE001 - as above
            self._warn()
            return None

    def _fetched(self) -> RackTraffic | None:
        if self._view is not None:
            return self._view.locality()
        consumer = self.consumer()
        return None if consumer is None else consumer.locality()

    def _warn(self) -> None:
        # A consumer that was closed meanwhile may raise anything.
        if not self.is_closed():
            self._once.warn(
                "unreadable",
                "a consumer of group %s cannot be read: its metrics are left out",
                self.group,
                exc_info=True,
            )
