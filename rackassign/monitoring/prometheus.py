"""Prometheus metrics of the consumers and producers of a process, and of any pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rackassign.errors import MissingExtraError
from rackassign.monitoring.pool import (
    PARTITIONS,
    READ_BYTES,
    WRITTEN_BYTES,
    WRITTEN_BYTES_BY_PARTITION,
    ExportedConsumer,
    ExportedProducer,
    Metered,
    Metric,
    Pool,
)

try:
    from prometheus_client import core
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None


class PoolMetrics(Collector):
    """The metrics of the clients in a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def describe(self) -> Iterable[core.Metric]:
        """Return the metrics without samples, by which a registry refuses a second object."""
        return [samples_of(metric, {}) for metric in self._pool.metrics]

    def collect(self) -> Iterable[core.Metric]:
        """Return the current metrics; called from the server's thread."""
        return [samples_of(metric, values) for metric, values in self._pool.figures().items()]


class ConsumerMetrics(PoolMetrics):
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
        super().__init__(Pool(READ_BYTES, PARTITIONS, keeps=False))
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
        self._pool.add(ExportedConsumer(consumer, group))


class ProducerMetrics(PoolMetrics):
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
        super().__init__(Pool(WRITTEN_BYTES_BY_PARTITION if by_partition else WRITTEN_BYTES, keeps=True))
        if producer is not None:
            self.add(producer)

    def add(self, producer: object) -> None:
        """Export what a `RackAwareProducer` of any client library writes; a second time has no effect.

        Raises:
            ConfigError: What it writes is not counted.
        """
        self._pool.add(ExportedProducer(producer, *self._pool.metrics))


def samples_of(metric: Metric, values: Mapping[tuple[str, ...], float]) -> core.Metric:
    """Return a metric with these values by the values of its labels."""
    made = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
    samples = made(metric.name, metric.text, labels=metric.labels)
    for labels, value in values.items():
        samples.add_metric(labels, value)
    return samples
