"""Expansion of flows of classes to the nodes of items.

Within a class copies are distributed in turn: rack after rack, to one item after the other. So an item gets, in each
rack, its mean rounded down or up, which satisfies every limit that the mean satisfies. Racks with less than one copy
per item come first, of these the racks where leaders must be, so that no item lacks what all of them have on average.

Which item gets which node is free where a rack has one copy of each. There an item takes the node of which its group
has least, then the one that shares fewest items with its other nodes: groups are to be balanced, and the load of a
lost node is to be taken over by many others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rackassign.solver.placement.classes import Classes
from rackassign.solver.placement.model import BrokerArrays, PartitionArrays
from rackassign.solver.placement.rack_limits import Bounds
from rackassign.solver.placement.replica_network import ReplicaFlows
from rackassign.solver.types import Ints

_HUB = -1
"""Placeholder for a copy that comes through a hub, until its node is known."""


def expand_classes(
    items: PartitionArrays, classes: Classes, nodes: BrokerArrays, flows: ReplicaFlows, *, groups_first: bool
) -> list[list[int]]:
    """Return the nodes of each item, in no particular order.

    Args:
        items: Items to place.
        classes: Items by class.
        nodes: Nodes on which copies are placed.
        flows: Number of copies of each class by node.
        groups_first: Whether an item prefers the node its group has least of to the one that shares fewest items with
            its other nodes.
    """
    table = _PlacedCopies(items, nodes)
    members: list[list[int]] = [[] for _ in classes.size]
    for item, class_ in enumerate(classes.of.tolist()):
        members[class_].append(item)
    quotas = _Quotas.of(classes, nodes, flows)
    wanted: list[tuple[int, int, int]] = []
    for class_, inside in enumerate(members):
        counts = _counts(len(inside), flows.in_rack[class_], classes.bounds[class_].leaders)
        for rack, of_items in counts:
            wanted += ((class_, rack, number) for number in of_items)
    # Stays first, so that the free copies can be chosen with all of them known.
    free: list[tuple[int, int, dict[int, int]]] = []
    by_cell: dict[tuple[int, int], list[int]] = {}
    for class_, rack, number in wanted:
        by_cell.setdefault((class_, rack), []).append(members[class_][number])
    for (class_, rack), copies in by_cell.items():
        quota = quotas.direct.get((class_, rack), {})
        through = int(quotas.hubs[class_, rack])
        if len(set(copies)) < len(copies):
            table.assign_apart(copies, quota)
            continue
        pool = quotas.pool.get((int(classes.group[class_]) if quotas.grouped else 0, rack), {})
        rest = _assign_stays(table, copies, quota, set(classes.current[class_]), through)
        free += ((item, rack, pool if hub else quota) for item, hub in rest)
    for item, _, quota in free:
        table.choose(item, quota, groups_first=groups_first)
    return table.nodes_of


def expand_with_exchange(
    items: PartitionArrays,
    nodes: BrokerArrays,
    sets: list[list[int]],
    held: Sequence[Collection[int]],
    bounds: Sequence[Bounds],
) -> list[list[int]]:
    """Return sets with equally many copies on each node, with new copies of racks exchanged within their rack.

    Applies only where a rack has at most one copy of an item, for which any node of the rack can be used.
    """
    rack, table = nodes.rack.tolist(), _PlacedCopies(items, nodes)
    quotas: dict[int, dict[int, int]] = {}
    free: list[tuple[int, int]] = []
    for item, own in enumerate(sets):
        for node in sorted(own):
            if node in held[item] or bounds[item].high[rack[node]] > 1 or not nodes.assignable[node]:
                table.assign(item, node)
                continue
            quota = quotas.setdefault(rack[node], {})
            quota[node] = quota.get(node, 0) + 1
            free.append((item, rack[node]))
    for item, at in free:
        table.choose(item, quotas[at], groups_first=True)
    return table.nodes_of


def _assign_stays(
    table: _PlacedCopies, copies: list[int], quota: dict[int, int], held: set[int], through: int
) -> list[tuple[int, bool]]:
    """Assign stays to the first items; return the others, and whether their copy comes through a hub."""
    at = 0
    for node in sorted(held.intersection(quota)):
        for item in copies[at : at + quota[node]]:
            table.assign(item, node)
        at += quota.pop(node)
    rest = copies[at:]
    return [(item, number < through) for number, item in enumerate(rest)]


def _counts(size: int, in_rack: Ints, leaders: frozenset[int]) -> list[tuple[int, list[int]]]:
    """Return for each rack the items that get a copy there, by their index in the class."""
    shares = in_rack.tolist()
    order = sorted(range(len(shares)), key=lambda rack: (shares[rack] >= size, rack not in leaders, rack))
    dealt, at = [], 0
    for rack in order:
        dealt.append((rack, [(at + step) % size for step in range(shares[rack])]))
        at += shares[rack]
    return dealt


@dataclass(frozen=True, slots=True)
class _Quotas:
    """Numbers of copies to place on nodes: by class and rack directly, by group and rack through hubs."""

    direct: dict[tuple[int, int], dict[int, int]]
    hubs: Ints
    pool: dict[tuple[int, int], dict[int, int]]
    grouped: bool

    @classmethod
    def of(cls, classes: Classes, nodes: BrokerArrays, flows: ReplicaFlows) -> _Quotas:
        rack = nodes.rack.tolist()
        direct: dict[tuple[int, int], dict[int, int]] = {}
        for class_, node, count in flows.direct.tolist():
            if count:
                direct.setdefault((class_, rack[node]), {})[node] = count
        hubs = np.zeros((len(classes.size), classes.racks), np.int64)
        hubs[flows.hubs[:, 0], flows.hubs[:, 1]] = flows.hubs[:, 2]
        pool: dict[tuple[int, int], dict[int, int]] = {}
        for group, node, count in flows.pool.tolist():
            if count:
                pool.setdefault((group, rack[node]), {})[node] = count
        return cls(direct, hubs, pool, flows.grouped)


class _PlacedCopies:
    """The copies placed so far."""

    def __init__(self, items: PartitionArrays, nodes: BrokerArrays) -> None:
        count = len(nodes.rack)
        self.nodes_of: list[list[int]] = [[] for _ in items.copies]
        self._group = items.group.tolist()
        self._of_group = [[0] * count for _ in range(max(self._group, default=-1) + 1)]
        self._together = [[0] * count for _ in range(count)]

    def assign(self, item: int, node: int) -> None:
        """Assign a node to an item."""
        own = self.nodes_of[item]
        for other in own:
            self._together[node][other] += 1
            self._together[other][node] += 1
        own.append(node)
        self._of_group[self._group[item]][node] += 1

    def choose(self, item: int, quota: dict[int, int], *, groups_first: bool) -> None:
        """Assign the best node with quota left to an item."""
        own, of_group = self.nodes_of[item], self._of_group[self._group[item]]
        node = min(
            quota,
            key=lambda node: (
                node in own,
                of_group[node] if groups_first else 0,
                sum(self._together[node][other] for other in own),
                -quota[node],
                node,
            ),
        )
        self.assign(item, node)
        quota[node] -= 1
        if not quota[node]:
            del quota[node]

    def assign_apart(self, copies: list[int], quota: dict[int, int]) -> None:
        """Assign several nodes to each item, no node twice: always those with most quota left (Gale and Ryser)."""
        wants: dict[int, int] = {}
        for item in copies:
            wants[item] = wants.get(item, 0) + 1
        for item in sorted(wants, key=lambda item: (-wants[item], item)):
            own = self.nodes_of[item]
            order = sorted(
                (node for node in quota if quota[node]),
                key=lambda node: (-quota[node], sum(self._together[node][other] for other in own), node),
            )
            for node in order[: wants[item]]:
                self.assign(item, node)
                quota[node] -= 1
