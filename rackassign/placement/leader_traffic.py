"""Bytes across racks that depend on which replica leads: those of producers, and those of readers sent to the leader.

A producer with keys cannot choose its partition, so it writes to wherever the leader is. The leader of each partition
is chosen by the bytes that its producers have sent from each rack. Only ratios of bytes matter.

The partitions of a group are read by their current owners, and each byte once. An owner that is sent to a replica in
its rack costs nothing wherever the leader is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring.report import format_percent
from rackassign.monitoring.written_bytes import WrittenBytes, foreign_racks
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.layout import Layout
from rackassign.placement.local_reads import GroupLocality, ReplicaMover, Replicas
from rackassign.text import join_first

_NAMED = 5


@dataclass(frozen=True, slots=True)
class CrossRackBytes:
    """Bytes of a topic, and how many of them cross racks.

    Args:
        written: Bytes that were written.
        now: How many of them cross racks with the current leaders.
        after: How many of them would with other leaders.
        read_now: Bytes that readers read across racks with the current leaders.
        read_after: Bytes that they would with other leaders.
    """

    written: int = 0
    now: int = 0
    after: int = 0
    read_now: int = 0
    read_after: int = 0

    def __add__(self, other: CrossRackBytes) -> CrossRackBytes:
        return CrossRackBytes(
            self.written + other.written,
            self.now + other.now,
            self.after + other.after,
            self.read_now + other.read_now,
            self.read_after + other.read_after,
        )


@dataclass(frozen=True, slots=True)
class OwnerReads:
    """Where the current owner of each partition of a group reads it.

    Args:
        group: Name of the group.
        homes: Rack of the owner of each partition, where it is known.
        leaders_only: Partitions whose owner requests no replica of its rack.
        serving_all: Brokers that serve all readers of the partitions that they lead.
        racks: Racks with members of the group.
    """

    group: str
    homes: Mapping[TopicPartition, str]
    leaders_only: frozenset[TopicPartition]
    serving_all: frozenset[int]
    racks: frozenset[str]

    @classmethod
    def of(cls, near: GroupLocality) -> OwnerReads:
        """Return the reads of a group."""
        shot, now = near.inspection.snapshot, near.inspection.now
        return cls(
            shot.live.name,
            {read.tp: read.home for read in now if read.home is not None},
            frozenset(read.tp for read in now if read.member in shot.leaders_only),
            near.cluster.serving_all(),
            frozenset(rack for rack, members in near.coverage.items() if members),
        )


@dataclass(frozen=True, slots=True)
class LeaderTraffic:
    """What producers have written to each partition, and who reads it.

    Args:
        written: Bytes of each partition by the rack of the producer; None for an unknown one.
        racks: Rack of each broker.
        readers: A group that reads the partitions as well; None for none.
        max_skew: How many leaders more or less than its even share, rounded, a broker may have. Where replica lists do
            not allow that, it may have as many as in the most even choice of leaders.
        problems: What of the metrics is not used, as text for users.
    """

    written: Mapping[TopicPartition, Mapping[str | None, int]]
    racks: Mapping[int, str | None]
    readers: OwnerReads | None = None
    max_skew: int = 0
    problems: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, metrics: WrittenBytes, state: ClusterState, readers: OwnerReads | None = None, max_skew: int = 0
    ) -> LeaderTraffic:
        """Return the traffic of the partitions of a cluster.

        Raises:
            ConfigError: No series has a partition.
        """
        numbered = {series: count for series, count in metrics.series.items() if series.partition is not None}
        if metrics.series and not numbered:
            raise ConfigError(
                "near-producers: the metrics have no label partition; producers export it with"
                " ProducerMetrics(..., by_partition=True)"
            )
        written: dict[TopicPartition, Counter[str | None]] = {}
        gone: set[str] = set()
        for series, count in numbered.items():
            if series.partition is not None and count:
                topic = state.topics.get(series.topic)
                if topic is None or series.partition >= len(topic.partitions):
                    gone.add(series.topic if topic is None else f"{series.topic}-{series.partition}")
                    continue
                written.setdefault(TopicPartition(series.topic, series.partition), Counter())[series.rack] += count
        racks = {broker.id: broker.rack for broker in state.brokers}
        homes = {rack for by_rack in written.values() for rack in by_rack if rack is not None}
        total = sum(numbered.values())
        problems = [
            _without_partition(sum(metrics.series.values()), total),
            _without_rack(total, sum(n for series, n in numbered.items() if series.rack is None)),
            _missing(gone),
            foreign_racks(homes, {rack for rack in racks.values() if rack is not None}),
        ]
        return cls(written, racks, readers, max_skew, tuple(filter(None, problems)))

    def cross(self, tp: TopicPartition, row: Replicas) -> int:
        """Return the bytes that cross racks if the first of these replicas leads."""
        return self.cross_written(tp, row[0]) + self.cross_read(tp, row[0], row)

    def cross_written(self, tp: TopicPartition, leader: int) -> int:
        """Return the bytes of producers in another rack than the leader; any other, if the leader has none."""
        rack = self.racks.get(leader)
        return sum(count for home, count in self.written.get(tp, {}).items() if home is not None and home != rack)

    def cross_read(self, tp: TopicPartition, leader: int, replicas: Iterable[int]) -> int:
        """Return the bytes that the owner of the partition reads from another rack, if this broker leads it."""
        if self.readers is None or tp not in self.written:
            return 0
        home = self.readers.homes.get(tp)
        if home is None or self.racks.get(leader) == home:
            return 0
        sent_to_leader = leader in self.readers.serving_all or tp in self.readers.leaders_only
        if not sent_to_leader and any(self.racks.get(broker) == home for broker in replicas):
            return 0
        return sum(self.written[tp].values())

    def costs(self, tp: TopicPartition, row: Replicas, offline: Collection[int]) -> dict[int, int]:
        """Return the bytes across racks with each replica that can lead."""
        return {
            broker: self.cross_written(tp, broker) + self.cross_read(tp, broker, row)
            for broker in row
            if broker not in offline
        }

    def predicted(
        self,
        before: Layout,
        after: Layout,
        topics: Iterable[str],
        leader: Callable[[TopicPartition], int | None],
        stays: Collection[TopicPartition],
    ) -> dict[str, CrossRackBytes]:
        """Return the bytes of topics, those with most bytes across racks first.

        Args:
            before: The layout as it is.
            after: The layout as it would be, led by the first replica of each list.
            topics: Topics to be counted.
            leader: The current leader of a partition.
            stays: Partitions that do not change.
        """
        chosen, found = set(topics), dict[str, CrossRackBytes]()
        for tp in sorted(self.written):
            now = leader(tp)
            if tp.topic not in chosen or now is None:
                continue
            old, new = (layout.topics[tp.topic][tp.partition] for layout in (before, after))
            then = now if tp in stays else new[0]
            found[tp.topic] = found.get(tp.topic, CrossRackBytes()) + CrossRackBytes(
                sum(self.written[tp].values()),
                self.cross_written(tp, now),
                self.cross_written(tp, then),
                self.cross_read(tp, now, old),
                self.cross_read(tp, then, new),
            )
        return dict(sorted(found.items(), key=lambda row: (-row[1].now - row[1].read_now, row[0])))

    def moved_to_producers(
        self,
        layout: Layout,
        lists: Mapping[TopicPartition, Replicas],
        before: Mapping[TopicPartition, Replicas],
        rules: PlacementConstraints,
    ) -> dict[TopicPartition, Replicas]:
        """Return lists with one other replica, which leads in the rack of more than half of the bytes.

        Each has fewer bytes across racks than any order of the present list. No partition is in fewer racks, and none
        leaves a rack with members of the group.

        Args:
            layout: The layout as it would be without these lists.
            lists: Partitions that may be changed, with their lists in that layout.
            before: Their current lists.
            rules: Constraints of the lists.
        """
        mover, kept = ReplicaMover(layout, rules), frozenset[str]() if self.readers is None else self.readers.racks
        found: dict[TopicPartition, Replicas] = {}
        for tp in sorted(lists, key=lambda tp: (-sum(self.written.get(tp, {}).values()), tp)):
            row, by_rack = lists[tp], self.written.get(tp, {})
            most = [rack for rack, count in by_rack.items() if 2 * count > sum(by_rack.values()) and rack is not None]
            if not most or most[0] in map(self.racks.get, row):
                continue
            drawn = mover.led_from(row, before[tp], most[0], kept)
            if drawn is not None and self.cross(tp, drawn) < min(self.costs(tp, row, ()).values()):
                mover.count(row, drawn)
                found[tp] = drawn
        return found


def _without_partition(total: int, of_partitions: int) -> str:
    share = format_percent(total - of_partitions, total)
    return f"{share} of the bytes have no partition, and are not counted" if total > of_partitions else ""


def _without_rack(total: int, rackless: int) -> str:
    share = format_percent(rackless, total)
    return f"{share} of the bytes are of producers without a rack, and count as local everywhere" if rackless else ""


def _missing(names: Collection[str]) -> str:
    named = join_first(sorted(names), _NAMED)
    return f"not counted, since they do not exist or may not be described: {named}" if names else ""
