"""What crosses racks in a cluster, line by line: replicating, producing and consuming.

Each byte that is written is replicated to all followers, so replicating follows from what is written and from where
replicas are. Producing is known where producers export what they write; of everything else it is only known that it is
between nothing and all of it. Consuming is what groups read, from the replicas that brokers send them to.

A figure is a range: bytes that cross racks for certain, and bytes that do at most. A reader or a producer of unknown
rack makes the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rackassign.bill import Line
from rackassign.model import Group, LocalityMode, Partition, Partitions, Plan, TopicPartition
from rackassign.monitoring import ClusterReport, ObservedCluster, ReadRates, Snapshot, Throughput
from rackassign.monitoring.traffic import PartitionRead, TrafficMatrix, in_each_rack, partition_reads, traffic_matrix
from rackassign.monitoring.written_bytes import WrittenTraffic
from rackassign.strategies import Options, plan_consumer_protocol, plan_cooperative

Writers = Mapping[TopicPartition, Mapping[str | None, float]]
"""Bytes per second that are written to each partition, by rack of the producer; None for those of unknown rack."""


class Span(NamedTuple):
    """Bytes per second across racks: at least, and at most."""

    least: float = 0.0
    most: float = 0.0

    def plus(self, other: Span) -> Span:
        """Return the sum."""
        return Span(self.least + other.least, self.most + other.most)

    def less(self, after: Span) -> Span:
        """Return what is saved if this becomes another amount."""
        return Span(*sorted((self.least - after.least, self.most - after.most)))

    def times(self, factor: float) -> Span:
        """Return a multiple."""
        return Span(self.least * factor, self.most * factor)


def total(spans: Iterable[Span]) -> Span:
    """Return the sum of amounts."""
    least = most = 0.0
    for span in spans:
        least, most = least + span.least, most + span.most
    return Span(least, most)


class ItemKey(NamedTuple):
    """What an item of the bill is of: of replicating and producing the topic, of consuming the group as well."""

    line: Line
    topic: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """Traffic of an item: by pair of racks, and how much of it crosses racks."""

    traffic: TrafficMatrix
    across: Span

    @classmethod
    def of(cls, traffic: TrafficMatrix, covered: float = 0.0) -> Item:
        # `covered`: bytes of unknown racks that are local in whatever rack their reader is.
        return cls(traffic, Span(traffic.cross, traffic.cross_at_most - covered))


Items = Mapping[ItemKey, Item]


@dataclass(frozen=True, slots=True)
class Setting:
    """What levers change; without anything it is the cluster as it is.

    Args:
        partitions: The replicas and the leaders of the partitions that change.
        fetching: Whether all brokers have a replica selector, and all consumers `client.rack`.
        assigned: Names of groups in which rackassign assigns partitions to members.
        joined: Groups with one member more, by name, with the partitions of each member.
    """

    partitions: Mapping[TopicPartition, Partition] = field(default_factory=dict)
    fetching: bool = False
    assigned: frozenset[str] = frozenset()
    joined: Mapping[str, tuple[Group, Mapping[str, Partitions]]] = field(default_factory=dict)


class Readers(NamedTuple):
    """A group, what it reads, and its partitions by member as rackassign would assign them.

    There are two such assignments, as in `GroupAnalysis`; none if they are not needed, or if there are no members.
    """

    snapshot: Snapshot
    rates: ReadRates
    targets: tuple[Mapping[str, Partitions], Mapping[str, Partitions]] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What is written to and read from a cluster.

    Args:
        cluster: Brokers and all topics.
        measured: Throughput of the topics.
        groups: The groups.
        writers: What is written to each partition, by rack of the producer.
        read_factors: By which factor groups read less of a topic than the report assumes.
        other_reads: What is read of a topic beside the groups of the report.
    """

    cluster: ObservedCluster
    measured: Throughput
    groups: tuple[Readers, ...]
    writers: Writers
    read_factors: Mapping[str, float] = field(default_factory=dict)
    other_reads: Mapping[str, TrafficMatrix] = field(default_factory=dict)

    @classmethod
    def of(cls, report: ClusterReport, producers: WrittenTraffic | None = None) -> Usage:
        """Return the usage of a report, with what producers export."""
        groups = (Readers(g.snapshot, g.rates, g.targets if g.reaches else None) for g in report.inspections)
        writers = writers_of(report.cluster, report.measured, producers)
        return cls(report.cluster, report.measured, tuple(groups), writers)

    @property
    def written(self) -> dict[TopicPartition, float]:
        """Return the bytes per second that are written to each partition."""
        return {tp: sum(by_rack.values()) for tp, by_rack in self.writers.items()}

    def partition(self, tp: TopicPartition, setting: Setting) -> Partition:
        """Return the replicas and the leader of a partition."""
        return setting.partitions.get(tp) or self.cluster.topology.topics[tp.topic][tp.partition]

    def items(self, setting: Setting) -> Items:
        """Return all items of the bill."""
        found: dict[ItemKey, Item] = {}
        found |= self._written_items(setting)
        for group in self.groups:
            found |= self.read_items(group, setting)
        for topic, matrix in self.other_reads.items():
            found[ItemKey("consuming", topic)] = Item.of(matrix)
        return found

    def _written_items(self, setting: Setting) -> Items:
        racks = self.cluster.topology.broker_racks()
        pairs: dict[ItemKey, dict[tuple[str | None, str | None], float]] = {}
        for tp, by_rack in self.writers.items():
            partition = self.partition(tp, setting)
            home = None if partition.leader is None else racks.get(partition.leader)
            copied, size = pairs.setdefault(ItemKey("replicating", tp.topic), {}), sum(by_rack.values())
            for broker in {*partition.replicas} - {partition.leader}:
                pair = home, racks.get(broker)
                copied[pair] = copied.get(pair, 0.0) + size
            sent = pairs.setdefault(ItemKey("producing", tp.topic), {})
            for rack, amount in by_rack.items():
                sent[rack, home] = sent.get((rack, home), 0.0) + amount
        return {key: Item.of(TrafficMatrix(of_key)) for key, of_key in pairs.items()}

    def written_anywhere(self, setting: Setting) -> float:
        """Return bytes per second of producers of unknown rack to topics that are led in each rack.

        Producers whose writes are counted choose leaders in their rack already, so what they write elsewhere has keys.
        """
        racks = self.cluster.topology.broker_racks()
        led: dict[str, set[str]] = {}
        for tp in self.writers:
            leader = self.partition(tp, setting).leader
            if leader in racks:
                led.setdefault(tp.topic, set()).add(racks[leader])
        everywhere = {topic for topic, of in led.items() if of == set(racks.values()) and len(of) > 1}
        return sum(by_rack.get(None, 0.0) for tp, by_rack in self.writers.items() if tp.topic in everywhere)

    def read_items(self, group: Readers, setting: Setting) -> Items:
        """Return the items of a group."""
        reads, covered = self.reads(group, setting)
        by_topic: dict[str, list[PartitionRead]] = {}
        for read in reads:
            by_topic.setdefault(read.tp.topic, []).append(read)
        racks, topics = self.cluster.topology.broker_racks(), self.cluster.topology.topics
        for tp in group.rates.unowned_s:
            leader = self.partition(tp, setting).leader if tp.topic in topics else None
            read = PartitionRead(tp, "", None, None if leader is None else racks.get(leader))
            by_topic.setdefault(tp.topic, []).append(read)
        rates = {**group.rates.bytes_s, **group.rates.unowned_s}
        if self.read_factors:
            rates = {tp: rate * self.read_factors.get(tp.topic, 1.0) for tp, rate in rates.items()}
        return {
            ItemKey("consuming", topic, group.snapshot.live.name): Item.of(
                traffic_matrix(of_topic, rates),
                sum(rates.get(read.tp, 0.0) for read in of_topic if read.tp in covered),
            )
            for topic, of_topic in by_topic.items()
        }

    def reads(self, group: Readers, setting: Setting) -> tuple[tuple[PartitionRead, ...], frozenset[TopicPartition]]:
        """Return who reads what from where, and the partitions that are local in whatever rack their reader is."""
        cluster, shot = self.cluster, group.snapshot.without_foreign_racks()
        topics = {
            topic: tuple(setting.partitions.get(TopicPartition(topic, i), p) for i, p in enumerate(row))
            for topic, row in shot.group.topology.topics.items()
        }
        # A replica that is out of sync serves no reader now, and one that is placed newly will be in sync.
        in_sync = {
            topic: tuple(
                ids
                if topics[topic][i].replicas == shot.group.topology.topics[topic][i].replicas
                else topics[topic][i].replicas
                for i, ids in enumerate(cluster.in_sync[topic])
            )
            for topic in topics
        }
        observed = replace(cluster, in_sync=in_sync)
        if setting.fetching:
            observed = observed.with_selectors()
        topology = replace(shot.group.topology, topics=topics)
        serving = observed.in_sync_replicas(topology)
        name = shot.live.name
        target: Mapping[str, Partitions] = shot.owned
        members = replace(setting.joined[name][0] if name in setting.joined else shot.group, topology=topology)
        assigned = name in setting.assigned
        # rackassign's consumers have `client.rack`.
        settled = setting.fetching or assigned
        if assigned and group.targets is not None:
            moved = any(
                set(new.replicas) != set(old.replicas)
                for topic, row in topics.items()
                for new, old in zip(row, shot.group.topology.topics[topic], strict=True)
                if new is not old
            )
            if moved:
                target = plan_for(members, shot.live.kind, observed.mode).target
            else:
                target = setting.joined[name][1] if name in setting.joined else group.targets[setting.fetching]
        reads = partition_reads(members, target, serving, frozenset() if settled else shot.leaders_only)
        return reads, in_each_rack(reads, serving) if settled else frozenset()


