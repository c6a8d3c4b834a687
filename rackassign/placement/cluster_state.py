"""How a cluster's replicas lie, as two of its brokers see it.

What may not be seen is an error, never left out: who is told that nothing is wrong must be able to rely on it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.authorization import AuthorizationError, topic_resource
from rackassign.admin.cluster import (
    MIN_ISR,
    DescribedTopic,
    broker_configs,
    describe_topics_on,
    list_brokers,
    topic_configs,
)
from rackassign.admin.reassignments import ReassignmentAdmin
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import Broker, TopicPartition
from rackassign.util.text import short_repr

_LOOKS = 4
"""So often two brokers are asked until they say the same; a moment after a change they need not."""

_PAUSE_S = 0.5

THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Keys of topics: replicas whose traffic is held to a rate."""

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Keys of brokers: that rate, in bytes a second."""


@dataclass(frozen=True, slots=True)
class Throttles:
    """What slows replication down on purpose.

    Args:
        topics: That have replicas which are slowed down.
        brokers: That have a rate of their own.
        everywhere: Whether there is a rate for brokers that have none.
    """

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers, and where the copies of all topics are.

    Args:
        brokers: In order of their ids, fenced ones included as far as the cluster tells.
        topics: By name.
        min_isr: `min.insync.replicas` of each topic that tells.
        in_flight: Partitions that are being reassigned, of whatever topics.
        differing: Topics of which brokers go on saying different things.
        throttles: What slows replication down; of brokers only if it was asked for.
        silent: Brokers that are listed as up and did not answer when they were asked for that.
        gone: Racks of brokers that are no longer registered, as they were seen last.
    """

    brokers: tuple[Broker, ...]
    topics: Mapping[str, DescribedTopic]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    in_flight: frozenset[TopicPartition] = frozenset()
    differing: tuple[str, ...] = ()
    throttles: Throttles = field(default_factory=Throttles)
    silent: tuple[int, ...] = ()
    gone: Mapping[int, str] = field(default_factory=dict)

    def racks(self) -> dict[int, str]:
        """Return the rack of each broker that has one."""
        return {broker.id: broker.rack for broker in self.brokers if broker.rack is not None}

    def with_known_racks(self, racks: Mapping[int, str | None]) -> ClusterState:
        """Return the state with the racks that brokers had which the cluster does not list any more."""
        listed = {broker.id for broker in self.brokers}
        gone = {broker: rack for broker, rack in racks.items() if rack is not None and broker not in listed}
        return replace(self, gone=gone)


def describe_cluster_state(admin: KafkaAdminClient, topics: Iterable[str] | None = None) -> ClusterState:
    """Look at a cluster: four requests, and one more for each 500 topics; the large one goes to two brokers.

    Args:
        admin: To ask with.
        topics: Names; all that may be described if left out, Kafka's own among them.

    Raises:
        ConfigError: There is no topic of such a name.
        NotAllowedError: A topic that was named may not be described, or something else may not be seen.
        NoAnswerError: No broker is up.
        KafkaError: As the admin client does.
    """
    brokers = list_brokers(admin)
    live = [broker.id for broker in brokers if not broker.fenced]
    views = _two_views(admin, live, None if topics is None else sorted(set(topics)))
    seen, other = views[0], views[-1]
    _check_named(views)
    differing = {name for name in seen.keys() | other.keys() if seen.get(name) != other.get(name)}
    sound = {name: topic for name, topic in sorted(seen.items()) if not topic.problem}
    configs = topic_configs(admin, sound, [MIN_ISR, *THROTTLED])
    throttled = tuple(name for name, values in configs.items() if any(values.get(key) for key in THROTTLED))
    return ClusterState(
        brokers,
        sound,
        {name: int(values[MIN_ISR]) for name, values in configs.items()},
        frozenset(ReassignmentAdmin(admin).list_reassignments()),
        # What cannot be described by one, or is unknown to the broker that was asked for its configuration.
        tuple(sorted(differing | (seen.keys() - configs.keys()))),
        Throttles(throttled),
    )


def with_rates(admin: KafkaAdminClient, state: ClusterState) -> ClusterState:
    """Return the state with the rates that brokers hold replication to: one more request to each that is up.

    Raises:
        NotAllowedError: The configuration of brokers may not be seen.
    """
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
        # What counts for all is told of each as well.
        if own.items() - default.items():
            slowed.append(broker)
    throttles = replace(state.throttles, brokers=tuple(slowed), everywhere=everywhere)
    return replace(state, throttles=throttles, silent=tuple(silent))


View = dict[str, DescribedTopic]


def _check_named(views: list[View]) -> None:
    """Refuse names that no broker knows, and say which topics may not be seen; only named ones have such entries."""
    refused = {name for view in views for name, topic in view.items() if topic.refused}
    if refused:
        raise AuthorizationError("DESCRIBE", topic_resource(refused))
    unknown = sorted(name for name in views[0] if all(view[name].unknown for view in views))
    if unknown:
        raise ConfigError(f"topic: there is no {', no '.join(map(short_repr, unknown))} on this cluster")


def _two_views(admin: KafkaAdminClient, live: list[int], wanted: list[str] | None) -> list[View]:
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
        raise KafkaUnavailableError("no broker tells its metadata")
    return views


def _views(admin: KafkaAdminClient, live: list[int], wanted: list[str] | None) -> Iterable[View]:
    for broker in live:
        view = _view(admin, broker, wanted)
        if view is not None:
            yield view


def _view(admin: KafkaAdminClient, broker: int, wanted: list[str] | None) -> View | None:
    try:
        return describe_topics_on(admin, broker, wanted)
    except KafkaError:
        # One that is about to be fenced: its answer is not needed.
        return None
