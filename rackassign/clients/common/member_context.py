"""The member that an assignor belongs to: the options of all assignors, its consumer once that is known, and its log.

The parts of an assignor (codec, planner, rack monitor) share one `MemberContext`, and know nothing of each other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rackassign.clients.common.adapter import AnyCluster, ClientAdapter, GroupMembership, time_limit_s
from rackassign.clients.common.rack_option import EnvRackDefault, resolve_assignor_rack
from rackassign.errors import ConfigError
from rackassign.locality import validate_locality_mode
from rackassign.model import Partition, Partitions, Topology
from rackassign.racks import BrokerRackCache
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import short_repr

_UNREAD: Final = Partition(())

_LONGEST_NAME: Final = 32_767
"""Bytes of a string in Kafka's protocol."""


class MemberContext:
    """Options, consumer and log of one member.

    Args:
        adapter: The private side of the client.
        package: Package of the client's assignors, for the names of their loggers.
        rack: Rack of the member; None or "" for none, "auto" to detect it.
        locality: `any-replica` or `leader`.
        name: Name of the assignor in the protocol.

    Attributes:
        racks: Rack cache of the consumer, if it has one.
        membership: Membership of the consumer; None until it is known.
        unread_topics: Subscribed topics that the group does not read, as changelogs that are read only after a
            rebalance; their replicas do not count.

    Raises:
        ConfigError: If an option is not valid.
    """

    def __init__(
        self, adapter: ClientAdapter, package: str, *, rack: str | EnvRackDefault | None, locality: str, name: object
    ) -> None:
        self.adapter = adapter
        self.rack = resolve_assignor_rack(rack)
        self.locality = validate_locality_mode(locality)
        if not isinstance(name, str):
            raise ConfigError(f"name must be a string, got {short_repr(name)}")
        if not name:
            raise ConfigError("name must not be empty")
        if len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
            raise ConfigError(f"name must have {_LONGEST_NAME} bytes at most, got {len(name)} characters")
        self.name = name
        self.log = logging.getLogger(f"{package}.assignor")
        self.once = WarnOnce(self.log)
        self.racks = BrokerRackCache()
        self.membership: GroupMembership | None = None
        self.unread_topics: frozenset[str] = frozenset()

    def topology(self, cluster: AnyCluster, topics: Iterable[str]) -> Topology:
        """Return the live brokers, and the given topics that have metadata, as far as they count."""
        found = self.adapter.topology(cluster, topics)
        if self.unread_topics.isdisjoint(found.topics):
            return found
        # A partition of unknown racks costs nothing, wherever it is assigned.
        unread = {t: (_UNREAD,) * len(found.topics[t]) for t in found.topics if t in self.unread_topics}
        return replace(found, topics={**found.topics, **unread})

    def owned(self) -> Partitions | None:
        """Return the partitions that the consumer owns while it joins; None if the consumer is not known."""
        if self.membership is None:
            return None
        # An eager member has revoked everything by then, though its consumer still lists it.
        return self.membership.owned() if self.membership.cooperative() else {}

    def generation(self) -> int | None:
        """Return the group's generation as of the last join response; None if it is not known."""
        return None if self.membership is None else self.membership.generation()

    def time_limit_s(self) -> float:
        """Return the time limit of a plan in seconds."""
        return time_limit_s(self.membership)

    def request_rejoin(self) -> None:
        """Make this member rejoin with its next poll, if its consumer is known."""
        if self.membership is not None:
            self.membership.request_rejoin()
