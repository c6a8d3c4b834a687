"""What a repair needs of a cluster, whoever gives it: a real one (`live`), or one that is played in tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from rackassign.model import TopicPartition
from rackassign.reassignment.partition_state import Seen
from rackassign.reassignment.throttle import Settings


class Copied(NamedTuple):
    """How much of what is copied has arrived, in bytes."""

    done: int
    total: int


class Hands(Settings, Protocol):
    """What a repair does to a cluster, and sees of it."""

    def look(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Seen]:
        """Return partitions as they are; those that the cluster does not know are left out."""

    def missing(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Return why partitions are not known to the cluster, of those that are not."""

    def down(self) -> frozenset[int]:
        """Return the brokers that are known and do not serve."""

    def running(self) -> frozenset[TopicPartition]:
        """Return all that is being reassigned, by whomever."""

    def reassign(self, lists: Mapping[TopicPartition, Sequence[int] | None]) -> Mapping[TopicPartition, str]:
        """Begin reassignments, or cancel them (None); return what is refused."""

    def elect(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Have preferred replicas lead; return what is refused."""

    def copied(self, adding: Mapping[TopicPartition, Iterable[int]]) -> Copied:
        """Return how far the copies on these brokers are, as far as brokers tell."""

    def now(self) -> float:
        """Return the seconds of a clock that is never set."""

    def rest(self, seconds: float) -> None:
        """Let so much time pass."""
