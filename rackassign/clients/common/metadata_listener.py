"""Actions after each refresh of a client's metadata."""

from __future__ import annotations

from collections.abc import Callable

from rackassign.clients.common.adapter import AnyCluster, ClientAdapter
from rackassign.racks import BrokerRackCache
from rackassign.util.log_once import WarnOnce


class MetadataListener:
    """Calls a callback and suppresses its exceptions, which would end the client's refreshes for good.

    Args:
        callback: The callback.
        once: Logger for errors.
        key: Key of the component that registered it.
        client: Name and version of the client library, for log messages.
    """

    def __init__(self, callback: Callable[[], None], once: WarnOnce, key: object, client: str) -> None:
        self.key = key
        self._callback = callback
        self._once = once
        self._client = client

    def __call__(self, _cluster: object) -> None:
        """Handle a refresh."""
        try:
            self._callback()
        except Exception:  # noqa: BLE001 - see the class
            self._once.warn("refresh", "%s: handling a metadata refresh failed", self._client, exc_info=True)


def track_broker_racks(adapter: ClientAdapter, cluster: AnyCluster, racks: BrokerRackCache, once: WarnOnce) -> None:
    """Record the racks of the brokers, now and after each refresh."""

    def refreshed() -> None:
        racks.update(adapter.brokers(cluster))

    refreshed()
    adapter.on_refresh(cluster, refreshed, once, key=racks)
