"""The exact placer: replicas, leaders and next leaders are as even as possible, with existing replicas counted.

`OptimalPlacer` places new partitions. `rebalance` fixes existing ones with the fewest moves. `rebalance_leaders`
balances leaders and moves no replica. The other placers are rules of other systems that keep copies apart, named after
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from rackassign.errors import ConfigError
from rackassign.model import Broker, TopicPartition
from rackassign.placement.constraints import PlacementConstraints, check_weighted_brokers
from rackassign.placement.layout import Layout, ReplicaLists, known_brokers
from rackassign.placement.placer import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    ReplicaPlacementError,
    UsableBroker,
)
from rackassign.solver.network_flow import Bools, Ints
from rackassign.solver.placement import (
    BrokerArrays,
    Constraints,
    LeaderCosts,
    NewLeader,
    Objectives,
    PartitionArrays,
    PlacementResult,
    ShortageError,
    cheapest_leaders,
    place_replicas,
    reorder_leaders,
)
from rackassign.text import short_repr

_FINEST = 4096
"""Weights become integers up to this."""

_NO_RACK = ""


class MissingRackError(ReplicaPlacementError):
    """Some brokers have no rack, and the constraints refuse that."""


@dataclass(frozen=True, slots=True)
class IndexedLayout:
    """The mapping of brokers and racks to indexes and back; nodes by broker ID, racks by name."""

    ids: tuple[int, ...]
    node_of_broker: Mapping[int, int]
    racks: tuple[str, ...]
    nodes: BrokerArrays
    limits: Constraints
    rules: PlacementConstraints

    @classmethod
    def of(
        cls, brokers: list[Broker], rules: PlacementConstraints, layout: Layout | None, *, keep_fenced: bool
    ) -> IndexedLayout:
        # Weights of the layout apply where the constraints have none. With `keep_fenced`, replicas on fenced brokers
        # stay there, and none are added; otherwise fenced brokers are used like others, but after them.
        known = sorted(brokers, key=lambda broker: broker.id)
        named = _rack_names(known, rules)
        racks = tuple(sorted(set(named)))
        weights = dict(layout.weights if layout is not None else {}) | dict(rules.weights)
        fenced: Bools = np.asarray([broker.fenced for broker in known], bool)
        excluded: Bools = np.asarray([broker.id in rules.exclude for broker in known], bool)
        closed: Bools = np.asarray([broker.id in rules.no_new_replicas for broker in known], bool)
        zeros = np.zeros(len(known), np.int64)
        nodes = BrokerArrays(
            rack=np.asarray([racks.index(rack) for rack in named], np.int64),
            weight=_whole([float(weights.get(broker.id, 1)) for broker in known]),
            load=zeros,
            leader_load=zeros,
            assignable=~closed & (~fenced if keep_fenced else np.ones(len(known), bool)),
            leader_eligible=~fenced & ~excluded,
            last_resort=fenced & (not keep_fenced),
        )
        ids = tuple(broker.id for broker in known)
        node_of_broker = {broker: node for node, broker in enumerate(ids)}
        return cls(ids, node_of_broker, racks, nodes, _limits(rules, racks), rules)

    def spread(self, items: PartitionArrays, others: ReplicaLists, *, order: bool = True) -> PlacementResult:
        """Solve, with the replicas of other topics as load, and put nodes in order."""
        try:
            return place_replicas(
                items, self._loaded(others), self.limits, self._goals(), order=order, work=self.rules.work
            )
        except ShortageError as error:
            raise ReplicaPlacementError(f"replicas cannot be placed: {error}") from error

    def lead(self, items: PartitionArrays, others: ReplicaLists, *, keep: bool) -> PlacementResult:
        """Choose leaders among the nodes of items, with the leaders of other topics as load."""
        return reorder_leaders(items, self._loaded(others), self.limits, self._goals(), keep=keep, work=self.rules.work)

    def lead_at_least_cost(
        self, items: PartitionArrays, others: ReplicaLists, costs: LeaderCosts, leading: Mapping[int, int]
    ) -> PlacementResult:
        """Choose leaders by their cost, with what nodes lead of others as load."""
        leads = np.asarray([leading.get(node, 0) for node in range(len(self.ids))], np.int64)
        nodes = replace(self._loaded(others), leader_load=leads)
        return cheapest_leaders(items, nodes, costs, self.limits, work=self.rules.work)

    def new_leaders(self, by_rack: Mapping[str | None, NewLeader]) -> dict[int, NewLeader]:
        """Return new leaders by the index of their rack, with nodes to be replaced."""
        found = {}
        for name, new in by_rack.items():
            rack, replaced = _NO_RACK if name is None else name, self.numbered(new.replaced)
            if rack in self.racks and replaced:
                found[self.racks.index(rack)] = replace(new, replaced=replaced)
        return found

    def by_node(self, values: Mapping[int, int]) -> dict[int, int]:
        return {self.node_of_broker[id_]: value for id_, value in values.items() if id_ in self.node_of_broker}

    def _loaded(self, others: ReplicaLists) -> BrokerArrays:
        load, leads = np.zeros(len(self.ids), np.int64), np.zeros(len(self.ids), np.int64)
        for lists in others.values():
            for replicas in lists:
                own = self.numbered(replicas)
                load[list(own)] += 1
                leads[list(own[:1])] += 1
        n = self.nodes
        return BrokerArrays(n.rack, n.weight, load, leads, n.assignable, n.leader_eligible, n.last_resort)

    def _goals(self) -> Objectives:
        first = "group" if self.rules.first == "topic" else self.rules.first
        return Objectives(first, self.rules.leaders, self._coverage())

    def _coverage(self) -> Ints | None:
        coverage = self.rules.coverage
        if isinstance(coverage, Mapping):
            weights = [float(coverage.get(rack, 0)) for rack in self.racks]
            # Readers in racks without a broker are local to nothing, wherever replicas are.
            return _whole(weights) * (np.asarray(weights) > 0) if any(weights) else None
        return None if coverage == "broker" else np.ones(len(self.racks), np.int64)

    def numbered(self, replicas: Iterable[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.node_of_broker[broker] for broker in replicas if broker in self.node_of_broker))

    def leads(self, replicas: tuple[int, ...]) -> bool:
        return bool(replicas) and replicas[0] in self.node_of_broker

    def shrunk(self, held: tuple[int, ...], factor: int) -> tuple[int, ...]:
        """Return the nodes to be kept if the replication factor decreases: fenced ones are removed first."""
        fenced = [node for node in held if not self.nodes.assignable[node]]
        gone = set(fenced[::-1][: max(0, len(held) - factor)])
        return tuple(node for node in held if node not in gone)

    def may_lead(self, nodes: Iterable[int]) -> bool:
        return any(self.nodes.leader_eligible[node] for node in nodes)

    def named(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Return the brokers of nodes; placeholders are unchanged."""
        return tuple(self.ids[node] if node >= 0 else node for node in nodes)


