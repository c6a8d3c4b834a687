"""An assignment of weighted partitions that changes, one partition after the other.

Rules: this module has neither limits nor a search. Those are in `rackassign.solver.weighted_relief` (moving the least
weight) and `rackassign.solver.weighted_repack` (several members at once).
"""

from __future__ import annotations

from rackassign.solver.types import Bools, Floats, Ints
from rackassign.solver.weighted_instance import ROUNDING, WeightedInstance

ARCS_OF_A_LOOK = 700
"""How many arcs of a flow can be looked at in the time that it takes to find the best other member of a partition."""

ARCS_OF_A_PAIR = 15
"""How many, in the time that it takes to compare two partitions, or to copy one."""


class Loads:
    """Partitions and load of each member.

    Args:
        ground: Members and partitions.
        reader: Member of each partition.
        owner: Owner of each partition.
        base: Limit of each member, before it is multiplied by a factor.
    """

    def __init__(self, ground: WeightedInstance, reader: Ints, owner: Ints, base: Floats) -> None:
        problem = ground.problem
        self.ground, self.base = ground, base
        self.weight: list[float] = ground.weight.tolist()
        self.topic_class: list[int] = problem.topic_class.tolist()
        self.reader: list[int] = reader.tolist()
        self.owner: list[int] = owner.tolist()
        # Dicts, as partitions are removed by the thousand, and in order.
        self.has: list[dict[int, None]] = [{} for _ in ground.level]
        for partition, member in enumerate(self.reader):
            self.has[member][partition] = None
        ground.work.spend_part(ARCS_OF_A_PAIR * len(self.reader))
        self.load = ground.loads(reader)

    def held(self, member: int, movable: Bools | None = None) -> list[int]:
        """Return the member's partitions with a weight; with `movable` only those of them."""
        return [p for p in self.has[member] if self.weight[p] and (movable is None or movable[p])]

    def price(self, partition: int) -> float:
        """Return the weight that moves if this partition is given away."""
        return self.weight[partition] if self.owner[partition] == self.reader[partition] else 0.0

    def move(self, partition: int, member: int) -> None:
        """Give a partition to another member."""
        giver, weight = self.reader[partition], self.weight[partition]
        del self.has[giver][partition]
        self.has[member][partition] = None
        self.load[giver] -= weight
        self.load[member] += weight
        self.reader[partition] = member

    def excess(self, factor: float) -> Floats:
        """Return by how much each load is above its limit, negative if it is below."""
        return self.load - self.base * (factor * (1 + ROUNDING))

    def room(self, partition: int, members: Ints, factor: float) -> Floats:
        """Return how much capacity these members have left with this partition."""
        found: Floats = self.base[members] * (factor * (1 + ROUNDING)) - self.load[members] - self.weight[partition]
        return found

    def costs(self, partition: int, members: Ints) -> Ints:
        """Return the cost of the partition at these members."""
        problem = self.ground.problem
        found: Ints = problem.cost[problem.cost_row[partition], problem.rack[members]]
        return found

    def ended(self, movable: Bools | None) -> bool:
        """Return whether nothing more is to be tried.

        With `movable`, which are partitions that have to be distributed in any case, only the deadline ends it.
        """
        work = self.ground.work
        return bool(work.end()) if movable is None else work.late()

    def others(self, partition: int) -> Ints:
        """Return the members that may read this partition instead."""
        readers = self.ground.readers[self.topic_class[partition]]
        self.ground.work.spend_part(ARCS_OF_A_LOOK + len(readers))
        found: Ints = readers[readers != self.reader[partition]]
        return found
