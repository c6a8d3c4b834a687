"""Processes with several threads and clients, as a StatefulConsumer has, and what that touches of private names.

A thread is a real one that runs only while the world waits for it, as that of an application does. It gives way where
it would block: in events, joins, sleeps and futures, and in the loop of a client that it runs by itself, as the sender
of a producer does. Locks are real ones: no thread gives way while it holds one that another thread takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from types import SimpleNamespace
from typing import Any

from kafka import KafkaProducer
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector
from kafka.producer import future as producer_future
from kafka.producer import kafka as producer_kafka
from kafka.producer import transaction_manager
from kafka.producer.sender import Sender
from kafka.record.default_records import DefaultRecordBatchBuilder

from rackassign.stateful import _transactions
from tests.simulation import kafka_python
from tests.simulation.kafka_python import SimulatedLoop
from tests.simulation.stand_ins import Replacement
from tests.simulation.world import EPOCH_S, Event, KilledError, ThreadedProcess, World

_SWITCH_S = 0.0002
"""Seconds until a thread that may go on does so."""

_LATE_S = 1e-5
"""How late timers are, as real ones."""

_FREE_LOOKS, _MOST_LOOKS, _SPIN_S = 20, 200, 0.005
"""Looks for input without a pause that take no time, also where each finds something, and seconds of each further one.

