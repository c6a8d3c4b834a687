"""The member that an assignor belongs to: the options of all assignors, its consumer once that is known, and its log.

The parts of an assignor (codec, planner, rack monitor) share one `MemberContext`, and know nothing of each other. The
rack of a consumer or an assignor is configured, read from the environment, or detected.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from rackassign.assignor.adapter import AnyCluster, ClientAdapter, GroupMembership, time_limit_s
from rackassign.errors import ConfigError, WireError
from rackassign.locality import validate_locality_mode
from rackassign.model import Partition, Partitions, Topology
from rackassign.rack_sources import RACK_VARIABLE, detect_rack
from rackassign.racks import BrokerRackCache
from rackassign.text import WarnOnce, short_repr
from rackassign.util.callbacks import is_failure
from rackassign.wire import Subscription, encode_subscription

_UNREAD: Final = Partition(())

_LONGEST_NAME: Final = 32_767
"""Bytes of a string in Kafka's protocol."""


class MemberContext:
    """Options, consumer and log of one member."""

    def __init__(
        self, adapter: ClientAdapter, package: str, *, rack: str | EnvRackDefault | None, locality: str, name: object
    ) -> None:
        self.adapter = adapter
        self.rack = resolve_assignor_rack(rack)
        self.locality = validate_locality_mode(locality)
        if not isinstance(name, str):
            raise ConfigError(f"name must be a string, got {short_repr(name)}")
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            size = 0
        if not 0 < size <= _LONGEST_NAME:
            raise ConfigError(f"name must be text of 1 to {_LONGEST_NAME} bytes, got {short_repr(name)}")
        self.name = name
        self.log = logging.getLogger(f"{package}.assignor")
        self.once = WarnOnce(self.log)
        self.racks = BrokerRackCache()
        self.membership: GroupMembership | None = None
        # Subscribed topics that the group does not read, as changelogs: their replicas do not count.
        self.unread_topics: frozenset[str] = frozenset()
        self.too_slow: set[str] = set()

    def topology(self, cluster: AnyCluster, topics: Iterable[str]) -> Topology:
        """Return the live brokers, and the given topics that have metadata, as far as they count."""
        topology = self.adapter.topology(cluster, topics)
        if self.unread_topics.isdisjoint(topology.topics):
            return topology
        # A partition of unknown racks costs nothing, wherever it is assigned.
        unread = {t: (_UNREAD,) * len(topology.topics[t]) for t in topology.topics if t in self.unread_topics}
        return replace(topology, topics={**topology.topics, **unread})

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
        return time_limit_s(self.membership)

    @contextmanager
    def user_code(self, key: str, consequence: str) -> Iterator[None]:
        """Run user code in the block; what it raises, unless that ends the program, ends the block with a warning."""
        try:
            yield
        except BaseException as error:
            if not is_failure(error):
                raise
            self.once.warn(key, "%s: %s", self.name, consequence, exc_info=True)

    @contextmanager
    def timed(self, function: str, consequence: str) -> Iterator[None]:
        """Measure a function of the user that is called while this member assigns.

        If it takes longer than a whole assignment may, it is `too_slow` from then on: this leader may have been removed
        from the group by then, and would be again, each time it leads.
        """
        begun = time.monotonic()
        try:
            yield
        finally:
            # Also of what raises: a request that times out is the usual reason for being slow.
            took_s, limit_s = time.monotonic() - begun, self.time_limit_s()
            if took_s > limit_s:
                self.too_slow.add(function)
                self.once.warn(
                    f"slow {function}",
                    "%s: %s took %.1f s, and all of an assignment may take %.1f s, a third of the session timeout:"
                    " the function is not called any more, and %s",
                    *(self.name, function, took_s, limit_s, consequence),
                )

    def request_rejoin(self) -> None:
        """Make this member rejoin with its next poll, if its consumer is known."""
        if self.membership is not None:
            self.membership.request_rejoin()


AUTO = "auto"


class EnvRackDefault:
    """The default of `rack`. In contrast, None means no rack."""

    def __repr__(self) -> str:
        return f"<{RACK_VARIABLE}>"


FROM_ENVIRONMENT: Final = EnvRackDefault()


def resolve_rack(wanted: str | None, option: str = "client_rack") -> str | None:
    """Return the configured rack of a consumer; None: that of the environment, "auto": that of any source."""
    rack = check_rack(detect_rack(network=wanted == AUTO) if wanted is None or wanted == AUTO else wanted, option)
    if rack is None and wanted == AUTO:
        raise ConfigError(f'{option}="auto" found no rack: set {RACK_VARIABLE}, or check `rackassign detect-rack`')
    return rack


def resolve_assignor_rack(wanted: str | EnvRackDefault | None) -> str | None:
    """Return the configured rack of an assignor; None for none, "auto": that of any source."""
    if isinstance(wanted, EnvRackDefault):
        return resolve_rack(None, "rack")
    return None if wanted is None else resolve_rack(wanted, "rack")


def check_rack(rack: object, option: str = "rack") -> str | None:
    """Return the rack, None for ""; `ConfigError` names the option if it could not be sent."""
    if rack is None:
        return None
    if not isinstance(rack, str):
        raise ConfigError(f"{option} must be a string or None, got {short_repr(rack)}")
    # Of an enumeration of strings: in text it would be the name of the member, as in a client ID with a zone.
    plain = str.__str__(rack)
    try:
        encode_subscription(Subscription((), rack=plain))
    except WireError as error:
        raise ConfigError(f"{option} cannot be sent: {error.problem}") from None
    return plain or None
