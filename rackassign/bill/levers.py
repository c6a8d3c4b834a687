"""Levers: what can be changed, in the order of effort, with what each saves and costs.

The order is that of effort: settings first, then elections, then code of producers and of consumers, then copies of
replicas. Each lever is evaluated twice: alone, from the cluster as it is, and after those before it. One that saves
nothing beyond those before it is shown as such.

Leaders and replicas are planned by the code of `balance-leaders` and `reassign plan`, assignments by that of the
assignors. So what a lever saves is what its command reaches.

The bound is what no lever goes below. A partition stays in as many racks as it is, since durability is not for sale, so
each byte is copied to all of them but one. It is written by producers in several racks, of which the leader is in one.
Reading costs nothing where members and replicas share a rack. Leaders that are to be even, as they are by default,
stay above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

from rackassign.admin.describe import DescribedTopic
from rackassign.bill.usage import BROKERS_OWN, ItemKey, Items, Setting, Span, Usage, plan_for, total
from rackassign.model import LocalityMode, Partition, Recommendation, TopicPartition
from rackassign.monitoring import ClusterReport, GroupAnalysis, Price
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.leader_traffic import LeaderTraffic
from rackassign.placement.local_reads import GroupLocality
from rackassign.placement.placer import ReplicaPlacementError
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment.plan import ReassignmentPlan, plan_leader_balance, plan_reassignment
from rackassign.reassignment.request import ReassignmentRequest
from rackassign.strategies.explain import evaluate_changes

LeverKind = Literal["fetching", "leaders", "producers", "members", "replicas"]

LEVERS: tuple[LeverKind, ...] = get_args(LeverKind)
"""In the order of effort."""

_MOST_GROUPS = 3
"""Groups near which replicas are tried: those that read most across racks."""

_NOISE = 0.01
"""Share of the written bytes below which other leaders, replicas or producers save nothing.

For leaders and replicas as for `balance-leaders --check`: the command goes by all that producers have written, and an
interval is a part of it. For producers, since logs and producers are not read at the same moment, and what logs have
more is of unknown producers."""

_YEAR_S = 365 * 24 * 3600
"""What is copied has to be saved in that time."""

_PER_BYTE = 1000
"""Rates become integers in this unit of a byte per second."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting with one lever more, and what sentences need.

    Args:
        setting: It and those before it.
        groups: For `members`, the groups that gain, with the most first; for `replicas`, the one near which they are.
        copied: For `replicas`, partitions that are copied, by the number of new replicas in another rack than the
            leader's.
        added: For `replicas`, the rack in which partitions get one more replica.
        skews: For `leaders` and `replicas`, bytes per second that larger skews of leaders save more, by the skew.
        joined: For `members`, the member that joins a group and the bytes per second that it saves beside the
            assignor, by the name of the group.
        fetches: For `members`, whether it needs that followers are fetched from, which alone saves nothing.
    """

    setting: Setting
    groups: tuple[GroupAnalysis, ...] = ()
    copied: Mapping[TopicPartition, int] = field(default_factory=dict)
    added: str = ""
    skews: Mapping[int, float] = field(default_factory=dict)
    joined: Mapping[str, tuple[Recommendation, float]] = field(default_factory=dict)
    fetches: bool = False


@dataclass(frozen=True, slots=True)
class Lever:
    """A lever, and what it saves in bytes per second that are billed.

    Args:
        kind: What is changed.
        change: How.
        alone: What it saves from the cluster as it is.
        beyond: What it saves after those before it.
        items: All items after it and those before it.
        single: All items after it alone.
    """

    kind: LeverKind
    change: Change
    alone: Span
    beyond: Span
    items: Items
    single: Items


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What crosses racks now, after each lever, and at the least.

    Args:
        now: All items as they are.
        levers: The levers, in the order of effort.
        floor: Bytes per second of each item across racks that no lever goes below.
        least: Billed bytes per second of all items together that no lever goes below.
    """

    now: Items
    levers: tuple[Lever, ...]
    floor: Mapping[ItemKey, float]
    least: float

    @property
    def gaining(self) -> list[Lever]:
        """The levers that save something after those before them."""
        return [lever for lever in self.levers if lever.beyond.most > 0]


def billed(items: Items, price: Price) -> Span:
    """Return what is billed of all items."""
    free = {"replicating"} if price.free_replication else set()
    return total(item.across for key, item in items.items() if key.line not in free)


def evaluate(usage: Usage, report: ClusterReport, price: Price, max_skew: int = 0) -> Evaluation:
    """Evaluate all levers.

    Args:
        usage: What is written and read.
        report: The analyses of the groups.
        price: Price of traffic between racks.
        max_skew: As the option of `balance-leaders` and `reassign plan`.
    """
    return _Evaluator(usage, report, price, max_skew).evaluate()


