"""The problem to solve as integer arrays, and its compression to a small size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackassign.solver.network_flow import Bools, Ints

NO_MEMBER = -1


@dataclass(frozen=True, slots=True)
class TieCosts:
    """Costs by row of partition and column of member, 0 or more.

    Args:
        row: Row of each partition.
        cost: The costs.
    """

    row: Ints
    cost: Ints


@dataclass(frozen=True, slots=True)
class Problem:
    """Partitions to be assigned to members.

    Args:
        topic_class: Topic class of each partition. Partitions with the same set of readers are one topic class.
        cost_row: Row of `cost` of each partition.
        owner: Member that owns each partition and may keep it; `NO_MEMBER` if there is none.
        subscription_class: Subscription class of each member. Members with the same subscription are one class.
        rack: Column of `cost` of each member.
        edge_topic_class: Topic classes that each subscription class reads, as pairs, ascending by topic class, then
            subscription class. Every topic class has a pair, and every subscription class a member.
        edge_subscription_class: The other half of the pairs.
        cost: Cost of reading, by row of partition and column of member, 0 or more.
        ties: Costs that decide between assignments which are equal in all other objectives; None if there are none.
        topic: Topic of each partition, for an even spread of each; None if that does not matter.
    """

    topic_class: Ints
    cost_row: Ints
    owner: Ints
    subscription_class: Ints
    rack: Ints
    edge_topic_class: Ints
    edge_subscription_class: Ints
    cost: Ints
    ties: TieCosts | None = None
    topic: Ints | None = None

    @property
    def topic_classes(self) -> int:
        """Number of topic classes."""
        return int(self.edge_topic_class[-1]) + 1 if len(self.edge_topic_class) else 0

    def supply(self) -> Ints:
        """Return the number of partitions of each topic class."""
        return np.bincount(self.topic_class, minlength=self.topic_classes)

    def sizes(self) -> Ints:
        """Return the number of members of each subscription class."""
        return np.bincount(self.subscription_class)

    def current(self) -> tuple[Ints, Ints]:
        """Return the partitions with an owner, ascending, and the class pair of each with its owner."""
        held = (self.owner != NO_MEMBER).nonzero()[0]
        subscription_classes = len(self.sizes())
        pairs = self.edge_topic_class * subscription_classes + self.edge_subscription_class
        return held, pairs.searchsorted(
            self.topic_class[held] * subscription_classes + self.subscription_class[self.owner[held]]
        )

    def cost_of(self, reader: Ints) -> int:
        """Return the cost of this assignment."""
        return int(self.cost[self.cost_row, self.rack[reader]].sum())

    def tie_cost_of(self, reader: Ints) -> int:
        """Return the tie cost of this assignment; 0 if there is none."""
        return 0 if self.ties is None else int(self.ties.cost[self.ties.row, self.rack[reader]].sum())


def factorize(keys: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys, ascending, and for each key its index among them."""
    # Faster than sorting for small keys.
    top = int(keys.max()) + 1 if len(keys) else 0
    if top > 4 * len(keys) + 1000:
        different, places = np.unique(keys, return_inverse=True)
        return different, places.astype(np.int64)
    different = np.bincount(keys, minlength=top).nonzero()[0]
    place = np.zeros(top, np.int64)
    place[different] = np.arange(len(different))
    return different, place[keys]


