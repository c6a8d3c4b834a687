"""The line that a member logs for each assignment: its own, and as the leader that of the group."""

from __future__ import annotations

from collections.abc import Mapping

from rackassign.locality import Locality, RackSets
from rackassign.model import Group, LocalityMode, Partition, Partitions, Plan, Topology

NAMED = 5
"""Number of partitions that are named; the others are counted."""


def format_assignment(
    rack: str | None, owned: Partitions, before: Partitions | None, topology: Topology, mode: LocalityMode
) -> str:
    """Describe how much of an assignment is local, which partitions are not and why, and how many were moved."""
    racks = RackSets.of(topology, mode)
    total = sum(map(len, owned.values()))
    moved = sum(len(set(ids).difference(before.get(topic, ()))) for topic, ids in owned.items()) if before else 0
    tail = f", {moved} moved" if moved else ""
    if rack is None:
        return f"no rack: {total} partitions{tail}"
    home = racks.bits.get(rack, 0)
    local = unknown = 0
    cross_rack: list[tuple[str, int]] = []
    for topic in sorted(owned):
        known = topology.topics.get(topic, ())
        for partition in owned[topic]:
            near = racks.partition_racks(known[partition]) if partition < len(known) else 0
            if near & home:
                local += 1
            elif near:
                cross_rack.append((topic, partition))
            else:
                unknown += 1
    broker_racks = topology.broker_racks()
    named = [
        f"{topic}-{p} {_read_source(topology.topics[topic][p], broker_racks, rack, mode)}"
        for topic, p in cross_rack[:NAMED]
    ]
    if len(cross_rack) > NAMED:
        named.append(f"{len(cross_rack) - NAMED} more")
    reasons = f" ({'; '.join(named)})" if named else ""
    unknown_part = f", {unknown} of unknown rack" if unknown else ""
    return f"rack {rack}: {local} of {total} partitions local{reasons}{unknown_part}{tail}"


def _read_source(partition: Partition, broker_racks: Mapping[int, str], rack: str, mode: LocalityMode) -> str:
    """Describe where a partition that is not local is read from: from its leader."""
    source = None if partition.leader is None else broker_racks.get(partition.leader)
    source_text = "from a leader of unknown rack" if source is None else f"from rack {source}"
    return source_text if mode == "leader" else f"{source_text}: no replica in {rack}"


def format_group(group: Group, plan: Plan) -> str:
    counts = Locality.of(group, plan)
    withheld = sum(map(len, plan.withheld.values()))
    tail = f", {withheld} of them after another round" if withheld else ""
    return f"the group of {len(group.members)}: {counts.local} of {counts.total} local, {plan.moved} moved{tail}"
