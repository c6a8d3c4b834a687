"""What is done after each refresh of a client's metadata."""

from __future__ import annotations

from collections.abc import Callable

from rackassign.clients.common.adapter import AnyCluster, ClientAdapter
from rackassign.racks import BrokerRackCache
from rackassign.util.log_once import WarnOnce


class MetadataListener:
    """Calls back, and lets no error out: one would end the client's refreshes for good.

    Args:
        callback: What is called.
        once: For what goes wrong.
        key: Whom it is for.
        client: The client and its version, for people.
    """

    def __init__(self, callback: Callable[[], None], once: WarnOnce, key: object, client: str) -> None:
        self.key = key
        self._callback = callback
        self._once = once
        self._client = client

    def __call__(self, _cluster: object) -> None:
        """Hear of a refresh."""
        try:
            self._callback()
        except Exception:  # noqa: BLE001 - see the class
            self._once.warn(
                "refresh", "%s: a refresh of the metadata could not be looked at", self._client, exc_info=True
            )


def track_broker_racks(host: ClientAdapter, cluster: AnyCluster, racks: BrokerRackCache, once: WarnOnce) -> None:
    """Take note of the brokers there are, now and after each refresh."""

    def refreshed() -> None:
        racks.update(host.brokers(cluster))

    refreshed()
    host.on_refresh(cluster, refreshed, once, key=racks)