@dataclass(frozen=True, slots=True)
class CompressedProblem:
    """The problem with interchangeable elements counted instead of listed.

    A *class* is all partitions of one topic class and one row of costs; a *kind* is all members of one subscription
    class and one rack. A *hold* is the partitions of one class that one member owns. A *node* is all members of one
    kind that own the same number of each class (often none of any); a *stay* is all holds of one class in one node.

    Args:
        problem: The original problem.
        edge_topic_class: Topic classes of the allowed class pairs.
        edge_subscription_class: Subscription classes of these pairs.
        class_of: Class of each partition.
        class_topic_class: Topic class of each class.
        class_near: Row of costs of each class.
        class_supply: Number of partitions of each class.
        current: Partitions that their owners could keep, ascending.
        hold_of: Hold of each partition of `current`.
        hold_member: Member of each hold.
        hold_stay: Stay of each hold.
        stay_class: Class of each stay.
        stay_node: Node of each stay.
        stay_size: Number of partitions of each stay.
        kind_subscription_class: Subscription class of each kind.
        kind_rack: Rack of each kind.
        node_of: Node of each member.
        node_kind: Kind of each node.
        node_size: Number of members of each node.
    """

    problem: Problem
    edge_topic_class: Ints
    edge_subscription_class: Ints
    class_of: Ints
    class_topic_class: Ints
    class_near: Ints
    class_supply: Ints
    current: Ints
    hold_of: Ints
    hold_member: Ints
    hold_stay: Ints
    stay_class: Ints
    stay_node: Ints
    stay_size: Ints
    kind_subscription_class: Ints
    kind_rack: Ints
    node_of: Ints
    node_kind: Ints
    node_size: Ints

    @classmethod
    def of(cls, problem: Problem, allowed: Bools) -> CompressedProblem:
        """Compress a problem; `allowed` states for each class pair whether partitions may be assigned to it."""
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
            class_topic_class=classes // rows,
            class_near=classes % rows,
            class_supply=np.bincount(class_of, minlength=len(classes)),
            current=held,
            hold_of=hold_of,
            hold_member=hold_member,
            hold_stay=hold_stay,
            stay_class=stays % len(classes),
            stay_node=stays // len(classes),
            stay_size=np.bincount(hold_stay, hold_size, len(stays)).astype(np.int64),
            kind_subscription_class=kinds // racks,
            kind_rack=kinds % racks,
            node_of=node_of,
            node_kind=node_kind,
            node_size=np.bincount(node_of, minlength=len(node_kind)),
        )

    def ignoring_ownership(self) -> CompressedProblem:
        """Return the problem without ownership: classes and kinds are unchanged, nodes are kinds."""
        kinds, kind_of = len(self.kind_subscription_class), self.node_kind[self.node_of]
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

    def with_owners_as_kinds(self) -> CompressedProblem:
        """Return the problem in which only the kind of each owner is known: nodes are kinds."""
        classes, kinds = len(self.class_supply), len(self.kind_subscription_class)
        kind_of = self.node_kind[self.node_of]
        stays, stay = factorize(self.node_kind[self.stay_node] * classes + self.stay_class)
        return replace(
            self,
            hold_stay=stay[self.hold_stay],
            stay_class=stays % classes,
            stay_node=stays // classes,
            stay_size=np.bincount(stay, self.stay_size, len(stays)).astype(np.int64),
            node_of=kind_of,
            node_kind=np.arange(kinds),
            node_size=np.bincount(kind_of, minlength=kinds),
        )

    def with_rows(self, row: Ints, cost: Ints) -> CompressedProblem:
        """Return the problem with other rows of costs: those of a class are parts of it, and nodes fit these parts.

        Args:
            row: Row of each partition.
            cost: The costs. Those of a row are equal to those of its class.
        """
        problem = self.problem
        owner = np.full(len(problem.owner), NO_MEMBER)
        # An owner that may not keep its partition is none.
        owner[self.current] = problem.owner[self.current]
        split = replace(
            problem,
            cost_row=row,
            cost=cost,
            owner=owner,
            edge_topic_class=self.edge_topic_class,
            edge_subscription_class=self.edge_subscription_class,
        )
        allowed = np.ones(len(self.edge_topic_class), bool)
        return CompressedProblem.of(split, allowed)


def _nodes(kind_of: Ints, hold_member: Ints, hold_class: Ints, hold_size: Ints) -> tuple[Ints, Ints]:
    """Return the node of each member and the kind of each node; holds are ordered by member and class."""
    members = np.arange(len(kind_of))
    content = np.stack([hold_class, hold_size], axis=1)
    starts = hold_member.searchsorted(members).tolist()
    ends = hold_member.searchsorted(members, "right").tolist()
    nodes: dict[tuple[int, bytes], int] = {}
    node_of = [
        nodes.setdefault((kind, content[start:end].tobytes()), len(nodes))
        for kind, start, end in zip(kind_of.tolist(), starts, ends, strict=True)
    ]
    return np.asarray(node_of, np.int64), np.asarray([kind for kind, _ in nodes], np.int64)
