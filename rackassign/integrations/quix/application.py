"""A Quix Streams application that reads locally.

Quix Streams subscribes to the topics that it processes and to the changelogs of their state, and needs the partitions
of one number of a stream's topics and changelogs on one member. It uses `range` for that, which assigns by number
whatever the racks are. `RackAwareApplication` names the sets to the sticky assignor instead, and leaves changelogs out
of the locality: a member reads them only when state moves to it.

The protocol is eager, since the callbacks of Quix Streams assign whole assignments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from rackassign.assignor.member import resolve_rack
from rackassign.clients.confluent import RackAwareConsumer
from rackassign.clients.fetch_metrics import FetchLocality
from rackassign.clients.kafka_python import RackAwareStickyAssignor
from rackassign.integrations import warn_of_version
from rackassign.integrations.quix import internals
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)


class RackAwareApplication(internals.ConsumerApplication):
    """A `quixstreams.Application` whose members read locally.

    Takes all arguments of `Application`. Differences: `partition.assignment.strategy` is `sticky` of rackassign, and
    the group is joined by `rackassign.clients.confluent.RackAwareConsumer`. All members of a group must use this
    class: `range`, which Quix Streams uses otherwise, is another protocol.

    Args:
        *args: As for `Application`.
        client_rack: The rack of this member, as the brokers write theirs in `broker.rack`. If omitted, `client.rack`
            of `consumer_extra_config` is used, or else `RACKASSIGN_RACK`. With "auto" further sources are tried.
        **options: As for `Application`.

    Raises:
        ConfigError: If "auto" finds no rack, or a property is not supported by `RackAwareConsumer`.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - as Application's
        client_rack: str | None = None,
        **options: Any,  # noqa: ANN401 - as Application's
    ) -> None:
        self._reader: RackAwareConsumer | None = None
        config = dict(options.get("consumer_extra_config") or {})
        self.client_rack = resolve_rack(config.get("client.rack") if client_rack is None else client_rack)
        if self.client_rack is not None:
            # Sources, which have consumers of librdkafka alone, read their changelogs with it.
            options["consumer_extra_config"] = {**config, "client.rack": self.client_rack}
        once = WarnOnce(log)
        warn_of_version(internals.DISTRIBUTION, internals.FIRST, internals.LAST, once)
        super().__init__(once, *args, **options)

    def locality(self) -> FetchLocality | None:
        """Return the traffic fetched so far by the consumer of the group; None before `run()`."""
        return None if self._reader is None else self._reader.locality()

    def create_consumer(self, properties: dict[str, Any], topics: Sequence[Any]) -> RackAwareConsumer:
        """Return the consumer of the group, which subscribes to these `Topic`s."""
        changelogs = frozenset(topic.name for topic in topics if topic.is_changelog)
        assignor = _Assignor(self.client_rack, internals.copartitioned(self, topics, self._once), changelogs)
        config = {name: value for name, value in properties.items() if name != "partition.assignment.strategy"}
        self._reader = RackAwareConsumer(config, assignors=[assignor])
        return self._reader


class _Assignor(RackAwareStickyAssignor):
    """The sticky assignor of an application.

    Args:
        rack: Rack of this member.
        copartition: Sets of topics whose partitions of one number go to one member.
        changelogs: Topics that do not count for locality.
    """

    def __init__(self, rack: str | None, copartition: Iterable[Sequence[str]], changelogs: frozenset[str]) -> None:
        super().__init__(rack, copartition=[*copartition])
        self._member.unread_topics = changelogs
