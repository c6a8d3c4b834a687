"""What a group reads across racks now, what each strategy would make of it, and which changes would gain most.

Judged from values alone. What is read now is held against the copies that serve now; what would be is planned as an
assignor would, from all copies, and counted by what they would serve when all of them are in sync again. So a
broker that is away makes no strategy look better than it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from rackassign.locality import Locality
from rackassign.model import LOCALITY_MODES, Group, LocalityMode, Partitions, Plan, Reason, StrategyName, Topology
from rackassign.monitoring.cluster import Holds, ObservedCluster
from rackassign.monitoring.snapshot import Snapshot, topics_of
from rackassign.monitoring.throughput import Throughput
from rackassign.monitoring.traffic import PartitionRead, TrafficMatrix, count_locality, partition_reads, traffic_matrix
from rackassign.strategies import STRATEGIES, Options, plan_cooperative
from rackassign.strategies.explain import evaluate_changes, non_local_partitions

ACTIONS = 3
"""Actions that are shown: those that gain most."""

_PLAN_S = 30.0
"""For each plan: one that takes longer is taken as far as it came, so that a look at all groups comes to its end."""

ActionKind = Literal["strategy", "selector", "rack", "member", "replicas", "max-skew"]


@dataclass(frozen=True, slots=True)
class StrategyOutcome:
    """What a strategy would make of a group as it is.

    Args:
        strategy: Which.
        partitions: How many would be local.
        flows: What would be read from where.
        moved: Partitions that would leave a reader they have now.
        reads: Who would read what from where.
        reasons: How many would not be local, by what keeps them from it.
    """

    strategy: StrategyName
    partitions: Locality
    flows: TrafficMatrix
    moved: int
    reads: tuple[PartitionRead, ...]
    reasons: Mapping[Reason, int]


@dataclass(frozen=True, slots=True)
class RecommendedChange:
    """One change, and what it would gain, worked out by solving the group with it.

    Args:
        kind: `strategy`: let members with the cooperative strategy lead. All others are counted from there on, if that
            gains anything, and with that strategy in any case: `selector`: a rack-aware replica selector on the
            brokers. `rack`: `members` send their rack. `member`: one more of them in `rack`, subscribed to
            `topics`. `replicas`: a copy of each of `partitions` in `rack`; where only leaders serve, one that
            leads. `max-skew`: the option of that name, set to 1.
        gain: Partitions more that are surely read at home.
        gain_bytes_s: Bytes a second fewer that surely or maybe cross racks.
        uncertain: Whether nobody knows where the members are; the gain is what it would be in `rack` then.
        rack: For `member` and `replicas`, and for `rack` if that is uncertain.
        members: For `rack`, by their ids.
        topics: For `member`.
        partitions: For `replicas`.
    """

    kind: ActionKind
    gain: int
    gain_bytes_s: float
    uncertain: bool = False
    rack: str | None = None
    members: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    partitions: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupAnalysis:
    """All that is found out about one group.

    Args:
        snapshot: The group as it is.
        holds: Which replicas its readers are sent to.
        now: Who reads what from where.
        partitions: How many are local now.
        by_mode: The same if any replica served, and if only leaders did.
        flows: What is read from where now, in bytes a second.
        reaches: What each strategy would make of it.
        actions: Those that would gain most: the strategy if that gains anything, then the best first.
        out_of_sync: Partitions that would be local if their near copy were in sync.
        unassigned: Partitions of subscribed topics that nobody has.
        missing: Topics that cannot be described, each with the reason; nothing of them is counted anywhere.
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

    @property
    def local_share(self) -> float | None:
        """Return the part of the partitions that is surely read at home, 0 to 1; None if nothing is read."""
        total = self.partitions.local + self.partitions.cross + self.partitions.unknown
        return self.partitions.local / total if total else None

    def reach(self, strategy: StrategyName) -> StrategyOutcome:
        """Return what a strategy would make of it."""
        return next(reach for reach in self.reaches if reach.strategy == strategy)


