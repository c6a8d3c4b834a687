r"""Network for the number of copies of each class on each node, and its flows expanded to the nodes of items.

"The arcs, left to right::

    class --------------------------> (class, rack) -- stay, direct --> (group, node) -> steps -> node -> steps
      \--> firsts --> leader firsts ->/            \--> hub (group, rack) -->/                      -> rack -> sink

The *firsts* exist where an item must be in a minimum number of racks, or in one of the racks where leaders must be:
they carry the first copy of an item to each rack, and the other copies are added to them.

Where a rack has at most one copy of an item, the network does not distinguish the classes of its new copies: they pass
through a hub. So the number of arcs grows with classes and with nodes, not with their product. (A copy that came
through a hub to its former node would have been a cheaper stay, so an optimum has none.) Where a rack may have several
copies of an item, each class has its own arc to each node, which keeps two of them apart.

The segments (steps) of nodes are centred on the expected loads of the nodes. If a load turns out to be elsewhere, they
are centred again. A first round, without groups and current nodes, is small and computes these centres.

Expansion
---------
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

from rackassign.solver.network_flow import Ints, SolveBudget, SolverError
from rackassign.solver.placement.network_builder import (
    Builder,
    CostSegments,
    inverse_weights,
    on_unit_segments,
    segment_loads,
    shift_by_median,
    solve,
)
from rackassign.solver.placement.problem import Bounds, BrokerArrays, Classes, Objectives, PartitionArrays

_SINGLE = 2
"""Distance from the expected load up to which segments of a node are single copies."""

_ROUNDS = 24
"""Limit of the rounds in which segments are centred again; each round at least halves their error."""


@dataclass(frozen=True, slots=True)
class ReplicaFlows:
    """Number of copies of each class by node."""

    # Copies by class and rack.
    in_rack: Ints
    # Rows of class, node, and copies that go or stay there; of class, rack, and copies that come through hubs; and of
    # group, node, and copies that leave hubs.
    direct: Ints
    hubs: Ints
    pool: Ints
    load: Ints
    # Whether the pool distinguishes groups.
    grouped: bool
    # What is not proven.
    note: str = ""


@dataclass(frozen=True, slots=True)
class CandidateArcs:
    """Arcs between classes and nodes, before they are numbered as rows."""

    # Rows of class, node, capacity, and 1 for a stay; and of class, rack, and capacity.
    direct: Ints
    hubs: Ints


def flows(
    classes: Classes, nodes: BrokerArrays, goals: Objectives, work: SolveBudget, *, centre: Ints, grouped: bool
) -> ReplicaFlows:
    """Compute the optimal flows for nodes' expected loads (`centre`); `grouped` balances each group by itself."""
    model = _Model(classes, nodes, goals, grouped=grouped)
    for _ in range(_ROUNDS):
        flow, settled = model.solved(centre, work)
        if flow.note or (settled and on_unit_segments(flow.load, model.most, centre, _SINGLE).all()):
            return flow
        centre = flow.load
    raise SolverError("no segments of loads are the right ones")


def fair_share(total: int, nodes: BrokerArrays) -> Ints:
    """Return the share of each node of so many copies if there were no constraints."""
    share = (total + nodes.load.sum()) * nodes.weight / max(1, nodes.weight.sum())
    found: Ints = np.maximum(0, np.rint(share - nodes.load)).astype(np.int64)
    return found


