"""What a repair would change; worked out from one look at a cluster, nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from rackassign.errors import ConfigError, shown
from rackassign.model import TopicPartition, Topology
from rackassign.placement.layout import Layout, Lists
from rackassign.placement.optimal import rebalance, reorder
from rackassign.placement.registry import Registry
from rackassign.placement.repair.steps import Move, Replicas
from rackassign.placement.repair.wish import Wish
from rackassign.placement.rules import Rules
from rackassign.placement.state import ClusterState

_REST = ""
"""Stands for all partitions that stay as they are, as one topic: no topic has this name."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What would change, and what would not.

    Args:
        before: The layout as it is.
        after: As it would be.
        moves: Partitions that would have another list.
        waiting: Lists of partitions some of whose replicas no broker can take (negative numbers).
        left_out: Partitions that cannot be judged or moved now, with the reason.
        copies: Replicas that would be made.
        least: No repair that keeps to the same rules makes fewer.
        doubts: What is not proven best, or not kept to; for people.
    """

    before: Layout
    after: Layout
    moves: Mapping[TopicPartition, Move]
    waiting: Mapping[TopicPartition, Replicas]
    left_out: Mapping[TopicPartition, str]
    copies: int
    least: int
    doubts: tuple[str, ...] = ()


def plan_repair(
    state: ClusterState, wish: Wish, registry: Registry, coverage: Mapping[str, float] | None = None
) -> Planned:
    """Work out a repair: the fewest copies that do what is wished, then leaders of what is moved as even as can be.

    Partitions whose replicas are right stay as they are, order and all.

    Args:
        state: The cluster.
        wish: What is asked for.
        registry: Knows which replicas wait for a broker.
        coverage: What racks weigh, where a group reads.

    Raises:
        ConfigError: A broker or a topic is named that there is not.
        ReplicaPlacementError: There is no layout with these rules.
    """
    _check(state, wish)
    layout = layout_of(state)
    left_out = _left_out(state, layout, wish.topics)
    free = [place for place in _places(layout, wish.topics) if place not in left_out]
    factors, stale = _factors(layout, free, wish, registry)
    rules = wish.rules_for(coverage)
    part = _Part(layout, free)
    found = rebalance(part.layout, rules, topics=part.topics, replication_factor=part.by_place(factors))
    lists = part.back(found.topics)
    waiting = {place: row for place, row in lists.items() if any(broker < 0 for broker in row)}
    placed = {place: tuple(broker for broker in row if broker >= 0) for place, row in lists.items()}
    changed = [place for place in free if set(placed[place]) != set(_now(layout, place))]
    after = _with(layout, {place: placed[place] for place in changed})
    placed |= _led(after, rules, changed)
    moves = {place: Move(_now(layout, place), placed[place]) for place in changed}
    copies = sum(len(set(move.after) - set(move.before)) for move in moves.values())
    return Planned(
        layout,
        _with(after, {place: placed[place] for place in changed}),
        moves,
        waiting,
        left_out | stale,
        copies,
        found.least,
        found.doubts,
    )


def plan_leaders(state: ClusterState, rules: Rules, topics: Collection[str] | None = None) -> Planned:
    """Work out new orders of the lists, so that leaders are even, and nothing is copied.

    A partition whose list stays and whose preferred replica does not lead is a move to the list it has.

    Raises:
        ConfigError: A topic is named that there is not.
        ReplicaPlacementError: Some brokers have no rack.
    """
    layout = layout_of(state)
    left_out = _left_out(state, layout, topics)
    part = _Part(layout, [place for place in _places(layout, topics) if place not in left_out])
    found = reorder(part.layout, rules, topics=part.topics, keep_seconds=True)
    lists = part.back(found.topics)
    moves = {
        place: Move(_now(layout, place), row)
        for place, row in lists.items()
        if row != _now(layout, place) or state.topics[place.topic].partitions[place.partition].leader != row[0]
    }
    after = _with(layout, {place: move.after for place, move in moves.items()})
    return Planned(layout, after, moves, {}, left_out, 0, 0, found.doubts)


def given(state: ClusterState, lists: Mapping[TopicPartition, Replicas]) -> Planned:
    """Return a plan with lists that are given, of partitions that there are."""
    layout = layout_of(state)
    left_out = _left_out(state, layout, sorted({place.topic for place in lists}))
    moves = {
        place: Move(_now(layout, place), row)
        for place, row in sorted(lists.items())
        if place not in left_out and row != _now(layout, place)
    }
    copies = sum(len(set(move.after) - set(move.before)) for move in moves.values())
    after = _with(layout, {place: move.after for place, move in moves.items()})
    return Planned(layout, after, moves, {}, {p: why for p, why in left_out.items() if p in lists}, copies, copies)


def layout_of(state: ClusterState) -> Layout:
    """Return where replicas are."""
    return Layout.of(Topology(state.brokers, {name: topic.partitions for name, topic in state.topics.items()}))


def _check(state: ClusterState, wish: Wish) -> None:
    known = {broker.id for broker in state.brokers}
    known |= {broker for topic in state.topics.values() for p in topic.partitions for broker in p.replicas}
    for broker in sorted(wish.replace - known):
        raise ConfigError(
            f"there is no broker {broker} to be replaced; brokers are {', '.join(map(str, sorted(known)))}"
        )


def _places(layout: Layout, topics: Collection[str] | None) -> list[TopicPartition]:
    for topic in sorted(topics or ()):
        if topic not in layout.topics:
            raise ConfigError(f"there is no topic {shown(topic)}")
    chosen = sorted(layout.topics if topics is None else set(topics))
    return [TopicPartition(topic, number) for topic in chosen for number in range(len(layout.topics[topic]))]


def _left_out(state: ClusterState, layout: Layout, topics: Collection[str] | None) -> dict[TopicPartition, str]:
    found: dict[TopicPartition, str] = {}
    for place in _places(layout, topics):
        partition = state.topics[place.topic].partitions[place.partition]
        if place in state.in_flight:
            found[place] = "is being reassigned"
        elif place.topic in state.differing:
            found[place] = "brokers say different things of it"
        elif partition.leader is None:
            found[place] = "has no leader to copy from"
    return found


def _factors(
    layout: Layout, free: Iterable[TopicPartition], wish: Wish, registry: Registry
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    """Return how many replicas each partition shall have, and plans that are of no use any more."""
    factors: dict[TopicPartition, int] = {}
    stale: dict[TopicPartition, str] = {}
    for place in free:
        now, planned = _now(layout, place), registry.plans.get(place, ())
        factors[place] = len(now) if wish.rf is None else wish.rf
        if wish.rf is None and planned:
            # A topic that was deleted and made anew has nothing to do with the plan.
            if {broker for broker in planned if broker >= 0} == set(now):
                factors[place] = len(planned)
            else:
                stale[place] = "has other replicas than the plan that still waits for brokers; see --rf"
    return factors, stale


def _led(layout: Layout, rules: Rules, changed: list[TopicPartition]) -> dict[TopicPartition, Replicas]:
    """Return the lists of what is moved, with leaders as even as they can be beside all that stays."""
    part = _Part(layout, changed)
    return part.back(reorder(part.layout, rules, topics=part.topics).topics)


def _now(layout: Layout, place: TopicPartition) -> Replicas:
    return layout.topics[place.topic][place.partition]


def _with(layout: Layout, lists: Mapping[TopicPartition, Replicas]) -> Layout:
    topics = {place.topic for place in lists}
    rows = {
        topic: [lists.get(TopicPartition(topic, number), row) for number, row in enumerate(layout.topics[topic])]
        for topic in topics
    }
    return layout.with_topics(rows)


class _Part:
    """Some partitions of a layout, with all the others as load.

    Args:
        layout: All of it.
        places: Those that are to be placed.
    """

    def __init__(self, layout: Layout, places: Iterable[TopicPartition]) -> None:
        chosen = set(places)
        self._numbers: dict[str, list[int]] = {}
        rows: dict[str, tuple[Replicas, ...]] = {}
        rest: list[Replicas] = []
        for topic, lists in layout.topics.items():
            numbers = [number for number in range(len(lists)) if TopicPartition(topic, number) in chosen]
            rest += [row for number, row in enumerate(lists) if TopicPartition(topic, number) not in chosen]
            if numbers:
                self._numbers[topic] = numbers
                rows[topic] = tuple(lists[number] for number in numbers)
        self.layout = replace(layout, topics={**rows, _REST: tuple(rest)})
        self.topics = sorted(self._numbers)

    def by_place(self, values: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return values by where the partitions are in this part."""
        return {
            TopicPartition(topic, at): values[TopicPartition(topic, number)]
            for topic, numbers in self._numbers.items()
            for at, number in enumerate(numbers)
        }

    def back(self, lists: Lists) -> dict[TopicPartition, Replicas]:
        """Return lists by the partitions they are of."""
        return {
            TopicPartition(topic, number): row
            for topic, numbers in self._numbers.items()
            for number, row in zip(numbers, lists[topic], strict=True)
        }
