r"""Network of a compressed problem, and the conversion of its flows to partitions and members.

The arcs, left to right::

    class ----------------- stay -----------------> node -> levels -> sink
      \--> hub (topic class, rack) --> kind --> /

All cost is on the arcs out of classes. A hub joins all arcs that lead to the readers of a topic class in one rack. So
costs are on classes x racks arcs, a few hundred, instead of on classes x members: the solver needs seconds for the
former and minutes for the latter.

The network has levels if loads may differ by more than one, so that more even loads can be an objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.min_cost_flow import Network
from rackassign.solver.problem import CompressedProblem, factorize
from rackassign.solver.types import Bools, Ints


@dataclass(frozen=True, slots=True)
class Arcs:
    """Arcs of one layer.

    Args:
        tail: Row of the layer that each arc leaves.
        head: Row of the next layer that each arc enters.
        upper: Capacity of each arc.
        cost: Cost of a partition on each arc.
    """

    tail: Ints
    head: Ints
    upper: Ints
    cost: Ints


@dataclass(frozen=True, slots=True)
class NetworkLayout:
    """The layers of a network and the objectives on them.

    Args:
        network: Network for the solver.
        sticky_arcs: Arcs from classes to nodes.
        hub_arcs: Arcs from classes to hubs.
        member_class_arcs: Arcs from hubs to kinds.
        member_arcs: Arcs from kinds to nodes.
        to_sink: Arcs from nodes to the sink, one for each level; none without levels. Their cost is that of `squares`.
        rows: Numbers of classes, hubs, kinds, nodes and sinks.
        hub_rack: Rack of each hub.
    """

    network: Network
    sticky_arcs: Arcs
    hub_arcs: Arcs
    member_class_arcs: Arcs
    member_arcs: Arcs
    to_sink: Arcs
    rows: tuple[int, ...]
    hub_rack: Ints

    @property
    def _layers(self) -> tuple[Arcs, ...]:
        return self.sticky_arcs, self.hub_arcs, self.member_class_arcs, self.member_arcs, self.to_sink

    def split(self, flow: Ints) -> list[Ints]:
        """Return the flows on stays, to hubs, to kinds, to nodes and to the sink."""
        return np.split(flow, np.cumsum([len(layer.tail) for layer in self._layers])[:-1])

    def cost(self) -> Ints:
        """Return the objective: cost of reading."""
        return np.concatenate([*(layer.cost for layer in self._layers[:-1]), 0 * self.to_sink.cost])

    def squares(self) -> Ints:
        """Return the objective: sum of squared loads, less a constant; all 0 without levels."""
        return np.concatenate([*(0 * layer.cost for layer in self._layers[:-1]), self.to_sink.cost])

    def moves(self) -> Ints:
        """Return the objective: number of moves, less the number of owned partitions."""
        stays = len(self.sticky_arcs.tail)
        return np.concatenate([np.full(stays, -1), np.zeros(len(self.network.tail) - stays, np.int64)])


def build_network(grouped: CompressedProblem, low: Ints, high: Ints, *, levels: bool = False) -> NetworkLayout:
    """Build the network.

    Args:
        grouped: Problem to distribute.
        low: Lower bound of a member's load, by subscription class.
        high: Upper bound of a member's load, by subscription class.
        levels: Whether to add an arc for each load between the bounds, so that even loads can be an objective.
    """
    p = grouped.problem
    racks = p.cost.shape[1]
    # Hubs: a topic class and a rack in which it has readers.
    pair_of, kind = _pairs_of_equals(grouped.edge_subscription_class, grouped.kind_subscription_class)
    hubs, hub = factorize(grouped.edge_topic_class[pair_of] * racks + grouped.kind_rack[kind])
    class_, to_hub = _pairs_of_equals(grouped.class_topic_class, hubs // racks)
    node_class = grouped.kind_subscription_class[grouped.node_kind]
    step, level_node = _ranges((high - low)[node_class] * levels)
    stay_rack = grouped.kind_rack[grouped.node_kind[grouped.stay_node]]
    nodes = np.arange(len(node_class))

    total = int(grouped.class_supply.sum())
    # Never reached. So no price depends on it, and the prices of one layout are valid in the other.
    plenty = total + 1
    layers = (
        Arcs(
            grouped.stay_class,
            grouped.stay_node,
            grouped.stay_size,
            p.cost[grouped.class_near[grouped.stay_class], stay_rack],
        ),
        _unbounded_arcs(class_, to_hub, plenty, p.cost[grouped.class_near[class_], hubs[to_hub] % racks]),
        _unbounded_arcs(hub, kind, plenty, np.zeros(len(hub), np.int64)),
        _unbounded_arcs(grouped.node_kind, nodes, plenty, np.zeros(len(nodes), np.int64)),
        Arcs(
            level_node,
            np.zeros(len(level_node), np.int64),
            grouped.node_size[level_node],
            2 * (low[node_class][level_node] + step) + 1,
        ),
    )
    rows = (len(grouped.class_supply), len(hubs), len(grouped.kind_subscription_class), len(nodes), int(levels))
    at_class, at_hub, at_kind, at_node, at_sink = np.cumsum([0, *rows])[:-1].tolist()
    starts = ((at_class, at_node), (at_class, at_hub), (at_hub, at_kind), (at_kind, at_node), (at_node, at_sink))
    between = np.zeros(at_node - at_hub, np.int64)
    node_low, node_high = low[node_class] * grouped.node_size, high[node_class] * grouped.node_size
    sink = np.full(int(levels), -total)
    network = Network(
        tail=np.concatenate([layer.tail + start for layer, (start, _) in zip(layers, starts, strict=True)]),
        head=np.concatenate([layer.head + start for layer, (_, start) in zip(layers, starts, strict=True)]),
        lower=np.zeros(sum(len(layer.tail) for layer in layers), np.int64),
        upper=np.concatenate([layer.upper for layer in layers]),
        # With levels a node keeps its lower bound and sends the rest to the sink.
        low=np.concatenate([grouped.class_supply, between, -(node_low if levels else node_high), sink]),
        high=np.concatenate([grouped.class_supply, between, -node_low, 0 * sink]),
    )
    return NetworkLayout(network, *layers, rows=rows, hub_rack=hubs % racks)


def _unbounded_arcs(tail: Ints, head: Ints, upper: int, cost: Ints) -> Arcs:
    return Arcs(tail, head, np.full(len(tail), upper), cost)


def _pairs_of_equals(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return all pairs of indexes of equal values, ordered by the left index and then by the right one."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left, "left")
    count = np.searchsorted(right[order], left, "right") - first
    at = np.repeat(np.arange(len(left)), count)
    step = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    return at, order[np.repeat(first, count) + step]


def _ranges(counts: Ints) -> tuple[Ints, Ints]:
    """Return 0, 1, .. up to each count, concatenated, and the index of the count that each belongs to."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts), whose


