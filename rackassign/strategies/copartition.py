"""Co-partitioned topics: the partitions of one number go to one member.

A set of topics is merged into one topic, whose partitions are the units that are assigned. It has the name of the first
topic of the set in alphabetical order. The plan for the merged group is expanded again. A unit is local where all of
its partitions are, if there is such a rack, and otherwise where one of them is.

A set is not merged while a member subscribes to a part of it: that member could not take a whole unit. Where topics
have different numbers of partitions, the units behind the end of the shorter ones have the partitions that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from rackassign.model import Group, Member, Partition, Partitions, Plan, TopicPartition, Topology
from rackassign.strategies.indexed_group import IndexedGroup, partitions_by_topic
from rackassign.strategies.options import Options

Sets = Sequence[Sequence[str]]
"""Sets of co-partitioned topics; no topic is in two of them."""


@dataclass(frozen=True, slots=True)
class MergedGroup:
    """A group whose co-partitioned topics are merged.

    Args:
        original: The group as it is.
        group: The merged group.
        topics: Existing topics of each set, by the name of the merged topic.
        split: Sets that are not merged, because a member subscribes to a part of them.
    """

    original: Group
    group: Group
    topics: Mapping[str, tuple[str, ...]]
    split: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, group: Group, sets: Sets) -> MergedGroup:
        """Merge the sets of a group that can be merged."""
        topics: dict[str, tuple[str, ...]] = {}
        split: list[tuple[str, ...]] = []
        for each in sets:
            wanted = frozenset(each)
            if any(0 < len(wanted & member.topics) < len(wanted) for member in group.members):
                split.append(tuple(sorted(wanted)))
                continue
            existing = tuple(topic for topic in sorted(wanted) if group.topology.topics.get(topic))
            if len(existing) > 1:
                topics[existing[0]] = existing
        return cls(group, _merged(group, topics) if topics else group, topics, tuple(split))

    def expand(self, plan: Plan) -> Plan:
        """Return a plan of the merged group as one of the original group."""
        if not self.topics:
            return plan
        target = {member: self._expanded(given) for member, given in plan.target.items()}
        assignment = {member: self._expanded(given) for member, given in plan.assignment.items()}
        indexed = IndexedGroup.of(self.original, plan.locality)
        claimant = indexed.members_by_partition(indexed.claims.claimant.tolist())
        owner = indexed.members_by_partition(indexed.claims.owner.tolist())
        withheld = {tp for topic, ids in self._expanded(plan.withheld).items() for tp in _tps(topic, ids)}
        for member, given in assignment.items():
            # A member can have a whole unit only once all others have given up their parts of it.
            waits = {
                (self._merged_name(topic), partition)
                for topic, ids in given.items()
                for partition in ids
                if claimant.get(TopicPartition(topic, partition), member) != member
            }
            held = {
                tp
                for topic, ids in given.items()
                for tp in _tps(topic, ids)
                if (self._merged_name(topic), tp.partition) in waits and claimant.get(tp) != member
            }
            withheld |= held
            assignment[member] = _without(given, held)
        last = {
            tp: member for member, given in target.items() for topic, ids in given.items() for tp in _tps(topic, ids)
        }
        return replace(
            plan,
            assignment=assignment,
            target=target,
            withheld=partitions_by_topic(withheld),
            moved=sum(last.get(tp) not in {None, member} for tp, member in owner.items()),
            explain_fn=None,
        )

    def _merged_name(self, topic: str) -> str:
        return next((name for name, topics in self.topics.items() if topic in topics), topic)

    def _expanded(self, given: Partitions) -> dict[str, tuple[int, ...]]:
        sizes = {topic: len(rows) for topic, rows in self.original.topology.topics.items()}
        found: dict[str, tuple[int, ...]] = {}
        for name, ids in given.items():
            for topic in self.topics.get(name, (name,)):
                here = tuple(partition for partition in ids if partition < sizes[topic])
                if here:
                    found[topic] = here
        return dict(sorted(found.items()))


def plan_copartitioned(decide: Callable[[Group, Options], Plan], sets: Sets, group: Group, options: Options) -> Plan:
    """Return the plan of a strategy in which co-partitioned topics move together.

    Args:
        decide: The strategy.
        sets: The sets of topics.
        group: The group.
        options: Options of the strategy.
    """
    merged = MergedGroup.of(group, sets)
    return merged.expand(decide(merged.group, options))


def _merged(group: Group, topics: Mapping[str, tuple[str, ...]]) -> Group:
    gone = {topic for existing in topics.values() for topic in existing[1:]}
    known = {topic: rows for topic, rows in group.topology.topics.items() if topic not in gone}
    weights = {topic: row for topic, row in group.weights.items() if topic not in gone}
    racks = group.topology.broker_racks()
    for name, existing in topics.items():
        rows = zip_longest(*(group.topology.topics[topic] for topic in existing))
        known[name] = tuple(_unit([each for each in row if each is not None], racks) for row in rows)
        heavy = [group.weights[topic] for topic in existing if topic in group.weights]
        if heavy:
            weights[name] = tuple(map(sum, zip_longest(*heavy, fillvalue=0.0)))
    units = _unit_owners(group.members, topics)
    members = tuple(
        replace(
            member,
            topics=member.topics - gone,
            owned={
                **{topic: ids for topic, ids in member.owned.items() if topic not in gone and topic not in topics},
                **{name: ids for name in topics if (ids := units.get((member.id, name)))},
            },
        )
        for member in group.members
    )
    return replace(group, topology=Topology(group.topology.brokers, known), members=members, weights=weights)


def _unit(parts: Sequence[Partition], racks: Mapping[int, str]) -> Partition:
    """Return the replicas of a unit: those in racks with a replica of each part, or else all."""
    common = set.intersection(*({racks[each] for each in part.replicas if each in racks} for part in parts))
    replicas = [each for part in parts for each in part.replicas if not common or racks.get(each) in common]
    return Partition(tuple(dict.fromkeys(replicas)), parts[0].leader)


def _unit_owners(
    members: Iterable[Member], topics: Mapping[str, tuple[str, ...]]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the units that each member claims; of several, the one with the latest claim and the most parts does."""
    best: dict[tuple[str, int], tuple[int, int, str]] = {}
    for member in sorted(members, key=lambda member: member.id, reverse=True):
        for name, existing in topics.items():
            parts: dict[int, int] = {}
            for topic in existing:
                for partition in member.owned.get(topic, ()):
                    parts[partition] = parts.get(partition, 0) + 1
            for partition, count in parts.items():
                claim = (-1 if member.generation is None else member.generation, count, member.id)
                if claim[:2] >= best.get((name, partition), (-2, 0, ""))[:2]:
                    best[name, partition] = claim
    found: dict[tuple[str, str], list[int]] = {}
    for (name, partition), (_, _, owner) in sorted(best.items()):
        found.setdefault((owner, name), []).append(partition)
    return {key: tuple(ids) for key, ids in found.items()}


def _tps(topic: str, ids: Iterable[int]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, partition) for partition in ids)


def _without(given: Partitions, held: set[TopicPartition]) -> dict[str, tuple[int, ...]]:
    kept = {topic: tuple(p for p in ids if TopicPartition(topic, p) not in held) for topic, ids in given.items()}
    return {topic: ids for topic, ids in kept.items() if ids}
