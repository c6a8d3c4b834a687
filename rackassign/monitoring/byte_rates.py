"""Weights by throughput: the bytes that are written to each partition per second, for the option `weights`.

* Only the leader of a group measures, on a thread and with an admin client of its own. Where the client handles its
  group, the last published rates are looked up.
* A rate is an average of some minutes, and the published one changes only with a change that matters. Partitions would
  move with every rebalance if rates were those of the last sample.
* A partition without traffic has a small weight rather than none. Otherwise all idle partitions could be assigned to
  one member, until they are written again.
* If rates are not known (yet), nothing is made up: `weigh` returns None, and members keep what they have. Rates that
  were last measured longer ago than the half-life are not known either. A member may lead again after hours.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Real
from threading import Event, Thread
from typing import Any
from weakref import ref

from kafka import KafkaAdminClient

from rackassign.admin.admin_client import connected
from rackassign.admin.describe import describe_topics
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring.throughput import LogSamples, Throughput, compute_throughput, sample_logs
from rackassign.text import WarnOnce, describe_error, join_first, short_repr

_FIRST_PAUSE_S = 5.0
"""Time between the first two samples, doubled up to the interval: a new leader should not take long to know rates."""

_BOOTSTRAP_TIMEOUT_MS = 10_000

_LEAST_SHARE = 0.01
"""Least weight of a partition, as a share of the average rate."""

_NAMED = 3


class RateAverages:
    """The average rate of each partition, and the published one."""

    __slots__ = ("_averages", "_half_life_s", "_min_change", "_published")

    def __init__(self, half_life_s: float, min_change: float) -> None:
        # A measurement has half its influence after `half_life_s`. An average is published if it changes by
        # `min_change` of the published rate; for rates below the average one, of that.
        self._half_life_s = half_life_s
        self._min_change = min_change
        self._averages: dict[TopicPartition, tuple[float, float]] = {}
        self._published: dict[TopicPartition, float] = {}

    def add(self, written: Throughput) -> None:
        """Add the throughput between two samples; partitions whose throughput is unknown keep their rates."""
        decay = 0.5 ** (written.seconds / self._half_life_s)
        for tp, rate in written.bytes_s.items():
            average, seconds = self._averages.get(tp, (0.0, 0.0))
            then = seconds * decay
            total = then + written.seconds
            self._averages[tp] = ((average * then + rate * written.seconds) / total, total)
        self._publish()

    def keep(self, topics: Iterable[str]) -> None:
        """Remove the rates of all other topics."""
        wanted = frozenset(topics)
        for rates in (self._averages, self._published):
            for tp in [tp for tp in rates if tp.topic not in wanted]:
                del rates[tp]

    def _publish(self) -> None:
        mean = math.fsum(rate for rate, _ in self._averages.values()) / max(1, len(self._averages))
        for tp, (rate, _) in self._averages.items():
            published = self._published.get(tp)
            if published is None or abs(rate - published) > self._min_change * max(published, mean):
                self._published[tp] = rate

    def weights(self) -> dict[str, dict[int, float]]:
        """Return the published rate of each partition, by topic; 1 for all if nothing is written at all."""
        rates = self._published
        mean = math.fsum(rates.values()) / max(1, len(rates))
        rows: dict[str, dict[int, float]] = {}
        for tp, rate in rates.items():
            rows.setdefault(tp.topic, {})[tp.partition] = max(rate, mean * _LEAST_SHARE) if mean else 1.0
        return rows


def complete_rows(
    known: Mapping[str, Mapping[int, float]], partition_counts: Mapping[str, int]
) -> dict[str, tuple[float, ...]]:
    """Return a weight of each partition; unknown ones get the average of their topic, or of all known ones."""
    # `known` has at least one weight.
    every = [weight for row in known.values() for weight in row.values()]
    mean = math.fsum(every) / len(every)
    rows: dict[str, tuple[float, ...]] = {}
    for topic, count in partition_counts.items():
        row = known.get(topic, {})
        other = math.fsum(row.values()) / len(row) if row else mean
        rows[topic] = tuple(row.get(partition, other) for partition in range(count))
    return rows


class ByteRates:
    """A weigher for the option `weights` of an assignor: bytes per second of each partition.

    The leader of the group samples the sizes of the logs, from the first rebalance that it leads until another member
    leads. It needs DESCRIBE on the cluster and on the topics. Until rates are known, and if they cannot be read,
    members keep the partitions they have, and a new group counts partitions. No rebalance is requested: rates take
    effect in the next one. An instance belongs to one consumer.

    Args:
        interval_s: Seconds between two samples; the first ones follow faster.
        half_life_s: Seconds after which a sample has half its influence on the average.
        min_change: Change of a rate that matters, as a share of it.
        **client_config: Arguments of kafka-python's `KafkaAdminClient`: `bootstrap_servers` and the security settings.

    Raises:
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        *,
        interval_s: float = 60.0,
        half_life_s: float = 300.0,
        min_change: float = 0.1,
        **client_config: Any,  # noqa: ANN401 - kafka-python is untyped
    ) -> None:
        for name, value in (("interval_s", interval_s), ("half_life_s", half_life_s)):
            if not 0 < _number(name, value) < math.inf:
                raise ConfigError(f"{name} must be more than 0 seconds, got {short_repr(value)}")
        if not 0 <= _number("min_change", min_change) < math.inf:
            raise ConfigError(f"min_change must be 0 or more, got {short_repr(min_change)}")
        unknown = sorted(client_config.keys() - KafkaAdminClient.DEFAULT_CONFIG.keys())
        if unknown:
            raise ConfigError(f"KafkaAdminClient has no argument {join_first(unknown, _NAMED)}")
        if not client_config.get("bootstrap_servers"):
            raise ConfigError("bootstrap_servers is missing: sizes of logs are read with an admin client")
        self._client_config = {
            "client_id": "rackassign-byte-rates",
            "bootstrap_timeout_ms": _BOOTSTRAP_TIMEOUT_MS,
            **client_config,
        }
        self._interval_s = interval_s
        # Two samples may be missed, whatever the half-life is.
        self._valid_s = max(half_life_s, 3 * interval_s)
        self._once = WarnOnce(logging.getLogger(__name__))
        self._new_rates = partial(_SharedRates, half_life_s, min_change, self._once)
        self._rates = self._new_rates()
        self._stopped = Event()
        self._stopped.set()
        self._thread: Thread | None = None

    def weigh(self, partition_counts: Mapping[str, int]) -> dict[str, tuple[float, ...]] | None:
        """Return the last published rates, and measure from now on; called on the leader of a group.

        Args:
            partition_counts: Number of partitions of each topic of the group.

        Returns:
            Bytes per second of each partition, by topic; None if none of them is known yet.
        """
        if time.monotonic() - self._rates.measured_at > self._valid_s:
            # A thread that still runs ends, because its samples may be as old.
            self._stopped.set()
            self._rates = self._new_rates()
        known = {topic: row for topic, row in self._rates.known.items() if topic in partition_counts}
        self._rates.topics = frozenset(partition_counts)
        if self._stopped.is_set():
            self._start()
        return complete_rows(known, partition_counts) if known else None

    def pause(self) -> None:
        """Stop measuring until `weigh` is called again; the rates are kept."""
        self._stopped.set()

    def close(self) -> None:
        """Stop measuring, and wait until the admin client is closed: ten seconds and more if brokers do not respond.

        This is not required: the thread also ends when the last reference to this object is gone.
        """
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        self._stopped = Event()
        # The thread does not hold this object, and ends after a consumer and its weigher are gone.
        args = (ref(self), self._rates, _Sampler(self._client_config), self._stopped, self._interval_s)
        self._thread = Thread(target=_measure_repeatedly, args=args, name="rackassign-byte-rates", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # A process that ends cannot start a thread, and neither can one that has too many.
            self._thread = None
            self._stopped.set()
            self._once.warn("thread", "byte rates are not measured: no thread can be started", exc_info=True)


class _SharedRates:
    """What the thread of a weigher shares with the weigher."""

    def __init__(self, half_life_s: float, min_change: float, once: WarnOnce) -> None:
        # `known`: published rates by topic and partition; replaced as a whole, so that no thread sees a part of them.
        # `measured_at`: when rates were last measured, or this object was created, on a monotonic clock.
        self._averages = RateAverages(half_life_s, min_change)
        self._once = once
        self.topics: frozenset[str] = frozenset()
        self.known: Mapping[str, Mapping[int, float]] = {}
        self.measured_at = time.monotonic()

    def measure(self, sampler: _Sampler, stopped: Event) -> None:
        """Add what was written since the last sample, and publish the rates; raises nothing."""
        topics = self.topics
        try:
            written = sampler.sample(topics)
        except Exception as error:  # noqa: BLE001 - the thread must go on, whatever brokers respond
            sampler.close()
            self._once.warn("failed", "byte rates cannot be measured: %s", describe_error(error), about=str(error))
            return
        if stopped.is_set():
            # Another thread may measure by now: a request to a broker that is down takes long.
            return
        if written.problems:
            problems = join_first(written.problems, _NAMED)
            self._once.warn("unknown", "byte rates of some partitions are not known: %s", problems, about=problems)
        self._averages.keep(topics)
        self._averages.add(written)
        self.known = self._averages.weights()
        if written.bytes_s:
            # Brokers that do not respond make a sample without rates.
            self.measured_at = time.monotonic()


class _Sampler:
    """Samples logs with an admin client, which is created when it is needed."""

    def __init__(self, client_config: Mapping[str, Any]) -> None:
        self._client_config = client_config
        self._admin: KafkaAdminClient | None = None
        self._before: LogSamples | None = None

    def sample(self, topics: frozenset[str]) -> Throughput:
        """Return the throughput since the last sample; nothing of partitions that were not sampled before."""
        if self._admin is None:
            self._admin = connected(KafkaAdminClient, self._client_config)
        found = describe_topics(self._admin, topics)
        partitions = {topic: each.partitions for topic, each in sorted(found.items()) if not each.problem}
        problems = [f"{topic}: {each.problem}" for topic, each in sorted(found.items()) if each.problem]
        now = sample_logs(self._admin, partitions)
        before, self._before = self._before or now, now
        return compute_throughput(before, now, problems)

    def close(self) -> None:
        """Close the admin client; the next sample creates another one."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def _measure_repeatedly(
    weigher: ref[ByteRates], rates: _SharedRates, sampler: _Sampler, stopped: Event, interval_s: float
) -> None:
    """Sample until this is stopped, or until the weigher is gone."""
    pause_s = min(_FIRST_PAUSE_S, interval_s)
    try:
        while weigher() is not None and not stopped.is_set():
            rates.measure(sampler, stopped)
            stopped.wait(pause_s)
            pause_s = min(2 * pause_s, interval_s)
    finally:
        sampler.close()


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{name} must be a number, got {short_repr(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf
