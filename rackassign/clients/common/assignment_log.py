"""What a member was given, in one line for people."""

from __future__ import annotations

from collections.abc import Mapping

from rackassign.locality import RackSets
from rackassign.model import LocalityMode, Partition, Partitions, Topology

_NAMED = 5
"""Partitions that are named; the others are counted."""


def format_assignment(
    rack: str | None, owned: Partitions, before: Partitions | None, topology: Topology, mode: LocalityMode
) -> str:
    """Say how much of an assignment is local, what is not and why, and how much came from others.

    Args:
        rack: The member's.
        owned: What it has now.
        before: What it had; None or nothing at its start, when nothing has moved.
        topology: With the topics of `owned`; a topic that is missing is unknown.
        mode: Which replicas make a partition local.
    """
    racks = RackSets.of(topology, mode)
    total = sum(map(len, owned.values()))
    moved = _fresh(owned, before) if before else 0
    tail = f", {moved} moved" if moved else ""
    if rack is None:
        return f"no rack: {total} partitions{tail}"
    home = racks.bits.get(rack, 0)
    local = unknown = 0
    afar: list[tuple[str, int]] = []
    for topic in sorted(owned):
        known = topology.topics.get(topic, ())
        for partition in owned[topic]:
            near = racks.partition_racks(known[partition]) if partition < len(known) else 0
            if near & home:
                local += 1
            elif near:
                afar.append((topic, partition))
            else:
                unknown += 1
    places = topology.broker_racks()
    named = [f"{topic}-{p} {_whence(topology.topics[topic][p], places, rack, mode)}" for topic, p in afar[:_NAMED]]
    if len(afar) > _NAMED:
        named.append(f"{len(afar) - _NAMED} more")
    reasons = f" ({'; '.join(named)})" if named else ""
    doubt = f", {unknown} of unknown rack" if unknown else ""
    return f"rack {rack}: {local} of {total} partitions local{reasons}{doubt}{tail}"


def _fresh(owned: Partitions, before: Partitions) -> int:
    return sum(len(set(partitions).difference(before.get(topic, ()))) for topic, partitions in owned.items())


def _whence(partition: Partition, places: Mapping[int, str], rack: str, mode: LocalityMode) -> str:
    """Say where a partition is read from that is not local: from its leader."""
    source = None if partition.leader is None else places.get(partition.leader)
    whence = "from a leader of unknown rack" if source is None else f"from rack {source}"
    return whence if mode == "leader" else f"{whence}: no replica in {rack}"
