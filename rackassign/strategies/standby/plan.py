"""The result of assigning standbys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rackassign.model import Partitions, Plan, TopicPartition


@dataclass(frozen=True, slots=True)
class StandbyPlan:
    """The assignment of active members and standbys.

    Args:
        plan: The active members, for the cooperative protocol.
        standbys: Partitions of which each member is to keep a copy, including its warm-ups, awaited copies, and copies
            it keeps until others are warm. An entry for every member.
        warmups: Those of them that are awaited: once the copy is warm, the partition moves to the member, or another
            member can drop its copy.
        missing: Number of copies that cannot be placed, by partition.
        collisions: Number of copies on a value of a tag beyond the limits of the rule.
        proven: Whether copies are proven optimal: collisions, even loads, kept, in that order.
    """

    plan: Plan
    standbys: Mapping[str, Partitions]
    warmups: Mapping[str, Partitions]
    missing: Mapping[TopicPartition, int]
    collisions: int
    proven: bool
