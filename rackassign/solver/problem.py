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
        owned = (self.owner != NO_MEMBER).nonzero()[0]
        subscription_classes = len(self.sizes())
        pairs = self.edge_topic_class * subscription_classes + self.edge_subscription_class
        return owned, pairs.searchsorted(
            self.topic_class[owned] * subscription_classes + self.subscription_class[self.owner[owned]]
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
    class and one rack. An *owned set* is the partitions of one class that one member owns. A *member class* is all
    members of one kind that own the same number of each class (often none of any); a *keep arc* is all owned sets of
    one class in one member class.
    """

    problem: Problem
    # The allowed class pairs.
    edge_topic_class: Ints
    edge_subscription_class: Ints
    # Class of each partition, and of each class its topic class, row of costs and number of partitions.
    class_of: Ints
    class_topic_class: Ints
    class_near: Ints
    class_supply: Ints
    # Partitions that their owners could keep, ascending, and the owned set of each.
    current: Ints
    owned_of: Ints
    owned_member: Ints
    owned_keep_arc: Ints
    keep_arc_class: Ints
    keep_arc_member_class: Ints
    keep_arc_size: Ints
    kind_subscription_class: Ints
    kind_rack: Ints
    # Member class of each member, and of each member class its kind and number of members.
    member_class_of: Ints
    member_class_kind: Ints
    member_class_size: Ints

    @classmethod
    def of(cls, problem: Problem, allowed: Bools) -> CompressedProblem:
        """Compress a problem; `allowed` states for each class pair whether partitions may be assigned to it."""
        rows, racks = problem.cost.shape
        classes, class_of = factorize(problem.topic_class * rows + problem.cost_row)
        kinds, kind_of = factorize(problem.subscription_class * racks + problem.rack)
        owned, pair = problem.current()
        owned = owned[allowed[pair]]
        owned_sets, owned_of = factorize(problem.owner[owned] * len(classes) + class_of[owned])
        owned_member, owned_class = owned_sets // len(classes), owned_sets % len(classes)
        owned_size = np.bincount(owned_of, minlength=len(owned_sets))
        member_class_of, member_class_kind = _member_classes(kind_of, owned_member, owned_class, owned_size)
        keep_arcs, owned_keep_arc = factorize(member_class_of[owned_member] * len(classes) + owned_class)
        return cls(
            problem=problem,
            edge_topic_class=problem.edge_topic_class[allowed],
            edge_subscription_class=problem.edge_subscription_class[allowed],
            class_of=class_of,
            class_topic_class=classes // rows,
            class_near=classes % rows,
            class_supply=np.bincount(class_of, minlength=len(classes)),
            current=owned,
            owned_of=owned_of,
            owned_member=owned_member,
            owned_keep_arc=owned_keep_arc,
            keep_arc_class=keep_arcs % len(classes),
            keep_arc_member_class=keep_arcs // len(classes),
            keep_arc_size=np.bincount(owned_keep_arc, owned_size, len(keep_arcs)).astype(np.int64),
            kind_subscription_class=kinds // racks,
            kind_rack=kinds % racks,
            member_class_of=member_class_of,
            member_class_kind=member_class_kind,
            member_class_size=np.bincount(member_class_of, minlength=len(member_class_kind)),
        )

    def ignoring_ownership(self) -> CompressedProblem:
        """Return the problem without ownership: classes and kinds are unchanged, member classes are kinds."""
        kinds, kind_of = len(self.kind_subscription_class), self.member_class_kind[self.member_class_of]
        none = self.current[:0]
        return replace(
            self,
            current=none,
            owned_of=none,
            owned_member=none,
            owned_keep_arc=none,
            keep_arc_class=none,
            keep_arc_member_class=none,
            keep_arc_size=none,
            member_class_of=kind_of,
            member_class_kind=np.arange(kinds),
            member_class_size=np.bincount(kind_of, minlength=kinds),
        )

    def with_owners_as_kinds(self) -> CompressedProblem:
        """Return the problem in which only the kind of each owner is known: member classes are kinds."""
        classes, kinds = len(self.class_supply), len(self.kind_subscription_class)
        kind_of = self.member_class_kind[self.member_class_of]
        keep_arcs, keep_arc = factorize(
            self.member_class_kind[self.keep_arc_member_class] * classes + self.keep_arc_class
        )
        return replace(
            self,
            owned_keep_arc=keep_arc[self.owned_keep_arc],
            keep_arc_class=keep_arcs % classes,
            keep_arc_member_class=keep_arcs // classes,
            keep_arc_size=np.bincount(keep_arc, self.keep_arc_size, len(keep_arcs)).astype(np.int64),
            member_class_of=kind_of,
            member_class_kind=np.arange(kinds),
            member_class_size=np.bincount(kind_of, minlength=kinds),
        )

    def with_rows(self, row: Ints, cost: Ints) -> CompressedProblem:
        """Return the problem with other rows of costs, which are parts of classes; member classes fit these parts."""
        # Costs of a row are equal to those of its class.
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


def _member_classes(kind_of: Ints, owned_member: Ints, owned_class: Ints, owned_size: Ints) -> tuple[Ints, Ints]:
    """Return the member class of each member and the kind of each; owned sets are ordered by member and class."""
    members = np.arange(len(kind_of))
    content = np.stack([owned_class, owned_size], axis=1)
    starts = owned_member.searchsorted(members).tolist()
    ends = owned_member.searchsorted(members, "right").tolist()
    member_classes: dict[tuple[int, bytes], int] = {}
    member_class_of = [
        member_classes.setdefault((kind, content[start:end].tobytes()), len(member_classes))
        for kind, start, end in zip(kind_of.tolist(), starts, ends, strict=True)
    ]
    return np.asarray(member_class_of, np.int64), np.asarray([kind for kind, _ in member_classes], np.int64)
