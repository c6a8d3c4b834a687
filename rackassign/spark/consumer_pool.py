"""Consumers of librdkafka that outlive a task.

A worker process of Spark's reads one range after the other. What a consumer costs (its threads, connections and the
topic's metadata) is paid once for all ranges that are read with the same settings.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Consumer

IDLE_S = 30.0
"""Less than the minute for which Spark keeps a worker that has nothing to do."""

MOST = 4
"""Different settings of a query come from different sizes of ranges, of which there are few at a time."""


@dataclass(frozen=True, slots=True)
class _Resting:
    # With passwords in it.
    key: tuple[tuple[str, Any], ...] = field(repr=False)
    consumer: Consumer
    since: float


class ConsumerPool:
    """Lends consumers, and keeps those that are given back for a while; may be used from any thread.

    Args:
        idle_s: Seconds after which one that nobody wants is closed.
        most: So many are kept; beyond that the one that has rested longest is closed.
    """

    def __init__(self, idle_s: float = IDLE_S, most: int = MOST) -> None:
        self._idle_s = idle_s
        self._most = most
        self._resting: list[_Resting] = []
        self._sweeping = False
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, settings: Mapping[str, Any]) -> Iterator[Consumer]:
        """Lend a consumer with these settings and nothing assigned; it is closed if the block fails.

        Args:
            settings: Properties of librdkafka.
        """
        key = tuple(sorted(settings.items()))
        consumer = self._take(key) or _new(settings)
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            # What it has fetched, or is about to, belongs to nobody; and what failed may be the consumer itself.
            consumer.close()
            raise
        self._keep(_Resting(key, consumer, time.monotonic()))

    def close(self) -> None:
        """Close all that rest here."""
        self._close_all_but(lambda _: False)

    def _take(self, key: tuple[tuple[str, Any], ...]) -> Consumer | None:
        with self._lock:
            for number, resting in enumerate(self._resting):
                if resting.key == key:
                    return self._resting.pop(number).consumer
        return None

    def _keep(self, resting: _Resting) -> None:
        with self._lock:
            self._resting.append(resting)
            kept = self._resting[-self._most :]
            alone, self._sweeping = not self._sweeping, True
        self._close_all_but(lambda each: each in kept)
        if alone:
            self._sweep_later()

    def _sweep_later(self) -> None:
        sweeper = threading.Timer(self._idle_s, self._sweep)
        # A worker that ends must not wait for it.
        sweeper.daemon = True
        sweeper.start()

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._idle_s
        self._close_all_but(lambda each: each.since > oldest)
        with self._lock:
            self._sweeping = bool(self._resting)
            again = self._sweeping
        if again:
            self._sweep_later()

    def _close_all_but(self, wanted: Any) -> None:  # noqa: ANN401
        with self._lock:
            unwanted = [each for each in self._resting if not wanted(each)]
            self._resting = [each for each in self._resting if wanted(each)]
        for each in unwanted:
            # Takes as long as its connections need: not under the lock.
            each.consumer.close()


def _new(settings: Mapping[str, Any]) -> Consumer:
    from confluent_kafka import Consumer  # noqa: PLC0415 - not before it is needed

    return Consumer(dict(settings))


@functools.cache
def consumers_of_this_process() -> ConsumerPool:
    """Return the pool that all tasks of this worker share: nothing else lives as long as the process."""
    return ConsumerPool()
