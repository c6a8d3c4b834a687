"""The progress of a plan, from what the cluster reports; this is read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rackassign.model import TopicPartition
from rackassign.reassignment.partition_state import PartitionStatus, ReplicaMove

PartitionState = Literal["as-planned", "as-before", "on-its-way", "changed-by-others", "gone"]
"""State of a partition: its planned list, its original one, between the two, another one, or deleted."""

PARTITION_STATES: tuple[PartitionState, ...] = get_args(PartitionState)


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """The states of a plan's partitions.

    Args:
        states: State of each partition.
        lists: The replicas of each partition that exists.
        throttled: Whether a throttle of the plan is still set.
    """

    states: Mapping[TopicPartition, PartitionState]
    lists: Mapping[TopicPartition, tuple[int, ...]]
    throttled: bool

    def of(self, state: PartitionState) -> tuple[TopicPartition, ...]:
        """Return the partitions in a state."""
        return tuple(sorted(partition for partition, found in self.states.items() if found == state))


def plan_status(
    moves: Mapping[TopicPartition, ReplicaMove], seen: Mapping[TopicPartition, PartitionStatus], *, throttled: bool
) -> PlanStatus:
    """Compare a plan with the partitions as they are."""
    states = {partition: _state(move, seen.get(partition)) for partition, move in moves.items()}
    lists = {partition: seen[partition].replicas for partition in moves if partition in seen}
    return PlanStatus(states, lists, throttled)


def _state(move: ReplicaMove, seen: PartitionStatus | None) -> PartitionState:
    if seen is None:
        return "gone"
    if seen.target is not None:
        return "on-its-way" if seen.target in move.known() else "changed-by-others"
    if seen.replicas == move.after:
        return "as-planned"
    if seen.replicas == move.before:
        return "as-before"
    # After a cancelled reassignment, a partition has a list of the plan in another order.
    return "on-its-way" if set(seen.replicas) in map(set, move.known()) else "changed-by-others"
