"""All uses of private names of Quix Streams; each docstring names them.

All were seen in quixstreams 3.20.0 and 3.28.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from quixstreams import Application

from rackassign.text import WarnOnce, with_version

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

    Args:
        consumer: The consumer, which was not used yet.
        create: Creates what takes the place of the `confluent_kafka.Consumer`.
        once: For a warning if Quix Streams differs.
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
    found: list[set[str]] = []
    for each in sets:
        apart = [other for other in found if other.isdisjoint(each)]
        found = [*apart, each.union(*(other for other in found if not other.isdisjoint(each)))]
    return sorted(found, key=sorted)
