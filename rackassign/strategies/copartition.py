"""Co-partitioned topics: the partitions of one number go to one member.

A set of topics is merged into one topic, whose partitions are the *units* that are assigned. It has the name of the
first topic of the set in alphabetical order. The plan for the merged group is expanded again. The objectives are those
of units: balance counts them, the cost of a unit is the sum of what its partitions cost, and a unit moves if its owner
loses it.

A set is not merged while a member subscribes to a part of it: that member could not take a whole unit. Where topics
have different numbers of partitions, the units behind the end of the shorter ones have the partitions that exist.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from rackassign.model import Group, Partition, Partitions, Plan, TopicPartition, Topology
from rackassign.strategies.indexed_group import IndexedGroup, partitions_by_topic
from rackassign.text import counted, join_first

_NAMED = 3


@dataclass(frozen=True, slots=True)
class MergedGroup:
    """A group whose co-partitioned topics are merged."""

    original: Group
    group: Group
    # By the name of the merged topic: existing topics of each set, and partitions of each unit.
    topics: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, tuple[tuple[Partition, ...], ...]]

    @classmethod
    def of(cls, group: Group) -> MergedGroup:
        topics: dict[str, tuple[str, ...]] = {}
        for each, part in zip(group.copartition, _subscribers_of_parts(group), strict=True):
            if part:
                continue
            existing = tuple(topic for topic in sorted(set(each)) if group.topology.topics.get(topic))
            if len(existing) > 1:
                topics[existing[0]] = existing
        if not topics:
            return cls(group, replace(group, copartition=()) if group.copartition else group, {}, {})
        parts = {
            name: tuple(
                tuple(each for each in row if each is not None)
                for row in zip_longest(*(group.topology.topics[topic] for topic in existing))
            )
            for name, existing in topics.items()
        }
        return cls(group, _merged(group, topics, parts), topics, parts)

    def expand(self, plan: Plan) -> Plan:
        if not self.topics:
            return plan
        sizes = {topic: len(rows) for topic, rows in self.original.topology.topics.items()}
        target = {member: self._expanded(merged, sizes) for member, merged in plan.target.items()}
        indexed = IndexedGroup.of(self.original, plan.locality)
        withheld: set[TopicPartition] = set()
        # Members of the eager protocol have revoked everything.
        if plan.strategy == "cooperative-sticky":
            claimant = indexed.members_by_partition(indexed.claims.claimant.tolist())
            withheld = set(self._withheld(target, claimant))
        last = {tp: member for member, merged in target.items() for tp in _tps(merged)}
        owner = indexed.members_by_partition(indexed.claims.owner.tolist())
        return replace(
            plan,
            assignment={member: _without(merged, withheld) for member, merged in target.items()},
            target=target,
            withheld=partitions_by_topic(withheld),
            moved=sum(last.get(tp) not in {None, member} for tp, member in owner.items()),
        )

    def _withheld(
        self, target: Mapping[str, Partitions], claimant: Mapping[TopicPartition, str]
    ) -> Iterator[TopicPartition]:
        """Yield the partitions that their next owner gets later, and parts of their units that it does not have yet."""
        merged_name = {topic: name for name, topics in self.topics.items() for topic in topics}
        for member, given in target.items():
            units: dict[tuple[str, int], list[TopicPartition]] = {}
            for tp in _tps(given):
                units.setdefault((merged_name.get(tp.topic, tp.topic), tp.partition), []).append(tp)
            for parts in units.values():
                if any(claimant.get(tp, member) != member for tp in parts):
                    yield from (tp for tp in parts if claimant.get(tp) != member)

    def _expanded(self, given: Partitions, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for name, ids in given.items():
            for topic in self.topics.get(name, (name,)):
                here = tuple(partition for partition in ids if partition < sizes[topic])
                if here:
                    found[topic] = here
        return dict(sorted(found.items()))


def exceptions(group: Group) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each set that is not kept together, or not as a whole, with the reason for users."""
    subscribed = frozenset[str]().union(*(member.topics for member in group.members))
    for topics, part in zip(group.copartition, _subscribers_of_parts(group), strict=True):
        sizes = {topic: len(group.topology.topics.get(topic, ())) for topic in topics}
        # First, since a name that is misspelled makes all members subscribers of a part.
        missing = [topic for topic in topics if topic not in subscribed]
        if missing and group.members:
            who = f"no member subscribes to {', '.join(missing)}"
            yield topics, f"{', '.join(topics)} are not kept together, because {who}"
        elif part:
            who = f"{counted(len(part), 'member')} {'subscribes' if len(part) == 1 else 'subscribe'} to a part of them"
            yield topics, f"{', '.join(topics)} are not kept together, because {who}: {join_first(part, _NAMED)}"
        elif len(set(sizes.values())) > 1:
            counts = ", ".join(f"{topic} {size}" for topic, size in sizes.items())
            rule = "partitions of one number are kept together where they exist"
            yield topics, f"co-partitioned topics have different numbers of partitions: {counts}; {rule}"


