"""As much of kafka-python as its assignors see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.assignor.adapter import DescribedMember
from rackassign.model import TopicPartition


class FakeCoordinator:
    """As much of kafka-python's `ConsumerCoordinator` as is used; it listens to its cluster."""

    _rebalance_protocol = RebalanceProtocol.COOPERATIVE

    def __init__(self, cluster: Any = None) -> None:
        self._cluster = cluster
        self._subscription = SimpleNamespace(assigned_partitions=lambda: {("t", 2), ("t", 0), ("u", 1)})
        self.asked = 0

    def request_rejoin(self) -> None:
        self.asked += 1

    def listen(self, cluster: object) -> None:
        """Stand for the host's own listener."""


class FakeCluster:
    """As much of kafka-python's `ClusterMetadata` as an assignor sees."""

    def __init__(self, racks: Mapping[int, str | None], topics: Mapping[str, list[list[int]]]) -> None:
        self._racks = racks
        self.coordinator = FakeCoordinator(self)
        self._listeners: set[Any] = {self.coordinator.listen}
        self._partitions: Any = {
            topic: {
                p: SimpleNamespace(leader_id=replicas[0] if replicas else -1, replica_nodes=replicas)
                for p, replicas in enumerate(partitions)
            }
            for topic, partitions in topics.items()
        }

    def brokers(self) -> list[Any]:
        return [SimpleNamespace(node_id=broker, rack=rack) for broker, rack in self._racks.items()]

    def broker_metadata(self, broker: int) -> Any:
        return next((known for known in self.brokers() if known.node_id == broker), None)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self._partitions[topic]) if topic in self._partitions else None


class BrokenCluster(FakeCluster):
    """A cluster whose private side is not what was seen."""

    def brokers(self) -> list[Any]:
        raise RuntimeError("changed")


def member(
    name: str,
    topics: Any,
    *,
    rack: str | None = None,
    instance: str | None = None,
    **metadata: Any,
) -> Any:
    fields = {"user_data": b"", "owned_partitions": [], "generation_id": -1} | metadata
    subscription = SimpleNamespace(topics=topics, rack_id=rack, **fields)
    return SimpleNamespace(member_id=name, group_instance_id=instance, metadata=subscription)


def given_out(answer: Mapping[str, ConsumerProtocolAssignment]) -> dict[str, list[TopicPartition]]:
    return {
        name: sorted(TopicPartition(*tp) for tp in ConsumerProtocolAssignment.decode(assignment.encode()).partitions())
        for name, assignment in answer.items()
    }


THREE_RACKS = FakeCluster({1: "a", 2: "b", 3: "c"}, {"t": [[1], [2], [3]]})


class FakeMembership:
    """A consumer's place in its group, as the assignor sees it."""

    def __init__(self, owned: Mapping[str, tuple[int, ...]] | None = None, *, cooperative: bool = True) -> None:
        self.held = dict(owned or {})
        self.keeps = cooperative
        self.asked = 0
        self.joining: int | None = 5
        self.has_instance_id = False
        self.described: list[DescribedMember] = []

    def member_id(self) -> str:
        return "m"

    def leads(self) -> bool:
        return False

    def describe_group(self, done: Callable[[list[DescribedMember]], None]) -> None:
        done(self.described)

    def generation(self) -> int | None:
        return self.joining

    def session_timeout_s(self) -> float | None:
        return None

    def compute(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """No time passes."""

    def refresh_metadata(self) -> None:
        """Nothing to be had."""

    def same_consumer(self, other: object) -> bool:
        return self is other

    def cluster(self) -> FakeCluster:
        return THREE_RACKS

    def owned(self) -> dict[str, tuple[int, ...]]:
        return self.held

    def cooperative(self) -> bool:
        return self.keeps

    def static(self) -> bool:
        return self.has_instance_id

    def request_rejoin(self) -> None:
        self.asked += 1
