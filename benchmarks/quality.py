"""Quality of an assignment, computed by none of the strategies: balance, then locality, then moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rackassign.locality import Locality, RackSets
from rackassign.model import BalanceMode, Group, Partitions


@dataclass(frozen=True, slots=True)
class Quality:
    """What an assignment costs; the first that differs decides, and less is better."""

    imbalance: int
    cross: int
    moves: int

    @classmethod
    def of(cls, group: Group, assignment: Mapping[str, Partitions]) -> Quality:
        """Look at a whole assignment: for cooperative strategies that is the target."""
        racks = RackSets.of(group.topology, "any-replica")
        return cls(
            imbalance=sum(sum(map(len, owned.values())) ** 2 for owned in assignment.values()),
            cross=Locality.count(group, assignment, racks).cross,
            moves=moves(group, assignment),
        )

    def better_than(self, other: Quality) -> bool:
        """Whether this one is to be preferred."""
        mine = (self.imbalance, self.cross, self.moves)
        return mine < (other.imbalance, other.cross, other.moves)


def unevenness(group: Group, assignment: Mapping[str, Partitions], balance: BalanceMode) -> tuple[int, int]:
    """Return the sums of the squared counts of each topic (0 if only totals are balanced), and of the squared totals.

    Partitions of one number in a set of co-partitioned topics count once, and the set is one topic.
    """
    set_of = {topic: together for together in group.copartition for topic in together}
    of_topics = totals = 0
    for owned in assignment.values():
        units: dict[object, set[int]] = {}
        for topic, ids in owned.items():
            units.setdefault(set_of.get(topic, topic), set()).update(ids)
        counts = [len(ids) for ids in units.values()]
        of_topics += sum(count * count for count in counts)
        totals += sum(counts) ** 2
    return of_topics if balance == "topic" else 0, totals


def moves(group: Group, assignment: Mapping[str, Partitions]) -> int:
    """Count what leaves its owner; for groups in which no two members claim the same partition."""
    return sum(
        len(set(ids).difference(assignment[member.id].get(topic, ())))
        for member in group.members
        for topic, ids in member.owned.items()
    )


def count(assignment: Mapping[str, Partitions]) -> int:
    """Count the partitions that are handed out."""
    return sum(len(ids) for owned in assignment.values() for ids in owned.values())


def readable(group: Group) -> int:
    """Count the partitions that somebody subscribes to."""
    read = frozenset[str]().union(*{member.topics for member in group.members})
    return sum(len(partitions) for topic, partitions in group.topology.topics.items() if topic in read)