def _rack_names(brokers: list[Broker], rules: PlacementConstraints) -> list[str]:
    asked = [broker for broker in brokers if broker.id not in rules.exclude]
    without = [broker.id for broker in asked if broker.rack is None]
    if without and len(without) < len(asked) and rules.rackless == "refuse":
        shown_ids = ", ".join(map(str, without[:5])) + (", .." if len(without) > 5 else "")  # noqa: PLR2004
        raise MissingRackError(
            f"Not all brokers have rack information: brokers {shown_ids} have none."
            " Set broker.rack there, or add --disable-rack-aware to place without racks."
        )
    return [_NO_RACK if broker.rack is None else broker.rack for broker in brokers]


def _limits(rules: PlacementConstraints, racks: tuple[str, ...]) -> Constraints:
    forced = set(rules.forced_racks)
    return Constraints(
        max_per_rack=rules.max_per_rack,
        min_racks=rules.min_racks,
        max_racks=rules.max_racks,
        counted_racks=len(forced | set(racks)) if forced else None,
        leader_racks=frozenset(racks.index(rack) for rack in rules.leader_racks if rack in racks)
        if rules.leader_racks
        else None,
        on_shortage=rules.on_shortage,
    )


def _whole(weights: list[float]) -> Ints:
    most = max(weights, default=1.0)
    if len(set(weights)) <= 1:
        return np.ones(len(weights), np.int64)
    return np.maximum(1, np.rint(np.asarray(weights) / most * _FINEST)).astype(np.int64)


