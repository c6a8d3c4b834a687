"""Analysis of a group: its cross-rack reads now, the result of each strategy, and the changes that gain most.

The analysis is computed from values only. Current reads are evaluated with the replicas that serve now. Possible ones
are planned as an assignor would, from all replicas, and evaluated with the replicas that serve once all are in sync. So
an offline broker makes no strategy look better than it is.

Each change is evaluated alone, from the group as it is. Of changes that reach the same only the one that costs least
is recommended, in this order: settings of brokers and clients (replica selector, `client.rack`), the assignor, more
members, more replicas. What rackassign saves is what the settings do not.

Racks of members are known from two sources: members report them, or a rack map has them. With rackassign all members
report their rack and fetch from a local replica, so its plans use all known racks. A member of unknown rack is
evaluated as unknown. What could be gained there is bounded by the best and the worst rack that it may be in: a
partition with a replica in each rack is local to any member with `client.rack`, and one that only one member can read
is read in its rack whatever is assigned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import fsum
from typing import Literal, get_args

from rackassign.locality import Locality
from rackassign.model import (
    LOCALITY_MODES,
    Group,
    LocalityMode,
    Partitions,
    Plan,
    Reason,
    TopicPartition,
    Topology,
)
from rackassign.monitoring.live_groups import Snapshot, topics_of
from rackassign.monitoring.read_rates import ReadRates
from rackassign.monitoring.traffic import (
    Holds,
    ObservedCluster,
    PartitionRead,
    TrafficMatrix,
    count_locality,
    in_each_rack,
    partition_reads,
    traffic_matrix,
)
from rackassign.strategies import Options, plan_consumer_protocol, plan_cooperative, plan_each
from rackassign.strategies.explain import evaluate_changes, non_local_partitions

ACTIONS = 3
"""Number of recommended changes shown: those that gain most."""

_PLAN_S = 30.0
"""Time limit of each plan; the best result until then is used, so that a report of all groups completes."""

SortKey = Literal["money", "saving", "local", "lag", "name"]
"""Orders of groups: most bytes across racks, most bytes that can be saved, smallest local share, largest lag, name."""

SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)

ActionKind = Literal["selector", "rack", "rack-map", "strategy", "max-skew", "member", "replicas"]


@dataclass(frozen=True, slots=True)
class StrategyOutcome:
    """The result of a strategy for the current members, if each reports its rack as far as it is known.

    Args:
        strategy: The strategy, or the broker's assignor of a group to which the broker assigns.
        partitions: Locality of the group with it.
        flows: Traffic between racks with it.
        moved: Partitions that would leave their current reader.
        reads: Reader and rack of each partition.
        reasons: Number of partitions that are not certainly local, by reason.
    """

    strategy: str
    partitions: Locality
    flows: TrafficMatrix
    moved: int
    reads: tuple[PartitionRead, ...]
    reasons: Mapping[Reason, int]


@dataclass(frozen=True, slots=True)
class RecommendedChange:
    """A change of one group, and what it gains alone, from the group as it is.

    Args:
        kind: `selector`: a rack-aware replica selector on all brokers, and `client.rack` on `members`. `rack`:
            `client.rack` on `members`. `rack-map`: state the racks of `members`, on which all else depends. `strategy`:
            let rackassign assign, by members with the cooperative strategy or in the broker. `max-skew`: the option of
            that name, set to 1. `member`: one more of them in `rack`, subscribed to `topics`. `replicas`: a replica of
            each of `partitions` in `rack`.
        gain: Additional partitions that are certainly local.
        gain_bytes_s: Reduction of bytes per second that cross racks. For `replicas` without what it copies.
        gain_at_most: The same as `gain` if racks of members are unknown, and these are where most is gained.
        gain_bytes_s_at_most: The same as `gain_bytes_s` in that case.
        switches: Whether `strategy` is a part of it.
        rack: For `member` and `replicas`.
        members: For `selector`, `rack` and `rack-map`, member IDs. For `strategy`, those that send no rack yet.
        topics: For `member`.
        partitions: For `replicas`.
        copied_bytes_s: For `replicas`, bytes per second that are replicated across racks for it.
    """

    kind: ActionKind
    gain: int = 0
    gain_bytes_s: float = 0.0
    gain_at_most: int = 0
    gain_bytes_s_at_most: float = 0.0
    switches: bool = False
    rack: str | None = None
    members: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    partitions: Partitions = field(default_factory=dict)
    copied_bytes_s: float = 0.0

    @property
    def uncertain(self) -> bool:
        """Whether the gain depends on racks that are unknown."""
        return self.gain_at_most > self.gain or self.gain_bytes_s_at_most > self.gain_bytes_s


@dataclass(frozen=True, slots=True)
class GroupAnalysis:
    """The result of analyzing one group.

    Args:
        snapshot: The group as it is.
        read_policy: Which replicas its readers are sent to.
        now: Reader and rack of each partition.
        partitions: Locality now.
        by_mode: Locality if any replica served, and if only leaders did.
        flows: Current traffic between racks, in bytes per second.
        reaches: Result of each strategy that the group can have, the best one last; none without members.
        actions: The changes that gain most, best first; each gains more than any that costs less.
        savings_bytes_s: Bytes per second less that cross racks with rackassign than with the settings alone that it
            needs as well (replica selector and `client.rack`): at least, and at most.
        in_each_rack: Partitions of readers without a rack of which each rack has a replica: those are local if these
            readers have `client.rack`.
        out_of_sync: Partitions that would be local if their local replica were in sync.
        unassigned: Partitions of subscribed topics that are assigned to no member.
        missing: Topics that cannot be described, each with the reason; they are not counted anywhere.
        rates: What it reads, and its lag.
        targets: Partitions of each member with rackassign's best strategy, by its members' ID: with the replica
            selectors that brokers have, and with one on all brokers.
    """

    snapshot: Snapshot
    read_policy: Holds
    now: tuple[PartitionRead, ...]
    partitions: Locality
    by_mode: Mapping[LocalityMode, Locality]
    flows: TrafficMatrix
    reaches: tuple[StrategyOutcome, ...]
    actions: tuple[RecommendedChange, ...]
    savings_bytes_s: tuple[float, float]
    in_each_rack: int
    out_of_sync: int
    unassigned: int
    missing: Mapping[str, str]
    rates: ReadRates
    targets: tuple[Mapping[str, Partitions], Mapping[str, Partitions]]

    @property
    def local_share(self) -> float | None:
        """Return the share of partitions that are certainly local, 0 to 1; None if nothing is read."""
        total = self.partitions.total
        return self.partitions.local / total if total else None

    @property
    def best(self) -> StrategyOutcome:
        """Return the result of rackassign's best strategy for a group with members."""
        return self.reaches[-1]

    @property
    def local_share_at_most(self) -> float | None:
        """Return `local_share` if all readers without a rack have `client.rack`."""
        total = self.partitions.total
        return (self.partitions.local + self.in_each_rack) / total if total else None

    @property
    def lag_by_rack(self) -> dict[str | None, int]:
        """Return the lag by the rack of the reader, None if that is unknown; partitions without reader are left out."""
        sums: dict[str | None, int] = {}
        for read in self.now:
            if read.tp in self.rates.lag:
                sums[read.home] = sums.get(read.home, 0) + self.rates.lag[read.tp]
        return dict(sorted(sums.items(), key=lambda item: (item[0] is None, item[0] or "")))

    def sort_key(self, by: SortKey) -> tuple[float, float, str]:
        """Return a key for sorting; an unknown amount counts as what it is at most."""
        name = self.snapshot.live.name
        if by == "name":
            return 0.0, 0.0, name
        if by == "local":
            return 2.0 if self.local_share is None else self.local_share, 0.0, name
        if by == "lag":
            return -(-1 if self.rates.total_lag is None else self.rates.total_lag), 0.0, name
        counts = self.partitions
        # Without bytes, and for groups that read nothing now, partitions count.
        partitions = -float(counts.cross + counts.unknown)
        if by == "saving":
            return -self.savings_bytes_s[1], partitions, name
        return -self.flows.cross_at_most, partitions, name


