"""Racks of members that report none: a file with the racks of clients, hosts or networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from rackassign.errors import InputError
from rackassign.util.text import short_repr

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_RACKS = ("client_ids", "hosts", "subnets")
_NEAR = "follower_fetchers"


@dataclass(frozen=True, slots=True)
class RackMap:
    """Racks of members that do not report one.

    Args:
        client_ids: Rack by client ID; `*` and `?` are wildcards as in file names, and the first match is used.
        hosts: Rack by the address that the broker sees, with the same wildcards.
        subnets: Rack by network ("10.0.1.0/24"); the smallest that contains the address is used.
        follower_fetchers: Client IDs, with wildcards, that use follower fetching although they do not report their
            rack to their group: kafka-python's own assignors and Java's before 3.5 never do. A member that reports no
            rack, and is not listed here, is assumed to have no `client.rack` and to read from leaders.

    Raises:
        InputError: A value is invalid.
    """

    client_ids: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    subnets: Mapping[str, str] = field(default_factory=dict)
    follower_fetchers: tuple[str, ...] = ()
    _networks: tuple[tuple[_Network, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in _RACKS:
            for pattern, rack in getattr(self, name).items():
                if not isinstance(rack, str) or not rack:
                    raise InputError(f"{name}.{pattern}", f"expected the name of a rack, got {short_repr(rack)}")
        for i, pattern in enumerate(self.follower_fetchers):
            if not isinstance(pattern, str):
                raise InputError(f"{_NEAR}[{i}]", f"expected a client id, got {short_repr(pattern)}")
        networks = [(_network(subnet), rack) for subnet, rack in self.subnets.items()]
        networks.sort(key=lambda pair: -pair[0].prefixlen)
        object.__setattr__(self, "_networks", tuple(networks))

    @classmethod
    def read(cls, value: object) -> RackMap:
        """Return the rack map of a JSON object with the arguments of this class, all optional.

        Raises:
            InputError: A value is invalid; the message names the field.
        """
        if not isinstance(value, dict):
            raise InputError("", f"expected an object, got {short_repr(value)}")
        for key, row in value.items():
            if key not in {*_RACKS, _NEAR}:
                raise InputError("", f"unknown key {short_repr(key)}; known are {', '.join((*_RACKS, _NEAR))}")
            if not isinstance(row, list if key == _NEAR else dict):
                raise InputError(key, f"expected an {'array' if key == _NEAR else 'object'}, got {short_repr(row)}")
        return cls(**{**value, _NEAR: tuple(value.get(_NEAR, ()))})

    def racks(self) -> set[str]:
        """Return all racks in the map."""
        return {rack for name in _RACKS for rack in getattr(self, name).values()}

    def rack_of(self, client_id: str, host: str) -> str | None:
        """Return the rack of a member by its client ID, otherwise its host or its network; None without a match."""
        return next(self._found(client_id, host), None)

    def reads_near(self, client_id: str) -> bool:
        """Return whether a member that reports no rack uses follower fetching nevertheless."""
        return any(fnmatchcase(client_id, pattern) for pattern in self.follower_fetchers)

    def _found(self, client_id: str, host: str) -> Iterator[str]:
        for patterns, name in ((self.client_ids, client_id), (self.hosts, host)):
            yield from (rack for pattern, rack in patterns.items() if fnmatchcase(name, pattern))
        address = _address(host)
        if address is not None:
            yield from (rack for network, rack in self._networks if address in network)


def _network(subnet: str) -> _Network:
    try:
        return ipaddress.ip_network(subnet)
    except ValueError as error:
        raise InputError(f"subnets.{subnet}", f"expected a network like 10.0.1.0/24: {error}") from None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    # A broker that listens to IPv4 and IPv6 sees IPv4 clients as mapped addresses.
    return getattr(address, "ipv4_mapped", None) or address