class _Model:
    """The part of the model that does not change when segments are centred again."""

    def __init__(self, classes: Classes, nodes: BrokerArrays, goals: Objectives, *, grouped: bool) -> None:
        self._classes, self._nodes, self._goals, self._grouped = classes, nodes, goals, grouped
        self._candidates = _candidate_arcs(classes, nodes)
        self._groups = int(classes.group.max(initial=0)) + 1
        self._total = int(classes.size @ np.asarray([bounds.copies for bounds in classes.bounds], np.int64))
        self._in_group = np.bincount(
            classes.group, classes.size * [bounds.copies for bounds in classes.bounds], self._groups
        ).astype(np.int64)
        _, node, most, _ = self._candidates.direct.T
        count = len(nodes.rack)
        reach = np.bincount(node, most, count).astype(np.int64)
        if len(self._candidates.hubs):
            through = np.bincount(self._candidates.hubs[:, 1], self._candidates.hubs[:, 2], classes.racks).astype(
                np.int64
            )
            reach += np.where(nodes.assignable, through[nodes.rack], 0)
        self.most: Ints = np.minimum(reach, classes.size.sum())
        self._rack_most = np.bincount(nodes.rack, self.most, classes.racks).astype(np.int64)
        self._rack_centre: Ints = 0 * self._rack_most
        self._group_centre: Ints | None = None

    def solved(self, centre: Ints, work: SolveBudget) -> tuple[ReplicaFlows, bool]:
        """Solve with segments centred on these loads; return whether those of racks and groups were the right ones."""
        nodes, count = self._nodes, len(self._nodes.rack)
        if not self._rack_centre.any():
            self._rack_centre = np.bincount(nodes.rack, centre, self._classes.racks).astype(np.int64)
        builder = Builder()
        scale = inverse_weights(nodes.weight)
        levels = segment_loads(self.most, centre, nodes.load, scale, _SINGLE)
        by_group = self._group_steps(centre, scale) if self._grouped else None
        self._classes_to_cracks(builder)
        self._to_nodes(builder, levels, by_group)
        # Begun with all stays, flows change only where loads require it, and as few copies move for each objective.
        stays = builder.values(direct=self._candidates.direct[:, 2] * self._candidates.direct[:, 3])
        parts, note = solve(builder, self._objectives(builder, levels, by_group), work, stays)
        load = np.bincount(levels.owner, parts["node"], count).astype(np.int64)
        settled = True
        if self._goals.coverage is not None:
            of_rack = np.bincount(nodes.rack, load, self._classes.racks).astype(np.int64)
            settled = bool(on_unit_segments(of_rack, self._rack_most, self._rack_centre, _SINGLE).all())
            self._rack_centre = of_rack
        if by_group is not None:
            of_group = np.bincount(by_group.owner, parts["group"], self._groups * count).astype(np.int64)
            before = self._group_centre
            assert before is not None  # noqa: S101 - set by the steps above
            settled = settled and bool(on_unit_segments(of_group, self._group_most(), before, _SINGLE).all())
            self._group_centre = of_group
        return self._flows(parts, load, note), settled

    def _group_most(self) -> Ints:
        sizes = np.bincount(self._classes.group, self._classes.size, self._groups).astype(np.int64)
        each: Ints = np.repeat(sizes, len(self._nodes.rack))
        return each

    def _group_steps(self, centre: Ints, scale: Ints) -> CostSegments:
        count = len(self._nodes.rack)
        if self._group_centre is None:
            share = self._in_group[:, None] * centre[None, :] / max(1, centre.sum())
            self._group_centre = np.rint(share).astype(np.int64).ravel()
        base = np.zeros(self._groups * count, np.int64)
        return segment_loads(self._group_most(), self._group_centre, base, np.tile(scale, self._groups), _SINGLE)

    def _classes_to_cracks(self, builder: Builder) -> None:
        """Add classes, firsts, and their arcs to each rack; (class, rack) rows come first."""
        classes, racks = self._classes, self._classes.racks
        builder.add_rows(len(classes.size) * racks)
        supply = classes.size * np.asarray([bounds.copies for bounds in classes.bounds], np.int64)
        start = builder.add_rows(len(classes.size), supply)
        arcs: list[tuple[int, int, int, int]] = []
        for number, (size, bounds) in enumerate(zip(classes.size.tolist(), classes.bounds, strict=True)):
            row, cracks = start + number, range(number * racks, (number + 1) * racks)
            if bounds.plain:
                arcs += (
                    (row, crack, size * least, size * most)
                    for crack, least, most in zip(cracks, bounds.low, bounds.high, strict=True)
                    if most
                )
                continue
            firsts, led = builder.add_rows(1), builder.add_rows(1)
            arcs.append((row, firsts, size * bounds.racks, size * bounds.copies))
            if bounds.leaders:
                arcs.append((firsts, led, size, size * bounds.copies))
            for rack, crack in enumerate(cracks):
                least, most = bounds.low[rack], bounds.high[rack]
                if most:
                    arcs.append((led if rack in bounds.leaders else firsts, crack, size * min(least, 1), size))
                if most > 1:
                    arcs.append((row, crack, size * max(0, least - 1), size * (most - 1)))
        tail, head, lower, upper = np.asarray(arcs, np.int64).reshape(-1, 4).T
        builder.add("cracks", tail, head, upper, lower)

    def _to_nodes(self, builder: Builder, levels: CostSegments, by_group: CostSegments | None) -> None:
        classes, nodes, racks = self._classes, self._nodes, self._classes.racks
        count = len(nodes.rack)
        node_row = builder.add_rows(count)
        rack_row = builder.add_rows(racks)
        sink = builder.add_rows(1, np.asarray([-self._total]))
        arrive = node_row
        if by_group is not None:
            arrive = builder.add_rows(self._groups * count)
            builder.add("group", arrive + by_group.owner, node_row + by_group.owner % count, by_group.width)
        group = classes.group if by_group is not None else 0 * classes.group
        class_, node, most, _ = self._candidates.direct.T
        builder.add("direct", class_ * racks + nodes.rack[node], arrive + group[class_] * count + node, most)
        hub_of = self._hubs(group)
        hub, inverse = np.unique(hub_of, return_inverse=True)
        hub_row = builder.add_rows(len(hub))
        class_, rack, most = self._candidates.hubs.T
        builder.add("in", class_ * racks + rack, hub_row + inverse.ravel(), most)
        pairs = self._hub_nodes(hub)
        builder.add(
            "out",
            hub_row + pairs[:, 0],
            arrive + hub[pairs[:, 0]] // racks * count + pairs[:, 1],
            np.full(len(pairs), self._total),
        )
        builder.add("node", node_row + levels.owner, rack_row + nodes.rack[levels.owner], levels.width)
        self._to_sink(builder, rack_row, sink)

    def _to_sink(self, builder: Builder, rack_row: int, sink: int) -> None:
        racks = self._classes.racks
        if self._goals.coverage is None:
            rack, width = np.arange(racks), np.full(racks, self._total)
            self._rack_cost = 0 * rack
        else:
            base = np.zeros(racks, np.int64)
            wanted = self._goals.coverage > 0
            scale = np.ones(racks, np.int64)
            scale[wanted] = inverse_weights(self._goals.coverage[wanted])
            levels = segment_loads(self._rack_most, self._rack_centre, base, scale, _SINGLE)
            rack, width, cost = levels.owner, levels.width, levels.cost
            # In a rack without readers any copy costs more than the last one in a rack with readers.
            self._rack_cost = np.where(wanted[rack], cost, cost[wanted[rack]].max(initial=0) + 1)
        builder.add("rack", rack_row + rack, np.full(len(rack), sink), width)

    def _hubs(self, group: Ints) -> Ints:
        class_, rack, _ = self._candidates.hubs.T
        hub: Ints = group[class_] * self._classes.racks + rack
        return hub

    def _hub_nodes(self, hub: Ints) -> Ints:
        """Return pairs of a hub and a node of its rack that accepts copies."""
        nodes, racks = self._nodes, self._classes.racks
        inside = [np.flatnonzero(nodes.assignable & (nodes.rack == rack)) for rack in range(racks)]
        pairs = [
            np.stack([np.full(len(inside[of % racks]), number), inside[of % racks]], axis=1)
            for number, of in enumerate(hub.tolist())
        ]
        return np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64)

    def _objectives(self, builder: Builder, levels: CostSegments, by_group: CostSegments | None) -> list[Ints]:
        stay = self._candidates.direct[:, 3]
        closed = stay * ~self._nodes.assignable[self._candidates.direct[:, 1]]
        even = [builder.values(node=shift_by_median(levels.cost))]
        coverage = [] if self._goals.coverage is None else [builder.values(rack=shift_by_median(self._rack_cost))]
        balance = [*coverage, *even]
        moves = [builder.values(direct=-stay)] if stay.any() else []
        # If one of several copies has to go, the copy on a node that accepts no new copies is least worth keeping.
        moves += [builder.values(direct=closed)] if closed.any() else []
        leads = (
            np.asarray(self._classes.leader_load, np.int64)[self._candidates.direct[:, 0]]
            == self._candidates.direct[:, 1]
        )
        # Keep the leader if another copy can be removed as well.
        lead = [builder.values(direct=-(leads * stay))] if leads.any() else []
        group = [] if by_group is None else [builder.values(group=by_group.cost)]
        ordered = {
            "balance": [*balance, *moves, *lead, *group],
            "moves": [*moves, *balance, *lead, *group],
            "group": [*group, *balance, *moves, *lead],
            "coverage": [*coverage, *moves, *even, *lead, *group],
        }[self._goals.first]
        reluctant = self._nodes.last_resort
        if reluctant.any():
            ordered.insert(0, builder.values(node=reluctant[levels.owner].astype(np.int64)))
        return ordered

    def _flows(self, parts: dict[str, Ints], load: Ints, note: str) -> ReplicaFlows:
        classes, racks = self._classes, self._classes.racks
        direct = np.column_stack([self._candidates.direct[:, :2], parts["direct"]])
        hubs = np.column_stack([self._candidates.hubs[:, :2], parts["in"]])
        group = classes.group if self._grouped else 0 * classes.group
        hub = np.unique(self._hubs(group))
        pairs = self._hub_nodes(hub)
        pool = np.column_stack([hub[pairs[:, 0]] // racks, pairs[:, 1], parts["out"]])
        in_rack = np.bincount(
            direct[:, 0] * racks + self._nodes.rack[direct[:, 1]], direct[:, 2], len(classes.size) * racks
        ) + np.bincount(hubs[:, 0] * racks + hubs[:, 1], hubs[:, 2], len(classes.size) * racks)
        return ReplicaFlows(in_rack.astype(np.int64).reshape(-1, racks), direct, hubs, pool, load, self._grouped, note)


_MIX, _MODULUS = 2_654_435_761, 1 << 32
"""Multiplier and modulus that number arcs without a pattern (Knuth's multiplicative hashing)."""


def _candidate_arcs(classes: Classes, nodes: BrokerArrays) -> CandidateArcs:
    open_ = nodes.assignable.tolist()
    inside = [
        [node for node in np.flatnonzero(nodes.rack == number).tolist() if open_[node]]
        for number in range(classes.racks)
    ]
    direct: list[tuple[int, int, int, int]] = []
    hubs: list[tuple[int, int, int]] = []
    for number, (size, current, bounds) in enumerate(
        zip(classes.size.tolist(), classes.current, classes.bounds, strict=True)
    ):
        direct += ((number, node, size, 1) for node in current)
        for at, most in enumerate(bounds.high):
            if most == 1 and current:
                hubs.append((number, at, size))
            elif most:
                direct += ((number, node, size, 0) for node in inside[at] if node not in current)
    # The order decides among equally good flows. In order of classes, every node would take from and give to the first
    # ones, whose items would then share the same nodes.
    mixed = np.argsort(np.arange(len(direct)) * _MIX % _MODULUS, kind="stable")
    return CandidateArcs(np.asarray(direct, np.int64).reshape(-1, 4)[mixed], np.asarray(hubs, np.int64).reshape(-1, 3))


def expand_classes(
    items: PartitionArrays, classes: Classes, nodes: BrokerArrays, flows: ReplicaFlows, *, groups_first: bool
) -> list[list[int]]:
    """Return the nodes of each item, in no particular order."""
    # `groups_first`: an item prefers the node its group has least of to that which shares fewest items with its others.
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
        own = self.nodes_of[item]
        for other in own:
            self._together[node][other] += 1
            self._together[other][node] += 1
        own.append(node)
        self._of_group[self._group[item]][node] += 1

    def choose(self, item: int, quota: dict[int, int], *, groups_first: bool) -> None:
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