def inspect(shot: Snapshot, cluster: ObservedCluster, measured: Throughput) -> GroupAnalysis:
    """Judge a group.

    Args:
        shot: The group as it is.
        cluster: With its topics.
        measured: What is written to them; empty if that was not measured.
    """
    group = shot.group
    known = group.topology.topics.keys()
    owned = {m.id: {topic: ids for topic, ids in m.owned.items() if topic in known} for m in group.members}
    now = partition_reads(group, owned, cluster.in_sync_replicas(group.topology), shot.leaders_only)
    judge = _Judge(shot, cluster, measured, owned)
    told = shot.as_leader_sees()
    options = Options(locality=cluster.mode, time_limit_s=_PLAN_S)
    plans = {name: plan(told, options) for name, plan in STRATEGIES.items()}
    by_mode = {
        mode: count_locality(partition_reads(group, owned, _only(group.topology, mode))) for mode in LOCALITY_MODES
    }
    reaches = tuple(judge.reach(told, plan) for plan in plans.values()) if group.members else ()
    return GroupAnalysis(
        shot,
        cluster.read_policy,
        now,
        count_locality(now),
        by_mode,
        traffic_matrix(now, measured.bytes_s),
        reaches,
        tuple(judge.actions(told, plans["cooperative-sticky"])) if group.members else (),
        judge.seen(group, owned).partitions.local - count_locality(now).local,
        _unread(group),
        {topic: cluster.missing[topic] for topic in sorted(topics_of(shot.live)) if topic in cluster.missing},
    )


def _unread(group: Group) -> int:
    wanted = {topic for member in group.members for topic in member.topics}
    had = {(topic, p) for member in group.members for topic, ids in member.owned.items() for p in ids}
    return sum((topic, p) not in had for topic in wanted for p in range(len(group.topology.topics.get(topic, ()))))


def _only(topology: Topology, mode: LocalityMode) -> Topology:
    """Return the topology with the leaders alone, or as it is."""
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
    """An assignment, counted."""

    reads: tuple[PartitionRead, ...]
    partitions: Locality
    flows: TrafficMatrix

    def afar(self) -> float:
        """Return the bytes that are not surely local."""
        return self.flows.total - self.flows.local


