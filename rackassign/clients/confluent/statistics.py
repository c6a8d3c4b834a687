"""How local a consumer of librdkafka is, by its own statistics; for those who stay with its assignors too."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from rackassign.clients.common.fetch_metrics import FetchLocality, LocalityMeter
from rackassign.errors import ConfigError
from rackassign.util.log_once import WarnOnce

log = logging.getLogger(__name__)

_NOBODY = -1


def broker_racks(admin: AdminClient | Mapping[str, Any], timeout: float = 30.0) -> dict[int, str | None]:
    """Return the rack of each broker; blocks until one answers.

    Args:
        admin: An admin client of confluent-kafka, or the properties of one.
        timeout: Seconds.

    Raises:
        KafkaException: None answers in time, or it refuses.
    """
    client = admin if isinstance(admin, AdminClient) else AdminClient(dict(admin))
    described = client.describe_cluster(request_timeout=timeout).result(timeout)
    return {node.id: node.rack or None for node in described.nodes}


class _Part(NamedTuple):
    topic: str
    size: int
    records: int


class _Counted(NamedTuple):
    """What librdkafka says of a partition: the broker it is read from, and what was read since it is known."""

    broker: int
    size: int
    records: int


_NOTHING = _Counted(_NOBODY, 0, 0)


class StatsMeter:
    """A `stats_cb` that counts what a consumer reads, by topic and by the rack it comes from.

    `Consumer({..., "statistics.interval.ms": 5000, "stats_cb": StatsMeter("use1-az1", racks_of(conf))})`, and `poll()`
    or `consume()` calls it. May be read from any thread.

    What is counted is what librdkafka says: the bytes of keys and values of the records it has taken in, decompressed,
    without headers and without batches' own; those it has fetched in vain are among them, as of a partition that was
    given up. What really came over the network, and is paid for, is in `received_by_rack`; it has no topics.

    A partition that is read from another broker than at the last statistics counts as the new one's since then, so at
    each change no more than one interval is taken for the wrong broker's. Statistics that make no sense are left out,
    with a warning once.

    Args:
        rack: The consumer's own.
        racks: The rack of each broker, as from `broker_racks`, or what tells it.
    """

    def __init__(self, rack: str | None, racks: Mapping[int, str | None] | Callable[[int], str | None]) -> None:
        if not (callable(racks) or isinstance(racks, Mapping)):
            raise ConfigError(f"racks: expected a dict of racks by broker, got {type(racks).__name__}")
        self._rack_of: Callable[[int], str | None] = racks if callable(racks) else racks.get
        self._meter = LocalityMeter(rack or None, self._rack_of)
        self._once = WarnOnce(log)
        self._last: dict[tuple[str, int], _Counted] = {}
        self._received: dict[tuple[int, str], tuple[int, int]] = {}
        self._client = 0

    def __call__(self, statistics: str) -> None:
        """Count what has come since the last statistics; never raises."""
        try:
            said = json.loads(statistics)
            for place, counted in _partitions(said["topics"]):
                self._count(place, counted)
            # Replaced and not changed: another thread may be walking over the old one.
            brokers = {(self._client, name): counted for name, counted in _brokers(said["brokers"])}
            self._received = {**self._received, **brokers}
        except Exception:  # noqa: BLE001 - it would come out of the user's poll()
            self._once.warn("statistics", "librdkafka's statistics cannot be read", exc_info=True)

    def begin_anew(self) -> None:
        """Take what comes next for the statistics of another client, which counts from 0."""
        self._last = {}
        self._client += 1

    def locality(self) -> FetchLocality:
        """Return all that was counted so far."""
        return self._meter.locality()

    def bytes_by_rack(self) -> dict[str | None, int]:
        """Return the bytes of records read so far, by the rack they came from; None: a broker without a known rack."""
        return {rack: amount.bytes for rack, amount in self.locality().by_rack().items()}

    def received_by_rack(self) -> dict[str | None, int]:
        """Return the bytes received so far, of whatever kind, by the rack of the broker; None as above."""
        totals: dict[str | None, int] = {}
        for broker, size in self._received.values():
            rack = self._rack_of(broker)
            totals[rack] = totals.get(rack, 0) + size
        return totals

    def _count(self, place: tuple[str, int], now: _Counted) -> None:
        last, self._last[place] = self._last.get(place, _NOTHING), now
        if now.size < last.size or now.records < last.records:
            # librdkafka has forgotten the partition meanwhile, and counts from 0 again.
            last = _NOTHING
        size, records = now.size - last.size, now.records - last.records
        if size or records:
            # One that nobody reads any more was read by the last one until then.
            self._meter(now.broker if now.broker >= 0 else last.broker, [_Part(place[0], size, records)])


def _partitions(topics: Mapping[str, Any]) -> Iterator[tuple[tuple[str, int], _Counted]]:
    for topic, said in topics.items():
        for partition in said["partitions"].values():
            number, counted = partition["partition"], _Counted(*map(partition.get, ("broker", "rxbytes", "rxmsgs")))
            _check(topic, number, *counted)
            # There is one of number -1, for what has no partition yet.
            if number >= 0:
                yield (topic, number), counted


def _brokers(brokers: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, int]]]:
    for name, said in brokers.items():
        broker, size = said["nodeid"], said["rxbytes"]
        _check(name, broker, size)
        yield name, (broker, size)


def _check(whose: str, *numbers: object) -> None:
    if not all(type(number) is int for number in numbers):
        raise TypeError(f"{whose}: expected integers, got {numbers}")
