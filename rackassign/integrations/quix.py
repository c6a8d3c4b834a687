"""Quix Streams: an application whose members read locally, with each topic and its changelogs on one member.

`RackAwareApplication` is a `quixstreams.Application` that joins its group with an assignor of rackassign.

Quix Streams subscribes to the topics that it processes and to the changelogs of their state, and needs the partitions
of one number of a stream's topics and changelogs on one member. It uses `range` for that, which assigns by number
whatever the racks are. `RackAwareApplication` names the sets to the sticky assignor instead, and leaves changelogs out
of the locality: a member reads them only when state moves to it. The protocol is eager, since the callbacks of Quix
Streams assign whole assignments.

`ConsumerApplication`, `create_when_subscribed` and `copartitioned` have all uses of private names of Quix Streams; each
docstring names them. All were seen in quixstreams 3.20.0 and 3.28.1.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rackassign.errors import MissingExtraError

try:
    # First, since its extra has all that is needed: another extra of a client would not be enough.
    from quixstreams import Application
except ModuleNotFoundError as error:
    if error.name not in {"quixstreams", "confluent_kafka"}:
        raise
    raise MissingExtraError("quixstreams", "quix") from None

from rackassign.assignor.member import resolve_rack
from rackassign.clients.confluent import RackAwareConsumer
from rackassign.clients.fetch_metrics import RackTraffic
from rackassign.clients.kafka_python import RackAwareStickyAssignor
from rackassign.integrations import warn_of_version
from rackassign.text import WarnOnce, with_version

__all__ = ["RackAwareApplication"]


DISTRIBUTION = "quixstreams"
FIRST, LAST = (3, 20), (3, 28)
"""Supported versions."""

Create = Callable[[dict[str, Any], Sequence[Any]], Any]
"""Returns a consumer for the given properties of librdkafka and the `Topic`s it will subscribe to."""


class ConsumerApplication(Application):  # type: ignore[misc] # not installed where types are checked
    """An application that creates the consumer of its group itself; overrides `_get_internal_consumer`."""

    def __init__(self, once: WarnOnce, *args: Any, **options: Any) -> None:
        self._once = once
        super().__init__(*args, **options)

    def create_consumer(self, properties: dict[str, Any], topics: Sequence[Any]) -> Any:
        """Return a consumer for the given properties of librdkafka and the `Topic`s it will subscribe to."""
        raise NotImplementedError

    def _get_internal_consumer(self, *args: Any, **options: Any) -> Any:
        consumer = super()._get_internal_consumer(*args, **options)
        create_when_subscribed(consumer, self.create_consumer, self._once)
        return consumer


def create_when_subscribed(consumer: Any, create: Create, once: WarnOnce) -> None:
    """Let an `InternalConsumer` create the consumer of its group with its subscription.

    Shadows the public method `subscribe` on the instance. Reads `_consumer_config` and sets `_inner_consumer`, which is
    None until the first use. A consumer that is used without subscribing, as those of sources are, stays as it is.
    """
    subscribe = consumer.subscribe

    def create_and_subscribe(topics: list[Any], *args: Any, **callbacks: Any) -> None:
        properties = getattr(consumer, "_consumer_config", None)
        if not isinstance(properties, dict) or getattr(consumer, "_inner_consumer", properties) is not None:
            once.warn("differs", "%s differs: the group uses range, without racks", with_version(DISTRIBUTION))
        else:
            consumer._inner_consumer = create(properties, topics)
        subscribe(topics, *args, **callbacks)

    vars(consumer)["subscribe"] = create_and_subscribe


def copartitioned(application: Any, topics: Sequence[Any], once: WarnOnce) -> list[tuple[str, ...]]:
    """Return the sets of topics that need equal assignments: the topics and changelogs of connected streams.

    Reads `_dataframe_registry` and `_topic_manager` of the application. If Quix Streams differs, all topics with equal
    numbers of partitions are one set, which is what `range` does.
    """
    names = {topic.name for topic in topics}
    try:
        registry, changelogs = application._dataframe_registry, application._topic_manager.changelog_topics
        streams = {stream for topic in registry.consumer_topics for stream in registry.get_stream_ids(topic.name)}
        linked = [
            {*registry.get_topics_for_stream_id(stream), *(each.name for each in changelogs.get(stream, {}).values())}
            for stream in sorted(streams)
        ]
    except (AttributeError, KeyError, TypeError):
        once.warn(
            "streams", "%s differs: topics with equal numbers of partitions stay together", with_version(DISTRIBUTION)
        )
        sizes: dict[int, set[str]] = defaultdict(set)
        for topic in topics:
            sizes[topic.broker_config.num_partitions].add(topic.name)
        linked = [*sizes.values()]
    return [tuple(sorted(each)) for each in _connected(each & names for each in linked) if len(each) > 1]


def _connected(sets: Iterable[set[str]]) -> list[set[str]]:
    """Return sets with those that have a topic in common united, in a stable order."""
    components: list[set[str]] = []
    for each in sets:
        apart = [other for other in components if other.isdisjoint(each)]
        components = [*apart, each.union(*(other for other in components if not other.isdisjoint(each)))]
    return sorted(components, key=sorted)


log = logging.getLogger(__name__)


class RackAwareApplication(ConsumerApplication):
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
        *args: Any,
        client_rack: str | None = None,
        **options: Any,
    ) -> None:
        self._reader: RackAwareConsumer | None = None
        config = dict(options.get("consumer_extra_config") or {})
        self.client_rack = resolve_rack(config.get("client.rack") if client_rack is None else client_rack)
        if self.client_rack is not None:
            # Sources, which have consumers of librdkafka alone, read their changelogs with it.
            options["consumer_extra_config"] = {**config, "client.rack": self.client_rack}
        once = WarnOnce(log)
        warn_of_version(DISTRIBUTION, FIRST, LAST, once)
        super().__init__(once, *args, **options)

    def locality(self) -> RackTraffic | None:
        """Return the traffic fetched so far by the consumer of the group; None before `run()`."""
        return None if self._reader is None else self._reader.locality()

    def create_consumer(self, properties: dict[str, Any], topics: Sequence[Any]) -> RackAwareConsumer:
        """Return the consumer of the group, which subscribes to these `Topic`s."""
        changelogs = frozenset(topic.name for topic in topics if topic.is_changelog)
        assignor = _Assignor(self.client_rack, copartitioned(self, topics, self._once), changelogs)
        config = {name: value for name, value in properties.items() if name != "partition.assignment.strategy"}
        self._reader = RackAwareConsumer(config, assignors=[assignor])
        return self._reader


class _Assignor(RackAwareStickyAssignor):
    def __init__(self, rack: str | None, copartition: Iterable[Sequence[str]], changelogs: frozenset[str]) -> None:
        super().__init__(rack, copartition=[*copartition])
        self._member.unread_topics = changelogs
