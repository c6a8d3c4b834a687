"""The clients of a process whose figures are exported, summed up, and their metrics, for any metrics library.

A report (`report_metrics`) has the same labels. It measures what is written, a consumer what it fetches. In the long
run a group that keeps up reads what is written, so the sum of its consumers equals what reports of it measure.

Theory of operation
-------------------
A counter that sinks is taken for a reset, and a series that occurs twice for an error. So the clients of a group are
one set of series, and their counters are summed up. What a closed client has counted stays part of the sum: of a
consumer while another one of its group is open, with the last of which all series of the group go; of others forever.
Only open clients have gauges.

No client library reports that a client was closed, so that is checked whenever the figures are read, and when a client
is added. A pool does not keep a client alive, but what counts for it until the next check, so that one that was closed
and released between two scrapes is counted completely.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, NamedTuple, Protocol

from rackassign.clients.fetch_metrics import RackTraffic, is_foreign, view_of
from rackassign.clients.write_metrics import WriteMeter, meter_of
from rackassign.errors import ConfigError
from rackassign.locality import read_locality
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)

RackPair = tuple[str | None, str | None]
"""The rack of the replica, and the rack of the reader."""

UNKNOWN = "unknown"
"""Label of an unknown rack."""


class Metric(NamedTuple):
    """A metric by its names in Prometheus and in OpenTelemetry."""

    name: str
    text: str
    labels: tuple[str, ...]
    # Of several clients the figures of a gauge are added, or the greatest one counts.
    kind: Literal["counter", "gauge", "greatest"] = "counter"
    instrument: str = ""
    unit: str = "By"


# PromQL cannot compare two labels, so the comparison of the racks is a label of its own.
READ_BYTES = Metric(
    "rackassign_read_bytes",
    "Bytes of record batches, by the reader's rack, the rack they come from, and whether these are equal:"
    " local, cross or unknown.",
    ("group", "rack", "from_rack", "locality"),
    instrument="rackassign.read",
)
PARTITIONS = Metric(
    "rackassign_partitions",
    "Partitions by whether they are read from their reader's own rack: local, cross or unknown.",
    ("group", "locality"),
    "gauge",
    "rackassign.partitions",
    "{partition}",
)
WRITTEN_BYTES = Metric(
    "rackassign_written_bytes",
    "Bytes of record batches that producers have sent, by the producer's rack, the leader's rack, and whether these"
    " are equal: local, cross or unknown.",
    ("topic", "rack", "to_rack", "locality"),
    instrument="rackassign.written",
)
# A process writes to any number of partitions, and to only so many topics and racks.
WRITTEN_BYTES_BY_PARTITION = WRITTEN_BYTES._replace(labels=("topic", "partition", "rack", "to_rack", "locality"))

Figures = dict[Metric, dict[tuple[str, ...], float]]
"""The values of metrics, by the values of their labels."""


def rack_label(rack: str | None) -> str:
    """Return the label of a rack."""
    return UNKNOWN if rack is None else rack


def read_by_labels(read: Mapping[tuple[str, RackPair], float]) -> dict[tuple[str, ...], float]:
    """Return bytes of groups by the values of the labels of `READ_BYTES`."""
    sums: dict[tuple[str, ...], float] = {}
    for (group, (source, home)), total in read.items():
        _add(sums, (group, rack_label(home), rack_label(source), read_locality(source, home)), total)
    return sums


def _add(sums: dict[tuple[str, ...], float], labels: tuple[str, ...], value: float) -> None:
    # A rack may have the name that is the label of unknown ones.
    sums[labels] = sums.get(labels, 0) + value


class Client:
    """A client that is exported; used under the lock of its pool."""

    def __init__(self, client: object, group: str = "") -> None:
        # `client`: the client, or what lives as long as that counts.
        self.ref: weakref.ref[Any] = weakref.ref(client)
        self.group = group
        # Its counters as they were read last.
        self.last: Figures = {}

    def is_closed(self) -> bool:
        """Return whether the client was closed or garbage-collected."""
        return self.ref() is None

    def figures(self) -> Figures | None:
        """Return its counters and gauges; None if it cannot be read now."""
        raise NotImplementedError


class Pool:
    """The clients that are exported together, and the sums of those that were closed; for any thread."""

    def __init__(self, *metrics: Metric, keeps: bool) -> None:
        # `keeps`: whether what clients have counted stays after the last one of their group was closed.
        self.metrics = metrics
        self._keeps = keeps
        self._lock = threading.RLock()
        self._open: list[Client] = []
        self._finished: dict[str, Figures] = {}

    def add(self, client: Client) -> None:
        """Add a client until it is closed or garbage-collected; a second time has no effect."""
        with self._lock:
            self._remove_closed()
            if all(known.ref() is not client.ref() for known in self._open):
                self._open.append(client)

    def figures(self) -> Figures:
        """Return the current figures of each metric."""
        sums: Figures = {metric: {} for metric in self.metrics}
        with self._lock:
            self._remove_closed()
            read = [(each, each.figures()) for each in self._open]
            shown = {each.group for each, figures in read if self._keeps or figures is not None}
            for each, figures in read:
                if figures is not None:
                    each.last = _counters(figures)
                # A client that cannot be read now keeps its last share: without it the sum of the others would sink.
                if each.group in shown:
                    _merge(sums, each.last if figures is None else figures)
            for group, finished in self._finished.items():
                if self._keeps or group in shown:
                    _merge(sums, finished)
        return sums

    def _remove_closed(self) -> None:
        """Move what closed clients have counted to the finished sums."""
        still: list[Client] = []
        for each in self._open:
            # Asked once: the client may be collected meanwhile.
            if each.is_closed():
                figures = each.figures()
                counted = each.last if figures is None else _counters(figures)
                _merge(self._finished.setdefault(each.group, {}), counted)
            else:
                still.append(each)
        self._open = still
        if not self._keeps:
            groups = {each.group for each in still}
            self._finished = {group: sums for group, sums in self._finished.items() if group in groups}


def _counters(figures: Figures) -> Figures:
    return {metric: values for metric, values in figures.items() if metric.kind == "counter"}


def _merge(sums: Figures, figures: Figures) -> None:
    for metric, values in figures.items():
        into = sums.setdefault(metric, {})
        for labels, value in values.items():
            known = into.get(labels, 0)
            into[labels] = max(known, value) if metric.kind == "greatest" else known + value


class Metered(Protocol):
    """A consumer that meters its fetches."""

    def locality(self) -> RackTraffic:
        """Return the bytes fetched so far."""


class ExportedConsumer(Client):
    """A consumer, with the group of its configuration if none is given."""

    def __init__(self, consumer: Metered, group: str | None = None) -> None:
        if not callable(getattr(consumer, "locality", None)):
            raise ConfigError(f"{type(consumer).__name__} counts nothing: give a RackAwareConsumer, or attach() first")
        self._view = view_of(consumer)
        if group is None:
            group = getattr(consumer, "config", {}).get("group_id") if self._view is None else self._view.group
        if not isinstance(group, str):
            raise ConfigError("group: not known of this consumer, so it must be given")
        super().__init__(consumer, group)
        self._once = WarnOnce(log)

    def is_closed(self) -> bool:
        consumer = self.ref()
        return consumer is None or (self._view is not None and self._view.is_closed(consumer))

    def figures(self) -> Figures | None:
        consumer, view = self.ref(), self._view
        figures: Figures | None = None
        try:
            metered = consumer if view is None else view
            if metered is not None:
                fetched: RackTraffic = metered.locality()
                read: dict[tuple[str, ...], float] = {}
                for source, size in fetched.by_rack().items():
                    racks = rack_label(fetched.rack), rack_label(source)
                    _add(read, (self.group, *racks, fetched.kind(source)), size.bytes)
                figures = {READ_BYTES: read}
            if figures is not None and view is not None and not self.is_closed():
                owned = asdict(view.assigned_locality(consumer))
                figures[PARTITIONS] = {(self.group, kind): count for kind, count in owned.items()}
        except Exception:  # noqa: BLE001 - one consumer must not prevent the scrape of the others
            # A consumer that was closed meanwhile may raise anything.
            if not self.is_closed():
                self._once.warn(
                    "unreadable",
                    "a consumer of group %s cannot be read: its metrics are left out",
                    self.group,
                    exc_info=True,
                )
        return figures


class ExportedProducer(Client):
    """A producer; neither it nor its meter is kept, but what the meter has counted.

    The meter decides when all is counted: a producer of kafka-python that is garbage-collected sends on for a second.
    """

    def __init__(self, producer: object, metric: Metric) -> None:
        meter = meter_of(producer)
        super().__init__(meter)
        self._metric = metric
        self._rack, self._racks, self._counts = meter.rack, meter.racks, meter.counts

    def figures(self) -> Figures:
        meter: WriteMeter | None = self.ref()
        counts = self._counts if meter is None else meter.by_partition()
        foreign = is_foreign(self._rack, self._racks(), (leader for _, leader in counts))
        written: dict[tuple[str, ...], float] = {}
        for (partition, leader), amount in counts.items():
            number = (str(partition.partition),) if self._metric is WRITTEN_BYTES_BY_PARTITION else ()
            racks = rack_label(self._rack), rack_label(leader)
            locality = UNKNOWN if foreign else read_locality(leader, self._rack)
            _add(written, (partition.topic, *number, *racks, locality), amount.bytes)
        return {self._metric: written}
