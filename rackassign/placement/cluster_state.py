"""The state of a cluster's replicas, as reported by two of its brokers.

A missing permission is an error and its topics are never left out: a result without problems must be reliable.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.admin_client import AuthorizationError, topic_resource
from rackassign.admin.alter import ReassignmentAdmin
from rackassign.admin.describe import (
    MIN_ISR,
    DescribedTopic,
    broker_configs,
    describe_topics_on,
    list_brokers,
    topic_configs,
)
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import Broker, TopicPartition
from rackassign.text import short_repr

_LOOKS = 4
"""Number of times that two brokers are compared until they agree; shortly after a change they need not."""

_PAUSE_S = 0.5

THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Topic configurations with the replicas that are throttled."""

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Broker configurations with the rate of throttled replication, in bytes per second."""


@dataclass(frozen=True, slots=True)
class Throttles:
    """Replication throttles."""

    # Topics with throttled replicas, brokers with a rate of their own, and whether there is a default rate for all.
    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers, and the replicas of all topics."""

    # By ID, including fenced ones as far as the cluster reports them.
    brokers: tuple[Broker, ...]
    topics: Mapping[str, DescribedTopic]
    # Of topics where it is known; and partitions of any topic with a reassignment in progress.
    min_isr: Mapping[str, int] = field(default_factory=dict)
    in_flight: frozenset[TopicPartition] = frozenset()
    # Topics that brokers keep reporting differently.
    differing: tuple[str, ...] = ()
    # Rates of brokers only if they were requested, and online brokers that did not respond to that.
    throttles: Throttles = field(default_factory=Throttles)
    silent: tuple[int, ...] = ()
    # Last known racks of brokers that are no longer registered.
    gone: Mapping[int, str] = field(default_factory=dict)

    def racks(self) -> dict[int, str]:
        return {broker.id: broker.rack for broker in self.brokers if broker.rack is not None}

    def leader(self, tp: TopicPartition) -> int | None:
        return self.topics[tp.topic].partitions[tp.partition].leader

    def offline(self, tp: TopicPartition) -> tuple[int, ...]:
        """Return the replicas of a partition that are on an offline broker or disk."""
        rows = self.topics[tp.topic].offline
        return rows[tp.partition] if rows else ()

    def with_known_racks(self, racks: Mapping[int, str | None]) -> ClusterState:
        """Return the state with the last known racks of brokers that the cluster no longer lists."""
        listed = {broker.id for broker in self.brokers}
        gone = {broker: rack for broker, rack in racks.items() if rack is not None and broker not in listed}
        return replace(self, gone=gone)


def describe_cluster_state(admin: KafkaAdminClient, topics: Iterable[str] | None = None) -> ClusterState:
    """Describe a cluster: four requests, and one more for each 500 topics; the large one goes to two brokers."""
    # Without `topics` all that may be described, including Kafka's own.
    brokers = list_brokers(admin)
    live = [broker.id for broker in brokers if not broker.fenced]
    views = _two_views(admin, live, None if topics is None else sorted(set(topics)))
    view, other = views[0], views[-1]
    _check_named(views)
    differing = {name for name in view.keys() | other.keys() if view.get(name) != other.get(name)}
    sound = {name: topic for name, topic in sorted(view.items()) if not topic.problem}
    configs = topic_configs(admin, sound, [MIN_ISR, *THROTTLED])
    throttled = tuple(name for name, values in configs.items() if any(values.get(key) for key in THROTTLED))
    return ClusterState(
        brokers,
        sound,
        {name: int(values[MIN_ISR]) for name, values in configs.items()},
        frozenset(ReassignmentAdmin(admin).list_reassignments()),
        # Topics that one of the brokers cannot describe, or that are unknown to the broker with the configurations.
        tuple(sorted(differing | (view.keys() - configs.keys()))),
        Throttles(throttled),
    )


def with_rates(admin: KafkaAdminClient, state: ClusterState) -> ClusterState:
    """Return the state with the throttle rates of brokers: one more request to each online broker."""
    slowed: list[int] = []
    silent: list[int] = []
    everywhere = False
    for broker in (broker.id for broker in state.brokers if not broker.fenced):
        try:
            own, default = broker_configs(admin, broker, RATES)
        except AuthorizationError:
            raise
        except KafkaError:
            silent.append(broker)
            continue
        everywhere = everywhere or bool(default)
        # A cluster-wide default is also reported by each broker.
        if own.items() - default.items():
            slowed.append(broker)
    throttles = replace(state.throttles, brokers=tuple(slowed), everywhere=everywhere)
    return replace(state, throttles=throttles, silent=tuple(silent))


View = dict[str, DescribedTopic]


def _check_named(views: list[View]) -> None:
    """Raise for named topics that no broker knows, or that may not be described; only named ones have such entries."""
    refused = {name for view in views for name, topic in view.items() if topic.refused}
    if refused:
        raise AuthorizationError("DESCRIBE", topic_resource(refused))
    unknown = sorted(name for name in views[0] if all(view[name].unknown for view in views))
    if unknown:
        raise ConfigError(f"topic {', '.join(map(short_repr, unknown))} does not exist in this cluster")


def _two_views(admin: KafkaAdminClient, live: list[int], wanted: list[str] | None) -> list[View]:
    """Return the metadata of two brokers, repeated until they agree; of one broker if there is only one."""
    views: list[View] = []
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        # The views are lazy: the second broker is used if the first responds, and a third if one of them does not.
        views = list(islice(_views(admin, live, wanted), 2))
        if views and views[0] == views[-1]:
            break
    if not views:
        raise KafkaUnavailableError("no broker responds with its metadata")
    return views


def _views(admin: KafkaAdminClient, live: list[int], wanted: list[str] | None) -> Iterable[View]:
    for broker in live:
        # The response of a broker that is about to be fenced is not needed.
        with suppress(KafkaError):
            yield describe_topics_on(admin, broker, wanted)
