"""What is asked of the solver, in ints, and how it is grouped so that it stays small."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackassign.solver.types import Bools, Ints

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Problem:
    """Partitions to be given to members.

    Args:
        topic_class: For each partition its family: all partitions with the same set of readers are one.
        cost_row: For each partition its row of `cost`.
        owner: For each partition the member that holds it and may go on holding it, `NOBODY` if there is none.
        subscription_class: For each member its crowd: all members with the same subscription are one.
        rack: For each member its column of `cost`.
        edge_topic_class: The families that each crowd reads, as pairs, ascending by family, then crowd. Every family
            has a pair, and every crowd a member.
        edge_subscription_class: The other half of the pairs.
        cost: What reading costs, by row of partition and column of member, 0 or more.
    """

    topic_class: Ints
    cost_row: Ints
    owner: Ints
    subscription_class: Ints
    rack: Ints
    edge_topic_class: Ints
    edge_subscription_class: Ints
    cost: Ints

    @property
    def families(self) -> int:
        """Number of families."""
        return int(self.edge_topic_class[-1]) + 1 if len(self.edge_topic_class) else 0

    def supply(self) -> Ints:
        """Return how many partitions each family has."""
        return np.bincount(self.topic_class, minlength=self.families)

    def sizes(self) -> Ints:
        """Return how many members each crowd has."""
        return np.bincount(self.subscription_class)

    def current(self) -> tuple[Ints, Ints]:
        """Return the partitions that have an owner, ascending, and the family-crowd pair of each with its owner."""
        held = np.flatnonzero(self.owner != NOBODY)
        crowds = len(self.sizes())
        pairs = self.edge_topic_class * crowds + self.edge_subscription_class
        return held, np.searchsorted(pairs, self.topic_class[held] * crowds + self.subscription_class[self.owner[held]])

    def cost_of(self, reader: Ints) -> int:
        """Return what it costs if each partition is read by the member given for it."""
        return int(self.cost[self.cost_row, self.rack[reader]].sum())


def factorize(keys: Ints) -> tuple[Ints, Ints]:
    """Return the different keys, ascending, and for each key its place among them."""
    # Faster than sorting as long as the keys are small.
    top = int(keys.max()) + 1 if len(keys) else 0
    if top > 4 * len(keys) + 1000:
        different, places = np.unique(keys, return_inverse=True)
        return different, places.astype(np.int64)
    different = np.flatnonzero(np.bincount(keys, minlength=top))
    place = np.zeros(top, np.int64)
    place[different] = np.arange(len(different))
    return different, place[keys]


@dataclass(frozen=True, slots=True)
class CompressedProblem:
    """The same problem with what is interchangeable counted instead of named.

    A *class* is all partitions of one family and one row of costs; a *kind* all members of one crowd and one rack.
    A *hold* is what one member holds of one class. A *node* is all members of one kind that hold the same number of
    each class (often none of any); a *stay* is all holds of one class in one node.

    Args:
        problem: Whose.
        edge_topic_class: Families of the family-crowd pairs that are allowed.
        edge_subscription_class: Crowds of these.
        class_of: Class of each partition.
        class_family: Family of each class.
        class_near: Row of costs of each class.
        class_supply: Partitions of each class.
        current: Partitions that could stay where they are, ascending.
        hold_of: Hold of each partition of `current`.
        hold_member: Member of each hold.
        hold_stay: Stay of each hold.
        stay_class: Class of each stay.
        stay_node: Node of each stay.
        stay_size: Partitions of each stay.
        kind_crowd: Crowd of each kind.
        kind_rack: Rack of each kind.
        node_of: Node of each member.
        node_kind: Kind of each node.
        node_size: Members of each node.
    """

    problem: Problem
    edge_topic_class: Ints
    edge_subscription_class: Ints
    class_of: Ints
    class_family: Ints
    class_near: Ints
    class_supply: Ints
    current: Ints
    hold_of: Ints
    hold_member: Ints
    hold_stay: Ints
    stay_class: Ints
    stay_node: Ints
    stay_size: Ints
    kind_crowd: Ints
    kind_rack: Ints
    node_of: Ints
    node_kind: Ints
    node_size: Ints

    @classmethod
    def of(cls, problem: Problem, allowed: Bools) -> CompressedProblem:
        """Group a problem; `allowed` tells for each family-crowd pair whether partitions may go there."""
        rows, racks = problem.cost.shape
        classes, class_of = factorize(problem.topic_class * rows + problem.cost_row)
        kinds, kind_of = factorize(problem.subscription_class * racks + problem.rack)
        held, pair = problem.current()
        held = held[allowed[pair]]
        holds, hold_of = factorize(problem.owner[held] * len(classes) + class_of[held])
        hold_member, hold_class = holds // len(classes), holds % len(classes)
        hold_size = np.bincount(hold_of, minlength=len(holds))
        node_of, node_kind = _nodes(kind_of, hold_member, hold_class, hold_size)
        stays, hold_stay = factorize(node_of[hold_member] * len(classes) + hold_class)
        return cls(
            problem=problem,
            edge_topic_class=problem.edge_topic_class[allowed],
            edge_subscription_class=problem.edge_subscription_class[allowed],
            class_of=class_of,
            class_family=classes // rows,
            class_near=classes % rows,
            class_supply=np.bincount(class_of, minlength=len(classes)),
            current=held,
            hold_of=hold_of,
            hold_member=hold_member,
            hold_stay=hold_stay,
            stay_class=stays % len(classes),
            stay_node=stays // len(classes),
            stay_size=np.bincount(hold_stay, hold_size, len(stays)).astype(np.int64),
            kind_crowd=kinds // racks,
            kind_rack=kinds % racks,
            node_of=node_of,
            node_kind=node_kind,
            node_size=np.bincount(node_of, minlength=len(node_kind)),
        )

    def ignoring_ownership(self) -> CompressedProblem:
        """Return the same with nothing held by anybody: classes and kinds are the same, nodes are kinds."""
        kinds, kind_of = len(self.kind_crowd), self.node_kind[self.node_of]
        none = self.current[:0]
        return replace(
            self,
            current=none,
            hold_of=none,
            hold_member=none,
            hold_stay=none,
            stay_class=none,
            stay_node=none,
            stay_size=none,
            node_of=kind_of,
            node_kind=np.arange(kinds),
            node_size=np.bincount(kind_of, minlength=kinds),
        )


def _nodes(kind_of: Ints, hold_member: Ints, hold_class: Ints, hold_size: Ints) -> tuple[Ints, Ints]:
    """Return the node of each member and the kind of each node; holds are in order of members and classes."""
    members = np.arange(len(kind_of))
    content = np.stack([hold_class, hold_size], axis=1)
    starts = np.searchsorted(hold_member, members).tolist()
    ends = np.searchsorted(hold_member, members, "right").tolist()
    nodes: dict[tuple[int, bytes], int] = {}
    node_of = [
        nodes.setdefault((kind, content[start:end].tobytes()), len(nodes))
        for kind, start, end in zip(kind_of.tolist(), starts, ends, strict=True)
    ]
    return np.asarray(node_of, np.int64), np.asarray([kind for kind, _ in nodes], np.int64)
