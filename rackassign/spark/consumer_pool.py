"""A pool of librdkafka consumers that are reused by the tasks of a worker process.

A worker process of Spark reads one range after the other. The cost of a consumer (its threads, its connections and the
metadata of the topic) is paid once for all ranges that are read with the same settings.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rackassign.spark.kafka_clients import new_consumer

if TYPE_CHECKING:
    from confluent_kafka import Consumer

IDLE_S = 30.0
"""Seconds that an unused consumer is kept: less than the minute for which Spark keeps an idle worker."""

MAX_UNUSED = 4
"""Consumers that are kept. Settings within a query differ by the fetch size only, which has few values at a time."""


@dataclass(frozen=True, slots=True)
class _UnusedConsumer:
    # Contains passwords.
    key: tuple[tuple[str, Any], ...] = field(repr=False)
    consumer: Consumer
    since: float


class ConsumerPool:
    """A pool that lends consumers and keeps returned ones for a while. It may be used from any thread.

    Args:
        idle_s: Seconds after which an unused consumer is closed.
        max_unused: The highest number of unused consumers; beyond it the one that is unused longest is closed.
    """

    def __init__(self, idle_s: float = IDLE_S, max_unused: int = MAX_UNUSED) -> None:
        self._idle_s = idle_s
        self._max_unused = max_unused
        self._unused: list[_UnusedConsumer] = []
        self._sweeping = False
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, settings: Mapping[str, Any]) -> Iterator[Consumer]:
        """Lend a consumer with these settings and without an assignment; it is closed if the block fails.

        Args:
            settings: Properties for librdkafka.
        """
        key = tuple(sorted(settings.items()))
        consumer = self._take(key) or new_consumer(settings)
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            # Its fetched and pending records belong to no other range, and the consumer itself may have failed.
            consumer.close()
            raise
        self._keep(_UnusedConsumer(key, consumer, time.monotonic()))

    def close(self) -> None:
        """Close all unused consumers."""
        self._close_all_but(lambda _: False)

    def _take(self, key: tuple[tuple[str, Any], ...]) -> Consumer | None:
        with self._lock:
            for number, unused in enumerate(self._unused):
                if unused.key == key:
                    return self._unused.pop(number).consumer
        return None

    def _keep(self, unused: _UnusedConsumer) -> None:
        with self._lock:
            self._unused.append(unused)
            retained = self._unused[-self._max_unused :]
            start_sweeper, self._sweeping = not self._sweeping, True
        self._close_all_but(lambda each: each in retained)
        if start_sweeper:
            self._sweep_later()

    def _sweep_later(self) -> None:
        sweeper = threading.Timer(self._idle_s, self._sweep)
        # A daemon thread does not delay the end of the worker.
        sweeper.daemon = True
        sweeper.start()

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._idle_s
        self._close_all_but(lambda each: each.since > oldest)
        with self._lock:
            self._sweeping = bool(self._unused)
            again = self._sweeping
        if again:
            self._sweep_later()

    def _close_all_but(self, keep: Any) -> None:  # noqa: ANN401
        with self._lock:
            removed = [each for each in self._unused if not keep(each)]
            self._unused = [each for each in self._unused if keep(each)]
        for each in removed:
            # Closing takes as long as the connections need, so it is not done under the lock.
            each.consumer.close()


@functools.cache
def consumers_of_this_process() -> ConsumerPool:
    """Return the pool that all tasks of this worker process share."""
    return ConsumerPool()
