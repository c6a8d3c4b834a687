r"""A grouped problem as a network, and its flows as partitions and members again.

The arcs, left to right::

    class ----------------- stay -----------------> node -> levels -> sink
      \--> hub (family, rack) --> kind ---------> /

All cost is on the arcs out of classes, and a hub stands between a family's readers in one rack and everything that
comes to them. So costs are on classes x racks arcs, a few hundred, instead of on classes x members: the solver needs
seconds for the one and minutes for the other.

Levels are there when loads may differ by more than one, so that a more even load is worth something.
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
        tail: Where they come from, numbered within that layer.
        head: Where they lead, the same.
        upper: The most each may carry.
        cost: What a partition on it costs.
    """

    tail: Ints
    head: Ints
    upper: Ints
    cost: Ints


@dataclass(frozen=True, slots=True)
class NetworkLayout:
    """The layers of a network and the objectives on them.

    Args:
        network: For the solver.
        sticky_arcs: Class to node.
        hub_arcs: Class to hub.
        member_class_arcs: Hub to kind.
        member_arcs: Kind to node.
        to_sink: Node to sink, an arc for each level; none without levels. Their cost is the squares' own.
        rows: How many classes, hubs, kinds, nodes and sinks there are.
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
        """Return the flows of stays, to hubs, to kinds, to nodes and to the sink."""
        return np.split(flow, np.cumsum([len(layer.tail) for layer in self._layers])[:-1])

    def cost(self) -> Ints:
        """Objective: what reading costs."""
        return np.concatenate([*(layer.cost for layer in self._layers[:-1]), 0 * self.to_sink.cost])

    def squares(self) -> Ints:
        """Objective: the sum of the squares of loads, less a constant; all 0 without levels."""
        return np.concatenate([*(0 * layer.cost for layer in self._layers[:-1]), self.to_sink.cost])

    def moves(self) -> Ints:
        """Objective: what leaves its owner, less the number of all that is held."""
        stays = len(self.sticky_arcs.tail)
        return np.concatenate([np.full(stays, -1), np.zeros(len(self.network.tail) - stays, np.int64)])


def build_network(grouped: CompressedProblem, low: Ints, high: Ints, *, levels: bool = False) -> NetworkLayout:
    """Build the network.

    Args:
        grouped: What to distribute.
        low: Least load of a member, by crowd.
        high: Most load of a member, by crowd.
        levels: Whether to make an arc for each load between, so that an even load can be an objective.
    """
    p = grouped.problem
    racks = p.cost.shape[1]
    # Hubs: a family and a rack in which it has readers.
    pair_of, kind = _joined(grouped.edge_subscription_class, grouped.kind_crowd)
    hubs, hub = factorize(grouped.edge_topic_class[pair_of] * racks + grouped.kind_rack[kind])
    class_, to_hub = _joined(grouped.class_family, hubs // racks)
    node_crowd = grouped.kind_crowd[grouped.node_kind]
    step, level_node = _steps((high - low)[node_crowd] * levels)
    stay_rack = grouped.kind_rack[grouped.node_kind[grouped.stay_node]]
    nodes = np.arange(len(node_crowd))

    total = int(grouped.class_supply.sum())
    # Never reached, so that no price ever depends on it, and the prices of one layout hold in the other.
    plenty = total + 1
    layers = (
        Arcs(
            grouped.stay_class,
            grouped.stay_node,
            grouped.stay_size,
            p.cost[grouped.class_near[grouped.stay_class], stay_rack],
        ),
        _wide(class_, to_hub, plenty, p.cost[grouped.class_near[class_], hubs[to_hub] % racks]),
        _wide(hub, kind, plenty, np.zeros(len(hub), np.int64)),
        _wide(grouped.node_kind, nodes, plenty, np.zeros(len(nodes), np.int64)),
        Arcs(
            level_node,
            np.zeros(len(level_node), np.int64),
            grouped.node_size[level_node],
            2 * (low[node_crowd][level_node] + step) + 1,
        ),
    )
    rows = (len(grouped.class_supply), len(hubs), len(grouped.kind_crowd), len(nodes), int(levels))
    at_class, at_hub, at_kind, at_node, at_sink = np.cumsum([0, *rows])[:-1].tolist()
    starts = ((at_class, at_node), (at_class, at_hub), (at_hub, at_kind), (at_kind, at_node), (at_node, at_sink))
    between = np.zeros(at_node - at_hub, np.int64)
    node_low, node_high = low[node_crowd] * grouped.node_size, high[node_crowd] * grouped.node_size
    sink = np.full(int(levels), -total)
    network = Network(
        tail=np.concatenate([layer.tail + start for layer, (start, _) in zip(layers, starts, strict=True)]),
        head=np.concatenate([layer.head + start for layer, (_, start) in zip(layers, starts, strict=True)]),
        lower=np.zeros(sum(len(layer.tail) for layer in layers), np.int64),
        upper=np.concatenate([layer.upper for layer in layers]),
        # With levels a node keeps its least load and sends on the rest.
        low=np.concatenate([grouped.class_supply, between, -(node_low if levels else node_high), sink]),
        high=np.concatenate([grouped.class_supply, between, -node_low, 0 * sink]),
    )
    return NetworkLayout(network, *layers, rows=rows, hub_rack=hubs % racks)


def _wide(tail: Ints, head: Ints, upper: int, cost: Ints) -> Arcs:
    return Arcs(tail, head, np.full(len(tail), upper), cost)


def _joined(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return all pairs of places of equal values, by place on the left and then on the right."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left, "left")
    count = np.searchsorted(right[order], left, "right") - first
    at = np.repeat(np.arange(len(left)), count)
    step = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    return at, order[np.repeat(first, count) + step]


def _steps(counts: Ints) -> tuple[Ints, Ints]:
    """Return 0, 1, .. for each count, one after the other, and whose they are."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts), whose


