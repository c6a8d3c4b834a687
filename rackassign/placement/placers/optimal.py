"""The exact placer: replicas, leaders and next leaders are as even as possible, with existing replicas counted.

`OptimalPlacer` places new partitions. `rebalance` fixes existing ones with the fewest moves. `rebalance_leaders`
balances leaders and moves no replica.
"""

from __future__ import annotations

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
    UsableBroker,
)
from rackassign.placement.placers.indexed_layout import IndexedLayout
from rackassign.solver.placement import (
    PartitionArrays,
)
from rackassign.text import short_repr

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
    found = indexed.spread(items, rows.others, order=order)
    return Placement(
        rows.lists(indexed.named(nodes) for nodes in found.nodes),
        found.moved,
        found.lower_bound,
        found.proven,
        found.notes,
        found.leads_proven,
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

    Args:
        layout: Existing brokers and replicas.
        rules: Which leaders are balanced (`leaders`, `weights`) and where they may be (`leader_racks`, `exclude`);
            where no replica is in `leader_racks`, leaders are elsewhere, and a note states that. Other constraints do
            not matter.
        topics: Topics to balance; None for all. Leaders of other topics count as load.
        keep_leaders: Partitions that keep their preferred leader, unless it may not lead.
        keep_successors: Whether the next leader stays where the leader does not change. Fewer lists change then, but if
            a broker is lost, its leaders may move to few others.

    Raises:
        ConfigError: A topic does not exist.
        ReplicaPlacementError: Some brokers have no rack.
    """
    rules = rules or PlacementConstraints()
    rows = _Rows.of(layout, topics)
    if not rows.replicas:
        return rows.as_they_are()
    indexed = IndexedLayout.of(
        [broker for broker in layout.brokers if not broker.fenced], rules, layout, keep_fenced=True
    )
    held = tuple(indexed.numbered(replicas) for replicas in rows.replicas)
    kept = set(keep_leaders)
    items = PartitionArrays(
        np.asarray([max(1, len(own)) for own in held], np.int64),
        np.asarray(rows.group, np.int64),
        held,
        tuple(tp in kept and indexed.leads(own) for tp, own in zip(rows.tps(), rows.replicas, strict=True)),
    )
    found = indexed.lead(items, rows.others, keep=keep_successors)
    ordered = (
        replicas
        if nodes == own and (replicas[:1] == indexed.named(own[:1]) or not indexed.may_lead(own))
        else tuple(dict.fromkeys((*indexed.named(nodes), *replicas)))
        for replicas, own, nodes in zip(rows.replicas, held, found.nodes, strict=True)
    )
    return Placement(rows.lists(ordered), found.moved, found.lower_bound, found.proven, found.notes, found.leads_proven)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The requested partitions, one after the other.

    Args:
        topics: Requested topics, in order.
        group: Index of each partition's topic among them.
        replicas: Replica list of each partition.
        others: Other topics.
    """

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
        """Return the partitions."""
        numbers: dict[int, int] = {}
        found: list[TopicPartition] = []
        for group in self.group:
            number = numbers.get(group, 0)
            found.append(TopicPartition(self.topics[group], number))
            numbers[group] = number + 1
        return found

    def lists(self, replicas: Iterable[tuple[int, ...]]) -> ReplicaLists:
        """Return the lists of these partitions by topic."""
        found: dict[str, list[tuple[int, ...]]] = {topic: [] for topic in self.topics}
        for group, own in zip(self.group, replicas, strict=True):
            found[self.topics[group]].append(own)
        return {topic: tuple(lists) for topic, lists in found.items()}


def _factors(wanted: Factors | None, layout: Layout, rows: _Rows) -> list[int]:
    """Return the replication factor of each partition."""
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
