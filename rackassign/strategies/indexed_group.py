"""Conversion between names and numbers: from a group to arrays, and from a member per partition to an assignment.

Members are ordered by ID, topics by name, partitions by topic and ID. So the solver's choice among equal options is
the same for the same group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rackassign.locality import RackSets, cost_table, cross_rack_cost
from rackassign.model import Group, LocalityMode, Member, Partition, Partitions, TopicPartition
from rackassign.solver import NO_MEMBER, Problem, TieCosts
from rackassign.solver.network_flow import Bools, Floats, Ints, bits_of, changes, split_at, stable_order
from rackassign.strategies.ownership import OwnershipClaims, flatten_partitions, resolve_ownership


@dataclass(frozen=True)
class IndexedGroup:
    """A group with numbered members, topics and partitions."""

    group: Group
    # Members by ID, and topics by name, without those that have no partitions or no reader.
    members: tuple[Member, ...]
    topics: tuple[str, ...]
    mode: LocalityMode
    # Of some topics the partitions that each of their partitions stands for: it costs what these cost.
    parts: Mapping[str, Sequence[Sequence[Partition]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, group: Group, mode: LocalityMode, parts: Mapping[str, Sequence[Sequence[Partition]]] | None = None
    ) -> IndexedGroup:
        members = tuple(sorted(group.members, key=lambda member: member.id))
        subscriptions = {member.topics for member in members}
        known = group.topology.topics
        topics = sorted(topic for topic in frozenset().union(*subscriptions) if known.get(topic))
        return cls(group, members, tuple(topics), mode, parts or {})

    @cached_property
    def sizes(self) -> Ints:
        """Number of partitions of each topic."""
        return np.asarray([len(self.group.topology.topics[topic]) for topic in self.topics], np.int64)

    @cached_property
    def partition_offsets(self) -> Ints:
        """Number of the first partition of each topic."""
        return self.sizes.cumsum() - self.sizes

    @cached_property
    def topic_of(self) -> Ints:
        return np.arange(len(self.topics)).repeat(self.sizes)

    @cached_property
    def _subscription_classes(self) -> tuple[Ints, list[list[int]]]:
        """Return the subscription class of each member, and the topics of each class."""
        topic_index = {topic: i for i, topic in enumerate(self.topics)}
        of_subscription: dict[frozenset[str], int] = {}
        numbers: dict[tuple[int, ...], int] = {}
        for member in self.members:
            if member.topics not in of_subscription:
                # Subscriptions that differ only in topics without metadata are one class.
                read = tuple(sorted([topic_index[topic] for topic in member.topics if topic in topic_index]))
                of_subscription[member.topics] = numbers.setdefault(read, len(numbers))
        subscription_class = np.asarray([of_subscription[member.topics] for member in self.members], np.int64)
        return subscription_class, [list(read) for read in numbers]

    def members_by_partition(self, numbers: Sequence[int]) -> dict[TopicPartition, str]:
        """Return the member of each partition that has one; an empty ID for other numbers below 0 than `NO_MEMBER`."""
        sizes = zip(self.topics, self.sizes.tolist(), strict=True)
        tps = (TopicPartition(topic, partition) for topic, size in sizes for partition in range(size))
        return {
            tp: self.members[number].id if number >= 0 else ""
            for tp, number in zip(tps, numbers, strict=True)
            if number != NO_MEMBER
        }

    @cached_property
    def claims(self) -> OwnershipClaims:
        subscription_class, read = self._subscription_classes
        reads = np.zeros((len(read), len(self.topics)), bool)
        for i, topics in enumerate(read):
            reads[i, topics] = True
        return resolve_ownership(self.members, self.topics, self.sizes, reads, subscription_class)

    def to_problem(self, *, per_topic: bool = False) -> Problem:
        """Return the problem for the solver; with `per_topic` each topic is a topic class of its own."""
        subscription_class, read = self._subscription_classes
        # Groups with a subscription for each member have a million of these pairs.
        lengths = list(map(len, read))
        topic = np.fromiter(chain.from_iterable(read), np.int64, sum(lengths))
        reader = np.arange(len(read)).repeat(lengths)[topic.argsort(kind="stable")]
        ends = np.bincount(topic, minlength=len(self.topics)).cumsum()
        # Without topics there is one part, which is empty.
        readers = split_at(reader, ends[:-1].tolist())[: len(self.topics)]
        if per_topic:
            classes = readers
            class_of_topic = list(range(len(self.topics)))
        else:
            numbers: dict[bytes, int] = {}
            class_of_topic = [numbers.setdefault(each.tobytes(), len(numbers)) for each in readers]
            classes = [np.frombuffer(each, np.int64) for each in numbers]
        # Racks that neither a broker nor a cost names are all alike, and there may be one for each member: its host.
        named = {*self.group.topology.broker_racks().values(), *self.group.costs, None}
        elsewhere = max(rack or "" for rack in named) + "?"
        racks = [member.rack if member.rack in named else elsewhere for member in self.members]
        homes = sorted(set(racks), key=lambda rack: (rack is not None, rack or ""))
        column = {home: i for i, home in enumerate(homes)}
        tables = _CostTables(self._units(), homes, self.group)
        near, cost = tables.of(self.mode)
        # Where only leaders count, they are decided on already.
        tie_row, tie_cost = (near, cost) if self.mode == "leader" else tables.of("leader")
        # Racks with equal costs are one for the solver.
        kept, place = _equal_columns(np.concatenate([cost, tie_cost]))
        return Problem(
            topic_class=np.asarray(class_of_topic, np.int64)[self.topic_of],
            cost_row=near,
            owner=self.claims.owner,
            subscription_class=subscription_class,
            rack=place[np.asarray([column[rack] for rack in racks], np.int64)],
            edge_topic_class=np.arange(len(classes)).repeat(list(map(len, classes))),
            edge_subscription_class=np.concatenate([np.empty(0, np.int64), *classes]),
            cost=cost[:, kept].astype(np.int64),
            ties=None if self.mode == "leader" else TieCosts(tie_row, tie_cost[:, kept].astype(np.int64)),
            topic=self.topic_of,
        )

    def _units(self) -> list[Partition | Sequence[Partition]]:
        """Return for each partition what costs are computed of: itself, or those that it stands for."""
        known = self.group.topology.topics
        return list(chain.from_iterable(self.parts.get(topic, known[topic]) for topic in self.topics))

    def weights(self) -> Floats:
        """Return the weight of each partition; 1 if it has none."""
        weight = np.ones(int(self.sizes.sum()))
        for topic, base, size in zip(self.topics, self.partition_offsets.tolist(), self.sizes.tolist(), strict=True):
            given = self.group.weights.get(topic, ())[:size]
            weight[base : base + len(given)] = given
        return weight

    def decode_assignment(self, reader: Ints) -> dict[str, Partitions]:
        """Return the partitions of each member by name, in order; partitions of `NO_MEMBER` are omitted."""
        target: dict[str, dict[str, tuple[int, ...]]] = {member.id: {} for member in self.members}
        assigned = (reader != NO_MEMBER).nonzero()[0]
        assigned = assigned[stable_order(reader[assigned])]
        whose, topic = reader[assigned], self.topic_of[assigned]
        ids = (assigned - self.partition_offsets[topic]).tolist()
        starts = changes(whose * len(self.topics) + topic).nonzero()[0]
        entries = list(target.values())
        for (start, end), member, topic_index in zip(
            pairwise([*starts.tolist(), len(ids)]), whose[starts].tolist(), topic[starts].tolist(), strict=True
        ):
            entries[member][self.topics[topic_index]] = tuple(ids[start:end])
        return {**target}

    def encode_assignment(self, target: Mapping[str, Partitions]) -> Ints:
        """Return the member of each partition as numbers, the inverse of `decode_assignment`."""
        topic_index = {topic: i for i, topic in enumerate(self.topics)}
        rows = [
            (i, topic_index[topic], ids)
            for i, member in enumerate(self.members)
            for topic, ids in target[member.id].items()
        ]
        member, topic, partition = flatten_partitions(rows)
        reader = np.full(int(self.sizes.sum()), NO_MEMBER)
        reader[self.partition_offsets[topic] + partition] = member
        return reader

    def split_withheld(
        self, target: Mapping[str, Partitions], reader: Ints, chosen: Bools
    ) -> tuple[dict[str, Partitions], Partitions]:
        """Return a target without some of its partitions, and these partitions."""
        now: dict[str, dict[str, tuple[int, ...]]] = {member: {**owned} for member, owned in target.items()}
        names = [member.id for member in self.members]
        taken: dict[tuple[str, str], set[int]] = {}
        back: dict[str, list[int]] = {}
        which = chosen.nonzero()[0]
        for member, topic, partition in zip(
            reader[which].tolist(),
            self.topic_of[which].tolist(),
            (which - self.partition_offsets[self.topic_of[which]]).tolist(),
            strict=True,
        ):
            taken.setdefault((names[member], self.topics[topic]), set()).add(partition)
            back.setdefault(self.topics[topic], []).append(partition)
        for (name, topic_name), gone in taken.items():
            left = tuple(partition for partition in now[name][topic_name] if partition not in gone)
            if left:
                now[name][topic_name] = left
            else:
                del now[name][topic_name]
        return {**now}, {topic: tuple(ids) for topic, ids in back.items()}


_Costs: TypeAlias = NDArray[np.unsignedinteger[Any]]


class _CostTables:
    """Costs of reading partitions from the racks of members.

    Racks are looked up once for each leader, or for each object where all replicas count: equal ones are usually one.
    """

    def __init__(
        self, units: Sequence[Partition | Sequence[Partition]], homes: Sequence[str | None], group: Group
    ) -> None:
        self._units = units
        self._racks = RackSets.of(group.topology, "leader")
        table = cost_table(group.costs)
        # The cost of reading from each rack (row) in each of the homes (column); in the last row from an unknown one.
        prices = [[cross_rack_cost(table, home, racks) for home in homes] for racks in [*zip(self._racks.bits), ()]]
        most = max((len(unit) for unit in units if not isinstance(unit, Partition)), default=1)
        # A row for each partition and a column for each member may be all different: their type is the smallest one.
        self._prices = np.asarray(prices, np.min_scalar_type(most * max(map(max, prices), default=0) if homes else 0))

    def of(self, mode: LocalityMode) -> tuple[Ints, _Costs]:
        """Return for each unit its row of costs, and the rows: the cost of reading from each of the homes."""
        racks = self._racks._replace(mode=mode)
        sets: dict[int, int] = {}
        different: dict[tuple[int, ...], int] = {}
        number_of: dict[object, int] = {}
        keys = self._keys(mode)
        for key, unit in dict(zip(keys, self._units, strict=True)).items():
            parts = map(racks.partition_racks, (unit,) if isinstance(unit, Partition) else unit)
            numbers = tuple([sets.setdefault(each, len(sets)) for each in parts])
            number_of[key] = different.setdefault(numbers, len(different))
        cheapest = _combined(np.minimum, self._prices, [[*bits_of(each)] or [-1] for each in sets])
        costs = _combined(np.add, cheapest, list(different))
        # In an order of their own, independent of the order of topics.
        # As bytes that are ordered like the numbers.
        big_endian = costs.dtype.newbyteorder(">")
        rows = [row.tobytes() for row in costs.astype(big_endian)]
        one_of = {row: i for i, row in enumerate(rows)}
        ordered = sorted(one_of)
        number = {row: i for i, row in enumerate(ordered)}
        place = np.asarray([number[row] for row in rows], np.int64)
        row_of = np.fromiter(map(number_of.__getitem__, keys), np.int64, len(keys))
        return place[row_of], costs[[one_of[row] for row in ordered]]

    def _keys(self, mode: LocalityMode) -> list[object]:
        """Return for each unit a key that only units with equal costs share."""
        if mode != "leader":
            # By identity: hashing a partition takes longer than computing its racks.
            return list(map(id, self._units))
        return [
            unit.leader if isinstance(unit, Partition) else tuple([each.leader for each in unit])
            for unit in self._units
        ]


def _combined(combine: np.ufunc, table: _Costs, rows: Sequence[Sequence[int]]) -> _Costs:
    """Combine these rows of a table, one or more for each result."""
    found = table[[each[0] for each in rows]]
    for i in range(1, max(map(len, rows), default=0)):
        longer = [place for place, each in enumerate(rows) if len(each) > i]
        found[longer] = combine(found[longer], table[[rows[place][i] for place in longer]])
    return found


def _equal_columns(table: _Costs) -> tuple[Ints, Ints]:
    """Return the first of each set of equal columns, in order, and for each column its index among them."""
    if not table.size:
        return np.arange(table.shape[1]), np.arange(table.shape[1])
    numbers: dict[bytes, int] = {}
    place = np.asarray([numbers.setdefault(each.tobytes(), len(numbers)) for each in table.T.copy()], np.int64)
    return np.unique(place, return_index=True)[1].astype(np.int64), place


def partitions_by_topic(tps: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Return partitions by topic, both in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(tps):
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(ids) for topic, ids in found.items()}