@dataclass(frozen=True, slots=True)
class _Judge:
    shot: Snapshot
    cluster: ObservedCluster
    measured: Throughput
    owned: Mapping[str, Partitions]

    def reach(self, told: Group, plan: Plan) -> StrategyOutcome:
        """Count what a plan would make of the group, which is planned as its leader sees it."""
        seen = self.seen(self.shot.group, plan.target)
        return StrategyOutcome(
            plan.strategy,
            seen.partitions,
            seen.flows,
            moved(self.shot.group, self.owned, plan.target),
            seen.reads,
            Counter(entry.reason for entry in non_local_partitions(told, plan)),
        )

    def seen(
        self,
        group: Group,
        target: Mapping[str, Partitions],
        counting: Topology | None = None,
        leaders_only: frozenset[str] | None = None,
    ) -> _Seen:
        """Count an assignment by where its readers truly are, and by the copies that serve once all are in sync.

        Args:
            group: With the true racks.
            target: Who has what.
            counting: The copies that serve; those that the brokers' selectors make serve if left out.
            leaders_only: Members that do not ask for near ones; those that do not now if left out.
        """
        found = partition_reads(
            group,
            target,
            self.cluster.selectable_replicas(group.topology) if counting is None else counting,
            self.shot.leaders_only if leaders_only is None else leaders_only,
        )
        return _Seen(found, count_locality(found), traffic_matrix(found, self.measured.bytes_s))

    def actions(self, told: Group, plan: Plan) -> list[RecommendedChange]:
        """Return the changes that gain most: more bytes at home, more partitions where those are not measured.

        Args:
            told: The group as its leader sees it.
            plan: Its plan, by the cooperative strategy.
        """
        group = self.shot.group
        now = self.seen(group, self.owned)
        base = self.seen(group, plan.target)
        useful = partial(_useful, idle=not now.flows.total)
        switch = _gained(RecommendedChange("strategy", 0, 0.0), now, base)
        # An uneven group may be more local than an even one can be: what gains nothing over that gains nothing.
        further = filter(useful, self._further(told, plan, base if useful(switch) else now))
        ranked = sorted(further, key=lambda action: (-action.gain_bytes_s, -action.gain))
        return [*filter(useful, (switch,)), *ranked][:ACTIONS]

    def plan(self, group: Group, *, max_skew: int = 0, mode: LocalityMode | None = None) -> Plan:
        options = Options(locality=mode or self.cluster.mode, max_skew=max_skew, time_limit_s=_PLAN_S)
        return plan_cooperative(group, options)

    def _further(self, told: Group, plan: Plan, base: _Seen) -> Iterator[RecommendedChange]:
        """Yield changes with what they gain beyond the strategy."""
        if self.cluster.without_selector():
            everywhere = self.plan(told, mode="any-replica")
            seen = self.seen(self.shot.group, everywhere.target, told.topology)
            yield _gained(RecommendedChange("selector", 0, 0.0), base, seen)
        if self.shot.rack_map_members:
            seen = self.seen(self.shot.group, self.plan(self.shot.group).target, leaders_only=frozenset())
            yield _gained(
                RecommendedChange("rack", 0, 0.0, members=tuple(sorted(self.shot.rack_map_members))), base, seen
            )
        yield from self._placed(told, base)
        for tried in evaluate_changes(told, plan, self.plan, (1, partial(self.plan, max_skew=1))):
            advice = tried.advice
            action = RecommendedChange(
                advice.kind, 0, 0.0, rack=advice.rack, topics=advice.topics, partitions=advice.partitions
            )
            # The group that was tried knows fewer racks than we do.
            racks = {member.id: member.rack for member in self.shot.group.members}
            members = tuple(replace(m, rack=racks.get(m.id, m.rack)) for m in tried.group.members)
            yield _gained(action, base, self.seen(replace(tried.group, members=members), tried.plan.target))

    def _placed(self, told: Group, base: _Seen) -> Iterator[RecommendedChange]:
        """Yield what there is to gain if all of whom nobody knows told that they are in one rack: the best one."""
        silent = {member.id for member in self.shot.unknown}
        if not silent:
            return
        best: RecommendedChange | None = None
        for rack in sorted(set(told.topology.broker_racks().values())):
            members = tuple(replace(m, rack=rack) if m.id in silent else m for m in self.shot.group.members)
            there = replace(told, members=members)
            action = _gained(
                RecommendedChange("rack", 0, 0.0, uncertain=True, rack=rack, members=tuple(sorted(silent))),
                base,
                self.seen(there, self.plan(there).target),
            )
            if best is None or (action.gain_bytes_s, action.gain) > (best.gain_bytes_s, best.gain):
                best = action
        if best is not None:
            yield best


def _useful(action: RecommendedChange, *, idle: bool) -> bool:
    """Tell whether it gains bytes; of a group that reads nothing, or was not measured, partitions."""
    return action.gain > 0 if idle else action.gain >= 0 and action.gain_bytes_s > 0


def _gained(action: RecommendedChange, before: _Seen, after: _Seen) -> RecommendedChange:
    return replace(
        action,
        gain=after.partitions.local - before.partitions.local,
        gain_bytes_s=round(before.afar() - after.afar(), 3),
    )


def moved(group: Group, owned: Mapping[str, Partitions], target: Mapping[str, Partitions]) -> int:
    """Count the partitions that leave a reader that still subscribes to them."""
    return sum(
        len(set(ids) - set(target[member.id].get(topic, ())))
        for member in group.members
        for topic, ids in owned[member.id].items()
        if topic in member.topics
    )
