"""Reads between racks: an assignment, evaluated with the replicas that serve it.

A reader in the rack of a counting replica is sent there, any other reads from the leader. The rack of a reader is
unknown if no broker is in it: its name is misspelled, or of another naming scheme.

A broker with a rack-aware `replica.selector.class` sends a reader to an in-sync replica in the reader's rack, and
serves it itself if there is none. A broker without it serves all readers of partitions that it leads. So whether a read
can be local depends on the leader's broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from kafka import KafkaAdminClient

from rackassign.admin.describe import RACK_AWARE
from rackassign.admin.describe import describe_topics as described_topics
from rackassign.locality import Kind, Locality, RackSets, read_locality
from rackassign.model import Broker, Group, LocalityMode, Partition, Partitions, TopicPartition, Topology
from rackassign.monitoring.live_groups import BrokerDescription, describe_brokers
from rackassign.racks import BrokerRackCache


class PartitionRead(NamedTuple):
    """One partition and its reader.

    Args:
        tp: The partition.
        member: ID of the reader.
        home: Rack of the reader; None if unknown, or if no broker is in it.
        source: Rack that it is read from; None if unknown, or if no replica serves it.
    """

    tp: TopicPartition
    member: str
    home: str | None
    source: str | None

    @property
    def kind(self) -> Kind:
        """Return whether the read is local."""
        return read_locality(self.source, self.home)


def partition_reads(
    group: Group, assignment: Mapping[str, Partitions], serving: Topology, leaders_only: frozenset[str] = frozenset()
) -> tuple[PartitionRead, ...]:
    """Return the reader and rack of each partition, by member ID."""
    # `serving`: the replicas that readers are sent to; a partition that is not in it is read from an unknown rack.
    # `leaders_only`: IDs of members that do not request a local replica.
    return tuple(
        PartitionRead(TopicPartition(run.topic, i), run.member, run.home, source)
        for run in topic_reads(group, assignment, serving, leaders_only)
        for i, source in zip(run.ids, run.sources, strict=True)
    )


class TopicRead(NamedTuple):
    """The partitions of a topic that one member reads."""

    topic: str
    member: str
    # Rack of the reader; None if unknown, or if no broker is in it.
    home: str | None
    ids: tuple[int, ...]
    # Rack that each is read from; None if unknown, or if no replica serves it.
    sources: list[str | None]


def topic_reads(
    group: Group, assignment: Mapping[str, Partitions], serving: Topology, leaders_only: frozenset[str] = frozenset()
) -> Iterator[TopicRead]:
    """Yield the reads of `partition_reads`, grouped by member and topic."""
    bits = RackSets.of(serving, "any-replica")
    racks = serving.broker_racks()
    near = bits.all_partition_racks(serving)
    leading = {
        topic: [None if p.leader is None else racks.get(p.leader) for p in row] for topic, row in serving.topics.items()
    }
    led = {topic: [p.leader is not None for p in row] for topic, row in serving.topics.items()}
    for member in sorted(group.members, key=lambda m: m.id):
        home = member.rack if member.rack in bits.bits else None
        bit = 0 if member.id in leaders_only else bits.bits.get(home or "", 0)
        for topic, ids in sorted(assignment.get(member.id, {}).items()):
            row, far, has = near.get(topic, ()), leading.get(topic, ()), led.get(topic, ())
            there = len(row)
            sources = [(home if row[i] & bit else far[i]) if i < there and has[i] else None for i in ids]
            yield TopicRead(topic, member.id, home, tuple(ids), sources)


def in_each_rack(reads: Iterable[PartitionRead], serving: Topology) -> frozenset[TopicPartition]:
    """Return the partitions of readers of unknown rack that are served from each rack: local to any `client.rack`."""
    racks = RackSets.of(serving, "any-replica")
    near = racks.all_partition_racks(serving)
    everywhere = sum(racks.bits.values())
    if len(racks.bits) == 1:
        # Then a reader of unknown rack has a replica in its rack now, or no `client.rack` gives it one.
        return frozenset()
    return frozenset(
        read.tp
        for read in reads
        if read.home is None and read.source is not None and near[read.tp.topic][read.tp.partition] == everywhere
    )


def count_locality(found: Iterable[PartitionRead]) -> Locality:
    """Count local, cross-rack and unknown partitions."""
    return Locality.of_reads(read.kind for read in found)


@dataclass(frozen=True, slots=True)
class TrafficMatrix:
    """Traffic between racks, in bytes per second.

    Args:
        pairs: Traffic by source rack and reader's rack; None for unknown racks.
        unmeasured: Partitions of unknown rate; they are in no pair.
    """

    pairs: Mapping[tuple[str | None, str | None], float]
    unmeasured: int = 0

    @property
    def local(self) -> float:
        """Traffic within a rack."""
        return sum(rate for (source, home), rate in self.pairs.items() if source is not None and source == home)

    @property
    def cross(self) -> float:
        """Traffic from one rack to another."""
        return sum(rate for (source, home), rate in self.pairs.items() if None not in {source, home} and source != home)

    @property
    def unknown(self) -> float:
        """Traffic of which one rack is unknown."""
        return sum(rate for pair, rate in self.pairs.items() if None in pair)

    @property
    def cross_at_most(self) -> float:
        """Traffic that crosses racks or may do so, because a rack is unknown."""
        return self.cross + self.unknown

    @property
    def total(self) -> float:
        """All traffic."""
        return sum(self.pairs.values())


def total_traffic(matrices: Iterable[TrafficMatrix]) -> TrafficMatrix:
    """Add up traffic."""
    pairs: dict[tuple[str | None, str | None], float] = {}
    unmeasured = 0
    for matrix in matrices:
        unmeasured += matrix.unmeasured
        for pair, rate in matrix.pairs.items():
            pairs[pair] = pairs.get(pair, 0.0) + rate
    return TrafficMatrix(pairs, unmeasured)


def traffic_matrix(found: Iterable[PartitionRead], bytes_s: Mapping[TopicPartition, float]) -> TrafficMatrix:
    """Add up the traffic of reads."""
    pairs: dict[tuple[str | None, str | None], float] = {}
    unmeasured = 0
    for read in found:
        rate = bytes_s.get(read.tp)
        if rate is None:
            unmeasured += 1
        else:
            pair = (read.source, read.home)
            pairs[pair] = pairs.get(pair, 0.0) + rate
    return TrafficMatrix(pairs, unmeasured)


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

    def serving_all(self) -> frozenset[int]:
        """Return the brokers that serve all readers of the partitions that they lead."""
        silent = [broker.id for broker in self.brokers if broker.problem] if self.read_policy != "any-replica" else []
        return frozenset({*self.without_selector(), *silent})

    def with_selectors(self) -> ObservedCluster:
        """Return the cluster with a rack-aware replica selector on all brokers."""
        brokers = (replace(broker, selector=broker.selector or RACK_AWARE, problem="") for broker in self.brokers)
        return replace(self, brokers=tuple(brokers))

    def selectable_replicas(self, topology: Topology) -> Topology:
        """Return a topology with the replicas of each partition to which the leader's broker sends readers."""
        plain = self.serving_all()
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


def _kept(partition: Partition, plain: Collection[int]) -> Partition:
    if partition.leader is None or partition.leader not in plain:
        return partition
    return replace(partition, replicas=(partition.leader,))


def describe_cluster(admin: KafkaAdminClient, topics: Iterable[str], racks: BrokerRackCache) -> ObservedCluster:
    """Describe the brokers and some topics."""
    # `topics`: topic names; those that do not exist, or may not be described, are `missing`.
    wanted = set(topics)
    brokers = describe_brokers(admin)
    racks.update(Broker(broker.id, broker.rack, fenced=broker.fenced) for broker in brokers)
    described = described_topics(admin, wanted)
    sound = {name: topic for name, topic in described.items() if not topic.problem}
    topology = Topology(
        tuple(Broker(broker.id, broker.rack, fenced=broker.fenced) for broker in brokers),
        {name: topic.partitions for name, topic in sorted(sound.items())},
    )
    return ObservedCluster(
        brokers,
        racks.fill_missing(topology),
        {name: topic.in_sync for name, topic in sound.items()},
        {
            name: described[name].problem if name in described else "not described"
            for name in sorted(wanted - sound.keys())
        },
    )
