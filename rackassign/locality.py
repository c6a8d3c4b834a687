"""Locality: which racks count for a partition, the cost of a read, and how much of a plan is local.

Rules of this module:

* Racks are compared as strings.
* Unknown racks are no error and do not affect the result: a member without rack, or a partition none of
  whose counting replicas has a known rack, is *unknown*, neither local nor cross-rack.
* In mode `any-replica` every replica counts, in or out of the ISR, online or not, so that a passing failure
  moves nothing (KIP-881). In mode `leader` only the leader does: consumers read from it if the brokers have
  no rack-aware replica selector.

Racks become bits of an int here, because a set of racks is needed once per partition and member: with ints,
"does this partition have a replica in this member's rack" is one `&`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rackassign.errors import ConfigError
from rackassign.model import LOCALITY_MODES, Group, LocalityMode, Partition, Partitions, Plan, Topology, cost_unit


def validate_locality_mode(mode: str) -> LocalityMode:
    """Return the mode, typed; `ConfigError` names the valid ones."""
    for known in LOCALITY_MODES:
        if mode == known:
            return known
    raise ConfigError(f"locality must be one of {', '.join(LOCALITY_MODES)}, got {mode!r}")


class RackSets(NamedTuple):
    """A set of racks as an int: each rack of the brokers is one bit."""

    bits: Mapping[str, int]
    of_broker: Mapping[int, int]
    mode: LocalityMode

    @classmethod
    def of(cls, topology: Topology, mode: LocalityMode) -> RackSets:
        """Assign a bit to each rack of the topology, in order of their names."""
        racks = topology.broker_racks()
        bits = {rack: 1 << i for i, rack in enumerate(sorted(set(racks.values())))}
        return cls(bits, {broker: bits[rack] for broker, rack in racks.items()}, mode)

    def names(self, bits: int) -> list[str]:
        """Return the racks of a set, in order."""
        return [rack for rack, bit in self.bits.items() if bit & bits]

    def partition_racks(self, partition: Partition) -> int:
        """Return the racks that have a counting replica."""
        if self.mode == "leader":
            return 0 if partition.leader is None else self.of_broker.get(partition.leader, 0)
        racks = 0
        for replica in partition.replicas:
            racks |= self.of_broker.get(replica, 0)
        return racks

    def topic_racks(self, partitions: tuple[Partition, ...]) -> list[int]:
        """Return the racks of each partition of a topic, computed once per `Partition` object."""
        # By identity: hashing a partition costs more than computing its racks.
        objects = {id(partition): partition for partition in partitions}
        known = {key: self.partition_racks(partition) for key, partition in objects.items()}
        return [known[id(partition)] for partition in partitions]

    def all_partition_racks(self, topology: Topology) -> dict[str, list[int]]:
        """Return the racks of each partition, by topic."""
        return {topic: self.topic_racks(partitions) for topic, partitions in topology.topics.items()}


class CostTable(NamedTuple):
    """Costs between racks, in whole units."""

    units: Mapping[tuple[str, str], int]
    # Cost of a pair that is not in `units`.
    missing: int
    unit: float


def unknown_cost_racks(group: Group) -> list[str]:
    """Return the racks that costs name, in order, and that no broker and no member has: these costs have no effect."""
    named = {rack for row in ({a: 0.0, **row} for a, row in group.costs.items()) for rack in row}
    known = {*group.topology.broker_racks().values(), *(member.rack for member in group.members)}
    return sorted(named - known)


def cost_table(costs: Mapping[str, Mapping[str, float]]) -> CostTable:
    """Scale costs to whole units. Reading in one's own rack is free, regardless of the given costs."""
    given = {(a, b): cost for a, row in costs.items() for b, cost in row.items() if a != b}
    if not given:
        return CostTable({}, 1, 1.0)
    unit = cost_unit(costs)
    units = {pair: round(cost / unit) for pair, cost in given.items()}
    common = math.gcd(round(1.0 / unit), *units.values()) or 1
    return CostTable(
        {pair: cost // common for pair, cost in units.items()}, max(1, round(1.0 / unit) // common), unit * common
    )


def cross_rack_cost(table: CostTable, home: str | None, racks: Sequence[str]) -> int:
    """Return the cost of reading a partition with counting replicas in these racks."""
    if home is None or not racks or home in racks:
        return 0
    return min(table.units.get((home, rack), table.missing) for rack in racks)


Kind = Literal["local", "cross", "unknown"]
"""How a partition is read: from the reader's rack, from another one, or with a rack that is unknown."""


def read_locality(source: str | None, home: str | None) -> Kind:
    """Return whether a read from one rack by a reader in another is local; None is an unknown rack."""
    if home is None or source is None:
        return "unknown"
    return "local" if home == source else "cross"


@dataclass(frozen=True, slots=True)
class Locality:
    """Numbers of local, cross-rack and unknown partitions."""

    local: int
    cross: int
    # Partitions whose member has no rack, or none of whose counting replicas has a known one.
    unknown: int

    @property
    def total(self) -> int:
        """All partitions."""
        return self.local + self.cross + self.unknown

    def __add__(self, other: Locality) -> Locality:
        return Locality(self.local + other.local, self.cross + other.cross, self.unknown + other.unknown)

    @classmethod
    def of_reads(cls, kinds: Iterable[Kind]) -> Locality:
        """Count over partitions of which it is known how each is read."""
        counts = Counter(kinds)
        return cls(counts["local"], counts["cross"], counts["unknown"])

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
            # A rack that no broker has is still a known rack: everything it reads is cross-rack.
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
