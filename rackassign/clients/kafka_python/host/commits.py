"""Commits while a cooperative join is under way.

While a JoinGroup is unanswered, the broker reads nothing more from the connection it came on: a commit sent behind it
is answered after it, as of an old generation, and the host gives its membership up for that. But the broker takes
commits of the old generation for as long as it waits for other members to join (`PreparingRebalance`). So they go over
a connection of their own, with the generation this member still has. One that comes too late, when the group is being
assigned, waits until this member's join is answered and is then sent by the new generation.

They go one at a time, and what comes meanwhile is sent together: of each partition the offset that was said last.
Otherwise a user who commits at each `poll()` has hundreds under way, of which a connection takes five.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import IllegalGenerationError, KafkaError, RebalanceInProgressError, UnknownMemberIdError
from kafka.protocol.consumer import OffsetCommitRequest

from rackassign.clients.kafka_python.host.remedy import Consumer, is_cooperative

log = logging.getLogger(__name__)

_GRACE_MS = 5000
"""A JoinGroup is answered within the rebalance timeout, and the network takes its time too."""

_OVER = frozenset({error.errno for error in (IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError)})
"""What the broker answers once the generation of a commit is over, or being replaced."""


class Commits:
    """How one consumer commits; all of it runs on the host's IO thread.

    Args:
        consumer: A `KafkaConsumer` with a group.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._coordinator = coordinator = consumer._coordinator
        self._send_as_host = coordinator._send_offset_commit_request
        self._waiting: dict[Any, Any] | None = None
        self._last: Any = None

    def join_ends_within_ms(self) -> float:
        """Return after how many milliseconds a join that is under way is answered at the latest."""
        return float(self._coordinator.config["max_poll_interval_ms"]) + _GRACE_MS

    def under_way(self) -> bool:
        """Tell whether a join of a cooperative member is under way, so that its own connection is not read."""
        coordinator = self._coordinator
        task = coordinator._join_task
        return (
            task is not None
            and not task.is_done
            and is_cooperative(coordinator)
            and bool(coordinator.rebalance_in_progress())
        )

    async def join_answered(self) -> None:
        """Wait for a join that is under way; for none when the consumer closes, since nobody will read it."""
        if self.under_way() and not getattr(self._consumer, "_closed", False):
            with suppress(Exception):
                await self._coordinator._manager.wait_for(self._coordinator._join_task, self.join_ends_within_ms())

    async def send(self, offsets: Any) -> Any:
        """Stand for `_send_offset_commit_request`."""
        busy = self.under_way() or not (self._last is None or self._last.is_done)
        if not busy or not _are_offsets(offsets):
            return await self._send_as_host(offsets)
        if self._waiting is None:
            self._waiting = dict(offsets)
            self._last = self._coordinator._manager.call_soon(self._send_waiting, self._last)
        else:
            self._waiting.update(offsets)
        return await self._coordinator._manager.wait_for(self._last, None)

    async def _send_waiting(self, before: Any) -> Any:
        if before is not None:
            with suppress(Exception):
                await self._coordinator._manager.wait_for(before, None)
        offsets, self._waiting = self._waiting or {}, None
        if self.under_way() and await self._sent_beside(offsets):
            return None
        await self.join_answered()
        return await self._send_as_host(offsets)

    async def _sent_beside(self, offsets: Mapping[Any, Any]) -> bool:
        """Commit by the generation this member still has; tell whether the broker took it.

        Raises:
            KafkaError: What the host raises for an answer that has nothing to do with the join.
        """
        coordinator = self._coordinator
        generation, node = coordinator._generation, self._own_connection()
        if node is None or generation.is_lost():
            return False
        begun = time.monotonic()
        try:
            response = await coordinator._manager.send(self._request(generation, offsets), node_id=node)
        except KafkaError as error:
            log.debug("a commit during a rebalance could not be sent: %s", error)
            return False
        if any(code in _OVER for _, partitions in response.topics for _, code in partitions):
            return False
        coordinator._handle_offset_commit_response(offsets, begun, response)
        return True

    def _own_connection(self) -> str | None:
        """Return a name for another connection to the coordinator; None if it is not known.

        The host names a connection by the node it leads to, and finds the address in `_cluster._coordinator_brokers`.
        """
        cluster = self._coordinator._cluster
        known = cluster._coordinator_brokers.get(self._coordinator.coordinator_id)
        if known is None:
            return None
        name = f"commits-{known.node_id}"
        cluster._coordinator_brokers[name] = type(known)(name, known.host, known.port, None)
        return name

    def _request(self, generation: Any, offsets: Mapping[Any, Any]) -> Any:
        topic_of = OffsetCommitRequest.OffsetCommitRequestTopic
        partition_of = topic_of.OffsetCommitRequestPartition
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append(
                partition_of(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        return OffsetCommitRequest(
            max_version=8,
            group_id=self._coordinator.group_id,
            generation_id_or_member_epoch=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._coordinator.group_instance_id,
            topics=[topic_of(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
        )


def _are_offsets(offsets: Any) -> bool:
    """Tell whether these are offsets; what is not, the host refuses, and nobody else's go with it."""
    return isinstance(offsets, Mapping) and all(
        isinstance(partition, TopicPartition) and isinstance(offset, OffsetAndMetadata)
        for partition, offset in offsets.items()
    )
