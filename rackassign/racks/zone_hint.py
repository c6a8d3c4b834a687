"""Zone hints: the zone of a client in its client ID, as services that are compatible with Kafka want it.

Such services have no replicas in zones, or route all requests of a client to brokers of its zone, producers' included.
A producer sends no rack in the Kafka protocol, so they read it from `client.id`. The forms, as documented by the
vendors in November 2026:

| vendor | form | source |
|---|---|---|
| AutoMQ | `automq_az=ZONE&automq_client_id=ID`, percent-encoded | `AzAwareClientConfigurator` of AutoMQ |
| Bufstream | `ID,zone=ZONE`, or `;` for each `,` | Bufstream docs, "Client ID options" |
| Inkless | `ID,diskless_az=ZONE` | Inkless docs, "Client-broker AZ alignment"; Aiven docs |
| WarpStream | `ID,warpstream_az=ZONE` | WarpStream docs, "Configuring Kafka client ID features" |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args
from urllib.parse import quote

from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

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