Factors: TypeAlias = int | Mapping[str, int] | Mapping[TopicPartition, int] | Mapping[str | TopicPartition, int]
"""Replication factor: one for all, or by topic or partition; that of a partition has precedence over its topic's."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Result of a placement.

    Args:
        topics: Replica lists of the placed topics; -1, -2, .. are replicas without a broker.
        moved: Replicas on brokers that did not have them.
        lower_bound: A lower bound of the moves with these constraints and loads; if it equals `moved`, the moves are
            proven minimal.
        proven: Whether the placement is proven optimal: balanced brokers, then few moves, then balanced topics (in
            another order if the constraints state another first objective). Leaders are optimal for these replicas; see
            `leaders_proven`.
        notes: What is not proven, or which constraint is not satisfied; for display.
        leaders_proven: Whether the leaders of `PlacementConstraints.leaders` are as even as with any replicas. If not,
            other equally good replicas might allow more even leaders.
    """

    topics: ReplicaLists
    moved: int
    lower_bound: int
    proven: bool
    notes: tuple[str, ...] = ()
    leaders_proven: bool = False


class OptimalPlacer:
    """Places new partitions exactly evenly.

    Settings: those of `PlacementConstraints`, and `layout`: a `Layout` whose replicas are counted.

    Fenced brokers are used only where there are too few others.

    Attributes:
        notes: What is not proven of the last placement, or which constraint it does not satisfy; for display.
        has_placeholders: Whether results may contain placeholders, which no other placer may return.
    """

    has_placeholders: ClassVar[bool] = True

    def __init__(self) -> None:
        self._rules, self._chosen = PlacementConstraints(), False
        self._layout: Layout | None = None
        self.notes: tuple[str, ...] = ()

    def configure(self, configs: dict[str, Any]) -> None:
        """Set the settings.

        Raises:
            ConfigError: A setting is unknown or invalid.
        """
        rest = {name: value for name, value in configs.items() if name not in {"layout", "seed"}}
        layout = configs.get("layout")
        if layout is not None and not isinstance(layout, Layout):
            raise ConfigError(f"layout: expected a Layout, got {short_repr(layout)}")
        self._rules, self._layout, self._chosen = PlacementConstraints.of(rest), layout, "first" in rest

    def observe(self, layout: Layout) -> None:
        """Count the existing load of brokers.

        A new topic is then balanced over brokers first, unless the settings state the first objective.
        """
        self._layout = layout
        self._rules = self._rules if self._chosen else replace(self._rules, first="topic")

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:  # noqa: ARG002 - of presets
        """Return the constraints for a replication factor and these brokers."""
        return self._rules

    def place(
        self,
        start_partition: int,  # noqa: ARG002 - existing partitions are in the layout
        num_partitions: int,
        num_replicas: int,
        brokers: Iterable[UsableBroker],
    ) -> list[list[int]]:
        """Place new partitions of a topic.

        Raises:
            InvalidPartitionsError: There are no partitions to place.
            InvalidReplicationFactorError: There are fewer brokers than replicas.
            ReplicaPlacementError: The constraints leave no broker for some replicas, or some brokers have no rack.
        """
        if num_partitions <= 0:
            raise InvalidPartitionsError(f"Number of partitions must be larger than 0, got {num_partitions}.")
        offered = [Broker(broker.id, broker.rack, broker.fenced) for broker in brokers]
        rules = self.rules_for(num_replicas, offered)
        check_weighted_brokers(rules, known_brokers(offered, {} if self._layout is None else self._layout.topics))
        known = [broker for broker in offered if broker.id not in rules.exclude | rules.no_new_replicas]
        _check_replicas(num_replicas, known, rules)
        awake = [broker for broker in known if not broker.fenced]
        if len(awake) >= num_replicas:
            known = awake
        indexed = IndexedLayout.of(known, rules, self._layout, keep_fenced=False)
        base = {} if self._layout is None else self._layout.topics
        copies = np.full(num_partitions, num_replicas, np.int64)
        found = indexed.spread(PartitionArrays.fresh(copies, np.zeros(num_partitions, np.int64)), base)
        self.notes = found.notes
        return [list(indexed.named(nodes)) for nodes in found.nodes]

    def close(self) -> None:
        """Release the layout."""
        self._layout = None


