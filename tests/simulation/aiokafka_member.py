"""A member with a consumer of aiokafka, and an application that is a coroutine on its loop."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError

from rackassign.clients.aiokafka import (
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
    attach,
)
from tests.simulation import aiokafka_clients
from tests.simulation.member import Member, Strategy

_OURS: Mapping[Strategy, Any] = {
    "cooperative": RackAwareCooperativeStickyAssignor,
    "sticky": RackAwareStickyAssignor,
    "range": RackAwareRangeAssignor,
}

_RETRY_S = 0.5

_STOP_S = 10.0
"""Limit for the end of a consumer: more than a request takes, and a rebalance that holds it up."""


class AiokafkaMember(Member):
    """A member with a consumer of aiokafka.

    What was read is processed and committed before the listener lets a rebalance begin, as aiokafka advises.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._at_work = asyncio.Lock()
        self._committing: asyncio.Future[None] | None = None
        self._to_commit: dict[Any, int] = {}

    def start(self) -> None:
        self.loop = aiokafka_clients.SimulatedLoop(self)
        self.world.later(0.0, "start", self._run, self)

    def _run(self) -> None:
        self.loop.create_task(self._application()).add_done_callback(self._end)
        self.wake_loop()

    def _end(self, task: asyncio.Task[None]) -> None:
        self.ended = True
        self.world.later(0.0, "exit", self._exit, self)
        if not task.cancelled() and task.exception() is not None:
            self.world.violated("the application goes on", f"{self.name}: {task.exception()!r}")

    def _exit(self) -> None:
        for link in [each for each in self.cluster.links if each.client is self]:
            link.close()
        self.kill()

    async def _application(self) -> None:
        await self._started()
        while not self.stopping:
            while self.calls:
                getattr(self, f"_{self.calls.pop(0)}")()
            if self.ended:
                # The process has other work.
                await self.loop.create_future()
            records = await self._polled()
            async with self._at_work:
                if self.options.commit == "auto":
                    # Its loop commits what `getmany` has returned.
                    self.processed(records)
                await asyncio.sleep(self.taken_work_s())
                if self.options.commit != "auto":
                    self.processed(records)
                if records and self.options.commit in {"sync", "explicit"}:
                    await self._commit(_behind(records) if self.options.commit == "explicit" else None)
                if records and self.options.commit == "async":
                    self._commit_soon(records)
        if self.consumer is None:
            # It was stopped before it began.
            return
        if self.options.commit == "listener":
            # Its listener is not called then.
            await self._commit()
        if self._committing is not None:
            await self._committing
        try:
            await asyncio.wait_for(self.consumer.stop(), _STOP_S)
        except asyncio.TimeoutError:
            self.world.violated("stop() ends", f"{self.name} still stops after {_STOP_S} s")

    async def _started(self) -> None:
        while not self.stopping:
            self.consumer = self._make()
            self.consumer.subscribe(list(self.topics), listener=_Listener(self))
            try:
                await self.consumer.start()
            except KafkaError as error:
                self.world.note("start failed", type(error).__name__)
                if not isinstance(error, KafkaConnectionError):
                    self.watchers.poll_raised(self, error)
                await self.consumer.stop()
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _polled(self) -> Any:
        try:
            return await self.consumer.getmany(timeout_ms=self.options.poll_ms, max_records=self.options.max_records)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self.watchers.poll_raised(self, error)
            await asyncio.sleep(0.1)
            return {}

    async def _commit(self, offsets: Mapping[Any, int] | None = None) -> None:
        try:
            await self.consumer.commit(offsets)
        except KafkaError as error:
            # Applications go on: what was not committed is read again by the next owner.
            self.world.note("commit failed", type(error).__name__)

    def _commit_soon(self, records: Mapping[Any, Sequence[Any]]) -> None:
        """Commit without waiting, one after the other."""
        self._to_commit.update(_behind(records))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.ensure_future(self._commit_all())

    async def _commit_all(self) -> None:
        while self._to_commit:
            offsets, self._to_commit = self._to_commit, {}
            await self._commit(offsets)

    async def before_rebalance(self) -> None:
        async with self._at_work:
            if self.options.commit == "listener":
                await self._commit()
            if self._committing is not None:
                await self._committing

    @property
    def has_known_defects(self) -> bool:
        return self.options.client != "stock"

    def member_id(self) -> str:
        return aiokafka_clients.member_id(self.consumer)

    def unsettled(self) -> str | None:
        return aiokafka_clients.unsettled(self.consumer)

    def refresh_metadata(self) -> None:
        if self.consumer is not None:
            aiokafka_clients.call(self, aiokafka_clients.refresh_metadata, self.consumer)

    def kill(self) -> None:
        super().kill()
        if self.consumer is not None:
            aiokafka_clients.abandon(self.consumer)

    def _leave_topic(self) -> None:
        """Subscribe to all topics but the last."""
        self.topics = self.topics[:-1]
        self.consumer.subscribe(list(self.topics), listener=_Listener(self))

    def _drop_consumer(self) -> None:
        """Forget the consumer, without `stop()`."""
        self.ended = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            self.consumer = None
            gc.collect()

    def _make(self) -> Any:
        configs = {**self.configs(), "rebalance_timeout_ms": self.configs()["max_poll_interval_ms"]}
        ours = _OURS[self.options.strategy]
        if self.options.client == "consumer":
            return RackAwareConsumer(client_rack=self.rack, partition_assignment_strategy=[ours], **configs)
        with_ours = self.options.client == "attached"
        chosen = [ours(rack=self.rack) if with_ours else StickyPartitionAssignor]
        consumer = AIOKafkaConsumer(client_rack=self.rack, partition_assignment_strategy=chosen, **configs)
        return consumer if self.options.client == "stock" else attach(consumer)


def _behind(records: Mapping[Any, Sequence[Any]]) -> dict[Any, int]:
    return {partition: batch[-1].offset + 1 for partition, batch in records.items()}


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka is untyped
    """Notes what is assigned and taken away, and lets the application end its work before."""

    def __init__(self, member: AiokafkaMember) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.noted("revoked", revoked)
        await self._member.before_rebalance()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.noted("assigned", assigned)
