"""What is asked of the solver, in ints, and how it is grouped so that it stays small."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackassign.optimum.arrays import Bools, Ints

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Problem:
    """Partitions to be given to members.

    Args:
        family: For each partition its family: all partitions with the same set of readers are one.
        near: For each partition its row of `cost`.
        owner: For each partition the member that holds it and may go on holding it, `NOBODY` if there is none.
        crowd: For each member its crowd: all members with the same subscription are one.
        rack: For each member its column of `cost`.
        pair_family: The families that each crowd reads, as pairs, ascending by family, then crowd. Every family
            has a pair, and every crowd a member.
        pair_crowd: The other half of the pairs.
        cost: What reading costs, by row of partition and column of member, 0 or more.
    """

    family: Ints
    near: Ints
    owner: Ints
    crowd: Ints
    rack: Ints
    pair_family: Ints
    pair_crowd: Ints
    cost: Ints

    @property
    def families(self) -> int:
        """Number of families."""
        return int(self.pair_family[-1]) + 1 if len(self.pair_family) else 0

    def supply(self) -> Ints:
        """Return how many partitions each family has."""
        return np.bincount(self.family, minlength=self.families)

    def sizes(self) -> Ints:
        """Return how many members each crowd has."""
        return np.bincount(self.crowd)

    def cost_of(self, reader: Ints) -> int:
        """Return what it costs if each partition is read by the member given for it."""
        return int(self.cost[self.near, self.rack[reader]].sum())


def numbered(keys: Ints) -> tuple[Ints, Ints]:
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
class Grouped:
    """The same problem with what is interchangeable counted instead of named.

    A *class* is all partitions of one family and one row of costs; a *kind* all members of one crowd and one rack; a
    *stay* all partitions of one class that have the same owner. A *node* is a member that holds something, or all
    members of a kind that hold nothing.

    Args:
        problem: Whose.
        pair_family: Families of the family-crowd pairs that are allowed.
        pair_crowd: Crowds of these.
        class_of: Class of each partition.
        class_family: Family of each class.
        class_near: Row of costs of each class.
        class_supply: Partitions of each class.
        held: Partitions that could stay where they are, ascending.
        stay_of: Stay of each partition of `held`.
        stay_class: Class of each stay.
        stay_owner: Member of each stay.
        stay_size: Partitions of each stay.
        kind_crowd: Crowd of each kind.
        kind_rack: Rack of each kind.
        node_of: Node of each member.
        node_kind: Kind of each node.
        node_size: Members of each node.
    """

    problem: Problem
    pair_family: Ints
    pair_crowd: Ints
    class_of: Ints
    class_family: Ints
    class_near: Ints
    class_supply: Ints
    held: Ints
    stay_of: Ints
    stay_class: Ints
    stay_owner: Ints
    stay_size: Ints
    kind_crowd: Ints
    kind_rack: Ints
    node_of: Ints
    node_kind: Ints
    node_size: Ints

    @classmethod
    def of(cls, problem: Problem, allowed: Bools) -> Grouped:
        """Group a problem; `allowed` tells for each family-crowd pair whether partitions may go there."""
        rows, racks = problem.cost.shape
        members = len(problem.crowd)
        classes, class_of = numbered(problem.family * rows + problem.near)
        kinds, kind_of = numbered(problem.crowd * racks + problem.rack)
        held = _held(problem, allowed)
        stays, stay_of = numbered(class_of[held] * members + problem.owner[held])
        holds = np.zeros(members, bool)
        holds[problem.owner[held]] = True
        nodes, node_of = numbered(np.where(holds, len(kinds) + np.arange(members), kind_of))
        node_kind = np.empty(len(nodes), np.int64)
        node_kind[node_of] = kind_of
        return cls(
            problem=problem,
            pair_family=problem.pair_family[allowed],
            pair_crowd=problem.pair_crowd[allowed],
            class_of=class_of,
            class_family=classes // rows,
            class_near=classes % rows,
            class_supply=np.bincount(class_of, minlength=len(classes)),
            held=held,
            stay_of=stay_of,
            stay_class=stays // members,
            stay_owner=stays % members,
            stay_size=np.bincount(stay_of, minlength=len(stays)),
            kind_crowd=kinds // racks,
            kind_rack=kinds % racks,
            node_of=node_of,
            node_kind=node_kind,
            node_size=np.bincount(node_of, minlength=len(nodes)),
        )

    def without_owners(self) -> Grouped:
        """Return the same with nothing held by anybody: classes and kinds are the same, nodes are kinds."""
        kinds, kind_of = len(self.kind_crowd), self.node_kind[self.node_of]
        none = self.held[:0]
        return replace(
            self,
            held=none,
            stay_of=none,
            stay_class=none,
            stay_owner=none,
            stay_size=none,
            node_of=kind_of,
            node_kind=np.arange(kinds),
            node_size=np.bincount(kind_of, minlength=kinds),
        )


def _held(problem: Problem, allowed: Bools) -> Ints:
    """Return the partitions whose owner may keep them."""
    held = np.flatnonzero(problem.owner != NOBODY)
    crowds = int(problem.crowd.max()) + 1 if len(problem.crowd) else 1
    pairs = problem.pair_family * crowds + problem.pair_crowd
    pair = np.searchsorted(pairs, problem.family[held] * crowds + problem.crowd[problem.owner[held]])
    return held[allowed[pair]]
