"""The plan made from a request and one description of the cluster, and the check of evenness.

No request is sent. Plans that pile up replicas are refused, however they were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple, TypeVar

from rackassign.errors import ConfigError, RackassignError
from rackassign.model import TopicPartition, Topology
from rackassign.placement.audit import empty_brokers
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.constraints import PlacementConstraints, check_weighted_brokers
from rackassign.placement.layout import Layout, ReplicaLists, known_brokers, moved
from rackassign.placement.leader_traffic import LeaderTraffic, OwnerReads
from rackassign.placement.local_reads import GroupLocality, move_replicas_to_readers
from rackassign.placement.optimal_placer import (
    LeadingCosts,
    MissingRackError,
    Placement,
    lead_at_least_cost,
    rebalance,
    rebalance_leaders,
)
from rackassign.placement.placer import ReplicaPlacementError
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment.partition_execution import ReplicaMove, Replicas
from rackassign.reassignment.request import ReassignmentRequest
from rackassign.text import counted, join_ids, short_repr

Coverage = Mapping[str, Mapping[str, float]]
"""For each topic the weight of each rack, by the number of its readers."""

_REST = ""
"""Name of a topic for all partitions that stay as they are; no real topic has this name."""


_MOST_TURNS = 8
"""Limit of the turns in which brokers are balanced again; one takes up to three seconds for 10,000 partitions."""


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """What a reassignment would change and leave.

    Args:
        before: The layout as it is.
        after: The layout as it would be.
        moves: Partitions that would have another list.
        waiting: Lists with placeholders (negative numbers) for replicas that no broker can take.
        skipped: Partitions that cannot be planned or moved now, with the reason.
        copies: Replicas that would be copied.
        lower_bound: The fewest copies of any reassignment with the same constraints.
        notes: What is not proven optimal, or which constraint is not satisfied; for display.
        obsolete_placeholders: Partitions whose placeholders in the state file are obsolete: they have the replication
            factor that was requested now.
        topics: Topics of the plan; the layouts also have all others, which count as load.
        skews: Measured bytes that no longer cross racks with a larger skew of leaders, by that skew.
        warnings: What the result is exposed to, and what it leaves undone; for display.
    """

    before: Layout
    after: Layout
    moves: Mapping[TopicPartition, ReplicaMove]
    waiting: Mapping[TopicPartition, Replicas]
    skipped: Mapping[TopicPartition, str]
    copies: int
    lower_bound: int
    notes: tuple[str, ...] = ()
    obsolete_placeholders: frozenset[TopicPartition] = frozenset()
    topics: tuple[str, ...] = ()
    skews: Mapping[int, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def plan_reassignment(
    state: ClusterState,
    request: ReassignmentRequest,
    registry: PlacementState,
    coverage: Coverage | None = None,
    near: GroupLocality | None = None,
    *,
    clients: LeaderTraffic | None = None,
) -> ReassignmentPlan:
    """Plan the fewest copies that satisfy a request, then even out the leaders of the moved partitions.

    Partitions whose replicas satisfy it keep their list, including its order. Where constraints state the racks of
    leaders, the lists of partitions that are to be led from elsewhere get another order.

    No partition has fewer replicas afterwards than now unless that is requested: where constraints leave no broker for
    some replicas that a partition has, the constraints are relaxed, and a note states that. Replicas on brokers to be
    removed, or on unknown ones, do not count.

    Args:
        state: The cluster.
        request: What is requested. Its replication factor applies to Kafka's own topics only if topics are named.
        registry: Placeholder replicas that wait for a broker.
        coverage: Weights of racks for each topic, where a group reads; Kafka's own topics are then left out. It decides
            where the copies go that are made anyway.
        near: Reads of that group: copies beyond those are made only if they make the group more local.
        clients: What producers write to each partition: each partition that is written is led where the fewest bytes
            cross racks, also by a replica that is copied for it.

    Raises:
        ConfigError: A broker, a topic, or a rack for leaders does not exist, or the replication factor is below
            `min.insync.replicas` of a topic.
        ReplicaPlacementError: No layout satisfies these constraints.
    """
    rules = request.rules_for(None)
    layout = layout_of(state)
    _check_removed(layout, request)
    _check_rules(state, layout, rules)
    skipped = _skipped(state, layout, request, coverage)
    before = {tp: _now(layout, tp) for tp in _topic_partitions(layout, request.topics) if tp not in skipped}
    asked = _asked(state, request, before)
    factors, stale = _factors(before, asked, registry)
    lists = {
        tp: _without_lagging(state, tp, factors[tp]) if factors[tp] < len(row) else row for tp, row in before.items()
    }
    spread = first = _spread(layout.with_lists(lists), request, factors, coverage)
    elected, skews = dict[TopicPartition, Replicas](), dict[int, int]()
    # What there is as each turn begins.
    turns = [before]
    while True:
        waiting = {tp: row for tp, row in spread.lists.items() if any(broker < 0 for broker in row)}
        after = layout.with_lists(_placed(turns[-1], spread.lists))
        led, notes = _evenly_led(state, rules, turns[-1], after)
        after = after.with_lists(led)
        if near is not None:
            # After leaders: where brokers send readers to leaders, other leaders would take the gain away.
            after = after.with_lists(move_replicas_to_readers(after, near, turns[-1], rules))
        complete = {tp: row for tp, row in turns[-1].items() if tp not in waiting}
        while clients is not None:
            leading = _near_producers(state, rules, complete, after, clients=clients, near=near)
            elected, found = leading.led(clients.max_skew)
            earlier, after = after, after.with_lists(elected)
            # A replica that was replaced frees the choice of others, and with other replicas the group is assigned
            # otherwise: a second plan would go on. Fewer bytes, or as many with fewer copies, come with each turn, so
            # this ends.
            if after == earlier:
                break
        lists = {tp: _now(after, tp) for tp in before}
        # What readers and producers need leaves brokers less even, and a second plan would go on from there.
        settled = lists in turns or len(turns) == _MOST_TURNS
        if settled or not request.rebalance or (near is None and clients is None):
            break
        turns.append(lists)
        spread = _spread(layout.with_lists(lists), request, factors, coverage)
    if clients is not None:
        skews, notes = leading.saved_by_skews(clients.max_skew, elected, found), (*notes, *found.notes)
    moves, copies = _moves(state, layout, after, before, elected), moved(layout, after)
    # Copies for readers and producers alone are added to the fewest of the placement.
    added = max(0, copies - moved(layout, layout.with_lists(first.lists)))
    return ReassignmentPlan(
        layout,
        after,
        moves,
        waiting,
        skipped | stale,
        copies,
        # A replica that lagged behind and stays after all, and one that producers keep, were counted as copies.
        min(first.lower_bound + added, copies),
        tuple(dict.fromkeys((*first.notes, *notes))),
        frozenset(asked.keys() & registry.plans.keys()).difference(moves, waiting),
        _topics(layout, request.topics),
        skews,
        (*_at_min_isr(state, moves), *_empty(after, rules)),
    )


def plan_leader_balance(
    state: ClusterState,
    rules: PlacementConstraints,
    topics: Collection[str] | None = None,
    clients: LeaderTraffic | None = None,
) -> ReassignmentPlan:
    """Plan new orders of the replica lists, so that leaders are balanced and nothing is copied.

    A partition that keeps its list, but whose preferred leader is not the leader, is a move to the list that it has.
    Brokers without a rack count as one in a rack of its own: this moves no replica.

    Args:
        state: The cluster.
        rules: Which leaders are balanced, and where they may be.
        topics: Topics to plan; None for all.
        clients: What producers write to each partition, and a group reads: within the bounds of its `max_skew`, the
            fewest bytes across racks come before everything else.

    Raises:
        ConfigError: A topic, a broker with a weight, or a rack for leaders, does not exist.
    """
    layout = layout_of(state)
    _check_rules(state, layout, rules)
    rules = replace(rules, rackless="rack")
    skipped = _immovable(state, layout, topics)
    free = [tp for tp in _topic_partitions(layout, topics) if tp not in skipped]
    if clients is None:
        part = _Part(layout, free)
        balanced = rebalance_leaders(part.layout, rules, topics=part.topics, keep_successors=True)
        lists, skews, notes = part.back(balanced.topics), dict[int, int](), balanced.notes
    else:
        costs = clients.costs(state, {tp: _now(layout, tp) for tp in free})
        leading = _Leaders(layout, rules, costs)
        lists, found = leading.led(clients.max_skew)
        skews, notes = leading.saved_by_skews(clients.max_skew, lists, found), found.notes
    after = layout.with_lists(lists)
    moves, chosen = _moves(state, layout, after, lists, lists), _topics(layout, topics)
    return ReassignmentPlan(layout, after, moves, {}, skipped, 0, 0, notes, topics=chosen, skews=skews)


def plan_from_lists(state: ClusterState, lists: Mapping[TopicPartition, Replicas]) -> ReassignmentPlan:
    layout = layout_of(state)
    topics = _topics(layout, {tp.topic for tp in lists})
    skipped = _immovable(state, layout, topics) | _below_min_isr(state, {tp: len(row) for tp, row in lists.items()})
    skipped = {tp: why for tp, why in skipped.items() if tp in lists}
    free = {tp: row for tp, row in sorted(lists.items()) if tp not in skipped}
    after = layout.with_lists(free)
    moves, copies = _moves(state, layout, after, free), moved(layout, after)
    warnings = tuple(_at_min_isr(state, moves))
    return ReassignmentPlan(layout, after, moves, {}, skipped, copies, copies, topics=topics, warnings=warnings)


def most_even(planned: ReassignmentPlan, rules: PlacementConstraints, emptied: Collection[int]) -> Layout:
    """Return the most even layout with a plan's replication factors that constraints and racks allow."""
    # Partitions that the plan has left out stay as they are. Brokers that it leaves without replicas get none.
    factors = {
        tp: len(_now(planned.after, tp))
        for tp in _topic_partitions(planned.after, planned.topics)
        if tp not in planned.skipped
    }
    rules = replace(rules, exclude=rules.exclude.union(emptied), first="balance", on_shortage="relax", max_racks=None)
    return planned.after.with_lists(_rebalanced(planned.after, rules, factors).lists)