def expand_flow(grouped: CompressedProblem, layout: NetworkLayout, flow: Ints) -> Ints:
    """Return the reader of each partition, by the flows.

    Where a flow leaves open which partitions it means, each reader gets them spread over the whole list, so that
    the partitions of one topic do not end up together.
    """
    stay, to_hub, to_kind, to_node, _ = layout.split(flow)
    reader = np.full(len(grouped.problem.topic_class), -1)
    share = _EvenSplit(grouped)
    kept = _first_of_each(grouped.hold_of, share.of_stays(stay))
    reader[grouped.current[kept]] = grouped.problem.owner[grouped.current[kept]]
    loose = np.flatnonzero(reader < 0)
    hub = layout.hub_arcs.head[_dealt(grouped.class_of[loose], layout.hub_arcs.tail, to_hub)]
    kind = layout.member_class_arcs.head[_dealt(hub, layout.member_class_arcs.tail, to_kind)]
    node = layout.member_arcs.head[_dealt(kind, layout.member_arcs.tail, to_node)]
    members = share.of_rest(np.bincount(node, minlength=len(grouped.node_size)))
    reader[loose] = share.order[_dealt(node, grouped.node_of[share.order], members)]
    return reader


def _first_of_each(pool: Ints, amount: Ints) -> Bools:
    """Tell which items are among the first `amount` of their pool."""
    order = np.argsort(pool, kind="stable")
    rank = np.empty(len(pool), np.int64)
    size = np.bincount(pool, minlength=len(amount))
    rank[order] = np.arange(len(pool)) - np.repeat(np.cumsum(size) - size, size)
    return rank < amount[pool]


class _EvenSplit:
    """What comes to a node, shared out among its members as evenly as it goes.

    Every amount is dealt out to the members in turn, and the next one goes on where the last one stopped. So no
    member has more than one partition more than another, neither of one class nor in all.
    """

    def __init__(self, grouped: CompressedProblem) -> None:
        self._grouped = grouped
        self.order = np.argsort(grouped.node_of, kind="stable")
        whose = grouped.node_of[self.order]
        self._rank = np.empty(len(whose), np.int64)
        self._rank[self.order] = np.arange(len(whose)) - np.searchsorted(whose, whose, "left")
        self._next = np.zeros(len(grouped.node_size), np.int64)

    def of_stays(self, amount: Ints) -> Ints:
        """Share out how many of each stay remain; return how many of each hold do."""
        grouped = self._grouped
        node, member = grouped.stay_node, grouped.hold_member
        whole, rest = np.divmod(amount, grouped.node_size[node])
        # Stays are in order of their nodes.
        before = np.cumsum(rest) - rest
        first = before - before[np.searchsorted(node, node, "left")]
        self._next = np.bincount(node, rest, len(self._next)).astype(np.int64)
        stay = grouped.hold_stay
        turn = (self._rank[member] - first[stay]) % grouped.node_size[grouped.node_of[member]]
        shares: Ints = whole[stay] + (turn < rest[stay])
        return shares

    def of_rest(self, amount: Ints) -> Ints:
        """Share out what else comes to each node; return how many each member gets, in `order`."""
        whole, rest = np.divmod(amount, self._grouped.node_size)
        node = self._grouped.node_of[self.order]
        turn = (self._rank[self.order] - self._next[node]) % self._grouped.node_size[node]
        shares: Ints = whole[node] + (turn < rest[node])
        return shares


def _dealt(pool: Ints, tail: Ints, amount: Ints) -> Ints:
    """Deal items out to arcs.

    Args:
        pool: Pool of each item.
        tail: Pool of each arc.
        amount: Items of its pool that each arc takes; they add up.

    Returns:
        For each item an arc. What an arc takes is spread evenly over the items of its pool.
    """
    used = np.flatnonzero(amount)
    step, whose = _steps(amount[used])
    arc = used[whose]
    position = (2 * step + 1) / (2 * amount[arc])
    slots = arc[np.lexsort((arc, position, tail[arc]))]
    dealt = np.empty(len(pool), np.int64)
    dealt[np.argsort(pool, kind="stable")] = slots
    return dealt
