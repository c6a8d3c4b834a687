"""What a repair needs of a cluster, whoever gives it: a real one (`live`), or one that is played in tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from rackassign.model import TopicPartition
from rackassign.reassignment.partition_state import PartitionStatus
from rackassign.reassignment.throttle import ThrottleConfigs


class CopyProgress(NamedTuple):
    """How much of what is copied has arrived, in bytes."""

    done: int
    total: int


class ReassignmentCluster(ThrottleConfigs, Protocol):
    """What a repair does to a cluster, and sees of it."""

    def describe(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, PartitionStatus]:
        """Return partitions as they are; those that the cluster does not know are left out."""

    def missing(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Return why partitions are not known to the cluster, of those that are not."""

    def offline_brokers(self) -> frozenset[int]:
        """Return the brokers that are known and do not serve."""

    def ongoing_partitions(self) -> frozenset[TopicPartition]:
        """Return all that is being reassigned, by whomever."""

    def alter_reassignments(self, lists: Mapping[TopicPartition, Sequence[int] | None]) -> Mapping[TopicPartition, str]:
        """Begin reassignments, or cancel them (None); return what is refused."""

    def elect_preferred_leaders(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Have preferred replicas lead; return what is refused."""

    def copy_progress(self, adding: Mapping[TopicPartition, Iterable[int]]) -> CopyProgress:
        """Return how far the copies on these brokers are, as far as brokers tell."""

    def now(self) -> float:
        """Return the seconds of a clock that is never set."""

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
