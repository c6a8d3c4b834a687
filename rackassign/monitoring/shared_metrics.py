"""Prometheus metrics that a consumer and a report share, with the labels of `metric_labels`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rackassign.errors import MissingExtraError
from rackassign.locality import Locality
from rackassign.monitoring.metric_labels import (
    PARTITIONS,
    PARTITIONS_LABELS,
    READ_BYTES,
    READ_BYTES_LABELS,
    RackPair,
    by_labels,
)

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None


def partitions_metric() -> GaugeMetricFamily:
    """Return `rackassign_partitions`, without samples."""
    return GaugeMetricFamily("rackassign_partitions", PARTITIONS, labels=PARTITIONS_LABELS)


def read_bytes_metric() -> CounterMetricFamily:
    """Return `rackassign_read_bytes`, without samples."""
    return CounterMetricFamily("rackassign_read_bytes", READ_BYTES, labels=READ_BYTES_LABELS)


def add_partitions(metric: GaugeMetricFamily, group: str, counted: Locality) -> None:
    """Add the partitions of a group."""
    for locality, count in asdict(counted).items():
        metric.add_metric((group, locality), count)


def add_read_bytes(metric: CounterMetricFamily, read: Mapping[tuple[str, RackPair], float]) -> None:
    """Add the bytes of groups, by group and pair of racks."""
    for labels, total in by_labels(read).items():
        metric.add_metric(labels, total)
