"""Racks of members that send none: a file that says which clients, hosts or networks stand where."""

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
    """Where members stand that do not say so themselves.

    Args:
        client_ids: Rack by client id; `*` and `?` stand for what they do in file names, the first that fits counts.
        hosts: Rack by the address that the broker sees, the same way.
        subnets: Rack by network ("10.0.1.0/24"); the smallest that holds the address counts.
        follower_fetchers: Client ids, with `*` and `?`, that read from the nearest replica though they do not tell
            their
            group where they are: kafka-python's own assignors and Java's before 3.5 never do. Who tells no rack, and is
            not named here, is taken to have none set and to read from the leaders.

    Raises:
        InputError: If something in it cannot be used.
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
        """Make one of a JSON value: an object of what this class takes, all of it optional.

        Raises:
            InputError: If anything in it is not as it should be; names the field.
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
        """Return all racks it knows."""
        return {rack for name in _RACKS for rack in getattr(self, name).values()}

    def rack_of(self, client_id: str, host: str) -> str | None:
        """Return the rack of a member: by its client id, else by its host, else by its network; None if in none."""
        return next(self._found(client_id, host), None)

    def reads_near(self, client_id: str) -> bool:
        """Tell whether a member that sends no rack reads from the nearest replica all the same."""
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
    # As a broker that listens to both kinds sees a client of the older one.
    return getattr(address, "ipv4_mapped", None) or address
