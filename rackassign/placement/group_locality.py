"""The locality of a consumer group, and what other replica placements would gain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient

from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import Group, Member, Partition
from rackassign.monitoring import GroupAnalysis, GroupCollector, ReadRates
from rackassign.monitoring.analysis import inspect
from rackassign.monitoring.cluster import ObservedCluster
from rackassign.monitoring.rack_map import RackMap
from rackassign.monitoring.traffic import PartitionRead, count_locality, partition_reads
from rackassign.placement.layout import Layout
from rackassign.placement.local_reads import CrossRackRead
from rackassign.strategies import Options, plan_cooperative
from rackassign.util.text import counted, short_repr


@dataclass(frozen=True, slots=True)
class GroupLocality:
    """The locality of a group.

    Args:
        cluster: Cluster with the group's topics.
        inspection: Which partitions it reads from which rack.
        coverage: Number of members in each rack of the brokers; 0 for racks without one.
        by_topic: Number of members in each rack that subscribe to the topic.
        unknown: Members of unknown rack, or in a rack without brokers.
    """

    cluster: ObservedCluster
    inspection: GroupAnalysis
    coverage: Mapping[str, int]
    by_topic: Mapping[str, Mapping[str, int]]
    unknown: int

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the existing topics that the group subscribes to."""
        return tuple(sorted(self.inspection.snapshot.group.topology.topics))

    def members_per_rack(self, topics: Iterable[str]) -> dict[str, Mapping[str, int]]:
        """Return the readers of each topic per rack; for topics without a subscriber, all members."""
        return {topic: self.by_topic.get(topic, self.coverage) for topic in topics}

    def with_layout(self, layout: Layout) -> Locality:
        """Return the locality that the cooperative strategy would reach with other replica lists."""
        return count_locality(self._reads(layout))

    def local_partitions(self, layout: Layout) -> int:
        """Return how many partitions are local with the optimal assignment for a layout."""
        return self.with_layout(layout).local

    def cross_rack_reads(self, layout: Layout) -> tuple[CrossRackRead, ...]:
        """Return the cross-rack reads by readers in a rack of the brokers."""
        return tuple(
            CrossRackRead(read.tp, read.member, read.home)
            for read in self._reads(layout)
            if read.kind == "cross" and read.home is not None and read.home in self.coverage
        )

    def would_be_local(self, read: CrossRackRead, replicas: tuple[int, ...]) -> bool:
        """Return whether a partition with these replicas would be local to the same reader."""
        shot, topic = self.inspection.snapshot, read.tp.topic
        topology = replace(shot.group.topology, topics={topic: (Partition(replicas, replicas[0]),)})
        serving, alone = self.cluster.selectable_replicas(topology), {read.member: {topic: (0,)}}
        return count_locality(partition_reads(shot.group, alone, serving, shot.leaders_only)).local == 1

    def _reads(self, layout: Layout) -> tuple[PartitionRead, ...]:
        shot = self.inspection.snapshot
        observed = _moved(shot.as_leader_sees(), layout)
        target = plan_cooperative(observed, Options(locality=self.cluster.mode)).target
        group = _moved(shot.group, layout)
        return partition_reads(group, target, self.cluster.selectable_replicas(group.topology), shot.leaders_only)


def describe_readers(admin: KafkaAdminClient, name: str, racks: RackMap | None = None) -> GroupLocality:
    """Describe a group.

    Args:
        admin: Admin client.
        name: Name of the group.
        racks: Racks of members that report none.

    Raises:
        ConfigError: The group does not exist, or none of its members is in a rack of the brokers.
        KafkaError: Raised by the admin client.
    """
    shots = GroupCollector(admin, racks).snapshot([name])
    if not shots.snapshots:
        raise ConfigError(
            f"group {short_repr(name)}: {shots.skipped[0].problem if shots.skipped else 'it has no members'}"
        )
    (shot,) = shots.snapshots
    known = sorted(set(shots.cluster.topology.broker_racks().values()))
    members = shot.group.members
    coverage = _counted_in(known, members)
    if not any(coverage.values()):
        raise ConfigError(
            f"group {short_repr(name)}: no member is in a rack of the brokers"
            f" ({counted(len(members), 'member')}; racks are {', '.join(known) or 'none'})"
        )
    by_topic = {
        topic: _counted_in(known, (member for member in members if topic in member.topics))
        for topic in sorted(shot.group.topology.topics)
    }
    inspection = inspect(shot, shots.cluster, ReadRates())
    return GroupLocality(shots.cluster, inspection, coverage, by_topic, len(members) - sum(coverage.values()))


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
