"""A member with a consumer of kafka-python, and an application on a thread that polls, works and commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.base import MemberState
from kafka.errors import FencedInstanceIdError, KafkaError
from kafka.serializer import Deserializer

from rackassign import RackAwareConsumer, attach
from rackassign.clients.kafka_python import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
)
from tests.simulation import kafka_python
from tests.simulation.member import Member, Strategy
from tests.simulation.world import ThreadedProcess

_OURS: Mapping[Strategy, Any] = {
    "cooperative": RackAwareCooperativeStickyAssignor,
    "sticky": RackAwareStickyAssignor,
    "range": RackAwareRangeAssignor,
}


class KafkaPythonMember(ThreadedProcess, Member):
    """A member with a consumer of kafka-python."""

    def application(self) -> None:
        self.consumer = self._make()
        self.consumer.subscribe(list(self.topics), listener=_Listener(self))
        while not self.stopping:
            while self.calls:
                getattr(self, f"_{self.calls.pop(0)}")()
            records = self._polled()
            self.sleep(self.taken_work_s())
            self.processed(records)
            if records and self.options.commit in {"sync", "async"}:
                self._commit(wait=self.options.commit == "sync")
            offsets = {tuple(partition): batch[-1].offset + 1 for partition, batch in records.items()}
            if records and self.options.commit == "explicit":
                self._commit(wait=True, offsets=offsets)
            if records and self.options.commit == "transaction":
                error = self.cluster.commit_in_transaction(self.consumer.group_metadata(), offsets)
                self.world.note("transaction", f"{self.name} {error}")
        if self.options.commit == "listener":
            # What its listener commits while it closes is not waited for, unless it leaves its group.
            self._commit(wait=True)
        self.consumer.close()

    def member_id(self) -> str:
        return str(self.consumer.group_metadata().member_id)

    def unsettled(self) -> str | None:
        metadata = self.consumer.group_metadata() if self.consumer is not None else None
        return None if metadata is not None and metadata.state is MemberState.STABLE else str(metadata)

    def refresh_metadata(self) -> None:
        if self.consumer is not None:
            kafka_python.refresh_metadata(self)

    def _polled(self) -> Any:
        try:
            return self.consumer.poll(timeout_ms=self.options.poll_ms, max_records=self.options.max_records)
        except FencedInstanceIdError as error:
            # Another one has its place.
            self.watchers.poll_raised(self, error)
            self.stopping = True
            return {}
        except KeyboardInterrupt:
            self.stopping = True
            return {}
        except Exception as error:  # noqa: BLE001 - whatever it is
            self.watchers.poll_raised(self, error)
            self.sleep(0.1)
            return {}

    def _pause_partition(self) -> None:
        self.consumer.pause(min(self.consumer.assignment()))

    def _resume_partitions(self) -> None:
        self.consumer.resume(*self.consumer.paused())

    def _leave_topic(self) -> None:
        """Subscribe to all topics but the last."""
        self.topics = self.topics[:-1]
        self.consumer.subscribe(list(self.topics), listener=_Listener(self))

    def _end_offsets(self) -> None:
        try:
            self.consumer.end_offsets(
                [TopicPartition(topic, each.index) for topic in self.topics for each in self.cluster.topics[topic]],
                timeout_ms=6000,
            )
        except KafkaError as error:
            self.world.violated("end_offsets() raises nothing", f"{self.name}: {error!r}")

    def _commit(self, *, wait: bool, offsets: Mapping[Any, int] | None = None) -> None:
        asked = {TopicPartition(*tp): OffsetAndMetadata(offset, "", -1) for tp, offset in (offsets or {}).items()}
        try:
            if wait:
                self.consumer.commit(asked or None)
            else:
                self.consumer.commit_async(callback=self._committed)
        except KafkaError as error:
            self.commit_failed(error)

    def _committed(self, _offsets: Any, answer: Any) -> None:
        if isinstance(answer, Exception):
            self.commit_failed(answer)

    def _make(self) -> Any:
        configs = {
            **self.configs(),
            "proxy_url": f"{kafka_python.SCHEME}://",
            "kafka_client": kafka_python.client_factory(self),
            "metrics_enabled": False,
            "value_deserializer": _Values(self),
        }
        if self.options.client == "consumer":
            chosen = [_OURS[self.options.strategy]]
            return RackAwareConsumer(client_rack=self.rack, partition_assignment_strategy=chosen, **configs)
        if self.options.client in {"attached", "assignor"}:
            assignor = _OURS[self.options.strategy](rack=self.rack)
            consumer = KafkaConsumer(client_rack=self.rack or "", partition_assignment_strategy=[assignor], **configs)
            attached = self.options.client == "attached"
            return attach(consumer, disable_patches=self.options.without) if attached else consumer
        stock = KafkaConsumer(
            client_rack=self.rack or "", partition_assignment_strategy=[CooperativeStickyAssignor], **configs
        )
        return attach(stock, disable_patches=self.options.without) if self.options.client == "patched" else stock


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    """Notes what is assigned and taken away; commits it, where the application does that here."""

    def __init__(self, member: KafkaPythonMember) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.noted("revoked", revoked)
        if self._member.options.commit == "listener":
            # Not waited for: it runs on the thread that would have to send it.
            self._member.consumer.commit_async()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.noted("assigned", assigned)

    def on_partitions_lost(self, lost: Any) -> None:
        self._member.noted("lost", lost)


class _Values(Deserializer):  # type: ignore[misc] # kafka-python is untyped
    """Decodes values, until a signal comes."""

    def __init__(self, member: KafkaPythonMember) -> None:
        self._member = member

    def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:  # noqa: ARG002 - as kafka-python calls it
        if self._member.interrupted_after >= 0:
            self._member.interrupted_after -= 1
            if self._member.interrupted_after < 0:
                raise KeyboardInterrupt
        return data
