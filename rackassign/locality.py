"""Locality: which racks count for a partition, what a read costs, and how many partitions of a plan are local.

Rules of this module:

* Racks are compared as strings and nothing else is known of them.
* Unknown is never an error and never counts as cross-rack: a member without rack, or a partition none of
  whose counting replicas has a known rack, is *unknown*, neither local nor cross.
* In mode `any-replica` every replica counts, in or out of the ISR, online or not, so that a passing failure
  moves nothing (KIP-881). In mode `leader` only the leader does: that is where reads go when the brokers have
  no rack-aware replica selector.

Racks become bits of an int here, because a set of racks is asked for once per partition and member: with ints,
"does this partition have a replica near this member" is one `&`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackassign.errors import ConfigError
from rackassign.model import LOCALITY_MODES, Group, LocalityMode, Partition, Partitions, Plan, Topology


def validate_locality_mode(mode: str) -> LocalityMode:
    """Return the mode, typed; `ConfigError` names the two there are."""
    for known in LOCALITY_MODES:
        if mode == known:
            return known
    raise ConfigError(f"locality must be one of {', '.join(LOCALITY_MODES)}, got {mode!r}")


@dataclass(frozen=True, slots=True)
class RackSets:
    """A set of racks as an int: each rack of the brokers is one bit.

    Args:
        bits: The bit of each broker rack.
        of_broker: The bit of each broker that has a rack.
        mode: Which replicas count.
    """

    bits: Mapping[str, int]
    of_broker: Mapping[int, int]
    mode: LocalityMode

    @classmethod
    def of(cls, topology: Topology, mode: LocalityMode) -> RackSets:
        """Give a bit to each rack of the topology, in order of their names."""
        racks = topology.broker_racks()
        bits = {rack: 1 << i for i, rack in enumerate(sorted(set(racks.values())))}
        return cls(bits, {broker: bits[rack] for broker, rack in racks.items()}, mode)

    def names(self, bits: int) -> list[str]:
        """Return the racks of a set, in order."""
        return [rack for rack, bit in self.bits.items() if bit & bits]

    def partition_racks(self, partition: Partition) -> int:
        """Return the racks that hold a counting replica."""
        if self.mode == "leader":
            return 0 if partition.leader is None else self.of_broker.get(partition.leader, 0)
        racks = 0
        for replica in partition.replicas:
            racks |= self.of_broker.get(replica, 0)
        return racks

    def topic_racks(self, partitions: tuple[Partition, ...]) -> list[int]:
        """Return the racks of each partition of a topic, computed once per `Partition` object."""
        # By identity: to hash a partition costs more than to work out its racks.
        objects = {id(partition): partition for partition in partitions}
        known = {key: self.partition_racks(partition) for key, partition in objects.items()}
        return [known[id(partition)] for partition in partitions]

    def all_partition_racks(self, topology: Topology) -> dict[str, list[int]]:
        """Return the racks of each partition, by topic."""
        return {topic: self.topic_racks(partitions) for topic, partitions in topology.topics.items()}


COST_UNIT = 1e-6
"""Costs are counted in this, so that sums of them are exact."""

_LARGEST_COST = 10**12
"""In units. Where costs are larger, above a million, they are counted in a coarser unit: sums of half a million must
stay exact."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs between racks, in whole units.

    Args:
        units: By the reader's rack and the replica's.
        missing: Of a pair that is not in `units`.
        unit: How much one is.
    """

    units: Mapping[tuple[str, str], int]
    missing: int
    unit: float


def cost_table(costs: Mapping[str, Mapping[str, float]]) -> CostTable:
    """Scale costs to whole units. Reading within a rack is free, even if a cost is given for it."""
    given = {(a, b): cost for a, row in costs.items() for b, cost in row.items() if a != b}
    if not given:
        return CostTable({}, 1, 1.0)
    unit = max(COST_UNIT, max(1.0, *given.values()) / _LARGEST_COST)
    units = {pair: round(cost / unit) for pair, cost in given.items()}
    common = math.gcd(round(1.0 / unit), *units.values()) or 1
    return CostTable(
        {pair: cost // common for pair, cost in units.items()}, max(1, round(1.0 / unit) // common), unit * common
    )


def cross_rack_cost(table: CostTable, home: str | None, racks: Sequence[str]) -> int:
    """Return what a reader pays for a partition with counting replicas in these racks."""
    if home is None or not racks or home in racks:
        return 0
    return min(table.units.get((home, rack), table.missing) for rack in racks)


@dataclass(frozen=True, slots=True)
class Locality:
    """How many partitions are local, cross-rack and unknown.

    Args:
        local: A counting replica shares the member's rack.
        cross: The member's rack is known and so is a replica's, and none is the same.
        unknown: The member has no rack, or no counting replica has a known one.
    """

    local: int
    cross: int
    unknown: int

    @classmethod
    def of(cls, group: Group, plan: Plan) -> Locality:
        """Count over the target of a plan."""
        racks = RackSets.of(group.topology, plan.locality)
        return cls.count(group, plan.target, racks)

    @classmethod
    def count(cls, group: Group, assignment: Mapping[str, Partitions], racks: RackSets) -> Locality:
        """Count over any assignment of the group's partitions to its members."""
        of_topic = racks.all_partition_racks(group.topology)
        local = cross = unknown = 0
        for member in group.members:
            # A rack that no broker has is a known rack all the same: everything it reads is cross.
            home = None if member.rack is None else racks.bits.get(member.rack, 0)
            for topic, partitions in assignment[member.id].items():
                if home is None:
                    unknown += len(partitions)
                    continue
                near = of_topic[topic]
                for partition in partitions:
                    if near[partition] & home:
                        local += 1
                    elif near[partition]:
                        cross += 1
                    else:
                        unknown += 1
        return cls(local, cross, unknown)
