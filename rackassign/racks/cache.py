"""Cache of the last known rack of each broker.

An offline broker is missing from the cluster's metadata, and its rack with it, while the replica lists still name
it. With the current metadata alone, every replica rack would change when a broker goes offline, and change back when it
returns. But a rack is a location, and an offline broker has not moved. So it keeps its rack until it returns with
another one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from rackassign.model import Broker, Topology

_MOST = 10_000
"""Limit of cached brokers, far more than a cluster has. Where brokers are replaced, new ones may get new IDs."""


class BrokerRackCache:
    """Caches brokers that were seen, and adds offline brokers to a topology.

    It may be used from any thread.

    Args:
        most: Limit of cached brokers; beyond it, those that were seen longest ago are removed.
    """

    __slots__ = ("_known", "_lock", "_most")

    def __init__(self, most: int = _MOST) -> None:
        self._known: dict[int, str | None] = {}
        self._most = most
        self._lock = threading.Lock()

    def update(self, brokers: Iterable[Broker]) -> None:
        """Record the brokers in the current metadata. A broker listed without rack has none from now on."""
        with self._lock:
            for broker in brokers:
                # Moved to the end: the broker at the front was seen longest ago.
                self._known.pop(broker.id, None)
                self._known[broker.id] = broker.rack
            for oldest in list(self._known)[: max(0, len(self._known) - self._most)]:
                del self._known[oldest]

    def racks(self) -> dict[int, str | None]:
        """Return the last known rack of each broker."""
        with self._lock:
            return dict(self._known)

    def rack_of(self, broker: int) -> str | None:
        """Return the last known rack of a broker; None if it has none, or was never seen."""
        with self._lock:
            return self._known.get(broker)

    def fill_missing(self, topology: Topology) -> Topology:
        """Return the topology with cached brokers that are not listed; the identical object if there are none."""
        listed = {broker.id for broker in topology.brokers}
        away = tuple(Broker(broker, rack) for broker, rack in self.racks().items() if broker not in listed)
        return replace(topology, brokers=topology.brokers + away) if away else topology
