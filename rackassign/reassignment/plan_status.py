"""How far a plan is, by what the cluster tells now; nothing is changed by looking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rackassign.model import TopicPartition
from rackassign.reassignment.partition_state import PartitionStatus, ReplicaMove

PartitionState = Literal["as-planned", "as-before", "on-its-way", "changed-by-others", "gone"]
"""Where a partition stands: with its new list, its old one, between the two, with another, or not there at all."""

PARTITION_STATES: tuple[PartitionState, ...] = get_args(PartitionState)


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """Where the partitions of a plan stand.

    Args:
        places: Of each partition.
        lists: The replicas of each partition that is there.
        throttled: Whether a throttle of the plan is still set.
    """

    places: Mapping[TopicPartition, PartitionState]
    lists: Mapping[TopicPartition, tuple[int, ...]]
    throttled: bool

    def of(self, place: PartitionState) -> tuple[TopicPartition, ...]:
        """Return the partitions that stand there."""
        return tuple(sorted(partition for partition, found in self.places.items() if found == place))


def plan_status(
    moves: Mapping[TopicPartition, ReplicaMove], seen: Mapping[TopicPartition, PartitionStatus], *, throttled: bool
) -> PlanStatus:
    """Compare a plan with partitions as they are."""
    places = {partition: _place(move, seen.get(partition)) for partition, move in moves.items()}
    lists = {partition: seen[partition].replicas for partition in moves if partition in seen}
    return PlanStatus(places, lists, throttled)


def _place(move: ReplicaMove, seen: PartitionStatus | None) -> PartitionState:
    if seen is None:
        return "gone"
    if seen.target is not None:
        return "on-its-way" if seen.target in move.known() else "changed-by-others"
    if seen.replicas == move.after:
        return "as-planned"
    if seen.replicas == move.before:
        return "as-before"
    # A list that was cancelled is one of ours in another order.
    return "on-its-way" if set(seen.replicas) in map(set, move.known()) else "changed-by-others"
