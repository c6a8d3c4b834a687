"""All that touches private names of kafka-python (3.0.12), so that its real clients run in a simulated world.

* Its event loop (`kafka.net.selector.NetworkSelector`) is kept: tasks, timers, waits for sockets. What changes is who
  gives it turns: no thread, but the world. So `run`, which the application's thread calls and in which it blocks, hands
  over to the world. A turn goes on until nothing is ready.
* Its transports are kept. They get a socket that is a pair of buffers, through the registry of proxies
  (`KafkaNetSocket`), which is meant for other kinds of sockets.
* Timers of one moment are ordered by `id()`, which differs from run to run; here they are by their creation.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from kafka.cluster import ClusterMetadata
from kafka.errors import KafkaConnectionError
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector, Task
from kafka.protocol.consumer import JoinGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.structs import TopicPartition as KafkaPythonPartition

from rackassign.clients.kafka_python import RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor
from rackassign.clients.kafka_python.internals import joins
from rackassign.clients.kafka_python.patches.patch import create_response_classes
from tests.simulation.stand_ins import Replacement, partition_hash, threads
from tests.simulation.world import ThreadedProcess, World

SCHEME = "simulation"

_MANY_STEPS = 20_000
"""Steps of one turn, in which no time passes, after which the loop counts as never ending."""


_FREE_STEPS, _STEP_S = 100, 2e-5
"""Steps of a turn that take no time, and seconds that each of the others takes."""

_LATE_S = 1e-5


class SimulatedSocket:
    """The client's end of a connection."""

    def __init__(self, link: Any, address: tuple[str, int]) -> None:
        self._link = link
        self._address = address
        self.received = bytearray()
        self.ended = False

    def receive(self, data: bytes) -> None:
        self.received += data

    def end(self) -> None:
        self.ended = True

    @property
    def readable(self) -> bool:
        return bool(self.received) or self.ended

    def recv(self, size: int) -> bytes:
        if self.received:
            # Whole at once: transports read on until there is nothing.
            data = bytes(self.received)
            self.received.clear()
            return data
        if self.ended:
            return b""
        raise BlockingIOError(size)

    def send(self, data: memoryview) -> int:
        if self.ended:
            raise ConnectionResetError
        self._link.send(bytes(data))
        return len(data)

    def getpeername(self) -> tuple[str, int]:
        return self._address

    def getsockname(self) -> tuple[str, int]:
        return ("client", 0)

    def shutdown(self, how: int) -> None:
        """Do nothing: `close` follows."""

    def close(self) -> None:
        self._link.close()


class _Sockets(KafkaNetSocket):  # type: ignore[misc] # kafka-python is untyped
    """Connects to brokers of the world that the loop belongs to."""

    SCHEMES = (SCHEME,)

    def dns_lookup(self, host: str, port: int, raise_error: bool = False) -> list[Any]:  # noqa: ARG002, FBT001, FBT002
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    async def connect(self, net: Any, addrinfo: Any, socket_options: Any = (), timeout_at: Any = None) -> Any:  # noqa: ARG002
        process = net.process
        address = addrinfo[4]
        await net.sleep(process.cluster.latency(process.rng))
        link = process.cluster.connect(process, address)
        if link is None:
            raise KafkaConnectionError(f"refused: {address}")
        link.socket = SimulatedSocket(link, address)
        return link.socket


