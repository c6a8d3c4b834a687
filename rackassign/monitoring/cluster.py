"""A cluster as its groups read from it: where the copies are, and which of them a reader is sent to.

A broker with a rack-aware `replica.selector.class` sends a reader to an in-sync copy in the reader's rack, and keeps it
if there is none. One without keeps every reader of what it leads. So what is near is a matter of the leader's broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kafka import KafkaAdminClient

from rackassign.admin.cluster import describe_topics as described_topics
from rackassign.model import Broker, LocalityMode, Partition, Topology
from rackassign.monitoring.groups import BrokerDescription, describe_brokers
from rackassign.racks import BrokerRackCache

Holds = Literal["any-replica", "leader", "mixed", "unknown"]
"""Which replicas readers are sent to: any that is near, the leader, or the one or the other by the leader's broker. If
no broker says, leaders are taken to serve."""


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """Brokers, and the topics that were asked for.

    Args:
        brokers: All that are known.
        topology: The copies, in sync or not, and the brokers that are away with the racks they were seen in last.
        in_sync: The in-sync replicas of each partition, by topic.
        missing: Topics that cannot be described, each with the reason.
    """

    brokers: tuple[BrokerDescription, ...]
    topology: Topology
    in_sync: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def read_policy(self) -> Holds:
        """Tell which replicas readers are sent to, by the brokers that say so."""
        has = {bool(broker.selector) for broker in self.brokers if not broker.fenced and not broker.problem}
        if len(has) != 1:
            return "mixed" if has else "unknown"
        return "any-replica" if True in has else "leader"

    def without_selector(self) -> tuple[int, ...]:
        """Return the brokers that say that they have none."""
        return tuple(b.id for b in self.brokers if not b.selector and not b.fenced and not b.problem)

    @property
    def mode(self) -> LocalityMode:
        """Return the locality that assignors of this cluster's consumers should have."""
        return "leader" if self.read_policy in {"leader", "unknown"} else "any-replica"

    def selectable_replicas(self, topology: Topology) -> Topology:
        """Return a topology with those replicas of each partition that the leader's broker sends readers to."""
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
        """Return a part of the topology with those replicas only that serve readers now."""
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
        admin: To ask with.
        topics: Names; those that do not exist, or may not be seen, are `missing` then.
        racks: Of brokers that were seen before, told of those that are seen now.

    Raises:
        KafkaError: As the admin client does.
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