def rebalance(
    layout: Layout,
    rules: PlacementConstraints | None = None,
    *,
    topics: Collection[str] | None = None,
    replication_factor: Factors | None = None,
    keep_leaders: bool = False,
    order: bool = True,
) -> Placement:
    """Place existing partitions again, with the fewest moves.

    Brokers that are excluded, or not in the layout, lose their replicas. Fenced brokers keep theirs, get none, and do
    not lead where another broker can; if the replication factor decreases, their replicas are removed first.

    Args:
        layout: Existing brokers and replicas.
        rules: Constraints; `first="moves"` moves only what they require, `first="balance"` balances brokers.
        topics: Topics to place; None for all. Replicas of other topics count as load.
        replication_factor: Replication factor of all or some partitions; unchanged if not given.
        keep_leaders: Whether preferred leaders are kept wherever their replica stays and may lead; of equally good
            replicas to remove, those that do not lead are removed.
        order: Whether to order the lists; without it, replicas that stay come first, in their former order.

    Raises:
        ConfigError: A topic or a partition does not exist.
        InvalidReplicationFactorError: There are fewer brokers than replicas.
        ReplicaPlacementError: The constraints leave no broker for some replicas, or some brokers have no rack.
    """
    rules = rules or PlacementConstraints()
    rows = _Rows.of(layout, topics)
    factors = _factors(replication_factor, layout, rows)
    if not rows.replicas:
        return rows.as_they_are()
    known = [broker for broker in layout.brokers if broker.id not in rules.exclude]
    indexed = IndexedLayout.of(known, rules, layout, keep_fenced=True)
    for factor in sorted(set(factors)):
        _check_replicas(factor, known, rules)
    held = (indexed.numbered(replicas) for replicas in rows.replicas)
    items = PartitionArrays(
        np.asarray(factors, np.int64),
        np.asarray(rows.group, np.int64),
        tuple(indexed.shrunk(nodes, factor) for nodes, factor in zip(held, factors, strict=True)),
        tuple(indexed.leads(replicas) for replicas in rows.replicas) if keep_leaders else (),
    )
    placed = indexed.spread(items, rows.others, order=order)
    return Placement(
        rows.lists(indexed.named(nodes) for nodes in placed.nodes),
        placed.moved,
        placed.lower_bound,
        placed.proven,
        placed.notes,
        placed.leads_proven,
    )


def rebalance_leaders(
    layout: Layout,
    rules: PlacementConstraints | None = None,
    *,
    topics: Collection[str] | None = None,
    keep_leaders: Collection[TopicPartition] = (),
    keep_successors: bool = False,
) -> Placement:
    """Balance leaders without copying data: replicas stay, only the order of the lists changes.

    Leaders become as even as `rules.leaders` requires, within topics too. Then as few of them change as possible, then
    next leaders are balanced, and as few lists change as possible. A list stays as it is if neither of its first two
    changes. Brokers that are fenced, excluded or unknown do not lead where another can; they stay in their lists, at
    the end of those that change.
    """
    # Of the rules those about leaders count (`leaders`, `weights`, `leader_racks`, `exclude`). Where no replica
    # is in `leader_racks`, leaders are elsewhere, and a note states that. Leaders of other topics count as load. With
    # `keep_successors` fewer lists change, but if a broker is lost, its leaders may move to few others.
    rules = rules or PlacementConstraints()
    rows = _Rows.of(layout, topics)
    if not rows.replicas:
        return rows.as_they_are()
    indexed = IndexedLayout.of(
        [broker for broker in layout.brokers if not broker.fenced], rules, layout, keep_fenced=True
    )
    current = tuple(indexed.numbered(replicas) for replicas in rows.replicas)
    kept = set(keep_leaders)
    items = PartitionArrays(
        np.asarray([max(1, len(own)) for own in current], np.int64),
        np.asarray(rows.group, np.int64),
        current,
        tuple(tp in kept and indexed.leads(own) for tp, own in zip(rows.tps(), rows.replicas, strict=True)),
    )
    led = indexed.lead(items, rows.others, keep=keep_successors)
    ordered = (
        replicas
        if nodes == own and (replicas[:1] == indexed.named(own[:1]) or not indexed.may_lead(own))
        else tuple(dict.fromkeys((*indexed.named(nodes), *replicas)))
        for replicas, own, nodes in zip(rows.replicas, current, led.nodes, strict=True)
    )
    return Placement(rows.lists(ordered), led.moved, led.lower_bound, led.proven, led.notes, led.leads_proven)


@dataclass(frozen=True, slots=True)
class LeadingCosts:
    """What it costs that a broker leads a partition."""

    # Cost of each broker of a partition that can lead.
    of: Mapping[TopicPartition, Mapping[int, int]]
    # By rack, brokers of other racks or places that may lead in place of one replica, and those that have its data now.
    new: Mapping[TopicPartition, Mapping[str | None, NewLeader]]
    before: Mapping[TopicPartition, tuple[int, ...]]
    # The leader at the moment, and how many other partitions each broker leads that count.
    leaders: Mapping[TopicPartition, int | None]
    others: Mapping[int, int]