class _Selector:
    """Knows which simulated sockets are ready; a socket can always be written to."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    modify = register

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        ready = []
        for fileobj, key in self._keys.items():
            events = key.events & (selectors.EVENT_WRITE | (selectors.EVENT_READ if fileobj.readable else 0))
            if events:
                ready.append((key, events))
        return ready

    def close(self) -> None:
        self._keys.clear()


class SimulatedLoop(NetworkSelector):  # type: ignore[misc] # kafka-python is untyped
    """kafka-python's event loop, which the world gives its turns."""

    def __init__(self, process: ThreadedProcess, **configs: Any) -> None:
        super().__init__(**{**configs, "selector": _Selector, "slow_task_threshold_secs": 0})
        for end in (self._wakeup_r, self._wakeup_w):
            end.close()
        self._selector.close()
        self.process = process
        process.loop = self

    def start(self) -> None:
        """Start no thread."""

    def wakeup(self) -> None:
        self.process.wake_loop()

    def run(self, coro: Any, *args: Any) -> Any:
        """Block the application's thread until this is complete, as with a thread for the loop."""
        if self._closed:
            raise RuntimeError("NetworkSelector closed!")
        if not self.process.in_application or self._poll_owner is not None:
            raise RuntimeError("Cannot block on net.run() from the IO thread itself.")
        future = self.call_soon_with_future(coro, *args)
        self.process.wait(future)
        if future.exception is not None:
            raise future.exception
        return future.value

    def call_later(self, delay: float, task: Any) -> Any:
        # A real timer is late. kafka-python relies on that: it waits until a time, and then for it to be past.
        return super().call_later(delay + _LATE_S, task)

    def turn(self) -> float | None:
        """Run what is ready; return when the next timer is due."""
        if self._closed:
            return None
        for step in range(_MANY_STEPS):
            if step > _FREE_STEPS:
                # Some loops of the client end with the millisecond that they are in.
                self.process.world.now += _STEP_S
            due = self._scheduled and self._scheduled[0][0] <= self.process.world.now
            if not (self._ready or due or self._selector.select()):
                return self._scheduled[0][0] if self._scheduled else None
            self._poll_once(0)
        self.process.world.violated("the loop rests", f"{self.process.name}: its loop never ends")
        return None

    def destroy(self) -> None:
        """Run nothing any more, as in a process that was killed."""
        self._closed = True
        self._ready.clear()
        self._scheduled.clear()
        for task in list(self._pending_tasks):
            stack = task._stack
            while stack:
                coroutine, stack = stack
                if hasattr(coroutine, "close"):
                    # What a task does when it is ended, in a `finally`, has no effect: it is dead.
                    with suppress(Exception):
                        coroutine.close()
        self._pending_tasks.clear()


def client_factory(process: ThreadedProcess) -> Callable[..., Any]:
    """Return what a consumer takes as `kafka_client`."""

    def make(**configs: Any) -> Any:
        return KafkaNetClient(net=SimulatedLoop(process, **configs), **configs)

    return make


def replacements(world: World) -> Iterator[Replacement]:
    """Return what kafka-python needs besides a clock and random choices."""
    create_response_classes()
    yield joins, "threading", threads(world)
    yield KafkaPythonPartition, "__hash__", partition_hash
    numbers = count()
    create = Task.__init__

    def numbered(task: Any, coro: Any) -> None:
        create(task, coro)
        task.number = next(numbers)

    yield Task, "__init__", numbered
    yield Task, "__lt__", lambda task, other: task.number < other.number


def refresh_metadata(process: Any) -> None:
    """Let a consumer request metadata now, as its `metadata.max.age.ms` would at some time."""
    process.world.current = process
    process.consumer._cluster.request_update()


def planned_again(
    protocol: str | None, metadata: Any, members: Iterable[tuple[str, str | None, bytes]]
) -> dict[str, Any]:
    """Return what a leader would assign with this metadata, to members that own what is in their subscriptions.

    The assignor is one of its own, so that what it remembers has no effect; and it finds no consumer.
    """
    cluster = ClusterMetadata(bootstrap_servers="broker:9001")
    cluster._listeners.clear()
    cluster.update_metadata(metadata)
    joined = [JoinGroupResponse.JoinGroupResponseMember(*member) for member in members]
    for each in joined:
        each.metadata = ConsumerProtocolSubscription.decode(each.metadata)
    # Of the other two only the form differs in which members state what they own.
    kind = RackAwareRangeAssignor if protocol == RackAwareRangeAssignor.name else RackAwareCooperativeStickyAssignor
    assignor = kind(rack="a", rack_monitor=None)
    assignments = assignor.assign(cluster, joined)
    return {member: frozenset(map(tuple, each.partitions())) for member, each in assignments.items()}
