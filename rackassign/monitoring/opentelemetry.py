"""OpenTelemetry metrics of consumers and producers: the instruments of `prometheus`, by OpenTelemetry's API.

Only the API is used (`opentelemetry-api`, seen with 1.45). What the figures become is decided by the SDK that the
application configures. OpenTelemetry's exporters to Prometheus turn the names of the instruments into those of
`prometheus`: `rackassign.read` in bytes becomes `rackassign_read_bytes_total`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from rackassign.errors import ConfigError, MissingExtraError
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
    from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
except ModuleNotFoundError:
    raise MissingExtraError("opentelemetry-api", "opentelemetry") from None

METER = "rackassign"

_ATTRIBUTE = "_rackassign_metrics"


class PoolInstruments:
    """The instruments of a meter for a pool; of a meter that has them already, the pool of the first object."""

    def __init__(self, pool: Pool, meter: Meter | None) -> None:
        self._pool = pool
        meter = get_meter(METER) if meter is None else meter
        for metric in pool.metrics:
            create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            instrument = create(
                metric.instrument, [partial(self._observe, metric)], unit=metric.unit, description=metric.text
            )
            # The SDK returns an equal instrument that exists, and drops the callbacks without a word.
            self._pool = vars(instrument).setdefault(_ATTRIBUTE, self._pool)

    def _observe(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        """Return the current values of a metric; called by the SDK, on a thread of its own."""
        return [
            Observation(int(value), dict(zip(metric.labels, labels, strict=True)))
            for labels, value in self._pool.figures()[metric].items()
        ]


class OpenTelemetryMetrics(PoolInstruments):
    """Metrics of any number of consumers of a process: one object, and `add` for each consumer.

    The consumers of a group are summed up. It may be used from any thread. It does not keep a consumer alive, and
    closed consumers need not be removed.

    A second object of a meter exports together with the first one, if the SDK was configured before both of them.

    Args:
        meter: Meter that gets the instruments; by default `rackassign` of the global meter provider.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        super().__init__(Pool(READ_BYTES, PARTITIONS, keeps=False), meter)

    def add(self, consumer: Metered, group: str | None = None) -> None:
        """Export a consumer until it is closed or garbage-collected; a second time has no effect.

        Args:
            consumer: A `RackAwareConsumer`, or any other with `locality()`, as after `attach`.
            group: Its group; by default that of the consumer's configuration.

        Raises:
            ConfigError: It meters nothing, or its group is not known.
        """
        self._pool.add(ExportedConsumer(consumer, group))


class OpenTelemetryProducerMetrics(PoolInstruments):
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
        metric = WRITTEN_BYTES_BY_PARTITION if by_partition else WRITTEN_BYTES
        super().__init__(Pool(metric, keeps=True), meter)
        if self._pool.metrics != (metric,):
            labels = ", ".join(self._pool.metrics[0].labels)
            raise ConfigError(f"by_partition: this meter exports the labels {labels} already")

    def add(self, producer: object) -> None:
        """Export what a `RackAwareProducer` of any client library writes; a second time has no effect.

        Raises:
            ConfigError: What it writes is not counted.
        """
        self._pool.add(ExportedProducer(producer, *self._pool.metrics))