def expand_flow(grouped: CompressedProblem, layout: NetworkLayout, flow: Ints) -> Ints:
    """Convert flows to the member of each partition.

    A flow may leave open which partitions of a class it means. Each member then gets partitions spread over the whole
    list, so that the partitions of one topic do not end up together.
    """
    stay, to_hub, to_kind, to_node, _ = layout.split(flow)
    reader = np.full(len(grouped.problem.topic_class), -1)
    share = _EvenSplit(grouped)
    kept = _first_of_pools(grouped.hold_of, share.distribute_stays(stay))
    reader[grouped.current[kept]] = grouped.problem.owner[grouped.current[kept]]
    loose = np.flatnonzero(reader < 0)
    hub = layout.hub_arcs.head[_distribute(grouped.class_of[loose], layout.hub_arcs.tail, to_hub)]
    kind = layout.member_class_arcs.head[_distribute(hub, layout.member_class_arcs.tail, to_kind)]
    node = layout.member_arcs.head[_distribute(kind, layout.member_arcs.tail, to_node)]
    members = share.distribute_rest(np.bincount(node, minlength=len(grouped.node_size)))
    reader[loose] = share.order[_distribute(node, grouped.node_of[share.order], members)]
    return reader


def _first_of_pools(pool: Ints, amount: Ints) -> Bools:
    """Return which items are among the first `amount` of their pool."""
    order = np.argsort(pool, kind="stable")
    rank = np.empty(len(pool), np.int64)
    size = np.bincount(pool, minlength=len(amount))
    rank[order] = np.arange(len(pool)) - np.repeat(np.cumsum(size) - size, size)
    return rank < amount[pool]


class _EvenSplit:
    """Distribution of a node's partitions among its members, as evenly as possible.

    Each amount is distributed over the members in turn, and the next amount continues after the last member served. So
    members differ by at most one partition, both in each class and in total.
    """

    def __init__(self, grouped: CompressedProblem) -> None:
        self._grouped = grouped
        self.order = np.argsort(grouped.node_of, kind="stable")
        whose = grouped.node_of[self.order]
        self._rank = np.empty(len(whose), np.int64)
        self._rank[self.order] = np.arange(len(whose)) - np.searchsorted(whose, whose, "left")
        self._next = np.zeros(len(grouped.node_size), np.int64)

    def distribute_stays(self, amount: Ints) -> Ints:
        """Distribute the partitions that remain of each stay; return how many remain of each hold."""
        grouped = self._grouped
        node, member = grouped.stay_node, grouped.hold_member
        whole, rest = np.divmod(amount, grouped.node_size[node])
        # Stays are ordered by node.
        before = np.cumsum(rest) - rest
        first = before - before[np.searchsorted(node, node, "left")]
        self._next = np.bincount(node, rest, len(self._next)).astype(np.int64)
        stay = grouped.hold_stay
        turn = (self._rank[member] - first[stay]) % grouped.node_size[grouped.node_of[member]]
        shares: Ints = whole[stay] + (turn < rest[stay])
        return shares

    def distribute_rest(self, amount: Ints) -> Ints:
        """Distribute the other partitions of each node; return how many each member gets, in `order`."""
        whole, rest = np.divmod(amount, self._grouped.node_size)
        node = self._grouped.node_of[self.order]
        turn = (self._rank[self.order] - self._next[node]) % self._grouped.node_size[node]
        shares: Ints = whole[node] + (turn < rest[node])
        return shares


def _distribute(pool: Ints, tail: Ints, amount: Ints) -> Ints:
    """Distribute items over arcs.

    Args:
        pool: Pool of each item.
        tail: Pool of each arc.
        amount: Number of items that each arc takes from its pool. The amounts add up to the pools' sizes.

    Returns:
        The arc of each item. The items of an arc are spread evenly over its pool.
    """
    used = np.flatnonzero(amount)
    step, whose = _ranges(amount[used])
    arc = used[whose]
    position = (2 * step + 1) / (2 * amount[arc])
    slots = arc[np.lexsort((arc, position, tail[arc]))]
    dealt = np.empty(len(pool), np.int64)
    dealt[np.argsort(pool, kind="stable")] = slots
    return dealt
