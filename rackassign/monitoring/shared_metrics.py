"""Metrics that a consumer and a report share, with their labels.

A report measures what is written, a consumer what it fetches. In the long run a group that keeps up reads what is
written, so the sum of its consumers equals what reports of it measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rackassign.errors import MissingExtraError
from rackassign.locality import Locality, read_locality

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None

UNKNOWN = "unknown"
"""Label of an unknown rack."""

RackPair = tuple[str | None, str | None]
"""The rack of the replica, and the rack of the reader."""


def partitions_metric() -> GaugeMetricFamily:
    """Return `rackassign_partitions`, without samples."""
    return GaugeMetricFamily(
        "rackassign_partitions",
        "Partitions by whether they are read from their reader's own rack: local, cross or unknown.",
        labels=("group", "locality"),
    )


def read_bytes_metric() -> CounterMetricFamily:
    """Return `rackassign_read_bytes`, without samples."""
    return CounterMetricFamily(
        "rackassign_read_bytes",
        "Bytes of record batches, by the reader's rack, the rack they come from, and whether these are equal:"
        " local, cross or unknown.",
        # PromQL cannot compare two labels, so the comparison is a label of its own.
        labels=("group", "rack", "from_rack", "locality"),
    )


def add_partitions(metric: GaugeMetricFamily, group: str, counted: Locality) -> None:
    """Add the partitions of a group."""
    for locality, count in asdict(counted).items():
        metric.add_metric((group, locality), count)


def add_read_bytes(metric: CounterMetricFamily, read: Mapping[tuple[str, RackPair], float]) -> None:
    """Add the bytes of groups, by group and pair of racks."""
    # A rack may have the name that is the label of unknown ones.
    sums: dict[tuple[str, str, str, str], float] = {}
    for (group, (source, home)), total in read.items():
        labels: tuple[str, str, str, str] = (group, rack_label(home), rack_label(source), read_locality(source, home))
        sums[labels] = sums.get(labels, 0.0) + total
    for labels, total in sums.items():
        metric.add_metric(labels, total)


def rack_label(rack: str | None) -> str:
    """Return the label of a rack."""
    return UNKNOWN if rack is None else rack