def inspect(shot: Snapshot, cluster: ObservedCluster, rates: ReadRates) -> GroupAnalysis:
    """Analyze a group."""
    # `rates`: what it reads; empty if it was not measured.
    located = shot.without_foreign_racks()
    group, owned = located.group, shot.owned
    now = current_reads(located, cluster)
    foreign = frozenset(shot.foreign_racks)
    silent = frozenset(member.id for member in located.unknown) - foreign
    judge = _Analyzer(located, cluster, rates, owned, foreign, silent)
    # A broker shows assignors no leaders, whatever its selector is.
    options = Options(locality="any-replica" if judge.by_broker else cluster.mode, time_limit_s=_PLAN_S)
    plans = plan_each(group, options, shot.live.kind, shot.live.strategy)
    best = [*plans.values()][-1]
    settled, settled_plan = judge.with_settings(owned), judge.plan_with_settings(best)
    by_mode = {
        mode: count_locality(partition_reads(group, owned, counting_replicas(group.topology, mode)))
        for mode in LOCALITY_MODES
    }
    covered = in_each_rack(now, cluster.in_sync_replicas(group.topology))
    return GroupAnalysis(
        shot,
        cluster.read_policy,
        now,
        count_locality(now),
        by_mode,
        traffic_matrix(now, rates.bytes_s),
        tuple(judge.reach(name, plan) for name, plan in plans.items()) if group.members else (),
        tuple(judge.actions(best, settled, settled_plan)) if group.members else (),
        judge.savings(settled, settled_plan) if group.members else (0.0, 0.0),
        sum(read.tp in covered and read.member in silent for read in now),
        judge.seen(owned).partitions.local - count_locality(now).local,
        _unassigned(group),
        {topic: cluster.missing[topic] for topic in sorted(topics_of(shot.live)) if topic in cluster.missing},
        rates,
        (best.target, settled_plan.target),
    )


