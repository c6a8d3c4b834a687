r"""A grouped problem as a network, and its flows as partitions and members again.

The arcs, left to right::

    class ----------------- stay -----------------> node -> levels -> sink
      \--> hub (family, rack) --> kind --> node --/

All cost is on the arcs out of classes, and a hub stands between a family's readers in one rack and everything that
comes to them. So costs are on classes x racks arcs, a few hundred, instead of on classes x members: the solver needs
seconds for the one and minutes for the other. A kind of one node is left out, the hub leads to the node.

Levels are there when loads may differ by more than one, so that a more even load is worth something.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.optimum.arrays import Bools, Ints
from rackassign.optimum.linear import Network
from rackassign.optimum.problem import Grouped, numbered


@dataclass(frozen=True, slots=True)
class Arcs:
    """Arcs of one layer.

    Args:
        tail: Where they come from, numbered within that layer.
        head: Where they lead, the same.
        upper: The most each may carry.
    """

    tail: Ints
    head: Ints
    upper: Ints


@dataclass(frozen=True, slots=True)
class Layout:
    """The layers of a network and the objectives on them.

    Args:
        network: For the solver.
        layers: Its arcs in order: stays, class to hub, hub to kind, hub to node, kind to node, node to sink.
        rows: How many classes, hubs, kinds, nodes and sinks there are.
        hub_rack: Rack of each hub.
        cost: Objective: what reading costs.
        moves: Objective: what leaves its owner, less the number of all that is held.
        squares: Objective: sum of the squares of loads, less a constant; all 0 without levels.
    """

    network: Network
    layers: tuple[Arcs, ...]
    rows: tuple[int, ...]
    hub_rack: Ints
    cost: Ints
    moves: Ints
    squares: Ints

    def split(self, flow: Ints) -> list[Ints]:
        """Return the flows of each layer."""
        ends = np.cumsum([len(layer.tail) for layer in self.layers])
        return np.split(flow, ends[:-1])


def lay_out(grouped: Grouped, low: Ints, high: Ints, *, levels: bool = False) -> Layout:
    """Build the network.

    Args:
        grouped: What to distribute.
        low: Least load of a member, by crowd.
        high: Most load of a member, by crowd.
        levels: Whether to make an arc for each load between, so that an even load can be an objective.
    """
    p = grouped.problem
    racks = p.cost.shape[1]
    kinds = np.arange(len(grouped.kind_crowd))
    node_crowd = grouped.kind_crowd[grouped.node_kind]
    node_low, node_high = low[node_crowd] * grouped.node_size, high[node_crowd] * grouped.node_size
    total = int(grouped.class_supply.sum())
    # Never reached, so that no price ever depends on it, and the prices of one layout hold in the other.
    plenty = total + 1

    # Hubs: a family and a rack in which it has readers.
    pair_of, kind = _joined(grouped.pair_crowd, grouped.kind_crowd)
    hubs, hub = numbered(grouped.pair_family[pair_of] * racks + grouped.kind_rack[kind])
    hub_family, hub_rack = hubs // racks, hubs % racks
    class_, to_hub = _joined(grouped.class_family, hub_family)

    alone = np.bincount(grouped.node_kind, minlength=len(kinds))[kind] == 1
    node_of_kind = np.zeros(len(kinds), np.int64)
    node_of_kind[grouped.node_kind] = np.arange(len(grouped.node_kind))
    crowded = np.flatnonzero(np.bincount(grouped.node_kind, minlength=len(kinds))[grouped.node_kind] > 1)

    step, level_node = _steps((high - low)[node_crowd] * levels)
    layers = (
        Arcs(grouped.stay_class, grouped.stay_node, grouped.stay_size),
        Arcs(class_, to_hub, np.full(len(class_), plenty)),
        Arcs(hub[~alone], kind[~alone], np.full(len(hub), plenty)[~alone]),
        Arcs(hub[alone], node_of_kind[kind[alone]], np.full(len(hub), plenty)[alone]),
        Arcs(grouped.node_kind[crowded], crowded, np.full(len(crowded), plenty)),
        Arcs(level_node, np.zeros(len(level_node), np.int64), grouped.node_size[level_node]),
    )
    at_hub = len(grouped.class_supply)
    at_kind = at_hub + len(hubs)
    at_node = at_kind + len(kinds)
    at_sink = at_node + len(node_low)
    starts = ((0, at_node), (0, at_hub), (at_hub, at_kind), (at_hub, at_node), (at_kind, at_node), (at_node, at_sink))
    none = np.zeros(len(hubs) + len(kinds), np.int64)
    sink = np.full(int(levels), -total)
    network = Network(
        tail=np.concatenate([layer.tail + start for layer, (start, _) in zip(layers, starts, strict=True)]),
        head=np.concatenate([layer.head + start for layer, (_, start) in zip(layers, starts, strict=True)]),
        lower=np.zeros(sum(len(layer.tail) for layer in layers), np.int64),
        upper=np.concatenate([layer.upper for layer in layers]),
        low=np.concatenate([grouped.class_supply, none, -(node_low if levels else node_high), sink]),
        high=np.concatenate([grouped.class_supply, none, -node_low, 0 * sink]),
    )
    free = len(network.tail) - len(grouped.stay_class) - len(class_)
    stay_rack = grouped.kind_rack[grouped.node_kind[grouped.stay_node]]
    return Layout(
        network,
        layers,
        rows=(at_hub, len(hubs), len(kinds), len(node_low), int(levels)),
        hub_rack=hub_rack,
        cost=np.concatenate(
            [
                p.cost[grouped.class_near[grouped.stay_class], stay_rack],
                p.cost[grouped.class_near[class_], hub_rack[to_hub]],
                np.zeros(free, np.int64),
            ]
        ),
        moves=np.concatenate([np.full(len(grouped.stay_class), -1), np.zeros(len(class_) + free, np.int64)]),
        squares=np.concatenate(
            [
                np.zeros(len(network.tail) - len(step), np.int64),
                2 * (low[node_crowd][level_node] + step) + 1,
            ]
        ),
    )


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


def deal(grouped: Grouped, layout: Layout, flow: Ints) -> Ints:
    """Return the reader of each partition, by the flows.

    Where a flow leaves open which partitions it means, each reader gets them spread over the whole list, so that
    the partitions of one topic do not end up together.
    """
    stay, to_hub, to_kind, to_node, from_kind, _ = layout.split(flow)
    _, hubs, kinds, nodes, crowded, _ = layout.layers
    reader = np.full(len(grouped.problem.family), -1)
    share = _Shares(grouped)
    kept = _first_of_each(grouped.hold_of, share.of_stays(stay))
    reader[grouped.held[kept]] = grouped.problem.owner[grouped.held[kept]]
    loose = np.flatnonzero(reader < 0)
    hub = hubs.head[_dealt(grouped.class_of[loose], hubs.tail, to_hub)]
    # Kinds and nodes share one numbering here: out of a hub lead both sorts of arcs.
    count = len(grouped.kind_crowd)
    out = _dealt(hub, np.concatenate([kinds.tail, nodes.tail]), np.concatenate([to_kind, to_node]))
    place = np.concatenate([kinds.head, nodes.head + count])[out]
    in_kind = np.flatnonzero(place < count)
    place[in_kind] = count + crowded.head[_dealt(place[in_kind], crowded.tail, from_kind)]
    node = place - count
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


class _Shares:
    """What comes to a node, shared out among its members as evenly as it goes.

    Every amount is dealt out to the members in turn, and the next one goes on where the last one stopped. So no
    member has more than one partition more than another, neither of one class nor in all.
    """

    def __init__(self, grouped: Grouped) -> None:
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
