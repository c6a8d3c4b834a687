"""The last known rack of each broker.

A broker that is down is missing from the cluster's metadata, and its rack with it, while the replica lists still name
it. Whoever looks at racks only as they are listed now sees every replica rack change when a broker goes, and change
back when it returns. A rack is a place, though, and a broker that is away has not moved. So it keeps the rack it had,
until it comes back with another one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from rackassign.model import Broker, Topology

_MOST = 10_000
"""Brokers that are remembered. Far more than a cluster has; ids are handed out anew, though, wherever brokers are."""


class BrokerRackCache:
    """Remembers brokers that were seen, and completes a topology with those that are away now.

    It may be used from any thread.

    Args:
        most: So many brokers are remembered; beyond that those that were seen longest ago are forgotten.
    """

    __slots__ = ("_known", "_lock", "_most")

    def __init__(self, most: int = _MOST) -> None:
        self._known: dict[int, str | None] = {}
        self._most = most
        self._lock = threading.Lock()

    def update(self, brokers: Iterable[Broker]) -> None:
        """Take note of the brokers that are listed now. One that is listed without rack has none from now on."""
        with self._lock:
            for broker in brokers:
                # Put at the end: what is at the front was seen longest ago.
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
        """Return the topology with the brokers that are remembered and not listed; the very same if there are none."""
        listed = {broker.id for broker in topology.brokers}
        away = tuple(Broker(broker, rack) for broker, rack in self.racks().items() if broker not in listed)
        return replace(topology, brokers=topology.brokers + away) if away else topology