def layout_of(state: ClusterState) -> Layout:
    """Return the layout of a cluster."""
    return Layout.of(Topology(state.brokers, {name: topic.partitions for name, topic in state.topics.items()}))


def _check_removed(layout: Layout, request: ReassignmentRequest) -> None:
    known = known_brokers(layout.brokers, layout.topics)
    for broker in sorted(request.removed_brokers - known):
        raise ConfigError(
            f"broker {broker} to be removed does not exist; brokers are {', '.join(map(str, sorted(known)))}"
        )


def _check_rules(state: ClusterState, layout: Layout, rules: PlacementConstraints) -> None:
    check_weighted_brokers(rules, known_brokers(layout.brokers, layout.topics))
    racks = sorted(set(state.racks().values()))
    unknown = sorted(rules.leader_racks.difference(racks))
    if unknown:
        raise ConfigError(
            f"leader rack {', '.join(map(short_repr, unknown))}: no broker is in it; racks are"
            f" {', '.join(racks) or 'none'}"
        )


def _skipped(
    state: ClusterState, layout: Layout, request: ReassignmentRequest, coverage: Coverage | None
) -> dict[TopicPartition, str]:
    """Return the partitions that are not planned; too few replicas are an error if topics are named."""
    skipped, tps = _immovable(state, layout, request.topics), _topic_partitions(layout, request.topics)
    if coverage is not None:
        why = "is a topic of Kafka itself, which is not moved to a group's racks"
        skipped |= {tp: why for tp in tps if state.topics[tp.topic].internal}
    scarce = _below_min_isr(state, _asked(state, request, (tp for tp in tps if tp not in skipped)))
    if scarce and request.topics:
        tp, why = min(scarce.items())
        raise ConfigError(f"{short_repr(tp.topic)}: {why}. Change the setting first")
    return skipped | scarce


