"""How a cluster's replicas lie, as two of its brokers see it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.clients.kafka_python.admin import (
    DescribedTopic,
    listed_brokers,
    min_isr,
    persist,
    topics_of,
)
from rackassign.errors import NoAnswerError
from rackassign.model import Broker, TopicPartition

_LOOKS = 4
"""So often two brokers are asked until they say the same; a moment after a change they need not."""

_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers, and where the copies of all topics are.

    Args:
        brokers: In order of their ids, fenced ones included as far as the cluster tells.
        topics: By name.
        min_isr: `min.insync.replicas` of each topic that tells.
        in_flight: Partitions that are being reassigned.
        differing: Topics of which two brokers go on saying different things.
    """

    brokers: tuple[Broker, ...]
    topics: Mapping[str, DescribedTopic]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    in_flight: frozenset[TopicPartition] = frozenset()
    differing: tuple[str, ...] = ()

    def racks(self) -> dict[int, str]:
        """Return the rack of each broker that has one."""
        return {broker.id: broker.rack for broker in self.brokers if broker.rack is not None}


def observe(admin: KafkaAdminClient, topics: Iterable[str] | None = None) -> ClusterState:
    """Look at a cluster: five requests, of which the large one goes to two brokers.

    Args:
        admin: To ask with.
        topics: Names; all but Kafka's own if left out.

    Raises:
        NoAnswerError: No broker is up.
        KafkaError: As the admin client does.
    """
    brokers = listed_brokers(admin)
    wanted = None if topics is None else set(topics)
    views = _two_views(admin, [broker.id for broker in brokers if not broker.fenced], wanted)
    seen, other = views[0], views[-1]
    differing = tuple(sorted(name for name in seen.keys() | other.keys() if seen.get(name) != other.get(name)))
    sound = {name: topic for name, topic in sorted(seen.items()) if not topic.problem}
    in_flight = frozenset(TopicPartition(*place) for place in persist(admin.list_partition_reassignments))
    return ClusterState(brokers, sound, min_isr(admin, sound), in_flight, differing)


View = dict[str, DescribedTopic]


def _two_views(admin: KafkaAdminClient, live: list[int], wanted: set[str] | None) -> list[View]:
    """Return what two brokers say, again until it is the same; what one says if there is but one."""
    views: list[View] = []
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        # Lazily: the second answers if the first does, and a third if one of them does not.
        views = list(islice(_views(admin, live, wanted), 2))
        if views and views[0] == views[-1]:
            break
    if not views:
        raise NoAnswerError("no broker tells its metadata")
    return views


def _views(admin: KafkaAdminClient, live: list[int], wanted: set[str] | None) -> Iterable[View]:
    for broker in live:
        view = _view(admin, broker, wanted)
        if view is not None:
            yield view


def _view(admin: KafkaAdminClient, broker: int, wanted: set[str] | None) -> View | None:
    try:
        found = topics_of(admin, broker)
    except KafkaError:
        # One that is about to be fenced: its answer is not needed.
        return None
    return {
        name: topic for name, topic in found.items() if (name in wanted if wanted is not None else not topic.internal)
    }
