"""Analysis of a group: its cross-rack reads now, the result of each strategy, and the changes that gain most.

The analysis is computed from values only. Current reads are evaluated with the replicas that serve now. Possible ones
are planned as an assignor would, from all replicas, and evaluated with the replicas that serve once all are in sync. So
an offline broker makes no strategy look better than it is.

Racks of members are known from two sources: members report them, or a rack map has them. The leader of the group
receives only the former. What a strategy reaches is the result with rackassign, whose members all report their rack and
fetch from a local replica; so it is planned with all known racks. What the current leader could make of the racks that
it receives is only the first of the recommended changes. A member of unknown rack is evaluated as unknown, and no gain
is computed for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

from rackassign.locality import Locality
from rackassign.model import LOCALITY_MODES, Group, LocalityMode, Partitions, Plan, Reason, Topology
from rackassign.monitoring.live_groups import Snapshot, topics_of
from rackassign.monitoring.read_rates import ReadRates
from rackassign.monitoring.traffic import (
    Holds,
    ObservedCluster,
    PartitionRead,
    TrafficMatrix,
    count_locality,
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

ActionKind = Literal["strategy", "selector", "rack", "member", "replicas", "max-skew"]


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
    """A change, and its gain, computed by solving the group with it.

    Args:
        kind: `strategy`: let rackassign assign, by members with the cooperative strategy or in the broker. All others
            are counted relative to that, if it gains anything, and with that strategy in any case: `selector`: a
            rack-aware replica selector on the brokers. `rack`: `members` send their rack. `member`: one more of them in
            `rack`, subscribed to `topics`. `replicas`: a replica of each of `partitions` in `rack`; if only leaders
            serve, as the leader. `max-skew`: the option of that name, set to 1. First of all comes `rack` of `members`
            of unknown rack.
        gain: Additional partitions that are certainly local; 0 if it is uncertain.
        gain_bytes_s: Reduction of bytes per second that certainly or possibly cross racks; 0 if it is uncertain.
        uncertain: Whether the racks of the members are unknown: then the gain is between 0 and the next two.
        gain_at_most: Partitions whose locality is unknown, if it is uncertain.
        gain_bytes_s_at_most: Bytes per second of which it is unknown whether they cross racks, if it is uncertain.
        rack: For `member` and `replicas`.
        members: For `rack`, member IDs.
        topics: For `member`.
        partitions: For `replicas`.
    """

    kind: ActionKind
    gain: int
    gain_bytes_s: float
    uncertain: bool = False
    gain_at_most: int = 0
    gain_bytes_s_at_most: float = 0.0
    rack: str | None = None
    members: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    partitions: Partitions = field(default_factory=dict)


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
        actions: The changes that gain most: unknown racks, the strategy if it gains anything, then the others, best
            first.
        out_of_sync: Partitions that would be local if their local replica were in sync.
        unassigned: Partitions of subscribed topics that are assigned to no member.
        missing: Topics that cannot be described, each with the reason; they are not counted anywhere.
        rates: What it reads, and its lag.
    """

    snapshot: Snapshot
    read_policy: Holds
    now: tuple[PartitionRead, ...]
    partitions: Locality
    by_mode: Mapping[LocalityMode, Locality]
    flows: TrafficMatrix
    reaches: tuple[StrategyOutcome, ...]
    actions: tuple[RecommendedChange, ...]
    out_of_sync: int
    unassigned: int
    missing: Mapping[str, str]
    rates: ReadRates

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
    def savings_bytes_s(self) -> tuple[float, float]:
        """Return how many bytes per second less cross racks with rackassign's best: at least, and at most.

        Of members of unknown rack it is unknown whether their reads cross racks at all, so that is a range.
        """
        if not self.reaches:
            return 0.0, 0.0
        then = self.best.flows
        most = max(0.0, self.flows.cross_at_most - then.cross)
        return max(0.0, self.flows.cross - then.cross - then.unknown), most

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
    """Analyze a group.

    Args:
        shot: The group as it is.
        cluster: Cluster with its topics.
        rates: What it reads; empty if it was not measured.
    """
    located = shot.without_foreign_racks()
    group, owned = located.group, shot.owned
    now = current_reads(located, cluster)
    judge = _Analyzer(located, cluster, rates, owned)
    # A broker shows assignors no leaders, whatever its selector is.
    options = Options(locality="any-replica" if judge.by_broker else cluster.mode, time_limit_s=_PLAN_S)
    plans = plan_each(group, options, shot.live.kind, shot.live.strategy)
    by_mode = {
        mode: count_locality(partition_reads(group, owned, _only(group.topology, mode))) for mode in LOCALITY_MODES
    }
    reaches = tuple(judge.reach(name, plan) for name, plan in plans.items()) if group.members else ()
    return GroupAnalysis(
        shot,
        cluster.read_policy,
        now,
        count_locality(now),
        by_mode,
        traffic_matrix(now, rates.bytes_s),
        reaches,
        tuple(judge.actions([*plans.values()][-1])) if group.members else (),
        judge.seen(group, owned).partitions.local - count_locality(now).local,
        _unassigned(group),
        {topic: cluster.missing[topic] for topic in sorted(topics_of(shot.live)) if topic in cluster.missing},
        rates,
    )


def current_reads(shot: Snapshot, cluster: ObservedCluster) -> tuple[PartitionRead, ...]:
    """Return the reader and rack of each partition that members have, from the replicas that serve now."""
    serving = cluster.in_sync_replicas(shot.group.topology)
    return partition_reads(shot.group, shot.owned, serving, shot.leaders_only)


