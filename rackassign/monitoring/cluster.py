"""A cluster as its groups read from it: its replicas, and the ones that readers are sent to.

A broker with a rack-aware `replica.selector.class` sends a reader to an in-sync replica in the reader's rack, and
serves it itself if there is none. A broker without it serves all readers of partitions that it leads. So whether a read
can be local depends on the leader's broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kafka import KafkaAdminClient

from rackassign.admin.describe import describe_topics as described_topics
from rackassign.model import Broker, LocalityMode, Partition, Topology
from rackassign.monitoring.groups import BrokerDescription, describe_brokers
from rackassign.racks import BrokerRackCache

Holds = Literal["any-replica", "leader", "mixed", "unknown"]
"""Which replicas readers are sent to: any local one, the leader, or either of them depending on the leader's broker. If
no broker reports a selector configuration, leaders are assumed."""


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """Brokers, and the requested topics.

    Args:
        brokers: All known brokers.
        topology: All replicas, in sync or not, and the last known racks of offline brokers.
        in_sync: The in-sync replicas of each partition, by topic.
        missing: Topics that cannot be described, each with the reason.
        id: ID of the cluster; empty if it is unknown, or was not requested.
    """

    brokers: tuple[BrokerDescription, ...]
    topology: Topology
    in_sync: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    id: str = ""

    @property
    def read_policy(self) -> Holds:
        """Return which replicas readers are sent to, from the brokers that report it."""
        has = {bool(broker.selector) for broker in self.brokers if not broker.fenced and not broker.problem}
        if len(has) != 1:
            return "mixed" if has else "unknown"
        return "any-replica" if True in has else "leader"

    def without_selector(self) -> tuple[int, ...]:
        """Return the brokers that report no selector."""
        return tuple(b.id for b in self.brokers if not b.selector and not b.fenced and not b.problem)

    @property
    def mode(self) -> LocalityMode:
        """Return the locality that assignors of this cluster's consumers should have."""
        return "leader" if self.read_policy in {"leader", "unknown"} else "any-replica"

    def selectable_replicas(self, topology: Topology) -> Topology:
        """Return a topology with the replicas of each partition to which the leader's broker sends readers."""
        silent = (
            {broker.id for broker in self.brokers if broker.problem} if self.read_policy != "any-replica" else set()
        )
        plain = {*self.without_selector(), *silent}
        if not plain:
            return topology
        return replace(
            topology, topics={topic: tuple(_kept(p, plain) for p in row) for topic, row in topology.topics.items()}
        )

    def in_sync_replicas(self, topology: Topology) -> Topology:
        """Return a part of the topology with only the replicas that serve readers now."""
        topics = {
            topic: tuple(
                p
                if in_sync == p.replicas
                else replace(p, replicas=tuple(replica for replica in p.replicas if replica in in_sync))
                for p, in_sync in zip(row, self.in_sync[topic], strict=True)
            )
            for topic, row in topology.topics.items()
        }
        return self.selectable_replicas(replace(topology, topics=topics))


def _kept(partition: Partition, plain: set[int]) -> Partition:
    if partition.leader is None or partition.leader not in plain:
        return partition
    return replace(partition, replicas=(partition.leader,))


def describe_cluster(admin: KafkaAdminClient, topics: Iterable[str], racks: BrokerRackCache) -> ObservedCluster:
    """Describe the brokers and some topics.

    Args:
        admin: Admin client.
        topics: Topic names; those that do not exist, or may not be described, are `missing`.
        racks: Cache of the last known racks of brokers; it is updated.

    Raises:
        KafkaError: Raised by the admin client.
    """
    wanted = set(topics)
    brokers = describe_brokers(admin)
    racks.update(Broker(broker.id, broker.rack, fenced=broker.fenced) for broker in brokers)
    found = described_topics(admin, wanted)
    sound = {name: topic for name, topic in found.items() if not topic.problem}
    topology = Topology(
        tuple(Broker(broker.id, broker.rack, fenced=broker.fenced) for broker in brokers),
        {name: topic.partitions for name, topic in sorted(sound.items())},
    )
    return ObservedCluster(
        brokers,
        racks.fill_missing(topology),
        {name: topic.in_sync for name, topic in sound.items()},
        {name: found[name].problem if name in found else "not described" for name in sorted(wanted - sound.keys())},
    )
