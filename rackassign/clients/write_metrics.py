"""Written bytes and records of a producer, by partition and rack of the leader.

What a producer sends to its cluster is counted, so a batch that is sent twice counts twice, as it does on the bill. Its
partition and the rack are kept, and not only their sums: the leader of a partition with keyed records can be moved to
where they are written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rackassign.clients.fetch_metrics import RackTraffic, Traffic
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition

Written = Mapping[tuple[TopicPartition, str | None], Traffic]
"""Traffic by partition and by the rack of the broker that it was sent to; None for one without a known rack."""

_ATTRIBUTE = "_rackassign_writes"


class WriteMeter:
    """Counts the bytes and records of produce requests, by partition and by rack of the leader.

    It may be read from any thread at any time. The rack of a broker is the one at the time of the request.
    """

    __slots__ = ("__weakref__", "_lock", "_rack_of", "counts", "rack", "racks")

    def __init__(
        self,
        rack: str | None,
        rack_of: Callable[[int], str | None],
        racks: Callable[[], Iterable[str | None]] = tuple,
    ) -> None:
        # `racks`: returns the racks of all known brokers, also after the meter is gone.
        self.rack = rack
        self._rack_of = rack_of
        self._lock = threading.Lock()
        self.racks = racks
        # Outlives the meter.
        self.counts: dict[tuple[TopicPartition, str | None], Traffic] = {}

    def __call__(self, broker: int, sent: Iterable[tuple[TopicPartition, Traffic]]) -> None:
        rack = self._rack_of(broker)
        with self._lock:
            for partition, amount in sent:
                self.counts[partition, rack] = self.counts.get((partition, rack), Traffic()).plus(amount)

    def by_partition(self) -> Written:
        with self._lock:
            return dict(self.counts)

    def locality(self) -> RackTraffic:
        """Return all traffic counted so far, by topic and rack."""
        sums: dict[tuple[str, str | None], Traffic] = {}
        for (partition, rack), amount in self.by_partition().items():
            pair = partition.topic, rack
            sums[pair] = sums.get(pair, Traffic()).plus(amount)
        return RackTraffic.of(self.rack, sums, self.racks())


def set_meter(producer: object, meter: WriteMeter | str) -> None:
    """Store what counts the writes of a producer in an attribute of it; or the reason why nothing does."""
    vars(producer)[_ATTRIBUTE] = meter


def meter_of(producer: Any) -> WriteMeter:  # noqa: ANN401 - a producer of any client library
    """Return what counts the writes of a producer, or raise the reason why nothing does."""
    meter: WriteMeter | str = getattr(producer, _ATTRIBUTE, f"{type(producer).__name__} is no RackAwareProducer")
    if isinstance(meter, str):
        raise ConfigError(f"what this producer writes is not counted: {meter}")
    return meter