def plan_for(group: Group, kind: str, mode: LocalityMode) -> Plan:
    """Plan a group as rackassign assigns it, in a member or in the broker."""
    if kind == "consumer":
        return plan_consumer_protocol(group, Options(time_limit_s=_PLAN_S))
    return plan_cooperative(group, Options(locality=mode, time_limit_s=_PLAN_S))


_PLAN_S = 30.0
"""Time limit of each plan; the best result until then is used."""


_SAME = 0.03
"""Differences of that share are none: logs and producers are not read at the same moment."""

OVERCLAIMED = 1.25
"""Producers that export so many times what the logs of a topic grow by are not those of the topic alone."""

BROKERS_OWN = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
"""Topics that coordinators write to."""


def writers_of(cluster: ObservedCluster, measured: Throughput, producers: WrittenTraffic | None = None) -> Writers:
    """Return what is written to each partition: what producers export, and of what logs grow by the rest.

    What producers export by topic alone is spread over the partitions that are led in the rack that they wrote to.
    """
    racks = cluster.topology.broker_racks()
    topics = cluster.topology.topics
    grown = {tp: rate for tp, rate in measured.bytes_s.items() if tp.partition < len(topics.get(tp.topic, ()))}
    led: dict[tuple[str, str | None], list[TopicPartition]] = {}
    for topic, row in topics.items():
        for i, partition in enumerate(row):
            home = None if partition.leader is None else racks.get(partition.leader)
            led.setdefault((topic, home), []).append(TopicPartition(topic, i))
    found: dict[TopicPartition, dict[str | None, float]] = {tp: {} for tp in grown}
    for series, rate in producers.rates.items() if producers is not None else ():
        home = series.rack if series.rack in racks.values() else None
        to = [TopicPartition(series.topic, series.partition)] if series.partition is not None else ()
        to = to or led.get((series.topic, series.to_rack), ())
        whole = sum(grown.get(tp, 0.0) for tp in to)
        for tp in to:
            by_rack = found.setdefault(tp, {})
            by_rack[home] = by_rack.get(home, 0.0) + rate * (grown.get(tp, 0.0) / whole if whole else 1 / len(to))
    # What is in no log was sent elsewhere, or before compression: only its shares count.
    claimed, kept = dict[str, float](), dict[str, float]()
    for tp, by_rack in found.items():
        claimed[tp.topic] = claimed.get(tp.topic, 0.0) + sum(by_rack.values())
        kept[tp.topic] = kept.get(tp.topic, 0.0) + grown.get(tp, 0.0)
    for tp, by_rack in found.items():
        if tp in grown and claimed[tp.topic] > OVERCLAIMED * kept[tp.topic]:
            found[tp] = {rack: size * kept[tp.topic] / claimed[tp.topic] for rack, size in by_rack.items()}
    for tp, rate in grown.items():
        rest = rate - sum(found[tp].values())
        if rest > _SAME * rate:
            leader = topics[tp.topic][tp.partition].leader
            # Brokers themselves write to Kafka's own topics, to partitions that they lead.
            home = racks.get(leader) if tp.topic in BROKERS_OWN and leader is not None else None
            found[tp][home] = found[tp].get(home, 0.0) + rest
    return {tp: found[tp] for tp in sorted(found) if tp.partition < len(topics.get(tp.topic, ()))}
