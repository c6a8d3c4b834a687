"""As much of aiokafka as its assignors see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.protocol.group import JoinGroupResponse_v2, JoinGroupResponse_v5
from aiokafka.structs import BrokerMetadata, PartitionMetadata

from rackassign.model import TopicPartition
from rackassign.wire import Subscription, decode_assignment, encode_subscription


def cluster_of(racks: Mapping[int, str | None], topics: Mapping[str, Sequence[Sequence[int]]]) -> ClusterMetadata:
    """Return aiokafka's own view of a cluster, as it would be after a metadata response."""
    cluster = ClusterMetadata()
    cluster._brokers = {broker: BrokerMetadata(broker, "h", 9092, rack) for broker, rack in racks.items()}
    cluster._partitions = {
        topic: {
            p: PartitionMetadata(topic, p, replicas[0] if replicas else -1, list(replicas), list(replicas), 0)
            for p, replicas in enumerate(partitions)
        }
        for topic, partitions in topics.items()
    }
    return cluster


def three_racks() -> ClusterMetadata:
    return cluster_of({1: "a", 2: "b", 3: "c"}, {"t": [[1], [2], [3]]})


class Coordinator(GroupCoordinator):  # type: ignore[misc] # aiokafka is untyped
    """aiokafka's own, with its way of leading a join, and without its task and its client."""

    def __init__(self, cluster: Any, *assignors: Any) -> None:
        self._cluster = cluster
        self._assignors = assignors
        self._client = SimpleNamespace(
            cluster=cluster,
            send=self._send,
            set_topics=len,
            _maybe_wait_metadata=self._nothing,
            force_metadata_update=self._asked_for_metadata,
        )
        self.refreshes = 0
        self._subscription = SimpleNamespace(subscribed_pattern=None)
        self.closed = False
        self._closing = SimpleNamespace(done=lambda: self.closed)
        self.group_id = "g"
        self.generation, self.coordinator_id, self._heartbeat_task = -1, None, None
        self._retry_backoff_ms, self._session_timeout_ms = 100, 10_000
        self.asked = 0
        cluster.add_listener(self._handle_metadata_update)

    async def _send(self, node_id: Any, request: Any, *, group: int = 0) -> Any: ...

    async def _nothing(self) -> None: ...

    def _asked_for_metadata(self) -> None:
        self.refreshes += 1

    def _handle_metadata_update(self, cluster: Any) -> None: ...

    def request_rejoin(self) -> None:
        self.asked += 1

    def join(self, topics: set[str]) -> list[bytes]:
        """Ask the assignors, as `perform_group_join` does."""
        return [assignor.metadata(topics) for assignor in self._assignors]

    def lead(self, sent: Mapping[str, bytes], generation: int = 5, version: int = 5) -> dict[str, list[TopicPartition]]:
        """Answer a join with these members; return what each is given, and tell the leader that it is complete."""
        self.generation = generation
        self.join({"t"})
        members = [(name, data) if version < 5 else (name, None, data) for name, data in sent.items()]
        name = self._assignors[0].name
        answer = asyncio.run(led(self, joined(name, members, version)))
        return {
            member: sorted(TopicPartition(t, p) for t, ids in decode_assignment(data).partitions.items() for p in ids)
            for member, data in answer.items()
        }


def joined(strategy: str, members: Sequence[tuple[Any, ...]], version: int = 5) -> Any:
    """Return the response to a join: aiokafka's own, since it looks at the version."""
    response = {2: JoinGroupResponse_v2, 5: JoinGroupResponse_v5}[version]
    return response(0, 0, 1, strategy, "m1", "m1", members)


async def led(coordinator: Coordinator, response: Any) -> dict[str, bytes]:
    answer: dict[str, bytes] = await coordinator._perform_assignment(response)
    return answer


def sends(topics: Sequence[str] = ("t",), version: int = 3, **fields: Any) -> bytes:
    return encode_subscription(Subscription(tuple(topics), **fields), version)
