"""All that touches private names of aiokafka (0.14.0) and of asyncio, so that real consumers run in a simulated world.

* An event loop of asyncio (`asyncio.BaseEventLoop`) is kept: ready callbacks, timers, tasks. Its clock is the world's,
  and the world gives it turns. A turn goes on until nothing is ready.
* A connection is a transport that is a pair of buffers on a `Link`; aiokafka's protocol and streams are kept.
* Tasks and futures have hashes by their creation, and brokers and partitions hashes that do not depend on the hash
  seed: aiokafka iterates over sets of them.
* Listeners of the metadata are in a set of bound methods, whose hashes are addresses; here it keeps their order.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from aiokafka.cluster import ClusterMetadata
from aiokafka.structs import BrokerMetadata
from aiokafka.structs import TopicPartition as AiokafkaPartition

from rackassign.clients.aiokafka import internals
from tests.simulation.stand_ins import Replacement, partition_hash, report, threads
from tests.simulation.world import ClientProcess, World

_MANY_STEPS = 20_000
"""Steps of one turn, in which no time passes, after which the loop counts as never ending."""

_LATE_S = 1e-5


class SimulatedTransport(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(self, loop: SimulatedLoop, link: Any, protocol: Any) -> None:
        super().__init__()
        self._loop, self._link, self._protocol = loop, link, protocol
        self._closing = False
        protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        self._loop.call_soon(self._protocol.data_received, data)

    def end(self) -> None:
        self._loop.call_soon(self._protocol.eof_received)

    def write(self, data: Any) -> None:
        if not self._closing:
            self._link.send(bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._link.close()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def destroy(self) -> None:
        """Look closed to what the garbage collector asks, and do nothing any more."""
        self._closing = True
        reader = self._protocol._stream_reader
        if reader is not None:
            reader._buffer.clear()
            reader.feed_eof()


class _Numbered:
    """Has a hash by its creation."""

    _loop: Any

    def __hash__(self) -> int:
        if not hasattr(self, "_number"):
            self._number: int = next(self._loop.numbers)
        return self._number


class _Future(_Numbered, asyncio.Future[Any]):
    pass


class _Task(_Numbered, asyncio.Task[Any]):
    pass


class _NothingToSelect:
    """Stands for a selector: what arrives is called back by its transport."""

    def select(self, _timeout: float | None) -> list[Any]:
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop of asyncio, which the world gives its turns."""

    def __init__(self, process: ClientProcess) -> None:
        super().__init__()
        self._private: Any = self
        vars(self)["_selector"] = _NothingToSelect()
        self.process = process
        self.numbers = count()
        self._transports: weakref.WeakSet[SimulatedTransport] = weakref.WeakSet()
        self.set_task_factory(lambda loop, coroutine, **options: _Task(coroutine, loop=loop, **options))

    def time(self) -> float:
        return self.process.world.now

    def create_future(self) -> _Future:
        return _Future(loop=self)

    def call_at(  # type: ignore[override] # only what is called in it has these types
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        # A real timer is late. aiokafka relies on that: it waits until a time, and then for it to be past.
        return super().call_at(when + _LATE_S, callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.process.dead and isinstance(context.get("exception"), BaseException):
            report(self.process.world, context["message"], context["exception"])

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        cluster, process = self._private.process.cluster, self.process
        await asyncio.sleep(cluster.latency(process.rng))
        link = cluster.connect(process, (host, port))
        if link is None:
            raise ConnectionRefusedError(f"refused: {host}:{port}")
        protocol = protocol_factory()
        link.socket = transport = SimulatedTransport(self, link, protocol)
        self._transports.add(transport)
        return transport, protocol

    def _write_to_self(self) -> None:
        self.process.wake_loop()

    def _process_events(self, _events: Any) -> None:
        """Do nothing: there are none."""

    def turn(self) -> float | None:
        """Run what is ready; return when the next timer is due."""
        mine = self._private
        if self.is_closed():
            return None
        mine._thread_id = threading.get_ident()
        events._set_running_loop(self)
        try:
            for _ in range(_MANY_STEPS):
                mine._run_once()
                due = mine._scheduled and mine._scheduled[0]._when <= self.time()
                if not mine._ready and not due:
                    return mine._scheduled[0]._when if mine._scheduled else None
        finally:
            mine._thread_id = None
            events._set_running_loop(None)
        self.process.world.violated("the loop rests", f"{self.process.name}: its loop never ends")
        return None

    def destroy(self) -> None:
        """Run nothing any more, as in a process that was killed."""
        if self.is_closed():
            return
        for transport in list(self._transports):
            transport.destroy()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            # What a coroutine does when it is ended, in a `finally`, has no effect: it is dead.
            with suppress(Exception):
                task.get_coro().close()
        self.close()


class _Ordered(set[Any]):
    """A set that is iterated in the order of its additions."""

    def __init__(self, items: Any) -> None:
        super().__init__()
        self._order: list[Any] = []
        for item in items:
            self.add(item)

    def add(self, item: Any) -> None:
        if item not in self:
            super().add(item)
            self._order.append(item)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._order))


def _set_listeners(cluster: Any, listeners: set[Any]) -> None:
    before = vars(cluster).get("_listeners", ())
    kept = [each for each in before if each in listeners]
    vars(cluster)["_listeners"] = _Ordered([*kept, *(each for each in listeners if each not in kept)])


def replacements(world: World) -> Iterator[Replacement]:
    """Return what aiokafka needs besides a clock and random choices."""
    yield internals, "threading", threads(world)
    yield AiokafkaPartition, "__hash__", partition_hash
    yield BrokerMetadata, "__hash__", lambda broker: hash(broker.nodeId)
    yield ClusterMetadata, "_listeners", property(lambda cluster: vars(cluster)["_listeners"], _set_listeners)


def member_id(consumer: Any) -> str:
    """Return the member ID of a consumer; empty until it has one."""
    return str(getattr(getattr(consumer, "_coordinator", None), "member_id", ""))


def unsettled(consumer: Any) -> str | None:
    """Return the state of a consumer, unless it has an assignment and waits for no other one."""
    coordinator = getattr(consumer, "_coordinator", None)
    if coordinator is None:
        return "not started"
    if coordinator._coordination_task.done():
        return "failed"
    if consumer._subscription.reassignment_in_progress or coordinator._rejoin_needed_fut.done():
        return "rejoining"
    return None


def refresh_metadata(consumer: Any) -> None:
    if getattr(consumer, "_coordinator", None) is not None:
        consumer._client.force_metadata_update()


def abandon(consumer: Any) -> None:
    """Let a consumer of a process that was killed warn of nothing when it is collected."""
    consumer._closed = True


def call(process: ClientProcess, function: Callable[..., object], *arguments: Any) -> None:
    """Call something on the loop of a process."""
    if process.loop is not None:
        process.loop.call_soon(function, *arguments)
        process.wake_loop()
