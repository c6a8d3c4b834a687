"""Replicas in the racks of a group's readers: only those copies that make more partitions local.

Under the optimal assignment, each partition that is read across racks needs exactly one replica in the rack of its
reader: the assignment stays as balanced as it was, and one more partition is local. One copy never makes more than one
more partition local, as it changes the choices of one. So these copies are the fewest for their gain, and none is made
where the group's reads are already local.

At the end is the locality of a consumer group, and what other placements would gain it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from kafka import KafkaAdminClient

from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, TopicPartition
from rackassign.monitoring import GroupAnalysis, GroupCollector, ReadRates
from rackassign.monitoring.analysis import inspect
from rackassign.monitoring.live_groups import RackMap
from rackassign.monitoring.traffic import ObservedCluster, PartitionRead, count_locality, partition_reads
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.layout import Layout
from rackassign.strategies import Options, plan_cooperative
from rackassign.text import counted, short_repr

Replicas: TypeAlias = tuple[int, ...]


class CrossRackRead(NamedTuple):
    """A partition that is read from another rack."""

    tp: TopicPartition
    member: str
    home: str


def move_replicas_to_readers(
    layout: Layout, near: GroupLocality, before: Mapping[TopicPartition, Replicas], rules: PlacementConstraints
) -> dict[TopicPartition, Replicas]:
    """Return local replica lists for partitions that are not local with their current lists.

    No partition is in fewer racks than before, and its leader stays where that does not matter to its reader.
    """
    # `layout` has all else that was requested. Partitions in `before` may be changed, and have their current lists: a
    # copy that is made anyway can be redirected at no cost.
    moved = ReplicaMover(layout, rules).all(near, before)
    # Each list must gain one local partition. Lists that do not with the resulting assignment are not worth a copy.
    while moved:
        after = layout.with_lists(moved)
        if near.local_partitions(after) - near.local_partitions(layout) >= len(moved):
            return moved
        still = {read.tp for read in near.cross_rack_reads(after)}
        kept = {tp: row for tp, row in moved.items() if tp not in still}
        if len(kept) == len(moved):
            return {}
        moved = kept
    return moved


class ReplicaMover:
    """Computes local lists one after the other, with the resulting load of each broker."""

    def __init__(self, layout: Layout, rules: PlacementConstraints) -> None:
        self._layout, self._rules = layout, rules
        self._racks = layout.racks()
        self._load = Counter(broker for rows in layout.topics.values() for row in rows for broker in row)
        self._weights = {**layout.weights, **rules.weights}
        self._never_lead = rules.exclude.union(broker.id for broker in layout.brokers if broker.fenced)

    def all(self, near: GroupLocality, before: Mapping[TopicPartition, Replicas]) -> dict[TopicPartition, Replicas]:
        """Return local lists for cross-rack reads, as far as the constraints allow."""
        moved: dict[TopicPartition, Replicas] = {}
        for read in sorted(near.cross_rack_reads(self._layout)):
            if read.tp not in before:
                continue
            row = self._layout.topics[read.tp.topic][read.tp.partition]
            drawn = next(
                (each for each in self._rows(row, before[read.tp], read.home) if near.would_be_local(read, each)),
                None,
            )
            if drawn is not None:
                self._load.update(set(drawn) - set(row))
                self._load.subtract(set(row) - set(drawn))
                moved[read.tp] = drawn
        return moved

    def _rows(self, row: Replicas, before: Replicas, home: str) -> Iterable[Replicas]:
        """Yield lists with a local replica, the smallest change first: another copy, and only then another leader."""
        there = [broker for broker in row if self._racks.get(broker) == home]
        if there:
            # The rack has a replica, and its reader is sent to the leader, so only the order matters.
            yield from self._led([row], there)
            return
        new = self._new(row, before, home)
        if new is None:
            return
        drawn = [tuple(new if broker == old else broker for broker in row) for old in self._old(row, before)]
        drawn = [each for each in drawn if self._allowed(each, row)]
        yield from drawn[:1]
        yield from self._led(drawn[:1], [new])

    def _led(self, rows: Iterable[Replicas], leaders: Iterable[int]) -> Iterable[Replicas]:
        may = [
            leader
            for leader in leaders
            if leader not in self._never_lead
            and (not self._rules.leader_racks or self._racks[leader] in self._rules.leader_racks)
        ]
        for row in rows:
            for leader in may:
                yield (leader, *(broker for broker in row if broker != leader))

    def _new(self, row: Collection[int], before: Replicas, home: str) -> int | None:
        """Return a broker of the rack, one first that has the partition now: nothing is copied to it."""
        fit = [broker.id for broker in self._layout.brokers if broker.rack == home and self._takes(broker, row)]
        return min(fit, key=lambda broker: (broker not in before, self._share(broker, 1), broker), default=None)

    def _takes(self, broker: Broker, row: Collection[int]) -> bool:
        closed = self._rules.exclude | self._rules.no_new_replicas
        return not broker.fenced and broker.id not in row and broker.id not in closed

    def _old(self, row: Replicas, before: Replicas) -> list[int]:
        """Return the replicas to be replaced, best first: one not copied yet, a rack's second, the fullest broker's."""
        in_rack = Counter(self._racks.get(broker) for broker in row)
        return sorted(
            row,
            key=lambda broker: (
                broker in before,
                -in_rack[self._racks.get(broker)],
                broker == row[0],
                -self._share(broker, 0),
                broker,
            ),
        )

    def _allowed(self, row: Replicas, now: Replicas) -> bool:
        rules, in_rack = self._rules, Counter(self._racks.get(broker) for broker in row)
        racks = len({self._racks.get(broker) for broker in now})
        return (
            len(in_rack) >= racks
            and (rules.max_racks is None or len(in_rack) <= rules.max_racks)
            and (rules.max_per_rack == "even" or max(in_rack.values()) <= rules.max_per_rack)
            and (not rules.leader_racks or self._racks.get(row[0]) in rules.leader_racks or row[0] == now[0])
        )

    def _share(self, broker: int, more: int) -> float:
        return (self._load[broker] + more) / float(self._weights.get(broker, 1))


@dataclass(frozen=True, slots=True)
class GroupLocality:
    """The locality of a group."""

    cluster: ObservedCluster
    inspection: GroupAnalysis
    # Members in each rack of the brokers, 0 for racks without one, and by topic those that subscribe to it.
    coverage: Mapping[str, int]
    by_topic: Mapping[str, Mapping[str, int]]
    # Members of unknown rack, or in a rack without brokers.
    unknown: int

    @classmethod
    def of(cls, inspection: GroupAnalysis, cluster: ObservedCluster) -> GroupLocality:
        known = sorted(set(cluster.topology.broker_racks().values()))
        group = inspection.snapshot.group
        coverage = _counted_in(known, group.members)
        by_topic = {
            topic: _counted_in(known, (member for member in group.members if topic in member.topics))
            for topic in sorted(group.topology.topics)
        }
        return cls(cluster, inspection, coverage, by_topic, len(group.members) - sum(coverage.values()))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(self.inspection.snapshot.group.topology.topics))

    def members_per_rack(self, topics: Iterable[str]) -> dict[str, Mapping[str, int]]:
        """Return the readers of each topic per rack; for topics without a subscriber, all members."""
        return {topic: self.by_topic.get(topic, self.coverage) for topic in topics}

    def with_layout(self, layout: Layout) -> Locality:
        """Return the locality that the cooperative strategy would reach with other replica lists."""
        return count_locality(self.reads(layout))

    def local_partitions(self, layout: Layout) -> int:
        return self.with_layout(layout).local

    def cross_rack_reads(self, layout: Layout) -> tuple[CrossRackRead, ...]:
        """Return the cross-rack reads by readers in a rack of the brokers."""
        return tuple(
            CrossRackRead(read.tp, read.member, read.home)
            for read in self.reads(layout)
            if read.kind == "cross" and read.home is not None and read.home in self.coverage
        )

    def would_be_local(self, read: CrossRackRead, replicas: tuple[int, ...]) -> bool:
        shot, topic = self.inspection.snapshot, read.tp.topic
        topology = replace(shot.group.topology, topics={topic: (Partition(replicas, replicas[0]),)})
        serving, alone = self.cluster.selectable_replicas(topology), {read.member: {topic: (0,)}}
        return count_locality(partition_reads(shot.group, alone, serving, shot.leaders_only)).local == 1

    def reads(self, layout: Layout) -> tuple[PartitionRead, ...]:
        """Return the reads that the cooperative strategy would reach with other replica lists."""
        shot = self.inspection.snapshot
        observed = _moved(shot.as_leader_sees(), layout)
        target = plan_cooperative(observed, Options(locality=self.cluster.mode)).target
        group = _moved(shot.group, layout)
        return partition_reads(group, target, self.cluster.selectable_replicas(group.topology), shot.leaders_only)


def describe_readers(admin: KafkaAdminClient, name: str, racks: RackMap | None = None) -> GroupLocality:
    """Describe a group, with the racks of members that report none."""
    shots = GroupCollector(admin, racks).snapshot([name])
    if not shots.snapshots:
        raise ConfigError(
            f"group {short_repr(name)}: {shots.skipped[0].problem if shots.skipped else 'it has no members'}"
        )
    (shot,) = shots.snapshots
    near = GroupLocality.of(inspect(shot, shots.cluster, ReadRates()), shots.cluster)
    if not any(near.coverage.values()):
        raise ConfigError(
            f"group {short_repr(name)}: no member is in a rack of the brokers"
            f" ({counted(near.unknown, 'member')}; racks are {', '.join(near.coverage) or 'none'})"
        )
    return near


def _counted_in(racks: Iterable[str], members: Iterable[Member]) -> dict[str, int]:
    found = Counter(member.rack for member in members)
    return {rack: found[rack] for rack in racks}


def _moved(group: Group, layout: Layout) -> Group:
    topics = {
        topic: tuple(
            _placed(partition, layout.topics[topic][number]) if number < len(layout.topics[topic]) else partition
            for number, partition in enumerate(partitions)
        )
        if topic in layout.topics
        else partitions
        for topic, partitions in group.topology.topics.items()
    }
    return replace(group, topology=replace(group.topology, topics=topics))


def _placed(partition: Partition, replicas: tuple[int, ...]) -> Partition:
    placed = tuple(broker for broker in replicas if broker >= 0)
    return partition if placed == partition.replicas else Partition(placed, placed[0] if placed else None)
