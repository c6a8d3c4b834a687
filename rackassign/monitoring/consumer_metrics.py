"""Prometheus metrics of the consumers of a process, summed up by group.

Prometheus reads a counter that sinks as a reset, and a series that occurs twice as an error: `consumer_pool` has what
follows from that. All collectors of one registry share a pool of consumers, and one of them exports it (`registration`
knows how they find each other).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from rackassign.errors import MissingExtraError
from rackassign.monitoring.consumer_pool import ConsumerPool, Metered
from rackassign.monitoring.registration import is_registered, registering_registry, shared_by
from rackassign.monitoring.shared_metrics import add_partitions, add_read_bytes, partitions_metric, read_bytes_metric

try:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector, CollectorRegistry
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None


class ConsumerMetrics(Collector):
    """Metrics of any number of consumers: `REGISTRY.register(ConsumerMetrics(consumer))` for each of them.

    `metrics = ConsumerMetrics(); REGISTRY.register(metrics)`, and `metrics.add(consumer)` for each consumer, has the
    same effect. All of them that are registered in one registry export the sums of their consumers together.

    It may be used from any thread. It does not keep a consumer alive, and closed consumers need not be removed.

    Args:
        consumer: The first consumer, as for `add`.
        group: Its group.

    Raises:
        ConfigError: As from `add`.
    """

    def __init__(self, consumer: Metered | None = None, group: str | None = None) -> None:
        self._pool = _SharedPool()
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
        self._pool.add(consumer, group, self)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without samples, by which a registry rejects a second collector of the same metrics.

        In a registry that has one already this collector joins it, and has no metrics of its own.
        """
        registry = registering_registry()
        if registry is not None:
            shared = shared_by(registry, self._pool)
            alone = not shared.registered_in(registry)
            shared.join(self._pool, registry, self)
            self._pool = shared
            if not alone:
                return []
        return [read_bytes_metric(), partitions_metric()]

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics; called from the server's thread."""
        return self._pool.collect(self)


class _SharedPool(ConsumerPool):
    """A pool of several collectors."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[tuple[weakref.ref[CollectorRegistry], weakref.ref[ConsumerMetrics]]] = []
        """Registered collectors, in order, with their registries."""

    def join(self, other: _SharedPool, registry: CollectorRegistry, collector: ConsumerMetrics) -> None:
        """Take the consumers of another pool over, and note the collector that is being registered."""
        with self.lock:
            self.collectors.append((weakref.ref(registry), weakref.ref(collector)))
            if other is not self:
                self.take_over(other)

    def registered_in(self, registry: CollectorRegistry | None = None) -> list[ConsumerMetrics]:
        """Return the collectors that are still registered, in one registry or in any, in order."""
        pairs = [(of(), collector()) for of, collector in self.collectors]
        return [
            collector
            for of, collector in pairs
            if collector is not None and of is not None and registry in {None, of} and is_registered(of, collector)
        ]

    def collect(self, caller: ConsumerMetrics) -> Iterable[Metric]:
        """Return the current metrics of all consumers; nothing unless the caller is the first registered collector."""
        with self.lock:
            registered = self.registered_in()
            if registered and registered[0] is not caller:
                return []
            # The consumers of a collector that was unregistered are not exported.
            totals = self.totals(registered or [caller])
        bytes_, partitions = read_bytes_metric(), partitions_metric()
        add_read_bytes(bytes_, totals.read)
        for group, counted in totals.owned.items():
            add_partitions(partitions, group, counted)
        return [bytes_, partitions]

    def remove_closed(self) -> None:
        """Remove closed consumers, and collectors that are gone: they export nothing."""
        super().remove_closed()
        self.collectors = [pair for pair in self.collectors if None not in (pair[0](), pair[1]())]
