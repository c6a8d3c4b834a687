"""Locality of a consumer of librdkafka, by its own statistics; also for consumers with librdkafka's assignors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from rackassign.clients.fetch_metrics import FetchedPartition, FetchMeter, RackTraffic
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce
from rackassign.util.librdkafka_statistics import ClientStatistics, PartitionStatistics

log = logging.getLogger(__name__)

_NO_BROKER = -1


def broker_racks(admin: AdminClient | Mapping[str, Any], timeout: float = 30.0) -> dict[int, str | None]:
    """Return the rack of each broker; blocks until a broker responds.

    Args:
        admin: An admin client of confluent-kafka, or the properties of one.
        timeout: Time limit in seconds.

    Raises:
        KafkaException: No broker responds in time, or the request is rejected.
    """
    client = admin if isinstance(admin, AdminClient) else AdminClient(dict(admin))
    described = client.describe_cluster(request_timeout=timeout).result(timeout)
    return {node.id: node.rack or None for node in described.nodes}


class _Counted(NamedTuple):
    """Statistics of a partition: the broker it is read from, and what was read since librdkafka has counted it."""

    broker: int
    size: int
    records: int


_NOTHING = _Counted(_NO_BROKER, 0, 0)


class StatsMeter:
    """A `stats_cb` that counts the traffic of a consumer, by topic and rack.

    `Consumer({..., "statistics.interval.ms": 5000, "stats_cb": StatsMeter("use1-az1", racks_of(conf))})`, and `poll()`
    or `consume()` calls it. May be read from any thread.

    It counts what librdkafka reports: the bytes of keys and values of the records it has received, decompressed,
    without headers and batch headers. Records fetched in vain are included, for example of a revoked partition. The
    bytes received over the network, which are billed, are in `received_by_rack`; they are not counted by topic.

    If a partition is read from another broker than in the last statistics, all since then counts as the new broker's.
    So each change attributes at most one interval to the wrong broker. Inconsistent statistics are ignored, with
    a warning once.

    Args:
        rack: Rack of the consumer.
        racks: The rack of each broker, as from `broker_racks`, or a function that returns it.
    """

    def __init__(self, rack: str | None, racks: Mapping[int, str | None] | Callable[[int], str | None]) -> None:
        if not (callable(racks) or isinstance(racks, Mapping)):
            raise ConfigError(f"racks: expected a dict of racks by broker, got {type(racks).__name__}")
        self._rack_of: Callable[[int], str | None] = racks if callable(racks) else racks.get
        # All brokers are in the statistics.
        self._meter = FetchMeter(
            rack or None, self._rack_of, racks=lambda: [self._rack_of(broker) for broker, _ in self._received.values()]
        )
        self._once = WarnOnce(log)
        self._last: dict[TopicPartition, _Counted] = {}
        self._received: dict[tuple[int, str], tuple[int, int]] = {}
        self._client = 0

    @property
    def rack(self) -> str | None:
        """Rack of the consumer; None if it has none."""
        return self._meter.rack

    def __call__(self, statistics: str) -> None:
        """Count the traffic since the last statistics; never raises."""
        try:
            reported = ClientStatistics.from_json(statistics)
            for topic, counts in reported.partitions():
                self._count(TopicPartition(topic, counts.partition), counts)
            # Replaced and not changed: another thread may be iterating over the old one.
            brokers = {
                (self._client, name): (each.broker, each.received_bytes) for name, each in reported.brokers.items()
            }
            self._received = {**self._received, **brokers}
        except Exception:  # noqa: BLE001 - it would come out of the user's poll()
            self._once.warn("statistics", "librdkafka's statistics cannot be read", exc_info=True)

    def reset(self) -> None:
        """Treat the next statistics as those of another client, which counts from 0."""
        self._last = {}
        self._client += 1

    def locality(self) -> RackTraffic:
        """Return all traffic counted so far."""
        return self._meter.locality()

    def bytes_by_rack(self) -> dict[str | None, int]:
        """Return the bytes of records read so far, by rack; None is the key of brokers without a known rack."""
        return {rack: amount.bytes for rack, amount in self.locality().by_rack().items()}

    def broker_of(self, partition: TopicPartition) -> int | None:
        """Return the broker a partition was read from as of the last statistics; None if there was none."""
        broker = self._last.get(partition, _NOTHING).broker
        return None if broker == _NO_BROKER else broker

    def received_by_rack(self) -> dict[str | None, int]:
        """Return all bytes received so far, by rack of the broker; None is the key of brokers without a known rack."""
        totals: dict[str | None, int] = {}
        for broker, size in self._received.values():
            rack = self._rack_of(broker)
            totals[rack] = totals.get(rack, 0) + size
        return totals

    def _count(self, tp: TopicPartition, reported: PartitionStatistics) -> None:
        now = _Counted(reported.broker, reported.received_bytes, reported.received_records)
        last, self._last[tp] = self._last.get(tp, _NOTHING), now
        if now.size < last.size or now.records < last.records:
            # librdkafka has dropped the partition meanwhile, and counts from 0 again.
            last = _NOTHING
        size, records = now.size - last.size, now.records - last.records
        if size or records:
            # A partition without a current broker was read from the last one until then.
            self._meter(now.broker if now.broker >= 0 else last.broker, [FetchedPartition(tp, size, records)])