def _subscribers_of_parts(group: Group) -> list[list[str]]:
    """Return for each set the members that subscribe to some of its topics and not to all, in order."""
    if not group.copartition:
        return []
    sets_of: dict[str, list[int]] = {}
    for number, topics in enumerate(group.copartition):
        for topic in set(topics):
            sets_of.setdefault(topic, []).append(number)
    sizes = [len(set(topics)) for topics in group.copartition]
    parts: dict[frozenset[str], list[int]] = {}
    subscribers: list[list[str]] = [[] for _ in sizes]
    # With thousands of members and hundreds of sets, only what a member subscribes to is looked at.
    for member in sorted(group.members, key=lambda member: member.id):
        if member.topics not in parts:
            count = Counter(number for topic in member.topics for number in sets_of.get(topic, ()))
            parts[member.topics] = [number for number, topics in count.items() if topics < sizes[number]]
        for number in parts[member.topics]:
            subscribers[number].append(member.id)
    return subscribers


def _merged(
    group: Group, topics: Mapping[str, tuple[str, ...]], parts: Mapping[str, tuple[tuple[Partition, ...], ...]]
) -> Group:
    gone = {topic for existing in topics.values() for topic in existing[1:]}
    known = {topic: rows for topic, rows in group.topology.topics.items() if topic not in gone}
    weights = {topic: row for topic, row in group.weights.items() if topic not in gone}
    for name, existing in topics.items():
        # Costs are those of the parts; these replicas are what an explanation sees.
        known[name] = tuple(
            Partition(tuple(dict.fromkeys(broker for part in unit for broker in part.replicas)), unit[0].leader)
            for unit in parts[name]
        )
        if group.weights:
            # A sum that is too large for a number is as large as any other.
            weights[name] = tuple(
                min(sum(_weight(group, topic, partition) for topic in existing), sys.float_info.max)
                for partition in range(len(parts[name]))
            )
    units = _unit_owners(group, topics)
    # One set for all members with equal subscriptions, as in the original group.
    subscriptions = {each: each - gone for each in {member.topics for member in group.members}}
    members = tuple(
        replace(
            member,
            topics=subscriptions[member.topics],
            owned={
                **{topic: ids for topic, ids in member.owned.items() if topic not in gone and topic not in topics},
                **units.get(member.id, {}),
            },
        )
        for member in group.members
    )
    topology = Topology(group.topology.brokers, known)
    return replace(group, topology=topology, members=members, weights=weights, copartition=())


def _weight(group: Group, topic: str, partition: int) -> float:
    """Return the weight of a partition: 0 if it does not exist, and 1 if it has none."""
    if partition >= len(group.topology.topics[topic]):
        return 0.0
    row = group.weights.get(topic, ())
    return row[partition] if partition < len(row) else 1.0


def _unit_owners(group: Group, topics: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the units that each member claims; of several, the one with the latest claim and the most parts does."""
    merged_name = {topic: name for name, existing in topics.items() for topic in existing}
    best: dict[tuple[str, int], tuple[int, int, str]] = {}
    for member in sorted(group.members, key=lambda member: member.id, reverse=True):
        parts: dict[tuple[str, int], int] = {}
        for topic, ids in member.owned.items():
            if (name := merged_name.get(topic)) is not None:
                size = len(group.topology.topics[topic])
                # A claim on a partition that does not exist is none on those of other topics with this number.
                for partition in filter(size.__gt__, ids):
                    parts[name, partition] = parts.get((name, partition), 0) + 1
        for unit, count in parts.items():
            claim = (-1 if member.generation is None else member.generation, count, member.id)
            if claim[:2] >= best.get(unit, (-2, 0, ""))[:2]:
                best[unit] = claim
    found: dict[str, dict[str, list[int]]] = {}
    for (name, partition), (_, _, owner) in sorted(best.items()):
        found.setdefault(owner, {}).setdefault(name, []).append(partition)
    return {owner: {name: tuple(ids) for name, ids in given.items()} for owner, given in found.items()}


def _tps(given: Partitions) -> Iterator[TopicPartition]:
    return (TopicPartition(topic, partition) for topic, ids in given.items() for partition in ids)


def _without(given: Partitions, withheld: set[TopicPartition]) -> dict[str, tuple[int, ...]]:
    kept = {topic: tuple(p for p in ids if TopicPartition(topic, p) not in withheld) for topic, ids in given.items()}
    return {topic: ids for topic, ids in kept.items() if ids}
