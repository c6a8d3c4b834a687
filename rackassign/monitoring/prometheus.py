"""Prometheus metrics of the consumers and producers of a process, and the metrics that they share with reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from rackassign.errors import MissingExtraError
from rackassign.locality import Locality
from rackassign.monitoring.consumer_pool import (
    PARTITIONS,
    PARTITIONS_LABELS,
    READ_BYTES,
    READ_BYTES_LABELS,
    ConsumerPool,
    Metered,
    ReadLabels,
)
from rackassign.monitoring.producer_pool import WRITTEN_BYTES, ProducerPool

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None


class ConsumerMetrics(Collector):
    """Metrics of any number of consumers: one object in a registry, and `add` for each consumer.

    `REGISTRY.register(metrics := ConsumerMetrics(consumer))`, and `metrics.add(consumer)` for further ones. A registry
    refuses a second object with a `ValueError`, because Prometheus takes a series that occurs twice for an error.

    It may be used from any thread. It does not keep a consumer alive, and closed consumers need not be removed.

    Args:
        consumer: The first consumer, as for `add`.
        group: Its group.

    Raises:
        ConfigError: As from `add`.
    """

    def __init__(self, consumer: Metered | None = None, group: str | None = None) -> None:
        self._pool = ConsumerPool()
        if consumer is not None:
            self.add(consumer, group)

    def add(self, consumer: Metered, group: str | None = None) -> None:
        """Export a consumer until it is closed or garbage-collected; a second time has no effect.

        Args:
            consumer: A `RackAwareConsumer`, or any other with `locality()`, as after `attach`.
            group: Its group; by default that of the consumer's configuration.

        Raises:
            ConfigError: It meters nothing, or its group is not known.
        """
        self._pool.add(consumer, group)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without samples, by which a registry refuses a second object."""
        return [read_bytes_metric(), partitions_metric()]

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics; called from the server's thread."""
        totals = self._pool.totals()
        read, partitions = read_bytes_metric(), partitions_metric()
        add_read_bytes(read, totals.read)
        for group, counted in totals.owned.items():
            add_partitions(partitions, group, counted)
        return [read, partitions]


class ProducerMetrics(Collector):
    """Metrics of any number of producers: one object in a registry, and `add` for each producer.

    `REGISTRY.register(metrics := ProducerMetrics(producer))`, and `metrics.add(producer)` for further ones. It exports
    `rackassign_written_bytes_total`, which never sinks: what a closed producer has written stays in the sum.

    It may be used from any thread. It does not keep a producer alive, and closed producers need not be removed.

    Args:
        producer: The first producer, as for `add`.
        by_partition: Whether each partition has series of its own, as `balance-leaders --near-producers` needs.

    Raises:
        ConfigError: As from `add`.
    """

    def __init__(self, producer: object | None = None, *, by_partition: bool = False) -> None:
        self._pool = ProducerPool(by_partition=by_partition)
        if producer is not None:
            self.add(producer)

    def add(self, producer: object) -> None:
        """Export what a `RackAwareProducer` of any client library writes; a second time has no effect.

        Raises:
            ConfigError: What it writes is not counted.
        """
        self._pool.add(producer)

    def describe(self) -> Iterable[Metric]:
        """Return the metric without samples, by which a registry refuses a second object."""
        return [self._metric()]

    def collect(self) -> Iterable[Metric]:
        """Return the current metric; called from the server's thread."""
        written = self._metric()
        for labels, total in self._pool.written().items():
            written.add_metric(labels, total)
        return [written]

    def _metric(self) -> CounterMetricFamily:
        return CounterMetricFamily("rackassign_written_bytes", WRITTEN_BYTES, labels=self._pool.labels)


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


def add_read_bytes(metric: CounterMetricFamily, read: Mapping[ReadLabels, float]) -> None:
    """Add the bytes of groups."""
    for labels, total in read.items():
        metric.add_metric(labels, total)