A real thread that spins looks far more often, with nothing to be found.
"""

_RESTLESS = 2000
"""Switches to a thread within a second that are no waiting."""


class Strand:
    """A thread of a process."""

    def __init__(self, process: MultiThreadedProcess, call: Callable[[], object]) -> None:
        self._process, self._call = process, call
        self._may_run, self._has_parked = threading.Lock(), threading.Lock()
        self._may_run.acquire()
        self._has_parked.acquire()
        self._switches = (-1, 0)
        # What it waits for: another object each time.
        self.waiting: object = None
        self.ended = SimulatedEvent(process.world)
        threading.Thread(target=self._run, name=process.name, daemon=True).start()
        self.wake_later(_SWITCH_S, None)

    def _run(self) -> None:
        self._may_run.acquire()
        process = self._process
        try:
            if not process.dead:
                self._call()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the world
            if not process.dead:
                process.world.violated("threads go on", f"{process.name}: {error!r}")
        self.ended.set()
        self._has_parked.release()

    def wake_later(self, delay_s: float, waiting: object) -> Event:
        return self._process.world.later(delay_s, "thread", partial(self._wake, waiting), self._process)

    def _wake(self, waiting: object) -> None:
        if self.waiting is waiting and not self.ended.is_set():
            self.resume()

    def resume(self) -> None:
        process, second = self._process, int(self._process.world.now)
        self._switches = (second, self._switches[1] + 1 if self._switches[0] == second else 1)
        if self._switches[1] == _RESTLESS:
            process.world.violated("threads wait", f"{process.name}: {self._call} takes {_RESTLESS} turns in a second")
        process.running, process.in_application = self, True
        self._may_run.release()
        self._has_parked.acquire()
        process.running, process.in_application = None, False

    def park(self, timeout_s: float | None = None) -> None:
        """Give way until `waiting` is woken, or until a time is over."""
        alarm = None if timeout_s is None else self.wake_later(max(timeout_s, 0.0) + _LATE_S, self.waiting)
        if not self._process.dead:
            self._has_parked.release()
            self._may_run.acquire()
        self.waiting = None
        if alarm is not None:
            alarm.cancel()
        if self._process.dead:
            raise KilledError


class SimulatedEvent:
    """Stands for `threading.Event`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._waiting: list[tuple[Strand, object]] = []

    def is_set(self) -> bool:
        return self._set

    def clear(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for strand, token in waiting:
            strand.wake_later(_SWITCH_S, token)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            strand = _process(self._world).strand()
            strand.waiting = token = object()
            self._waiting.append((strand, token))
            strand.park(timeout)
        return self._set


class _SimulatedFuture(Future[Any]):
    """A future that threads of the world wait for."""

    def __init__(self, world: World) -> None:
        super().__init__()
        event = SimulatedEvent(world)
        self._wait = event.wait
        self.add_done_callback(lambda _: event.set())

    def result(self, timeout: float | None = None) -> Any:
        if not self.done() and not self._wait(timeout):
            raise FutureTimeoutError
        return super().result(0)


class _Selector(kafka_python._Selector):
    """Blocks in the loop of a client that a thread runs by itself."""

    def __init__(self, process: MultiThreadedProcess) -> None:
        super().__init__()
        self._process = process
        self.woken = False
        self._looks = 0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select()
        self._looks = 0 if timeout is None or timeout > _SPIN_S else self._looks + 1
        if self._looks > _FREE_LOOKS:
            # Its thread looks without a pause: while a leader is not connected, the sender of a producer does.
            timeout = _SPIN_S
        if (not ready and not self.woken and timeout != 0) or self._looks > _MOST_LOOKS:
            strand = self._process.strand()
            strand.waiting = token = object()
            self._process.selecting.append((strand, token))
            strand.park(timeout)
            ready = super().select()
        self.woken = False
        return ready


class _Loop(SimulatedLoop):
    """A loop that the world gives its turns once it was started, and a thread until then, as that of a producer."""

    def __init__(self, process: MultiThreadedProcess, **configs: Any) -> None:
        self.started = False
        self.client: Any = None
        super().__init__(process, **configs)
        self._selector = _Selector(process)
        process.loop = process.loops
        process.loops.append(self)

    @property
    def is_closed(self) -> bool:
        return bool(self._closed)

    def start(self) -> None:
        self.started = True
        self._selector = self._selector_of_world()

    def _selector_of_world(self) -> Any:
        plain = kafka_python._Selector()
        plain._keys = self._selector._keys
        return plain

    def wakeup(self) -> None:
        if not self.started and hasattr(self, "_selector"):
            self._selector.woken = True
        super().wakeup()

    def run(self, coro: Any, *args: Any) -> Any:
        return super().run(coro, *args) if self.started else NetworkSelector.run(self, coro, *args)


class _Loops(list[_Loop]):
    """The loops of a process, as one."""

    def turn(self) -> float | None:
        self[:] = [each for each in self if not each.is_closed]
        times = [each.turn() for each in self if each.started]
        return min((at for at in times if at is not None), default=None)

    def destroy(self) -> None:
        for each in self:
            each.destroy()


class MultiThreadedProcess(ThreadedProcess):
    """A process with several threads of its own making, and with a loop for each of its clients."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.loops = _Loops()
        self.running: Strand | None = None
        # Threads that wait for input.
        self.selecting: list[tuple[Strand, object]] = []
        self._strands: list[Strand] = []

    def start(self) -> None:
        self.spawn(self._whole)

    def _whole(self) -> None:
        try:
            self.application()
        finally:
            self.ended = True

    def spawn(self, call: Callable[[], object]) -> Strand:
        self._strands = [each for each in self._strands if not each.ended.is_set()]
        self._strands.append(Strand(self, call))
        return self._strands[-1]

    def strand(self) -> Strand:
        if self.dead:
            raise KilledError
        assert self.running is not None
        return self.running

    def wait(self, future: Any) -> None:
        """Wait on a thread until a future is done."""
        strand = self.strand()
        self._give_turns()
        while not future.is_done:
            strand.waiting = token = object()
            future.add_both(lambda _, token=token: strand.wake_later(_SWITCH_S, token))
            strand.park()

    def sleep(self, seconds: float) -> None:
        strand = self.strand()
        strand.waiting = object()
        strand.park(max(seconds, _SWITCH_S))

    def wake_loop(self) -> None:
        super().wake_loop()
        selecting, self.selecting = self.selecting, []
        for strand, token in selecting:
            strand.wake_later(0.0, token)

    def kill(self) -> None:
        """End it at once: its threads are unwound, and none of its code has an effect any more."""
        self.dead = True
        self.loops.destroy()
        before, self.world.current = self.world.current, self
        for strand in self._strands:
            if not strand.ended.is_set():
                strand.resume()
        self.world.current = before


def _process(world: World) -> MultiThreadedProcess:
    assert isinstance(world.current, MultiThreadedProcess)
    return world.current


def client_factory(process: MultiThreadedProcess) -> Callable[..., Any]:
    """Return what clients take as `kafka_client`."""

    def make(**configs: Any) -> Any:
        loop = _Loop(process, **configs)
        loop.client = KafkaNetClient(net=loop, **configs)
        return loop.client

    return make


def refresh_producers(process: MultiThreadedProcess) -> None:
    """Let producers request metadata now, as their `metadata.max.age.ms` would at some time."""
    process.world.current = process
    for loop in process.loops:
        if not loop.started and not loop.is_closed:
            loop.client.cluster.request_update()


class _Producer(KafkaProducer):  # type: ignore[misc] # kafka-python is untyped
    """A producer that is left as it is when its process was killed."""

    def __del__(self) -> None:
        """Do nothing: it would wait for its sender."""


def replacements(world: World) -> Iterator[Replacement]:
    """Return what kafka-python's producer and this package wait for, beside what is in `kafka_python`."""
    events = SimpleNamespace(**{**vars(threading), "Event": lambda: SimulatedEvent(world)})
    for module in (producer_future, producer_kafka, transaction_manager):
        yield module, "threading", events
    yield producer_kafka, "atexit", SimpleNamespace(register=lambda _: None, unregister=lambda _: None)
    yield Sender, "start", lambda sender: setattr(sender, "strand", _process(world).spawn(sender.run))
    yield Sender, "join", lambda sender, timeout=None: sender.strand.ended.wait(timeout)
    yield Sender, "is_alive", lambda sender: not sender.strand.ended.is_set()
    yield _transactions, "KafkaProducer", _Producer
    yield _transactions, "Future", partial(_SimulatedFuture, world)
    yield _transactions, "Thread", partial(_Thread, world)
    # The time of a record without a timestamp.
    append = DefaultRecordBatchBuilder.append
    defaults = tuple((lambda: EPOCH_S + world.now) if each is time.time else each for each in append.__defaults__)
    yield append, "__defaults__", defaults


class _Thread:
    """Stands for a `Thread` that nothing joins."""

    def __init__(self, world: World, target: Callable[[], object], **_: Any) -> None:
        self._world, self._target = world, target

    def start(self) -> None:
        _process(self._world).spawn(self._target)