def current_reads(shot: Snapshot, cluster: ObservedCluster) -> tuple[PartitionRead, ...]:
    """Return the reader and rack of each partition that members have, from the replicas that serve now."""
    serving = cluster.in_sync_replicas(shot.group.topology)
    return partition_reads(shot.group, shot.owned, serving, shot.leaders_only)


def _unassigned(group: Group) -> int:
    wanted = {topic for member in group.members for topic in member.topics}
    had = {(topic, p) for member in group.members for topic, ids in member.owned.items() for p in ids}
    return sum((topic, p) not in had for topic in wanted for p in range(len(group.topology.topics.get(topic, ()))))


def counting_replicas(topology: Topology, mode: LocalityMode) -> Topology:
    """Return the topology with only the replicas that count in this mode: all, or the leaders."""
    if mode == "any-replica":
        return topology
    return replace(
        topology,
        topics={
            topic: tuple(p if p.leader is None else replace(p, replicas=(p.leader,)) for p in row)
            for topic, row in topology.topics.items()
        },
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """Metrics of an assignment."""

    reads: tuple[PartitionRead, ...]
    partitions: Locality
    flows: TrafficMatrix
    # Partitions of readers of unknown rack of which each rack has a replica that serves.
    in_each_rack: frozenset[TopicPartition]
    open: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class _Analyzer:
    """Evaluates a group; members with a rack that no broker has are in none, and `foreign`."""

    shot: Snapshot
    cluster: ObservedCluster
    rates: ReadRates
    owned: Mapping[str, Partitions]
    foreign: frozenset[str]
    # IDs of all other members of unknown rack.
    silent: frozenset[str]

    def reach(self, name: str, plan: Plan) -> StrategyOutcome:
        """Compute the result of a plan that is based on all known racks, for members that fetch local replicas."""
        planned = self.seen(plan.target, leaders_only=frozenset())
        return StrategyOutcome(
            name,
            planned.partitions,
            planned.flows,
            moved(self.shot.group, self.owned, plan.target),
            planned.reads,
            Counter(entry.reason for entry in non_local_partitions(self.shot.group, plan)),
        )

    def seen(
        self,
        target: Mapping[str, Partitions],
        *,
        group: Group | None = None,
        serving: Topology | None = None,
        leaders_only: frozenset[str] | None = None,
    ) -> _Seen:
        """Evaluate an assignment with the true racks of its readers, and replicas as if all were in sync."""
        # `leaders_only`: members that do not request a local replica; by default the current ones.
        group = group or self.shot.group
        serving = serving or self.cluster.selectable_replicas(group.topology)
        reads = partition_reads(
            group, target, serving, self.shot.leaders_only if leaders_only is None else leaders_only
        )
        covered = in_each_rack(reads, serving)
        readers = Counter(topic for member in group.members for topic in member.topics)
        hidden = (read.tp for read in reads if read.home is None and readers[read.tp.topic] > 1)
        return _Seen(
            reads,
            count_locality(reads),
            traffic_matrix(reads, self.rates.bytes_s),
            covered,
            frozenset(hidden) - covered,
        )

    @property
    def by_broker(self) -> bool:
        """Whether the broker assigns."""
        return self.shot.live.kind == "consumer"

    def plan(self, group: Group, *, max_skew: int = 0, mode: LocalityMode | None = None) -> Plan:
        if self.by_broker:
            return plan_consumer_protocol(group, Options(time_limit_s=_PLAN_S))
        options = Options(locality=mode or self.cluster.mode, max_skew=max_skew, time_limit_s=_PLAN_S)
        return plan_cooperative(group, options)

    def with_settings(self, target: Mapping[str, Partitions]) -> _Seen:
        """Evaluate an assignment with a selector on all brokers and `client.rack` on all members."""
        return self.seen(target, serving=self.shot.group.topology, leaders_only=frozenset())

    def plan_with_settings(self, best: Plan) -> Plan:
        """Return the best plan if any replica serves, given that of the current read policy."""
        return best if best.locality == "any-replica" else self.plan(self.shot.group, mode="any-replica")

    def savings(self, settled: _Seen, settled_plan: Plan) -> tuple[float, float]:
        """Return `GroupAnalysis.savings_bytes_s`, given the reads and the best plan if any replica serves."""
        after = self.with_settings(settled_plan.target)
        saved = settled.flows.cross - after.flows.cross
        return max(0.0, saved - self._bytes_s(after.open)), max(0.0, saved + self._bytes_s(settled.open))

    def actions(self, best: Plan, settled: _Seen, settled_plan: Plan) -> list[RecommendedChange]:
        """Return the changes that gain most: bytes, or partitions if bytes are not measured or nothing is read."""
        # `settled_plan`: as `best`, if any replica serves.
        now = self.seen(self.owned)
        idle = not now.flows.total

        def gain(change: RecommendedChange) -> float:
            return change.gain_at_most if idle else change.gain_bytes_s_at_most

        kept: list[RecommendedChange] = []
        for change in self._changes(now, best, settled, settled_plan):
            # One that makes fewer partitions local gains no more when other partitions are written to.
            if change.gain_at_most >= 0 and gain(change) > max(map(gain, kept), default=0):
                kept.append(change)
        ranked = sorted(
            (*kept, *self._racks_to_state(settled)), key=lambda change: (-gain(change), change.kind == "rack-map")
        )
        # Before a change that gains most comes the one that costs least, if it gains half of that.
        half = max(map(gain, kept), default=0) / 2
        ranked.sort(key=lambda change: change is not next((each for each in kept if gain(each) >= half), change))
        return ranked[:ACTIONS]

    def _changes(self, now: _Seen, best: Plan, settled: _Seen, settled_plan: Plan) -> Iterator[RecommendedChange]:
        """Yield changes, those that cost least first."""
        away = self.shot.leaders_only | self.silent | self.foreign
        selecting = bool(self.cluster.serving_all())
        if selecting:
            yield self._if_selectors_are_known(self._setting("selector", away, now, settled))
        if away:
            yield self._setting("rack", away, now, self.seen(self.owned, leaders_only=frozenset()))
        mapped = tuple(sorted(self.shot.rack_map_members))
        switch = RecommendedChange("strategy", members=mapped)
        switch = _gained(switch, now, self.seen(best.target, leaders_only=frozenset()))
        yield switch
        if selecting:
            both = RecommendedChange("selector", switches=True, members=tuple(sorted(away)))
            yield self._if_selectors_are_known(_gained(both, now, self.with_settings(settled_plan.target)))
        switches = switch.gain_bytes_s > 0 if now.flows.total else switch.gain > 0
        skewed = None if self.by_broker else (1, partial(self.plan, max_skew=1))
        for tried in evaluate_changes(self.shot.group, best, self.plan, skewed):
            advice = tried.advice
            # Replicas are shared by all groups.
            if advice.kind != "replicas":
                change = RecommendedChange(advice.kind, switches=switches, rack=advice.rack, topics=advice.topics)
                yield _gained(change, now, self.seen(tried.plan.target, group=tried.group, leaders_only=frozenset()))

    def _setting(
        self, kind: Literal["selector", "rack"], away: frozenset[str], now: _Seen, after: _Seen
    ) -> RecommendedChange:
        """Return a change of settings, which leaves each partition with its reader."""
        # `away`: IDs of members that may be without `client.rack`.
        sure = _gained(RecommendedChange(kind), now, after)
        # Whether these are local already is unknown, since their reader may be in the leader's rack.
        later = [
            read
            for read in now.reads
            if read.kind == "unknown" and (read.tp in after.in_each_rack or read.member in self.foreign)
        ]
        changed = {new.member for old, new in zip(now.reads, after.reads, strict=True) if old.kind != new.kind}
        return replace(
            sure,
            gain_at_most=sure.gain + len(later),
            gain_bytes_s_at_most=round(sure.gain_bytes_s + self._bytes_s(read.tp for read in later), 3),
            members=tuple(sorted(away & (changed | {read.member for read in later}))),
        )

    def _if_selectors_are_known(self, change: RecommendedChange) -> RecommendedChange:
        # Brokers that do not report their selector may have one.
        unsure = self.cluster.read_policy == "unknown"
        return replace(change, gain=min(0, change.gain), gain_bytes_s=0.0) if unsure else change

    def _racks_to_state(self, settled: _Seen) -> Iterator[RecommendedChange]:
        """Yield that racks of members without one have to be known, if an assignment could change what they read."""
        hidden = [read.tp for read in settled.reads if read.tp in settled.open and read.member in self.silent]
        if hidden:
            yield RecommendedChange(
                "rack-map",
                gain_at_most=len(hidden),
                gain_bytes_s_at_most=round(self._bytes_s(hidden), 3),
                members=tuple(sorted(self.silent)),
            )

    def _bytes_s(self, tps: Iterable[TopicPartition]) -> float:
        # The order of a set is another one in each process, and with `sum` so is the last digit.
        return fsum(self.rates.bytes_s.get(tp, 0.0) for tp in tps)


def _gained(change: RecommendedChange, before: _Seen, after: _Seen) -> RecommendedChange:
    gain = after.partitions.local - before.partitions.local
    # What may cross racks counts as if it did, before and after.
    size = round(before.flows.cross_at_most - after.flows.cross_at_most, 3)
    return replace(change, gain=gain, gain_at_most=gain, gain_bytes_s=size, gain_bytes_s_at_most=size)


def moved(group: Group, owned: Mapping[str, Partitions], target: Mapping[str, Partitions]) -> int:
    """Count the partitions that leave a reader that still subscribes to them."""
    return sum(
        len(set(ids) - set(target[member.id].get(topic, ())))
        for member in group.members
        for topic, ids in owned[member.id].items()
        if topic in member.topics
    )