def lead_at_least_cost(
    layout: Layout, rules: PlacementConstraints, costs: LeadingCosts, *, topics: Collection[str], max_skew: int
) -> Placement:
    """Choose the leaders of least total cost with the leaders of each broker in bounds; then few copies and changes."""
    # Of the rules `leader_racks`, `exclude` and `weights` count. `max_skew` is that of `LeaderTraffic`.
    rows = _Rows.of(layout, topics)
    if not rows.replicas:
        return rows.as_they_are()
    indexed = IndexedLayout.of(
        [broker for broker in layout.brokers if not broker.fenced], rules, layout, keep_fenced=True
    )
    tps, current = rows.tps(), tuple(indexed.numbered(replicas) for replicas in rows.replicas)
    count = np.asarray([max(1, len(own)) for own in current], np.int64)
    found = indexed.lead_at_least_cost(
        PartitionArrays(count, np.asarray(rows.group, np.int64), current),
        rows.others,
        LeaderCosts(
            [indexed.by_node(costs.of[tp]) for tp in tps],
            [indexed.new_leaders(costs.new.get(tp, {})) for tp in tps],
            [indexed.numbered(costs.before.get(tp, ())) for tp in tps],
            [
                -1 if leader is None else indexed.node_of_broker.get(leader, -1)
                for leader in map(costs.leaders.get, tps)
            ],
            max_skew,
        ),
        indexed.by_node(costs.others),
    )
    lists: list[tuple[int, ...]] = []
    for replicas, own, nodes in zip(rows.replicas, current, found.nodes, strict=True):
        # Brokers that are offline stay in the list.
        gone = indexed.named(set(own) - set(nodes))
        same = nodes == own and (replicas[:1] == indexed.named(own[:1]) or not indexed.may_lead(own))
        whole = (*indexed.named(nodes), *(broker for broker in replicas if broker not in gone))
        lists.append(replicas if same else tuple(dict.fromkeys(whole)))
    return Placement(rows.lists(lists), 0, 0, found.proven, found.notes)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The requested partitions, one after the other."""

    # Requested topics, in order, and the index of each partition's topic among them.
    topics: tuple[str, ...]
    group: tuple[int, ...]
    replicas: tuple[tuple[int, ...], ...]
    others: ReplicaLists

    @classmethod
    def of(cls, layout: Layout, topics: Collection[str] | None) -> _Rows:
        chosen = sorted(layout.topics if topics is None else set(topics))
        for topic in chosen:
            if topic not in layout.topics:
                raise ConfigError(f"topic {short_repr(topic)} does not exist")
        rows = [(group, replicas) for group, topic in enumerate(chosen) for replicas in layout.topics[topic]]
        others = {topic: lists for topic, lists in layout.topics.items() if topic not in set(chosen)}
        return cls(tuple(chosen), tuple(group for group, _ in rows), tuple(own for _, own in rows), others)

    def as_they_are(self) -> Placement:
        """Return the existing lists: without partitions, nothing can be improved."""
        return Placement(self.lists(self.replicas), 0, 0, proven=True, leaders_proven=True)

    def tps(self) -> list[TopicPartition]:
        numbers: dict[int, int] = {}
        found: list[TopicPartition] = []
        for group in self.group:
            number = numbers.get(group, 0)
            found.append(TopicPartition(self.topics[group], number))
            numbers[group] = number + 1
        return found

    def lists(self, replicas: Iterable[tuple[int, ...]]) -> ReplicaLists:
        found: dict[str, list[tuple[int, ...]]] = {topic: [] for topic in self.topics}
        for group, own in zip(self.group, replicas, strict=True):
            found[self.topics[group]].append(own)
        return {topic: tuple(lists) for topic, lists in found.items()}


def _factors(wanted: Factors | None, layout: Layout, rows: _Rows) -> list[int]:
    if isinstance(wanted, int):
        return [wanted] * len(rows.replicas)
    if wanted is None:
        return [len(replicas) for replicas in rows.replicas]
    by_name = dict[object, int](wanted.items())
    partitions = {TopicPartition(topic, n) for topic, lists in layout.topics.items() for n in range(len(lists))}
    for name in by_name:
        if name not in layout.topics and name not in partitions:
            raise ConfigError(f"replication_factor: {_kind(name)} does not exist")
    return [
        by_name.get(TopicPartition(topic, number), by_name.get(topic, len(replicas)))
        for topic in rows.topics
        for number, replicas in enumerate(layout.topics[topic])
    ]


def _kind(name: object) -> str:
    if isinstance(name, TopicPartition):
        return f"partition {name.partition} of topic {short_repr(name.topic)}"
    return f"topic {short_repr(name)}"


def _check_replicas(count: int, brokers: list[Broker], rules: PlacementConstraints) -> None:
    if count <= 0:
        raise InvalidReplicationFactorError(f"Replication factor must be larger than 0, got {count}.")
    if not brokers or all(broker.fenced for broker in brokers):
        raise InvalidReplicationFactorError("All brokers are currently fenced." if brokers else "There are no brokers.")
    if count > len(brokers) and rules.on_shortage == "error":
        raise InvalidReplicationFactorError(
            f"Replication factor: {count} larger than the {len(brokers)} usable brokers."
        )


class _Preset(OptimalPlacer):
    """The exact placer with rules of its own."""

    # Settings that follow from the rules of the system, and cannot be set.
    own_rules: ClassVar[frozenset[str]]

    def configure(self, configs: dict[str, Any]) -> None:
        taken = sorted(self.own_rules.intersection(configs))
        if taken:
            raise ConfigError(f"{', '.join(taken)} cannot be set: the rules of this placer determine it")
        OptimalPlacer.configure(self, configs)


def _used(brokers: Sequence[UsableBroker], rules: PlacementConstraints, num_replicas: int) -> list[UsableBroker]:
    """Return the brokers that the exact placer uses: offline ones only if there are too few others."""
    usable = [broker for broker in brokers if broker.id not in rules.exclude]
    awake = [broker for broker in usable if not broker.fenced]
    return awake if len(awake) >= num_replicas else usable


class ElasticsearchPlacer(_Preset):
    """Allocation awareness: a rack gets an equal share of the copies, rounded up; excess ones become placeholders.

    With `forced_racks` (forced awareness) the share of an offline rack stays free as well. A broker without a rack gets
    nothing if another broker has one, like a node without the attribute.
    """

    own_rules = frozenset({"max_per_rack", "on_shortage", "rackless"})

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return even racks, counted over forced and existing racks, and at most that many replicas in each."""
        rules = super().rules_for(num_replicas, brokers)
        if any(broker.rack is not None and broker.id not in rules.exclude for broker in brokers):
            rules = replace(rules, exclude=rules.exclude.union(b.id for b in brokers if b.rack is None))
        known = {broker.rack for broker in _used(brokers, rules, num_replicas) if broker.rack is not None}
        most = -(-num_replicas // max(1, len(known | rules.forced_racks)))
        return replace(rules, max_per_rack=most, on_shortage="placeholder")


class HadoopPlacer(_Preset):
    """Two racks for three replicas, like HDFS: writes are cheaper, and the loss of one rack loses no data.

    No rack has more than (replicas - 1) / racks + 2 replicas of a partition, rounded down, nor all of them if there are
    two racks. Three or more replicas have two in one rack, unless racks are too small for that. With one rack there is
    no limit.
    """

    own_rules = frozenset({"max_per_rack", "min_racks", "max_racks", "on_shortage"})

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return the limits for a replication factor, as HDFS computes them from the racks."""
        rules = super().rules_for(num_replicas, brokers)
        in_rack = Counter(broker.rack for broker in _used(brokers, rules, num_replicas))
        racks, most = max(1, len(in_rack)), num_replicas
        if racks > 1 and num_replicas > 1:
            most = min((num_replicas - 1) // racks + 2, num_replicas - 1)
        sizes = sorted((min(size, most) for size in in_rack.values()), reverse=True)
        few = max(2, num_replicas - 1)
        return replace(
            rules,
            max_per_rack=max(1, most),
            min_racks=min(2, num_replicas, racks),
            max_racks=few if sum(sizes[:few]) >= num_replicas else None,
            on_shortage="error",
        )


class RedisPlacer(_Preset):
    """Rack-zone awareness: no two replicas of a partition in one rack, otherwise an error."""

    own_rules = frozenset({"max_per_rack", "min_racks", "on_shortage"})

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return strictly one replica per rack."""
        rules = super().rules_for(num_replicas, brokers)
        return replace(rules, max_per_rack=1, min_racks=None, on_shortage="error")
