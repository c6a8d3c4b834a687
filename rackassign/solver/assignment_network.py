r"""Network of a compressed problem.

The arcs, left to right::

    class ----------------- stay -----------------> node -> levels -> sink
      \--> hub (topic class, rack) --> kind --> /

If each topic class has bounds of its own, a *share* (topic class, node) takes the place of a kind, and stays enter it::

    class ---- stay ----> share -> node -> levels -> sink
      \--> hub --------> /

A share that no stay enters is a single arc from its hub to its node. These are nearly all of them.

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
from rackassign.solver.types import Ints


@dataclass(frozen=True, slots=True)
class Arcs:
    """Arcs of one layer.

    Args:
        tail: Row of the layer that each arc leaves.
        head: Row of the next layer that each arc enters.
        lower: Lower bound of the flow on each arc.
        upper: Capacity of each arc.
        cost: Cost of a partition on each arc.
    """

    tail: Ints
    head: Ints
    lower: Ints
    upper: Ints
    cost: Ints


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """Bounds of a member's number of partitions of each topic class.

    Args:
        low: Lower bound for each allowed class pair.
        high: Upper bound for each allowed class pair.
    """

    low: Ints
    high: Ints


@dataclass(frozen=True, slots=True)
class _Middle:
    """The layer between hubs and nodes: kinds, or shares.

    Args:
        rows: Number of its rows: all kinds, or the shares that stays enter.
        topic_class: Topic class of each share; None of kinds.
        node: Node of each share; each kind itself.
        row: Row of each share, or -1; each kind itself.
        enter: Arcs from hubs. Nodes are the rows after this layer.
        leave: Arcs to nodes.
        stay_head: Row that each stay enters: a share, or else a node.
    """

    rows: int
    topic_class: Ints | None
    node: Ints
    row: Ints
    enter: Arcs
    leave: Arcs
    stay_head: Ints


@dataclass(frozen=True, slots=True)
class NetworkLayout:
    """The layers of a network and the objectives on them.

    Args:
        network: Network for the solver.
        sticky_arcs: Arcs from classes to nodes or shares.
        hub_arcs: Arcs from classes to hubs.
        middle_arcs: Arcs from hubs to kinds, or one for each share.
        node_arcs: Arcs from kinds, or shares with a row, to nodes.
        to_sink: Arcs from nodes to the sink, one for each level; none without levels. Their cost is that of `squares`.
        rows: Numbers of classes, hubs, kinds or shares with a row, nodes and sinks.
        hub_topic_class: Topic class of each hub.
        hub_rack: Rack of each hub.
        share_topic_class: Topic class of each share; None if there are kinds.
        share_node: Node of each share; ordered by topic class, then node.
        share_row: Row of each share, -1 if it is a single arc.
    """

    network: Network
    sticky_arcs: Arcs
    hub_arcs: Arcs
    middle_arcs: Arcs
    node_arcs: Arcs
    to_sink: Arcs
    rows: tuple[int, ...]
    hub_topic_class: Ints
    hub_rack: Ints
    share_topic_class: Ints | None
    share_node: Ints
    share_row: Ints

    @property
    def _layers(self) -> tuple[Arcs, ...]:
        return self.sticky_arcs, self.hub_arcs, self.middle_arcs, self.node_arcs, self.to_sink

    def split(self, flow: Ints) -> list[Ints]:
        """Return the flows on stays, to hubs, to kinds or shares, to nodes and to the sink."""
        return np.split(flow, np.cumsum([len(layer.tail) for layer in self._layers])[:-1])

    def kept(self, flow: Ints) -> Ints:
        """Return the flows on stays."""
        return flow[: len(self.sticky_arcs.tail)]

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

    def tie_cost(self, grouped: CompressedProblem, cost: Ints) -> Ints:
        """Return the objective: tie cost.

        Args:
            grouped: The problem.
            cost: Tie costs by row of class and rack.
        """
        hubs = self.hub_arcs
        stay_rack = grouped.kind_rack[grouped.node_kind[grouped.stay_node]]
        given = (
            cost[grouped.class_near[grouped.stay_class], stay_rack],
            cost[grouped.class_near[hubs.tail], self.hub_rack[hubs.head]],
        )
        return np.concatenate([*given, np.zeros(len(self.network.tail) - sum(map(len, given)), np.int64)])


def build_network(
    grouped: CompressedProblem, low: Ints, high: Ints, *, levels: bool = False, topics: TopicBounds | None = None
) -> NetworkLayout:
    """Build the network.

    Args:
        grouped: Problem to distribute.
        low: Lower bound of a member's load, by subscription class.
        high: Upper bound of a member's load, by subscription class.
        levels: Whether to add an arc for each load between the bounds, so that even loads can be an objective.
        topics: Bounds of each topic class; none if omitted.
    """
    p = grouped.problem
    racks = p.cost.shape[1]
    # Hubs: a topic class and a rack in which it has readers.
    pair_of, kind = _pairs_of_equals(grouped.edge_subscription_class, grouped.kind_subscription_class)
    hubs, hub = factorize(grouped.edge_topic_class[pair_of] * racks + grouped.kind_rack[kind])
    class_, to_hub = _pairs_of_equals(grouped.class_topic_class, hubs // racks)
    node_class = grouped.kind_subscription_class[grouped.node_kind]
    step, level_node = ranges((high - low)[node_class] * levels)
    stay_rack = grouped.kind_rack[grouped.node_kind[grouped.stay_node]]

    total = int(grouped.class_supply.sum())
    # Never reached. So no price depends on it, and the prices of one layout are valid in the other.
    plenty = total + 1
    middle = _kinds(grouped, hub, kind, plenty) if topics is None else _shares(grouped, hubs, topics, plenty)
    layers = (
        Arcs(
            grouped.stay_class,
            middle.stay_head,
            0 * grouped.stay_size,
            grouped.stay_size,
            p.cost[grouped.class_near[grouped.stay_class], stay_rack],
        ),
        _unbounded_arcs(class_, to_hub, plenty, p.cost[grouped.class_near[class_], hubs[to_hub] % racks]),
        middle.enter,
        middle.leave,
        Arcs(
            level_node,
            np.zeros(len(level_node), np.int64),
            np.zeros(len(level_node), np.int64),
            grouped.node_size[level_node],
            2 * (low[node_class][level_node] + step) + 1,
        ),
    )
    rows = (len(grouped.class_supply), len(hubs), middle.rows, len(node_class), int(levels))
    at_class, at_hub, at_middle, at_node, at_sink = np.cumsum([0, *rows])[:-1].tolist()
    at_stay = at_node if topics is None else at_middle
    starts = ((at_class, at_stay), (at_class, at_hub), (at_hub, at_middle), (at_middle, at_node), (at_node, at_sink))
    between = np.zeros(at_node - at_hub, np.int64)
    node_low, node_high = low[node_class] * grouped.node_size, high[node_class] * grouped.node_size
    sink = np.full(int(levels), -total)
    network = Network(
        tail=np.concatenate([layer.tail + start for layer, (start, _) in zip(layers, starts, strict=True)]),
        head=np.concatenate([layer.head + start for layer, (_, start) in zip(layers, starts, strict=True)]),
        lower=np.concatenate([layer.lower for layer in layers]),
        upper=np.concatenate([layer.upper for layer in layers]),
        # With levels a node keeps its lower bound and sends the rest to the sink.
        low=np.concatenate([grouped.class_supply, between, -(node_low if levels else node_high), sink]),
        high=np.concatenate([grouped.class_supply, between, -node_low, 0 * sink]),
    )
    return NetworkLayout(
        network, *layers, rows, hubs // racks, hubs % racks, middle.topic_class, middle.node, middle.row
    )


def count_shares(grouped: CompressedProblem) -> int:
    """Return the number of shares in the network of a problem with bounds for each topic class."""
    nodes = np.bincount(grouped.kind_subscription_class[grouped.node_kind], minlength=len(grouped.problem.sizes()))
    return int(nodes[grouped.edge_subscription_class].sum())


def _kinds(grouped: CompressedProblem, hub: Ints, kind: Ints, plenty: int) -> _Middle:
    nodes, kinds = np.arange(len(grouped.node_kind)), np.arange(len(grouped.kind_rack))
    return _Middle(
        len(kinds),
        None,
        kinds,
        kinds,
        _unbounded_arcs(hub, kind, plenty, 0 * hub),
        _unbounded_arcs(grouped.node_kind, nodes, plenty, 0 * nodes),
        grouped.stay_node,
    )


def _shares(grouped: CompressedProblem, hubs: Ints, topics: TopicBounds, plenty: int) -> _Middle:
    node_class = grouped.kind_subscription_class[grouped.node_kind]
    pair, node = _pairs_of_equals(grouped.edge_subscription_class, node_class)
    key = grouped.edge_topic_class[pair] * len(node_class) + node
    # Kinds are in order already, and sorting takes longer than all else here.
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key)
        pair, node = pair[order], node[order]
    topic_class, size = grouped.edge_topic_class[pair], grouped.node_size[node]
    rack = grouped.kind_rack[grouped.node_kind[node]]
    hub = np.searchsorted(hubs, topic_class * grouped.problem.cost.shape[1] + rack)
    nodes = len(node_class)
    stay = np.searchsorted(
        topic_class * nodes + node, grouped.class_topic_class[grouped.stay_class] * nodes + grouped.stay_node
    )
    entered = np.zeros(len(node), bool)
    entered[stay] = True
    shares = np.flatnonzero(entered)
    row = np.where(entered, np.cumsum(entered) - 1, -1)
    low, high = topics.low[pair] * size, topics.high[pair] * size
    return _Middle(
        len(shares),
        topic_class,
        node,
        row,
        Arcs(
            hub,
            np.where(entered, row, len(shares) + node),
            np.where(entered, 0, low),
            np.where(entered, plenty, high),
            0 * hub,
        ),
        Arcs(row[shares], node[shares], low[shares], high[shares], 0 * shares),
        row[stay],
    )


def _unbounded_arcs(tail: Ints, head: Ints, upper: int, cost: Ints) -> Arcs:
    return Arcs(tail, head, 0 * cost, np.full(len(tail), upper), cost)


def _pairs_of_equals(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return all pairs of indexes of equal values, ordered by the left index and then by the right one."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left, "left")
    count = np.searchsorted(right[order], left, "right") - first
    at = np.repeat(np.arange(len(left)), count)
    step = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    return at, order[np.repeat(first, count) + step]


def ranges(counts: Ints) -> tuple[Ints, Ints]:
    """Return 0, 1, .. up to each count, concatenated, and the index of the count that each belongs to."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts), whose
