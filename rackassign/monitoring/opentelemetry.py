"""OpenTelemetry metrics of consumers and producers: the instruments of `prometheus`, by OpenTelemetry's API.

Only the API is used (`opentelemetry-api`, seen with 1.45). What the figures become is decided by the SDK that the
application configures. OpenTelemetry's exporters to Prometheus turn the names of the instruments into those of
`prometheus`: `rackassign.read` in bytes becomes `rackassign_read_bytes_total`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from rackassign.errors import ConfigError, MissingExtraError
from rackassign.monitoring.consumer_pool import (
    PARTITIONS,
    PARTITIONS_LABELS,
    READ_BYTES,
    READ_BYTES_LABELS,
    ConsumerPool,
    Metered,
)
from rackassign.monitoring.producer_pool import WRITTEN_BYTES, ProducerPool

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
except ModuleNotFoundError:
    raise MissingExtraError("opentelemetry-api", "opentelemetry") from None

METER = "rackassign"

_ATTRIBUTE = "_rackassign_metrics"


class OpenTelemetryMetrics:
    """Metrics of any number of consumers of a process: one object, and `add` for each consumer.

    The consumers of a group are summed up. It may be used from any thread. It does not keep a consumer alive, and
    closed consumers need not be removed.

    A second object of a meter exports together with the first one, if the SDK was configured before both of them.

    Args:
        meter: Meter that gets the instruments; by default `rackassign` of the global meter provider.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self._pool = ConsumerPool()
        meter = get_meter(METER) if meter is None else meter
        counter = meter.create_observable_counter("rackassign.read", [self._read], unit="By", description=READ_BYTES)
        meter.create_observable_gauge(
            "rackassign.partitions", [self._partitions], unit="{partition}", description=PARTITIONS
        )
        # The SDK returns an equal instrument that exists, and drops the callbacks without a word.
        self._pool = vars(counter).setdefault(_ATTRIBUTE, self._pool)

    def add(self, consumer: Metered, group: str | None = None) -> None:
        """Export a consumer until it is closed or garbage-collected; a second time has no effect.

        Args:
            consumer: A `RackAwareConsumer`, or any other with `locality()`, as after `attach`.
            group: Its group; by default that of the consumer's configuration.

        Raises:
            ConfigError: It meters nothing, or its group is not known.
        """
        self._pool.add(consumer, group)

    def _read(self, _: CallbackOptions) -> Iterable[Observation]:
        """Return the bytes read; called by the SDK, on a thread of its own."""
        return [
            Observation(int(total), dict(zip(READ_BYTES_LABELS, labels, strict=True)))
            for labels, total in self._pool.totals().read.items()
        ]

    def _partitions(self, _: CallbackOptions) -> Iterable[Observation]:
        """Return the partitions owned, as above."""
        return [
            Observation(count, dict(zip(PARTITIONS_LABELS, (group, locality), strict=True)))
            for group, counted in self._pool.totals().owned.items()
            for locality, count in asdict(counted).items()
        ]


class OpenTelemetryProducerMetrics:
    """Metrics of any number of producers of a process: one object, and `add` for each producer.

    It exports `rackassign.written`, which never sinks: what a closed producer has written stays in the sum. Otherwise
    as `OpenTelemetryMetrics`.

    Args:
        meter: Meter that gets the instrument; by default `rackassign` of the global meter provider.
        by_partition: Whether each partition has series of its own, as `balance-leaders --near-producers` needs. Of more
            than 2,000 series the SDK exports the others without labels, unless a View has a greater limit.

    Raises:
        ConfigError: The meter has such an object already, with another `by_partition`.
    """

    def __init__(self, meter: Meter | None = None, *, by_partition: bool = False) -> None:
        self._pool = ProducerPool(by_partition=by_partition)
        meter = get_meter(METER) if meter is None else meter
        counter = meter.create_observable_counter(
            "rackassign.written", [self._written], unit="By", description=WRITTEN_BYTES
        )
        labels, self._pool = self._pool.labels, vars(counter).setdefault(_ATTRIBUTE, self._pool)
        if self._pool.labels != labels:
            raise ConfigError(f"by_partition: this meter exports the labels {', '.join(self._pool.labels)} already")

    def add(self, producer: object) -> None:
        """Export what a `RackAwareProducer` of any client library writes; a second time has no effect.

        Raises:
            ConfigError: What it writes is not counted.
        """
        self._pool.add(producer)

    def _written(self, _: CallbackOptions) -> Iterable[Observation]:
        """Return the bytes written; called by the SDK, on a thread of its own."""
        return [
            Observation(total, dict(zip(self._pool.labels, labels, strict=True)))
            for labels, total in self._pool.written().items()
        ]
