"""What stands for the clock, random choices and threads of a process, while clients run in a simulated world.

* The clock and random choices are module attributes, `time` and `random`, of the clients and of the package. A shuffle
  sorts first: some lists come from sets, whose order depends on the hash seed.
* Partitions have a hash that does not depend on the hash seed either: clients iterate over sets of them, and the order
  of their requests, and of records in a poll, comes from that. A partition and an equal tuple then have different
  hashes, so nothing may look one up by the other; the clients and this package do not.
"""

from __future__ import annotations

import logging
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from zlib import crc32

from rackassign.assignor.rack_monitor import RackMonitor
from rackassign.model import TopicPartition
from tests.simulation.world import EPOCH_S, ThreadedProcess, World

Replacement = tuple[Any, str, Any]
"""A module or class, the name of an attribute, and what it is while a world runs."""

_MANY_READS, _READ_S = 10_000, 1e-5
"""Reads of a clock in one moment that take no time, and seconds that the next one takes."""

_CLIENTS = ("kafka", "aiokafka", "rackassign")


class _Clock:
    """Stands for the module `time`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read_at, self._reads = -1.0, 0

    def monotonic(self) -> float:
        self._reads = self._reads + 1 if self._read_at == self._world.now else 0
        if self._reads > _MANY_READS:
            # kafka-python repeats a step without a pause until a time that is now is past.
            self._world.now += _READ_S
        self._read_at = self._world.now
        return self._world.now

    perf_counter = monotonic
    thread_time = monotonic

    def time(self) -> float:
        return EPOCH_S + self._world.now

    def clock_gettime(self, clock: int) -> float:  # noqa: ARG002 - none of them stops
        return self._world.now

    def sleep(self, seconds: float) -> None:
        process = self._world.current
        assert isinstance(process, ThreadedProcess)
        process.sleep(seconds)


class _Random:
    """Stands for the module `random`: each process draws from its own generator."""

    def __init__(self, world: World) -> None:
        self._world = world

    def shuffle(self, items: list[Any]) -> None:
        items.sort(key=repr)
        self._rng().shuffle(items)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng(), name)

    def _rng(self) -> random.Random:
        process = self._world.current
        assert process is not None
        return process.rng


class _LaterThread:
    """Stands for a thread that runs to its end by itself: an event of its process."""

    def __init__(self, world: World, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._world = world
        self._target, self._args = target, args

    def start(self) -> None:
        process = self._world.current
        assert process is not None
        self._world.later(process.rng.random() * 0.002, "thread", lambda: self._target(*self._args), process)


def threads(world: World) -> SimpleNamespace:
    """Return what stands for the module `threading` where no more than a thread is started."""
    return SimpleNamespace(Thread=partial(_LaterThread, world))


class _Alarm(logging.Handler):
    """Reports what the package logs with a traceback, and exceptions of its code that a client logs."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            ours = record.name.startswith("rackassign")
            report(self._world, record.getMessage(), record.exc_info[1], ours=ours)


def report(world: World, text: str, error: BaseException, *, ours: bool = False) -> None:
    """Report an exception if it is of the package's code, or of what is ours."""
    inner = traceback.extract_tb(error.__traceback__)
    if (ours or (inner and "/rackassign/" in inner[-1].filename)) and not world.problems:
        shown = "".join(traceback.format_exception(error))
        world.violated("no exception of ours", f"{text}\n{shown}")


def _holders(name: str, module: Any) -> list[Any]:
    prefixes = tuple(f"{client}." for client in _CLIENTS)
    return [
        each
        for path, each in list(sys.modules.items())
        if path.startswith(prefixes) and getattr(each, name, None) is module
    ]


_MISSING = object()


@contextmanager
def installed(world: World, replacements: Iterable[Replacement]) -> Iterator[None]:
    """Replace clock, random choices and what else clients need, while a world runs."""
    patched: list[Replacement] = []

    def put(target: Any, name: str, value: Any) -> None:
        patched.append((target, name, getattr(target, name, _MISSING)))
        setattr(target, name, value)

    for module in _holders("time", time):
        put(module, "time", _Clock(world))
    for module in _holders("random", random):
        put(module, "random", _Random(world))
    put(TopicPartition, "__hash__", partition_hash)
    for each in replacements:
        put(*each)
    defaults: dict[str, Any] = RackMonitor.__init__.__kwdefaults__ or {}
    clock, defaults["clock"] = defaults["clock"], lambda: world.now
    alarm = _Alarm(world)
    loggers = [logging.getLogger(name) for name in _CLIENTS]
    before = [(each.level, each.propagate) for each in loggers]
    for logger in loggers:
        logger.addHandler(alarm)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(alarm)
            logger.setLevel(level)
            logger.propagate = propagate
        defaults["clock"] = clock
        for target, name, value in reversed(patched):
            if value is _MISSING:
                delattr(target, name)
            else:
                setattr(target, name, value)


def partition_hash(partition: Any) -> int:
    return hash((crc32(partition[0].encode()), partition[1]))