def _immovable(state: ClusterState, layout: Layout, topics: Collection[str] | None) -> dict[TopicPartition, str]:
    """Return the partitions that cannot be planned or moved now, with the reason."""
    reasons: dict[TopicPartition, str] = {}
    for tp in _topic_partitions(layout, topics):
        partition = state.topics[tp.topic].partitions[tp.partition]
        if tp in state.in_flight:
            reasons[tp] = "is being reassigned"
        elif tp.topic in state.differing:
            reasons[tp] = "brokers report different metadata"
        elif partition.leader is None:
            reasons[tp] = "has no leader to copy from"
    return reasons


def _below_min_isr(state: ClusterState, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
    """Return the partitions that would lose replicas which producers with acks=all need."""
    found: dict[TopicPartition, str] = {}
    for tp, factor in asked.items():
        least = state.min_isr.get(tp.topic, 0)
        if factor < min(least, len(state.topics[tp.topic].partitions[tp.partition].replicas)):
            found[tp] = f"replication factor {factor} is less than min.insync.replicas, {least}"
    return found


def _asked(
    state: ClusterState, request: ReassignmentRequest, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the requested replication factor of the partitions to which it applies."""
    factor = request.replication_factor
    if factor is None:
        return {}
    return {tp: factor for tp in tps if request.topics or not state.topics[tp.topic].internal}


def _factors(
    before: Mapping[TopicPartition, Replicas], asked: Mapping[TopicPartition, int], registry: PlacementState
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    """Return the replication factor of each partition, and partitions whose placeholders are obsolete."""
    factors: dict[TopicPartition, int] = {}
    stale: dict[TopicPartition, str] = {}
    for tp, now in before.items():
        planned = registry.plans.get(tp, ())
        factors[tp] = asked.get(tp, len(now))
        if tp not in asked and planned:
            # The placeholders do not belong to a topic that was deleted and created again.
            if {broker for broker in planned if broker >= 0} == set(now):
                factors[tp] = len(planned)
            else:
                stale[tp] = "has other replicas than in the state file; see --replication-factor"
    return factors, stale


def _without_lagging(state: ClusterState, tp: TopicPartition, factor: int) -> Replicas:
    """Return the replicas of which a smaller number is to remain: offline ones go first, then those not in sync."""
    topic = state.topics[tp.topic]
    replicas, in_sync = topic.partitions[tp.partition].replicas, topic.in_sync[tp.partition]
    worst = sorted(
        (broker for broker in replicas if broker not in in_sync),
        key=lambda broker: (broker not in state.offline(tp), -replicas.index(broker)),
    )
    gone = set(worst[: len(replicas) - factor])
    return tuple(broker for broker in replicas if broker not in gone)


@dataclass(frozen=True, slots=True)
class _Found:
    """Lists of some partitions with placeholders, their minimum of copies, and notes on what is not proven."""

    lists: dict[TopicPartition, Replicas]
    lower_bound: int
    notes: tuple[str, ...]

    def joined(self, other: _Found) -> _Found:
        notes = tuple(dict.fromkeys((*self.notes, *other.notes)))
        return _Found({**self.lists, **other.lists}, self.lower_bound + other.lower_bound, notes)


def _spread(
    layout: Layout, request: ReassignmentRequest, factors: Mapping[TopicPartition, int], coverage: Coverage | None
) -> _Found:
    """Place partitions, one class of rack weights at a time; all others count as load."""
    alike = _alike(factors, coverage)
    note = "topics whose readers are distributed over the racks differently were placed one after the other"
    spread = _Found({}, 0, (note,) if len(alike) > 1 else ())
    for weights, tps in alike:
        wanted = {tp: factors[tp] for tp in tps}
        spread = spread.joined(_kept(layout.with_lists(spread.lists), request.rules_for(weights), wanted))
    return spread


def _alike(
    tps: Iterable[TopicPartition], coverage: Coverage | None
) -> list[tuple[Mapping[str, float] | None, list[TopicPartition]]]:
    if coverage is None:
        return [(None, list(tps))]
    found: dict[tuple[tuple[str, float], ...], list[TopicPartition]] = {}
    for tp in tps:
        weights = coverage.get(tp.topic, {})
        most = max(weights.values(), default=0) or 1
        found.setdefault(tuple(sorted((rack, weight / most) for rack, weight in weights.items())), []).append(tp)
    return [(dict(shape), rows) for shape, rows in sorted(found.items())]


def _kept(layout: Layout, rules: PlacementConstraints, factors: Mapping[TopicPartition, int]) -> _Found:
    """Place partitions; relax constraints with which one would have fewer replicas than now."""
    found = _rebalanced(layout, rules, factors)
    usable = {broker.id for broker in layout.brokers} - rules.exclude
    having = {tp: min(factor, len(usable.intersection(_now(layout, tp)))) for tp, factor in factors.items()}
    short = {tp: having[tp] for tp, row in found.lists.items() if len(_there(row)) < having[tp]}
    if not short:
        return found
    # Only the number of replicas in one rack is relaxed by the solver.
    relaxed = _rebalanced(layout, replace(rules, on_shortage="relax", max_racks=None), short)
    rows = {tp: (*_there(row), *range(-1, len(_there(row)) - factors[tp] - 1, -1)) for tp, row in relaxed.lists.items()}
    note = (
        f"with these constraints {counted(len(short), 'partition')} would have fewer replicas than now, which only"
        " --replication-factor allows: they are relaxed there"
    )
    rest = {tp: factor for tp, factor in factors.items() if tp not in short}
    fewest = _Found(rows, relaxed.lower_bound, (note, *relaxed.notes))
    return fewest.joined(_rebalanced(layout.with_lists(rows), rules, rest))


def _rebalanced(layout: Layout, rules: PlacementConstraints, factors: Mapping[TopicPartition, int]) -> _Found:
    part = _Part(layout, factors)
    try:
        rebalanced = rebalance(
            part.layout,
            rules,
            topics=part.topics,
            replication_factor=part.by_place(factors),
            keep_leaders=True,
            order=False,
        )
    except MissingRackError as error:
        raise ReplicaPlacementError(
            f'{error} With --near-group, which needs racks, use a file of --constraints with {{"rackless": "rack"}}:'
            " brokers without a rack then count as one more rack."
        ) from error
    return _Found(part.back(rebalanced.topics), rebalanced.lower_bound, rebalanced.notes)


def _there(row: Sequence[int]) -> Replicas:
    return tuple(broker for broker in row if broker >= 0)


def _placed(
    before: Mapping[TopicPartition, Replicas], lists: Mapping[TopicPartition, Replicas]
) -> dict[TopicPartition, Replicas]:
    """Return lists without placeholders; a list with the same replicas as before keeps its order."""
    placed = {tp: _there(lists[tp]) for tp in before}
    # A partition for which no broker is left keeps its replicas until its placeholders have brokers.
    return {tp: before[tp] if not row or set(before[tp]) == set(row) else row for tp, row in placed.items()}


def _evenly_led(
    state: ClusterState, rules: PlacementConstraints, before: Mapping[TopicPartition, Replicas], after: Layout
) -> tuple[dict[TopicPartition, Replicas], tuple[str, ...]]:
    """Balance the leaders of changed partitions, and of those that can be led from a leader rack but are not."""
    placed = {tp: _now(after, tp) for tp in before}
    changed = [tp for tp, row in placed.items() if row != before[tp]]
    fit = {broker.id for broker in state.brokers if broker.rack in rules.leader_racks and not broker.fenced}
    fit -= rules.exclude
    misled = [tp for tp, row in placed.items() if not fit.isdisjoint(row) and row[0] not in fit]
    # Leaders stay, unless loads are to be balanced regardless of what that changes.
    kept = {tp: 1 for tp in changed if rules.first != "balance" and placed[tp][0] == before[tp][0]}
    part = _Part(after, [*changed, *misled])
    found = rebalance_leaders(part.layout, rules, topics=part.topics, keep_leaders=part.by_place(kept))
    return part.back(found.topics), found.notes


def _near_producers(
    state: ClusterState,
    rules: PlacementConstraints,
    before: Mapping[TopicPartition, Replicas],
    after: Layout,
    *,
    clients: LeaderTraffic,
    near: GroupLocality | None,
) -> _Leaders:
    owners = () if near is None else (OwnerReads.of(near), OwnerReads.of(near, near.reads(after)))
    costs = clients.costs_with_copies(state, {tp: _now(after, tp) for tp in before}, before, rules, owners)
    return _Leaders(after, rules, costs)


_STEPS, _NEXT_SKEWS = (1, 2, 5), 3


class _Leaders:
    """Leaders of least cost of the partitions that have costs."""

    def __init__(self, layout: Layout, rules: PlacementConstraints, costs: LeadingCosts) -> None:
        self._rules, self._costs, self._racks = rules, costs, layout.racks()
        self._part = part = _Part(layout, costs.of)
        self._placed = LeadingCosts(
            part.by_place(costs.of),
            part.by_place(costs.new),
            part.by_place(costs.before),
            part.by_place(costs.leaders),
            costs.others,
        )

    def led(self, skew: int) -> tuple[dict[TopicPartition, Replicas], Placement]:
        """Return the lists with this skew."""
        found = lead_at_least_cost(
            self._part.layout, self._rules, self._placed, topics=self._part.topics, max_skew=skew
        )
        return self._part.back(found.topics), found

    def saved_by_skews(
        self, max_skew: int, lists: Mapping[TopicPartition, Replicas], found: Placement
    ) -> dict[int, int]:
        """Return what the next larger skews save, by the skew, given the lists with this one."""
        saved, now = dict[int, int](), self._total(lists)
        least = sum(
            min((*of.values(), *(new.cost for new in self._costs.new.get(tp, {}).values())), default=0)
            for tp, of in self._costs.of.items()
        )
        steps = (step * 10**power for power in range(len(str(max_skew)) + 1) for step in _STEPS)
        for skew in islice((step for step in steps if step > max_skew), _NEXT_SKEWS):
            if found.proven and now - max(saved.values(), default=0) > least:
                less = now - self._total(self.led(skew)[0])
                saved |= {skew: less} if less > max(saved.values(), default=0) else {}
        return saved

    def _total(self, lists: Mapping[TopicPartition, Replicas]) -> int:
        of, new = self._costs.of, self._costs.new
        return sum(
            of[tp][row[0]] if row[0] in of[tp] else new[tp][self._racks[row[0]]].cost
            for tp, row in lists.items()
            if row and (row[0] in of[tp] or self._racks.get(row[0]) in new.get(tp, {}))
        )


def _moves(
    state: ClusterState,
    layout: Layout,
    after: Layout,
    tps: Iterable[TopicPartition],
    elected: Collection[TopicPartition] = (),
) -> dict[TopicPartition, ReplicaMove]:
    """Return the changes of lists; of elected partitions also those of the leader alone."""
    moves = {tp: ReplicaMove(_now(layout, tp), _now(after, tp)) for tp in tps}
    return {
        tp: move
        for tp, move in moves.items()
        if move.before != move.after or (tp in elected and state.leader(tp) != move.after[0])
    }


def _at_min_isr(state: ClusterState, moves: Mapping[TopicPartition, ReplicaMove]) -> Iterator[str]:
    """Yield a warning if partitions lose the replica with which writes survive the loss of a broker."""
    short = [
        tp
        for tp, move in moves.items()
        if 1 < len(move.after) == state.min_isr.get(tp.topic) and len(move.after) < len(move.before)
    ]
    if short:
        yield (
            f"{counted(len(short), 'partition')} would have as many replicas as min.insync.replicas: one offline broker"
            " then stops writes with acks=all. Lower min.insync.replicas first"
        )


def _empty(after: Layout, rules: PlacementConstraints) -> Iterator[str]:
    """Yield a warning if brokers have no replicas after a plan that does not balance them."""
    usable = [broker for broker in after.brokers if broker.id not in rules.exclude | rules.no_new_replicas]
    lists = (row for rows in after.topics.values() for row in rows)
    if rules.first != "balance" and (found := empty_brokers(usable, lists)):
        empty, share = found
        has = "broker {} has" if len(empty) == 1 else "brokers {} have"
        yield (
            f"{has.format(join_ids(empty))} no replicas: --rebalance copies about {counted(share, 'replica')} to each"
        )


def _topic_partitions(layout: Layout, topics: Collection[str] | None) -> list[TopicPartition]:
    chosen = _topics(layout, topics)
    return [TopicPartition(topic, number) for topic in chosen for number in range(len(layout.topics[topic]))]


def _topics(layout: Layout, topics: Collection[str] | None) -> tuple[str, ...]:
    for topic in sorted(topics or ()):
        if topic not in layout.topics:
            raise ConfigError(f"topic {short_repr(topic)} does not exist")
    return tuple(sorted(layout.topics if topics is None else set(topics)))


def _now(layout: Layout, tp: TopicPartition) -> Replicas:
    return layout.topics[tp.topic][tp.partition]


_Value = TypeVar("_Value")


class _Part:
    """Some partitions of a layout, with all others as load."""

    def __init__(self, layout: Layout, tps: Iterable[TopicPartition]) -> None:
        chosen = set(tps)
        self._numbers: dict[str, list[int]] = {}
        rows: dict[str, tuple[Replicas, ...]] = {}
        rest: list[Replicas] = []
        for topic, lists in layout.topics.items():
            numbers = [number for number in range(len(lists)) if TopicPartition(topic, number) in chosen]
            rest += [row for number, row in enumerate(lists) if TopicPartition(topic, number) not in chosen]
            if numbers:
                self._numbers[topic] = numbers
                rows[topic] = tuple(lists[number] for number in numbers)
        topics = {**rows, _REST: tuple(rest)}
        held = {broker for lists in topics.values() for row in lists for broker in row}
        # An offline broker without replicas and without a rack affects nothing, and its missing rack is no problem.
        brokers = tuple(b for b in layout.brokers if b.rack is not None or not b.fenced or b.id in held)
        weights = {broker.id: layout.weights[broker.id] for broker in brokers if broker.id in layout.weights}
        self.layout = Layout(brokers, topics, weights)
        self.topics = sorted(self._numbers)

    def by_place(self, values: Mapping[TopicPartition, _Value]) -> dict[TopicPartition, _Value]:
        """Return values by the numbers that partitions have in this part."""
        return {
            TopicPartition(topic, at): values[TopicPartition(topic, number)]
            for topic, numbers in self._numbers.items()
            for at, number in enumerate(numbers)
            if TopicPartition(topic, number) in values
        }

    def back(self, lists: ReplicaLists) -> dict[TopicPartition, Replicas]:
        return {
            TopicPartition(topic, number): row
            for topic, numbers in self._numbers.items()
            for number, row in zip(numbers, lists[topic], strict=True)
        }


MOST_TIMES = 1.5
"""The largest allowed ratio of the fullest broker's load after a reassignment to its load before, or at best.

Loads are relative to the mean. One replica more is always allowed.
"""


class UnevenError(RackassignError):
    """A plan would leave the load of brokers much less even than it is, and than it has to be."""


def check_even(planned: ReassignmentPlan, rules: PlacementConstraints, advice: str = "") -> None:
    """Refuse a plan that leaves brokers less even than `MOST_TIMES` allows.

    What racks and constraints force is allowed: a removed broker's replicas may have to go to the last one of its rack.
    A broker that loses all its replicas does not count in the mean afterwards.
    """
    # `advice` is what else may be done than `--force`, for the message.
    emptied = frozenset(_held(planned.before)) - _held(planned.after).keys()
    before, after = _fullest(planned.before, rules.weights), _fullest(planned.after, rules.weights, emptied)
    if not planned.moves or before is None or after is None or not _piles_up(after, before):
        return
    # The most even layout takes much longer to compute than most plans, which are even enough without it.
    best = _fullest(most_even(planned, rules, emptied), rules.weights, emptied)
    if best is None or not _piles_up(after, best):
        return
    raise UnevenError(
        f"broker {after.broker} would have {after.replicas} replicas, {after.times:.2f} times the mean; the fullest"
        f" broker now has {before.times:.2f} times the mean, and {best.times:.2f} times is possible. A plan that"
        f" exceeds both more than {MOST_TIMES}-fold needs --force{advice}"
    )


class _Fullest(NamedTuple):
    """The broker with the highest load by its weight, its replicas, and the ratio of its load to the mean."""

    broker: int
    replicas: int
    times: float


def _piles_up(after: _Fullest, other: _Fullest) -> bool:
    # If a broker has few replicas, one more is a large part of them and no sign of a pile-up.
    without_one = (after.replicas - 1) / after.replicas * after.times
    return min(after.times, without_one) > MOST_TIMES * other.times


def _held(layout: Layout) -> Counter[int]:
    brokers = layout.racks()
    return Counter(broker for lists in layout.topics.values() for row in lists for broker in row if broker in brokers)


def _fullest(layout: Layout, of_brokers: Mapping[int, float], emptied: frozenset[int] = frozenset()) -> _Fullest | None:
    weights = {broker.id: float(of_brokers.get(broker.id, 1)) for broker in layout.brokers if broker.id not in emptied}
    counts = _held(layout)
    if not counts:
        return None
    broker = min(counts, key=lambda broker: (-counts[broker] / weights[broker], broker))
    using = sum(weights.values())
    return _Fullest(broker, counts[broker], counts[broker] / weights[broker] * using / counts.total())
