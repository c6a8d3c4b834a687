"""Racks: a cache of the racks of brokers, and zone hints in client IDs.

The last known rack of each broker: an offline broker is missing from the cluster's metadata, and its rack with it,
while the replica lists still name it. With the current metadata alone, every replica rack would change when a broker
goes offline, and change back when it returns. But a rack is a location, and an offline broker has not moved. So it
keeps its rack until it returns with another one.

Zone hints are the zone of a client in its client ID, as services that are compatible with Kafka want it. Such services
have no replicas in zones, or route all requests of a client to brokers of its zone, producers' included. A producer
sends no rack in the Kafka protocol, so they read it from `client.id`. The forms, as documented by the vendors in
November 2026:

| vendor | form | source |
|---|---|---|
| AutoMQ | `automq_az=ZONE&automq_client_id=ID`, percent-encoded | `AzAwareClientConfigurator` of AutoMQ |
| Bufstream | `ID,zone=ZONE`, or `;` for each `,` | Bufstream docs, "Client ID options" |
| Inkless | `ID,diskless_az=ZONE` | Inkless docs, "Client-broker AZ alignment"; Aiven docs |
| WarpStream | `ID,warpstream_az=ZONE` | WarpStream docs, "Configuring Kafka client ID features" |
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, get_args
from urllib.parse import quote

from rackassign.errors import ConfigError
from rackassign.model import Broker, Topology
from rackassign.text import short_repr

_MOST = 10_000
"""Limit of cached brokers, far more than a cluster has. Where brokers are replaced, new ones may get new IDs."""


class BrokerRackCache:
    """Caches brokers that were seen, and adds offline brokers to a topology.

    It may be used from any thread.
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


ZoneHint = Literal["automq", "bufstream", "inkless", "warpstream"]

_KEYS: Mapping[ZoneHint, str] = {
    "automq": "automq_az",
    "bufstream": "zone",
    "inkless": "diskless_az",
    "warpstream": "warpstream_az",
}
_DELIMITERS = re.compile(r"[,;=&|\s]")


def client_id_with_zone(zone_hint: ZoneHint, client_id: str, zone: str | None) -> str:
    """Return a client ID with a zone hint, for a consumer or producer of any client library.

    Args:
        zone_hint: The vendor.
        client_id: Client ID without the hint. One that has the same hint already is returned as it is.
        zone: Zone of the client, as the brokers write theirs.

    Raises:
        ConfigError: The vendor is unknown, the client ID or the zone is missing, the zone cannot be written, or the
            client ID has another.
    """
    if zone_hint not in get_args(ZoneHint):
        raise ConfigError(f"zone_hint: expected one of {', '.join(get_args(ZoneHint))}, got {short_repr(zone_hint)}")
    key = _KEYS[zone_hint]
    for name, value in (("client ID", client_id), ("zone", zone or "")):
        if not isinstance(value, str):
            raise ConfigError(f"zone_hint: the {name} must be a string, got {short_repr(value)}")
    if not client_id:
        # ",zone=a" would begin with a part without a name.
        raise ConfigError("zone_hint: the client ID is empty: name the client")
    if not zone:
        raise ConfigError(f"zone_hint: {zone_hint} needs the rack of this client: set client_rack or RACKASSIGN_RACK")
    # Of an enumeration of strings, text would have the name of the member.
    zone = str.__str__(zone)
    if _DELIMITERS.search(zone):
        raise ConfigError(f"zone_hint: a zone must have no delimiter such as ',' or '=', got {short_repr(zone)}")
    written = quote(zone, safe="") if zone_hint == "automq" else zone
    hinted = re.search(rf"(?:^|[,;&| ]){key}=([^,;=&| ]*)", client_id)
    if hinted is not None:
        if hinted[1] != written:
            raise ConfigError(f"zone_hint: the client ID has {key}={hinted[1]} already, and the rack is {zone!r}")
        return client_id
    if zone_hint == "automq":
        return f"{key}={written}&automq_client_id={quote(client_id, safe='')}"
    delimiter = ";" if zone_hint == "bufstream" and ";" in client_id else ","
    return f"{client_id}{delimiter}{key}={zone}"


__all__ = [
    "BrokerRackCache",
    "ZoneHint",
    "client_id_with_zone",
]
