"""The layout of a cluster in the numbers of the solver: brokers become nodes, and racks become indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rackassign.model import Broker
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.layout import Layout, ReplicaLists
from rackassign.placement.placer import ReplicaPlacementError
from rackassign.solver.network_flow import Bools, Ints
from rackassign.solver.placement import (
    BrokerArrays,
    Constraints,
    Objectives,
    PartitionArrays,
    PlacementResult,
    ShortageError,
    place_replicas,
    reorder_leaders,
)

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
        """Index the brokers.

        Args:
            brokers: Brokers that may have replicas.
            rules: Constraints of the placement.
            layout: Layout whose weights apply where the constraints have none; None for no weights.
            keep_fenced: Whether replicas on fenced brokers stay there, and none are added; otherwise fenced brokers are
                used like others, but after them.

        Raises:
            MissingRackError: Some brokers have no rack, and the constraints refuse that.
        """
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
        """Solve, with the replicas of other topics as load, and put nodes in order.

        Raises:
            ReplicaPlacementError: The constraints leave no broker for some replicas.
        """
        try:
            return place_replicas(
                items, self._loaded(others), self.limits, self._goals(), order=order, work=self.rules.work
            )
        except ShortageError as error:
            raise ReplicaPlacementError(f"replicas cannot be placed: {error}") from error

    def lead(self, items: PartitionArrays, others: ReplicaLists, *, keep: bool) -> PlacementResult:
        """Choose leaders among the nodes of items, with the leaders of other topics as load."""
        return reorder_leaders(items, self._loaded(others), self.limits, self._goals(), keep=keep, work=self.rules.work)

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
        """Return the nodes of existing brokers."""
        return tuple(dict.fromkeys(self.node_of_broker[broker] for broker in replicas if broker in self.node_of_broker))

    def leads(self, replicas: tuple[int, ...]) -> bool:
        """Return whether the first of a list is an existing broker."""
        return bool(replicas) and replicas[0] in self.node_of_broker

    def shrunk(self, held: tuple[int, ...], factor: int) -> tuple[int, ...]:
        """Return the nodes to be kept if the replication factor decreases: fenced ones are removed first."""
        fenced = [node for node in held if not self.nodes.assignable[node]]
        gone = set(fenced[::-1][: max(0, len(held) - factor)])
        return tuple(node for node in held if node not in gone)

    def may_lead(self, nodes: Iterable[int]) -> bool:
        """Return whether one of these nodes may lead."""
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
