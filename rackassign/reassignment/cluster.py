"""Operations that an execution needs from a cluster: a real one (`kafka_cluster`) or a simulated one in tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from rackassign.model import TopicPartition
from rackassign.reassignment.partition_state import PartitionStatus, Replicas
from rackassign.reassignment.throttle import ThrottleConfigs


class CopyProgress(NamedTuple):
    """Bytes that have been copied, of those to be copied.

    Args:
        done: Bytes on the new replicas.
        total: Bytes of the leaders.
        complete: Whether all brokers have reported theirs.
    """

    done: int
    total: int
    complete: bool = True


class ReassignmentCluster(ThrottleConfigs, Protocol):
    """Operations of an execution on a cluster."""

    def describe(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, PartitionStatus]:
        """Return the state of partitions, without those that the cluster does not know."""

    def missing(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Return the reason for each partition that the cluster does not know."""

    def not_deleted(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Return the reason for each partition that may exist although one broker does not know it."""

    def offline_brokers(self) -> frozenset[int]:
        """Return the registered brokers that are not serving."""

    def serving_brokers(self) -> frozenset[int]:
        """Return the brokers that are serving."""

    def replica_lists(self, tps: Iterable[TopicPartition], broker: int) -> Mapping[TopicPartition, Replicas]:
        """Return the replicas of partitions according to a broker, without those that it does not know."""

    def ongoing_partitions(self) -> frozenset[TopicPartition]:
        """Return all partitions with a reassignment in progress, including those of other processes."""

    def alter_reassignments(self, lists: Mapping[TopicPartition, Sequence[int] | None]) -> Mapping[TopicPartition, str]:
        """Begin reassignments, or cancel them (None); return those that were refused, with the error."""

    def elect_preferred_leaders(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Elect preferred leaders; return those that were refused, with the error."""

    def copy_progress(self, adding: Mapping[TopicPartition, Iterable[int]]) -> CopyProgress:
        """Return the progress of the replicas on these brokers, as far as the brokers report it."""

    def now(self) -> float:
        """Return the time of a monotonic clock in seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds."""
