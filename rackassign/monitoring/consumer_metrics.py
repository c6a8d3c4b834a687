"""Prometheus metrics of the consumers of a process, summed up by group.

Theory of operation
-------------------
Prometheus reads a counter that sinks as a reset, and a series that occurs twice as an error. So the consumers of a
group are one set of series, and their bytes are summed up. What a closed consumer has read stays part of the sum while
another consumer of its group is open. With the last one all series of the group go. Partitions are a gauge, and only
open consumers have any.

No client library reports that a consumer was closed, so that is checked at each scrape, and when a consumer is added.
The metrics do not keep a consumer alive. They keep the meter of an attached consumer until the next check, so that a
consumer that was closed and released between two scrapes is counted completely.

All collectors of one registry share a pool of consumers, and one of them exports it (`registration` knows how they find
each other).
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from rackassign.clients.common.consumer_view import view_of
from rackassign.clients.common.fetch_metrics import FetchLocality
from rackassign.errors import ConfigError, MissingExtraError
from rackassign.locality import Locality
from rackassign.monitoring.registration import is_registered, registering_registry, shared_by
from rackassign.monitoring.shared_metrics import (
    RackPair,
    add_partitions,
    add_read_bytes,
    partitions_metric,
    read_bytes_metric,
)
from rackassign.util.log_once import WarnOnce

try:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector, CollectorRegistry
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None

log = logging.getLogger(__name__)


class Metered(Protocol):
    """A consumer that meters its fetches."""

    def locality(self) -> FetchLocality:
        """Return the bytes fetched so far."""


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
        self._pool = _ConsumerPool()
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
        self._pool.add(_OpenConsumer(consumer, _group_of(consumer, group), self))

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


class _ConsumerPool:
    """The consumers that are exported together, and the sums of those that were closed."""

    def __init__(self) -> None:
        self.collectors: list[tuple[weakref.ref[CollectorRegistry], weakref.ref[ConsumerMetrics]]] = []
        """Registered collectors, in order, with their registries."""
        self._lock = threading.RLock()
        self._open: list[_OpenConsumer] = []
        self._finished: dict[str, dict[RackPair, int]] = {}
        """What closed consumers have read, by group; only of groups with an open consumer."""

    def add(self, added: _OpenConsumer) -> None:
        """Add a consumer, unless it is there already."""
        with self._lock:
            self._remove_closed()
            if all(known.consumer() is not added.consumer() for known in self._open):
                self._open.append(added)

    def join(self, other: _ConsumerPool, registry: CollectorRegistry, collector: ConsumerMetrics) -> None:
        """Take the consumers of another pool over, and note the collector that is being registered."""
        with self._lock:
            self.collectors.append((weakref.ref(registry), weakref.ref(collector)))
            if other is self:
                return
            for each in other._open:
                if each.consumer() is not None:
                    self.add(each)

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
        read: dict[tuple[str, RackPair], float] = {}
        owned: dict[str, Locality] = {}
        with self._lock:
            registered = self.registered_in()
            if registered and registered[0] is not caller:
                return []
            self._remove_closed()
            # The consumers of a collector that was unregistered are not exported.
            exported = [each for each in self._open if each.owner() in (registered or [caller])]
            readable = {each.group for each in exported if each.read()}
            for each in exported:
                # A consumer that cannot be read now keeps its last share: without it the sum of the others would sink.
                if each.group in readable:
                    _add(read, each.group, each.last)
            for group in readable:
                _add(read, group, self._finished.get(group, {}))
            for each in exported:
                counted = each.assigned_locality()
                if counted is not None:
                    owned[each.group] = owned.get(each.group, Locality(0, 0, 0)) + counted
        bytes_, partitions = read_bytes_metric(), partitions_metric()
        add_read_bytes(bytes_, read)
        for group, counted in owned.items():
            add_partitions(partitions, group, counted)
        return [bytes_, partitions]

    def _remove_closed(self) -> None:
        """Move what closed consumers have read to the finished sums, and forget groups without open consumers."""
        still: list[_OpenConsumer] = []
        for each in self._open:
            if each.owner() is None:
                continue
            if not each.is_closed():
                still.append(each)
                continue
            each.read()
            sums = self._finished.setdefault(each.group, {})
            for pair, size in each.last.items():
                sums[pair] = sums.get(pair, 0) + size
        self._open = still
        groups = {each.group for each in still}
        self._finished = {group: sums for group, sums in self._finished.items() if group in groups}
        # A collector that is gone exports nothing, and is no reason to keep anything.
        self.collectors = [pair for pair in self.collectors if None not in (pair[0](), pair[1]())]


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


def _add(read: dict[tuple[str, RackPair], float], group: str, sizes: Mapping[RackPair, int]) -> None:
    for pair, size in sizes.items():
        read[group, pair] = read.get((group, pair), 0.0) + size


class _OpenConsumer:
    """A consumer that is exported; used under the lock of its collector.

    Args:
        consumer: The consumer, to which it keeps a weak reference.
        group: Its group.
        owner: The collector to which it was added, likewise.

    Attributes:
        last: The bytes it had read when it could be read last.
    """

    def __init__(self, consumer: Metered, group: str, owner: ConsumerMetrics) -> None:
        self.group = group
        self.owner = weakref.ref(owner)
        self.consumer: Callable[[], Metered | None] = weakref.ref(consumer)
        self.last: dict[RackPair, int] = {}
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
                self.last = {(source, fetched.rack): size.bytes for source, size in fetched.by_rack().items()}
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

    def _fetched(self) -> FetchLocality | None:
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
