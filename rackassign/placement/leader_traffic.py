"""Bytes across racks that depend on which replica leads: of producers, followers, and readers sent to the leader.

A producer with keys cannot choose its partition, so it writes to wherever the leader is. The leader of each partition
is chosen by the bytes that its producers have sent from each rack. Only ratios of bytes matter.

Each byte is copied to the followers in other racks. There are as many of them wherever the leader is, unless replicas
share a rack: with two in a and one in b, a leader in b has twice as many bytes copied across racks.

The partitions of a group are read by their current owners, and each byte once. An owner that is sent to a replica in
its rack costs nothing wherever the leader is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring.report import format_percent
from rackassign.monitoring.traffic import PartitionRead
from rackassign.monitoring.written_bytes import WrittenBytes, foreign_racks
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.layout import Layout
from rackassign.placement.local_reads import GroupLocality, Replicas
from rackassign.placement.optimal_placer import LeadingCosts
from rackassign.solver.placement import NewLeader
from rackassign.text import join_first

_NAMED = 5


@dataclass(frozen=True, slots=True)
class CrossRackBytes:
    """Bytes of a topic, and how many of them cross racks."""

    written: int = 0
    # Of these, bytes across racks with the current leaders, and with other leaders; and the same of what is read, and
    # of what is copied to followers, unless that is free.
    now: int = 0
    after: int = 0
    read_now: int = 0
    read_after: int = 0
    copied_now: int = 0
    copied_after: int = 0

    def __add__(self, other: CrossRackBytes) -> CrossRackBytes:
        return CrossRackBytes(
            self.written + other.written,
            self.now + other.now,
            self.after + other.after,
            self.read_now + other.read_now,
            self.read_after + other.read_after,
            self.copied_now + other.copied_now,
            self.copied_after + other.copied_after,
        )

    @property
    def saved(self) -> int:
        """Bytes across racks less with other leaders; negative if there are more."""
        return self.now + self.read_now + self.copied_now - self.after - self.read_after - self.copied_after


@dataclass(frozen=True, slots=True)
class OwnerReads:
    """Where the owner of each partition of a group reads it."""

    group: str
    # Rack of the owner, where it is known.
    homes: Mapping[TopicPartition, str]
    # Partitions whose owner requests no replica of its rack.
    leaders_only: frozenset[TopicPartition]
    # Brokers that serve all readers of the partitions that they lead.
    serving_all: frozenset[int]

    @classmethod
    def of(cls, near: GroupLocality, reads: Iterable[PartitionRead] | None = None) -> OwnerReads:
        """Return the reads of a group: those of its current owners, or the given ones."""
        shot, found = near.inspection.snapshot, near.inspection.now if reads is None else tuple(reads)
        return cls(
            shot.live.name,
            {read.tp: read.home for read in found if read.home is not None},
            frozenset(read.tp for read in found if read.member in shot.leaders_only),
            near.cluster.serving_all(),
        )

    def are_local(
        self, tp: TopicPartition, leader: int | None, in_rack: str | None, racks: Iterable[str | None]
    ) -> bool:
        """Return whether a partition is read in the rack of its owner, or has no owner in a known rack."""
        # None is any broker of the rack.
        home = self.homes.get(tp)
        if home is None or home == in_rack:
            return True
        to_leader = tp in self.leaders_only or (
            bool(self.serving_all) if leader is None else leader in self.serving_all
        )
        return not to_leader and home in racks


@dataclass(frozen=True, slots=True)
class LeaderTraffic:
    """What producers have written to each partition, and who reads it."""

    # Bytes of each partition by the rack of the producer; None for an unknown one.
    written: Mapping[TopicPartition, Mapping[str | None, int]]
    racks: Mapping[int, str | None]
    readers: OwnerReads | None = None
    # How many leaders more or less than its even share, rounded, a broker may have; it may have as many as now in any
    # case. Only partitions that are written count.
    max_skew: int = 0
    # Whether what followers copy is not billed, so that it does not count.
    free_replication: bool = False
    # What of the metrics is not used, as text for users.
    problems: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        metrics: WrittenBytes,
        state: ClusterState,
        readers: OwnerReads | None = None,
        max_skew: int = 0,
        *,
        free_replication: bool = False,
    ) -> LeaderTraffic:
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
        return cls(written, racks, readers, max_skew, free_replication, tuple(filter(None, problems)))

    def cross_written(self, tp: TopicPartition, leader: int) -> int:
        """Return the bytes of producers in another rack than the leader; any other, if the leader has none."""
        return self._written_outside(tp, self.racks.get(leader))

    def _written_outside(self, tp: TopicPartition, rack: str | None) -> int:
        return sum(count for home, count in self.written.get(tp, {}).items() if home is not None and home != rack)

    def cross_read(self, tp: TopicPartition, leader: int, replicas: Iterable[int]) -> int:
        """Return the bytes that the owner of the partition reads from another rack, if this broker leads it."""
        rack = self.racks.get(leader)
        if self.readers is None or self.readers.are_local(tp, leader, rack, map(self.racks.get, replicas)):
            return 0
        return sum(self.written.get(tp, {}).values())

    def cross_copied(self, tp: TopicPartition, rack: str | None, racks: Iterable[str | None]) -> int:
        """Return the bytes that followers copy from another rack, given the rack of the leader and of all replicas."""
        if self.free_replication or rack is None:
            return 0
        return sum(self.written.get(tp, {}).values()) * sum(of not in {rack, None} for of in racks)

    def costs(self, state: ClusterState, lists: Mapping[TopicPartition, Replicas]) -> LeadingCosts:
        """Return the bytes across racks with each replica that can lead, for those of these lists that are written."""
        mine = {tp: row for tp, row in lists.items() if tp in self.written}
        of = {
            tp: {
                broker: self.cross_written(tp, broker)
                + self.cross_read(tp, broker, row)
                + self.cross_copied(tp, self.racks.get(broker), map(self.racks.get, row))
                for broker in row
                if broker not in state.offline(tp)
            }
            for tp, row in mine.items()
        }
        # Partitions that are not written do not count: their leaders have no load.
        others = Counter(state.leader(tp) for tp in self.written.keys() - mine.keys())
        leading = {broker: count for broker, count in others.items() if broker is not None}
        return LeadingCosts(of, {}, {}, {tp: state.leader(tp) for tp in mine}, leading)

    def costs_with_copies(
        self,
        state: ClusterState,
        lists: Mapping[TopicPartition, Replicas],
        before: Mapping[TopicPartition, Replicas],
        rules: PlacementConstraints,
        kept: Collection[OwnerReads],
    ) -> LeadingCosts:
        """Return the bytes of producers and followers across racks with each replica, and a new one in place of one.

        No partition is in fewer racks or less evenly among them. Readers come before producers: a partition that is
        read in the rack of its owner stays so, and what is read otherwise does not count.
        """
        # `lists` are partitions that may be changed, with their lists otherwise; `before` has their current lists.
        costs = replace(self, readers=None).costs(state, lists)
        places = sorted({broker.rack for broker in state.brokers}, key=lambda rack: (rack is not None, rack))
        fitting: dict[tuple[tuple[str | None, ...], str | None], list[tuple[int, tuple[str | None, ...]]]] = {}
        of: dict[TopicPartition, Mapping[int, int]] = {}
        new: dict[TopicPartition, Mapping[str | None, NewLeader]] = {}
        for tp, own in costs.of.items():
            row = lists[tp]
            racks = tuple(self.racks.get(broker) for broker in row)
            local = [reads for reads in kept if reads.are_local(tp, row[0], racks[0], racks)]
            able = [b for b in own if all(reads.are_local(tp, b, self.racks.get(b), racks) for reads in local)]
            of[tp] = {broker: own[broker] for broker in able} or own
            found: dict[str | None, NewLeader] = {}
            for rack in places:
                if (racks, rack) not in fitting:
                    fitting[racks, rack] = [*_replaced(racks, rack, rules)]
                copied = {
                    row[at]: self.cross_copied(tp, rack, others)
                    for at, others in fitting[racks, rack]
                    if all(reads.are_local(tp, None, rack, others) for reads in local)
                }
                if copied:
                    least = min(copied.values())
                    replaced = [broker for broker, size in copied.items() if size == least]
                    # A replica that is still to be copied is replaced at no cost. Copies that balance brokers are to be
                    # made.
                    even = rules.first == "balance"
                    saving = [] if even else [broker for broker in replaced if broker not in before[tp]]
                    cost = self._written_outside(tp, rack) + least
                    found[rack] = NewLeader(cost, tuple(saving or replaced), -1 if even else int(bool(saving)))
            new[tp] = found
        return replace(costs, of=of, new=new, before={tp: before[tp] for tp in new})

    def predicted(
        self,
        before: Layout,
        after: Layout,
        topics: Iterable[str],
        leader: Callable[[TopicPartition], int | None],
        stays: Collection[TopicPartition],
    ) -> dict[str, CrossRackBytes]:
        """Return the bytes of topics, those with most bytes across racks first."""
        # `after` is led by the first replica of each list. Partitions in `stays` do not change.
        chosen, found = set(topics), dict[str, CrossRackBytes]()
        for tp in sorted(self.written):
            now = leader(tp)
            if tp.topic not in chosen or now is None:
                continue
            old, new = (layout.topics[tp.topic][tp.partition] for layout in (before, after))
            then, new = (now, old) if tp in stays else (new[0], new)
            found[tp.topic] = found.get(tp.topic, CrossRackBytes()) + CrossRackBytes(
                sum(self.written[tp].values()),
                self.cross_written(tp, now),
                self.cross_written(tp, then),
                self.cross_read(tp, now, old),
                self.cross_read(tp, then, new),
                self.cross_copied(tp, self.racks.get(now), map(self.racks.get, old)),
                self.cross_copied(tp, self.racks.get(then), map(self.racks.get, new)),
            )
        return dict(sorted(found.items(), key=lambda row: (-row[1].now - row[1].read_now, row[0])))


def _replaced(
    racks: tuple[str | None, ...], rack: str | None, rules: PlacementConstraints
) -> Iterator[tuple[int, tuple[str | None, ...]]]:
    """Yield the replicas that one in this rack may replace, and the racks of all replicas with it."""
    distinct, most = len(set(racks)), max(Counter(racks).values())
    for at in range(len(racks)):
        others = (*racks[:at], rack, *racks[at + 1 :])
        in_rack = Counter(others)
        if len(in_rack) < distinct or max(in_rack.values()) > most:
            continue
        if rules.max_racks is None or len(in_rack) <= max(rules.max_racks, distinct):
            yield at, others


def _without_partition(total: int, of_partitions: int) -> str:
    share = format_percent(total - of_partitions, total)
    return f"{share} of the bytes have no partition, and are not counted" if total > of_partitions else ""


def _without_rack(total: int, rackless: int) -> str:
    share = format_percent(rackless, total)
    return f"{share} of the bytes are of producers without a rack, and count as local everywhere" if rackless else ""


def _missing(names: Collection[str]) -> str:
    named = join_first(sorted(names), _NAMED)
    return f"not counted, since they do not exist or may not be described: {named}" if names else ""