@dataclass(frozen=True, slots=True)
class _Evaluator:
    usage: Usage
    report: ClusterReport
    price: Price
    max_skew: int

    def evaluate(self) -> Evaluation:
        now = self.usage.items(Setting())
        setting, items = Setting(), now
        levers: list[Lever] = []
        for kind in LEVERS:
            alone = self._change(kind, Setting(), now)
            if kind == "leaders":
                # No lever before it moves a leader or a replica.
                change = replace(alone, setting=replace(setting, partitions=alone.setting.partitions))
            else:
                change = self._change(kind, setting, items)
            if kind in {"members", "replicas"} and not (setting.fetching or self._all_fetch()):
                # Fetching from followers alone saves nothing here; with other readers or replicas it may.
                both = self._change(kind, replace(setting, fetching=True), items)
                if self._left(both.setting) < self._left(change.setting):
                    change = replace(both, fetches=True)
            after, single = self.usage.items(change.setting), self.usage.items(alone.setting)
            beyond = self._saved(items, after, setting, change.setting)
            saved = self._saved(now, single, Setting(), alone.setting)
            if kind == "producers":
                # How many of these records have keys is not known, so nothing is less for certain.
                beyond = saved = Span(0.0, self.usage.written_anywhere(setting))
            noise = _NOISE * sum(self.usage.written.values()) if kind in {"leaders", "producers", "replicas"} else 0.0
            if beyond.most <= noise or beyond.least < 0:
                # It would cost more than it saves, or what it saves is noise, so it is left out.
                change, after, beyond = Change(setting, skews=change.skews), items, Span()
            levers.append(Lever(kind, change, saved, beyond, after, single))
            setting, items = change.setting, after
        return Evaluation(now, tuple(levers), *least(self.usage, self.price))

    def _all_fetch(self) -> bool:
        """Return whether brokers and consumers have what fetching from followers needs already."""
        shots = (group.snapshot for group in self.usage.groups)
        away = any(shot.leaders_only or shot.unknown for shot in shots)
        return self.usage.cluster.read_policy == "any-replica" and not away

    def _billed(self, items: Items) -> Span:
        return billed(items, self.price)

    def _saved(self, before: Items, after: Items, old: Setting, new: Setting) -> Span:
        """Return what a change saves: all or nothing of clients of unknown rack, where a leader moves."""
        usage, racks = self.usage, self.usage.cluster.topology.broker_racks()
        moved: set[TopicPartition] = set()
        for tp in new.partitions:
            homes = {racks.get(leader) for s in (old, new) if (leader := usage.partition(tp, s).leader) is not None}
            if len(homes) > 1:
                moved.add(tp)
        unknown = sum(usage.writers[tp].get(None, 0.0) for tp in sorted(moved) if tp in usage.writers)
        fetched = 0.0
        for group in usage.groups if moved or new.fetching != old.fetching else ():
            reads, covered = usage.reads(group, new) if group.snapshot.unknown else ((), frozenset())
            for tp in (read.tp for read in reads if read.home is None and read.tp not in covered):
                size = group.rates.bytes_s.get(tp, 0.0)
                unknown += size * (tp in moved)
                # With a replica selector a reader may find a replica in its rack that is not the leader.
                spread = {racks.get(broker) for broker in usage.partition(tp, new).replicas}
                fetched += size * (new.fetching != old.fetching and len(spread) > 1)
        saved = self._billed(before).less(self._billed(after))
        return Span(saved.least - unknown, saved.most + max(unknown, fetched))

    def _left(self, setting: Setting) -> float:
        return self._billed(self.usage.items(setting)).most

    def _change(self, kind: LeverKind, setting: Setting, items: Items) -> Change:
        if kind == "fetching":
            return Change(replace(setting, fetching=True))
        if kind == "producers":
            return Change(setting)
        if kind == "leaders":
            return self._leaders(setting)
        if kind == "members":
            return self._members(setting, items)
        return self._replicas(setting, items)

    def _members(self, setting: Setting, items: Items) -> Change:
        """Return all groups that gain by rackassign's assignment, those that gain most with one member more."""
        names = frozenset(group.snapshot.live.name for group in self.report.inspections if group.reaches)
        before, after = _by_group(items), _by_group(self.usage.items(replace(setting, assigned=names)))
        gaining = {
            name
            for name in names & before.keys()
            if after[name].most < before[name].most and after[name].least <= before[name].least
        }
        changed = replace(setting, assigned=frozenset(gaining))
        left = {name: after[name] if name in gaining else before[name] for name in names & before.keys()}
        # A member more runs for good, and copies stay: not for what does not last.
        late = {group.snapshot.live.name for group in self.report.inspections if group.rates.catches_up}
        ranked = sorted((n for n in left.keys() - late if left[n].least > 0), key=lambda n: (-left[n].least, n))
        joined: dict[str, tuple[Recommendation, float]] = {}
        for name in ranked[:_MOST_GROUPS]:
            joining = self._joining(name, changed, left[name])
            if joining is not None:
                changed, joined[name] = joining
        then = _by_group(self.usage.items(changed))
        saved = {name: span.less(then[name]).most for name, span in before.items()}
        found = (group for group in self.report.inspections if saved.get(group.snapshot.live.name, 0.0) > 0)
        groups = sorted(found, key=lambda g: (-saved[g.snapshot.live.name], g.snapshot.live.name))
        return Change(changed, tuple(groups), joined=joined)

    def _joining(self, name: str, setting: Setting, left: Span) -> tuple[Setting, tuple[Recommendation, float]] | None:
        """Return one more member of a group, where it saves most; None if it saves nothing."""
        analysis = next(group for group in self.report.inspections if group.snapshot.live.name == name)
        readers = next(group for group in self.usage.groups if group.snapshot.live.name == name)
        group, kind = analysis.snapshot.without_foreign_racks().group, analysis.snapshot.live.kind
        mode: LocalityMode = "any-replica" if setting.fetching or kind == "consumer" else self.usage.cluster.mode
        replan = partial(plan_for, kind=kind, mode=mode)
        best, across = None, left.least
        for tried in evaluate_changes(group, replan(group), replan):
            if tried.advice.kind == "member":
                more = {**setting.joined, name: (tried.group, tried.plan.target)}
                changed = replace(setting, assigned=setting.assigned | {name}, joined=more)
                size = total(item.across for item in self.usage.read_items(readers, changed).values()).most
                if size < across:
                    best, across = (changed, (tried.advice, left.least - size)), size
        return best

    def _leaders(self, setting: Setting) -> Change:
        clients = self._clients()
        if not clients.written:
            return Change(setting)
        planned = plan_leader_balance(self._state(setting), PlacementConstraints(), None, clients)
        return Change(self._planned(setting, planned), skews=_skews(planned))

    def _replicas(self, setting: Setting, items: Items) -> Change:
        """Return the candidate that saves most in a year, less what it copies; none if it copies more than it saves.

        Candidates are replicas near producers, near a group, or one more in a rack.
        """
        best = Change(setting)
        least = self._billed(items).most
        sizes = {} if self.price.free_replication else self.usage.measured.sizes
        for change in self._candidates(setting, items):
            copied = sum(sizes.get(tp, 0) * copies for tp, copies in change.copied.items())
            amount = self._left(change.setting) + copied / _YEAR_S
            if amount < least:
                best, least = change, amount
        return best

    def _candidates(self, setting: Setting, items: Items) -> Iterator[Change]:
        state, clients = self._state(setting), self._clients()
        fetching = setting.fetching or self.usage.cluster.read_policy == "any-replica"
        if clients.written:
            yield self._reassigned(setting, state, clients=clients)
        across = _by_group(items)
        lasting = (group for group in self.report.inspections if not group.rates.catches_up)
        readers = [g for g in lasting if across.get(g.snapshot.live.name, Span()).least > 0]
        readers.sort(key=lambda g: (-across[g.snapshot.live.name].least, g.snapshot.live.name))
        for group in readers[:_MOST_GROUPS] if fetching else ():
            near = GroupLocality.of(group, self.usage.cluster.with_selectors())
            # The command does not know the rack map.
            if any(near.coverage.values()) and not group.snapshot.rack_map_members:
                yield self._reassigned(setting, state, near=near)
        for rack in sorted({*self.usage.cluster.topology.broker_racks().values()} if fetching else ()):
            yield self._with_replicas(setting, rack)

    def _reassigned(
        self,
        setting: Setting,
        state: ClusterState,
        *,
        clients: LeaderTraffic | None = None,
        near: GroupLocality | None = None,
    ) -> Change:
        request = ReassignmentRequest(topics=None if near is None else near.topics)
        coverage = None if near is None else near.members_per_rack(near.topics)
        try:
            planned = plan_reassignment(state, request, PlacementState(), coverage, near, clients=clients)
        except ReplicaPlacementError:
            # The command has the reason.
            return Change(setting)
        changed = self._planned(setting, planned)
        groups = () if near is None else (near.inspection,)
        return Change(changed, groups, self._copies(setting, changed), skews=_skews(planned))

    def _planned(self, setting: Setting, planned: ReassignmentPlan) -> Setting:
        """Return a setting with the lists of a plan, each led by its first replica."""
        found = {tp: Partition(move.after, move.after[0]) for tp, move in planned.moves.items() if move.after}
        return replace(setting, partitions={**setting.partitions, **found})

    def _with_replicas(self, setting: Setting, rack: str) -> Change:
        """Return one more replica in a rack of each partition that more bytes are read from there than written to."""
        racks, usage, written = self.usage.cluster.topology.broker_racks(), self.usage, self.usage.written
        wanted: dict[TopicPartition, float] = {}
        for group in usage.groups:
            for read in usage.reads(group, setting)[0]:
                if read.kind == "cross" and read.home == rack:
                    # A group that catches up reads more than is written, and only for a while.
                    size = min(group.rates.bytes_s.get(read.tp, 0.0), written.get(read.tp, 0.0))
                    wanted[read.tp] = wanted.get(read.tp, 0.0) + size
        load = Counter(broker for tp in usage.writers for broker in usage.partition(tp, setting).replicas)
        added: dict[TopicPartition, Partition] = {}
        for tp, size in sorted(wanted.items()):
            partition = usage.partition(tp, setting)
            there = [broker for broker, of in racks.items() if of == rack and broker not in partition.replicas]
            if there and size > (0.0 if self.price.free_replication else written.get(tp, 0.0)):
                broker = min(there, key=lambda broker: (load[broker], broker))
                load[broker] += 1
                added[tp] = replace(partition, replicas=(*partition.replicas, broker))
        changed = replace(setting, partitions={**setting.partitions, **added})
        return Change(changed, (), self._copies(setting, changed), rack)

    def _copies(self, before: Setting, after: Setting) -> dict[TopicPartition, int]:
        racks = self.usage.cluster.topology.broker_racks()
        found: dict[TopicPartition, int] = {}
        for tp in after.partitions:
            old, new = self.usage.partition(tp, before), self.usage.partition(tp, after)
            home = None if old.leader is None else racks.get(old.leader)
            if copies := [broker for broker in new.replicas if broker not in old.replicas]:
                found[tp] = sum(racks.get(broker) != home for broker in copies)
        return found

    def _state(self, setting: Setting) -> ClusterState:
        cluster = self.usage.cluster
        topics = {
            name: DescribedTopic(
                tuple(setting.partitions.get(TopicPartition(name, i), p) for i, p in enumerate(row)),
                tuple(
                    in_sync
                    if TopicPartition(name, i) not in setting.partitions
                    else setting.partitions[TopicPartition(name, i)].replicas
                    for i, in_sync in enumerate(cluster.in_sync[name])
                ),
            )
            for name, row in cluster.topology.topics.items()
        }
        return ClusterState(cluster.topology.brokers, topics)

    def _clients(self) -> LeaderTraffic:
        """Return what producers of known racks write: of all others it is unknown where their leaders should be."""
        brokers = self.usage.cluster.topology.brokers
        written = {
            tp: {rack: round(rate * _PER_BYTE) for rack, rate in by_rack.items()}
            for tp, by_rack in self.usage.writers.items()
            if tp.topic not in BROKERS_OWN and any(rate for rack, rate in by_rack.items() if rack is not None)
        }
        return LeaderTraffic(
            written,
            {broker.id: broker.rack for broker in brokers},
            max_skew=self.max_skew,
            free_replication=self.price.free_replication,
        )


