"""A member of the group: a process with a real consumer, and an application that polls, works and commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import FencedInstanceIdError, KafkaError
from kafka.serializer import Deserializer

from rackassign import RackAwareConsumer, attach
from rackassign.clients.kafka_python import RackAwareCooperativeStickyAssignor
from tests.simulation import kafka_python
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.watchers import Watchers
from tests.simulation.world import ClientProcess, World

Client = Literal["consumer", "attached", "assignor", "patched", "stock"]
"""Ours; kafka-python's with our assignor and patches; with our assignor alone; with patches alone; with neither."""

Commit = Literal["auto", "sync", "async", "listener", "transaction"]
"""With `transaction` offsets are sent as a producer's, with what `group_metadata()` returns."""

GROUP = "group"

_IDLE_S = 0.1
"""Pause of an application whose polls do not wait."""

TIMES_MS = {
    "heartbeat_interval_ms": 1000,
    "session_timeout_ms": 6000,
    "max_poll_interval_ms": 10_000,
    "request_timeout_ms": 8000,
    "metadata_max_age_ms": 10_000,
    "auto_commit_interval_ms": 1000,
    "fetch_max_wait_ms": 3000,
}
"""The least that brokers accept where they limit it, so that a run is short."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """How members are configured."""

    client: Client = "consumer"
    commit: Commit = "sync"
    static: bool = False
    poll_ms: int = 500
    max_records: int = 50
    # Patches that are left out of an attached consumer.
    without: tuple[str, ...] = ()


class Member(ClientProcess):
    """One incarnation of a member; one that is started again is another object."""

    def __init__(
        self,
        world: World,
        name: str,
        cluster: SimulatedCluster,
        watchers: Watchers,
        options: MemberOptions,
        rack: str | None,
        topics: tuple[str, ...],
    ) -> None:
        super().__init__(world, name, self._application_loop)
        self.cluster, self.watchers, self.options, self.rack, self.topics = cluster, watchers, options, rack, topics
        self.consumer: Any = None
        self.work_s = 0.0
        self.stopping = False
        self.calls: list[str] = []
        # Records until a signal's handler raises, once.
        self.interrupted_after = -1

    def _application_loop(self) -> None:
        self.consumer = self._make()
        self.consumer.subscribe(list(self.topics), listener=_Listener(self))
        while not self.stopping:
            while self.calls:
                getattr(self, f"_{self.calls.pop(0)}")()
            records = self._polled()
            work_s, self.work_s = self.work_s, 0.0
            self.sleep(max(work_s, 0.001 if self.options.poll_ms else _IDLE_S))
            for partition, batch in records.items():
                self.watchers.processed(self, tuple(partition), [record.offset for record in batch])
            if records and self.options.commit in {"sync", "async"}:
                self._commit(wait=self.options.commit == "sync")
            if records and self.options.commit == "transaction":
                offsets = {tuple(partition): batch[-1].offset + 1 for partition, batch in records.items()}
                error = self.cluster.commit_in_transaction(self.consumer.group_metadata(), offsets)
                self.world.note("transaction", f"{self.name} {error}")
        if self.options.commit == "listener":
            # What its listener commits while it closes is not waited for, unless it leaves its group.
            self._commit(wait=True)
        self.consumer.close()

    @property
    def host(self) -> str:
        """The name of its place: that of all its incarnations."""
        return self.name.split("#")[0]

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

    def _commit(self, *, wait: bool) -> None:
        try:
            if wait:
                self.consumer.commit()
            else:
                self.consumer.commit_async(callback=lambda _, answer: self._committed(answer))
        except KafkaError as error:
            self._committed(error)

    def _committed(self, answer: object) -> None:
        if isinstance(answer, Exception):
            # Applications go on: what was not committed is read again by the next owner.
            self.world.note("commit failed", type(answer).__name__)
            self.watchers.commit_failed(self, answer)

    def _make(self) -> Any:
        configs: dict[str, Any] = {
            **TIMES_MS,
            "bootstrap_servers": ["broker:9001", "broker:9002"],
            "client_id": self.host,
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": self.options.commit == "auto",
            "proxy_url": f"{kafka_python.SCHEME}://",
            "kafka_client": kafka_python.client_factory(self),
            "metrics_enabled": False,
            "value_deserializer": _Values(self),
        }
        if self.options.static:
            configs["group_instance_id"] = self.host
        if self.options.client == "consumer":
            return RackAwareConsumer(client_rack=self.rack, **configs)
        if self.options.client in {"attached", "assignor"}:
            assignor = RackAwareCooperativeStickyAssignor(rack=self.rack)
            consumer = KafkaConsumer(client_rack=self.rack or "", partition_assignment_strategy=[assignor], **configs)
            attached = self.options.client == "attached"
            return attach(consumer, disable_patches=self.options.without) if attached else consumer
        stock = KafkaConsumer(
            client_rack=self.rack or "", partition_assignment_strategy=[CooperativeStickyAssignor], **configs
        )
        return attach(stock, disable_patches=self.options.without) if self.options.client == "patched" else stock


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    """Notes what is assigned and taken away; commits it, where the application does that here."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._note("revoked", revoked)
        if self._member.options.commit == "listener":
            # Not waited for: it runs on the thread that would have to send it.
            self._member.consumer.commit_async()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._note("assigned", assigned)

    def on_partitions_lost(self, lost: Any) -> None:
        self._note("lost", lost)

    def _note(self, what: str, partitions: Any) -> None:
        shown = " ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))
        self._member.world.note(what, f"{self._member.name} {shown}")


class _Values(Deserializer):  # type: ignore[misc] # kafka-python is untyped
    """Decodes values, until a signal comes."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:  # noqa: ARG002 - as kafka-python calls it
        if self._member.interrupted_after >= 0:
            self._member.interrupted_after -= 1
            if self._member.interrupted_after < 0:
                raise KeyboardInterrupt
        return data
