"""Where a consumer group reads, and what other replicas would gain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient

from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import Group, Member, Partition
from rackassign.monitoring import GroupAnalysis, GroupCollector, Throughput
from rackassign.monitoring.analysis import inspect
from rackassign.monitoring.cluster import ObservedCluster
from rackassign.monitoring.rack_map import RackMap
from rackassign.monitoring.traffic import PartitionRead, count_locality, partition_reads
from rackassign.placement.layout import Layout
from rackassign.placement.local_reads import CrossRackRead
from rackassign.strategies import Options, plan_cooperative
from rackassign.util.text import short_repr


@dataclass(frozen=True, slots=True)
class GroupLocality:
    """A group as it reads.

    Args:
        cluster: With the group's topics.
        inspection: What it reads from where.
        coverage: How many of its members are in each rack of the brokers; 0 where there is none.
        by_topic: The same of the members that subscribe to each topic.
        unknown: Members of whom nobody knows where they are, or who are where no broker is.
    """

    cluster: ObservedCluster
    inspection: GroupAnalysis
    coverage: Mapping[str, int]
    by_topic: Mapping[str, Mapping[str, int]]
    unknown: int

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the topics it subscribes to that there are."""
        return tuple(sorted(self.inspection.snapshot.group.topology.topics))

    def members_per_rack(self, topics: Iterable[str]) -> dict[str, Mapping[str, int]]:
        """Return who reads each topic from where; of one that it does not subscribe to, all of it might."""
        return {topic: self.by_topic.get(topic, self.coverage) for topic in topics}

    def with_layout(self, layout: Layout) -> Locality:
        """Return what the cooperative strategy would make of the group if replicas were so."""
        return count_locality(self._reads(layout))

    def local_partitions(self, layout: Layout) -> int:
        """Return how many partitions are read at home with the best assignment for a layout."""
        return self.with_layout(layout).local

    def cross_rack_reads(self, layout: Layout) -> tuple[CrossRackRead, ...]:
        """Return what is not, and whose readers are in a rack of the brokers."""
        return tuple(
            CrossRackRead(read.place, read.member, read.home)
            for read in self._reads(layout)
            if read.kind == "cross" and read.home is not None and read.home in self.coverage
        )

    def would_be_local(self, read: CrossRackRead, replicas: tuple[int, ...]) -> bool:
        """Tell whether a partition with these replicas would be read at home by the same reader."""
        shot, topic = self.inspection.snapshot, read.place.topic
        topology = replace(shot.group.topology, topics={topic: (Partition(replicas, replicas[0]),)})
        serving, alone = self.cluster.selectable_replicas(topology), {read.member: {topic: (0,)}}
        return count_locality(partition_reads(shot.group, alone, serving, shot.leaders_only)).local == 1

    def _reads(self, layout: Layout) -> tuple[PartitionRead, ...]:
        shot = self.inspection.snapshot
        told = _moved(shot.as_leader_sees(), layout)
        target = plan_cooperative(told, Options(locality=self.cluster.mode)).target
        group = _moved(shot.group, layout)
        return partition_reads(group, target, self.cluster.selectable_replicas(group.topology), shot.leaders_only)


def describe_readers(admin: KafkaAdminClient, name: str, racks: RackMap | None = None) -> GroupLocality:
    """Look at a group.

    Args:
        admin: To ask with.
        name: Of the group.
        racks: Of members that send none.

    Raises:
        ConfigError: There is no such group, or none of its members is in a rack of the brokers.
        KafkaError: As the admin client does.
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
            f" ({len(members)} member{'' if len(members) == 1 else 's'}; racks are {', '.join(known) or 'none'})"
        )
    by_topic = {
        topic: _counted_in(known, (member for member in members if topic in member.topics))
        for topic in sorted(shot.group.topology.topics)
    }
    inspection = inspect(shot, shots.cluster, Throughput())
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