def least(usage: Usage, price: Price) -> tuple[dict[ItemKey, float], float]:
    """Return the least bytes across racks of each item, and of all that is billed, wherever leaders and replicas are.

    The two do not add up: where a partition is led best for its producers need not be best for its followers.
    """
    racks, free = usage.cluster.topology.broker_racks(), price.free_replication
    brokers = Counter(racks.values())
    # Each of these may be in any rack.
    nowhere = len(usage.cluster.topology.brokers) - len(racks)
    floor: dict[ItemKey, float] = {}
    together = 0.0
    for tp, by_rack in usage.writers.items():
        replicas = usage.partition(tp, Setting()).replicas
        others = max(0, len({racks[broker] for broker in replicas if broker in racks}) - 1)
        size, known = sum(by_rack.values()), sum(rate for rack, rate in by_rack.items() if rack is not None)
        # By rack of the leader: the followers that do not fit there beside one in each other rack, and producers.
        led = [
            (max(others, len(replicas) - count - nowhere) * size, known - by_rack.get(rack, 0.0))
            for rack, count in sorted(brokers.items())
        ] or [(0.0, 0.0)]
        together += min((0.0 if free else copied) + written for copied, written in led)
        for line, i in (("replicating", 0), ("producing", 1)):
            key = ItemKey(line, tp.topic)  # type: ignore[arg-type]
            floor[key] = floor.get(key, 0.0) + min(row[i] for row in led)
    return floor, together


def _skews(planned: ReassignmentPlan) -> dict[int, float]:
    return {skew: saved / _PER_BYTE for skew, saved in planned.skews.items()}


def _by_group(items: Items) -> dict[str, Span]:
    found: dict[str, Span] = {}
    for key, item in items.items():
        if key.line == "consuming":
            found[key.group] = found.get(key.group, Span()).plus(item.across)
    return found