def _unassigned(group: Group) -> int:
    wanted = {topic for member in group.members for topic in member.topics}
    had = {(topic, p) for member in group.members for topic, ids in member.owned.items() for p in ids}
    return sum((topic, p) not in had for topic in wanted for p in range(len(group.topology.topics.get(topic, ()))))


def _only(topology: Topology, mode: LocalityMode) -> Topology:
    """Return the topology with only the leaders, or unchanged, depending on the mode."""
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

    def non_local_bytes(self) -> float:
        """Return the bytes that are not certainly local."""
        return self.flows.total - self.flows.local


@dataclass(frozen=True, slots=True)
class _Analyzer:
    shot: Snapshot
    cluster: ObservedCluster
    rates: ReadRates
    owned: Mapping[str, Partitions]

    def reach(self, name: str, plan: Plan) -> StrategyOutcome:
        """Compute the result of a plan that is based on all known racks, for members that fetch local replicas."""
        planned = self.seen(self.shot.group, plan.target, leaders_only=frozenset())
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
        group: Group,
        target: Mapping[str, Partitions],
        counting: Topology | None = None,
        leaders_only: frozenset[str] | None = None,
    ) -> _Seen:
        """Evaluate an assignment with the true racks of its readers, and the replicas that serve once all are in sync.

        Args:
            group: The group with the true racks.
            target: The assignment.
            counting: The replicas that serve; by default those that the brokers' selectors choose.
            leaders_only: Members that do not request a local replica; by default the current ones.
        """
        reads = partition_reads(
            group,
            target,
            self.cluster.selectable_replicas(group.topology) if counting is None else counting,
            self.shot.leaders_only if leaders_only is None else leaders_only,
        )
        return _Seen(reads, count_locality(reads), traffic_matrix(reads, self.rates.bytes_s))

    def actions(self, with_all_racks: Plan) -> list[RecommendedChange]:
        """Return the changes that gain most: local bytes, or local partitions if bytes are not measured.

        Args:
            with_all_racks: The plan of the best strategy, based on all known racks.
        """
        group, leader_view = self.shot.group, self.shot.as_leader_sees()
        # The switch alone, without the racks that are only in the rack map: these are a change of their own.
        plan = self.plan(leader_view) if self.shot.rack_map_members else with_all_racks
        now = self.seen(group, self.owned)
        base = self.seen(group, plan.target)
        useful = partial(_useful, idle=not now.flows.total)
        switch = _gained(RecommendedChange("strategy", 0, 0.0), now, base)
        # An uneven group may be more local than a balanced one can be: a change without a gain over that is no gain.
        further = filter(useful, self._further(leader_view, plan, base if useful(switch) else now, with_all_racks))
        ranked = sorted(further, key=lambda action: (-action.gain_bytes_s, -action.gain))
        return [*self._unknown_racks(now), *filter(useful, (switch,)), *ranked][:ACTIONS]

    def _unknown_racks(self, now: _Seen) -> Iterator[RecommendedChange]:
        """Yield what all else depends on: that the racks of members of unknown rack become known."""
        if self.shot.unknown:
            yield RecommendedChange(
                "rack",
                0,
                0.0,
                uncertain=True,
                gain_at_most=now.partitions.unknown,
                gain_bytes_s_at_most=round(now.flows.unknown, 3),
                members=tuple(sorted(member.id for member in self.shot.unknown)),
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

    def _further(
        self, leader_view: Group, plan: Plan, base: _Seen, with_all_racks: Plan
    ) -> Iterator[RecommendedChange]:
        """Yield changes with their gain beyond the strategy."""
        if self.cluster.without_selector():
            everywhere = self.plan(leader_view, mode="any-replica")
            planned = self.seen(self.shot.group, everywhere.target, leader_view.topology)
            yield _gained(RecommendedChange("selector", 0, 0.0), base, planned)
        if self.shot.rack_map_members:
            planned = self.seen(self.shot.group, with_all_racks.target, leaders_only=frozenset())
            yield _gained(
                RecommendedChange("rack", 0, 0.0, members=tuple(sorted(self.shot.rack_map_members))), base, planned
            )
        skewed = None if self.by_broker else (1, partial(self.plan, max_skew=1))
        for tried in evaluate_changes(leader_view, plan, self.plan, skewed):
            advice = tried.advice
            action = RecommendedChange(
                advice.kind, 0, 0.0, rack=advice.rack, topics=advice.topics, partitions=advice.partitions
            )
            # The evaluated group has fewer known racks than this snapshot.
            racks = {member.id: member.rack for member in self.shot.group.members}
            members = tuple(replace(m, rack=racks.get(m.id, m.rack)) for m in tried.group.members)
            yield _gained(action, base, self.seen(replace(tried.group, members=members), tried.plan.target))


def _useful(action: RecommendedChange, *, idle: bool) -> bool:
    """Return whether a change gains bytes, or partitions if nothing is read or it was not measured."""
    return action.gain > 0 if idle else action.gain >= 0 and action.gain_bytes_s > 0


def _gained(action: RecommendedChange, before: _Seen, after: _Seen) -> RecommendedChange:
    return replace(
        action,
        gain=after.partitions.local - before.partitions.local,
        gain_bytes_s=round(before.non_local_bytes() - after.non_local_bytes(), 3),
    )


def moved(group: Group, owned: Mapping[str, Partitions], target: Mapping[str, Partitions]) -> int:
    """Count the partitions that leave a reader that still subscribes to them."""
    return sum(
        len(set(ids) - set(target[member.id].get(topic, ())))
        for member in group.members
        for topic, ids in owned[member.id].items()
        if topic in member.topics
    )
