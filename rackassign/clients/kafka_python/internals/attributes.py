"""Private attributes of kafka-python's clients: their types, and a check that they are as expected.

An assignor is not given its consumer. A consumer asks its assignors for their protocols in its constructor, and then
never again on the user's thread. It is the only moment at which an assignor can see the consumer's options without
`attach`. If the constructor fails afterwards, the client is left open.

A producer that cannot be waited for, or cannot write any more, is ended here too.
"""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kafka import KafkaConsumer
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.errors import KafkaError

from rackassign.clients import close_dropped

_FAR_ENOUGH = 12
"""Number of callers to search. In kafka-python 3.0.12 the consumer is the third; subclasses add some."""


_CLOSE_MS = 10_000
"""Time limit for leaving the group of a consumer that was dropped."""


class ConsumerOptions(NamedTuple):
    """Options of a consumer that concern racks."""

    # The rack that it sends with its fetches, "" for none, and its assignors, instances and classes.
    client_rack: str
    assignors: tuple[Any, ...]


def consumer_under_construction() -> Any:
    """Return the consumer whose constructor is running; None if there is none."""
    frame = inspect.currentframe()
    for _ in range(_FAR_ENOUGH):
        frame = None if frame is None else frame.f_back
        if frame is None:
            return None
        caller = frame.f_locals.get("self")
        if isinstance(caller, KafkaConsumer) and frame.f_code.co_name == "__init__":
            return caller
    return None


def options_of(consumer: Any) -> ConsumerOptions | None:
    """Return the options of a consumer under construction; None if they cannot be read.

    Reads `config`, which the constructor of `KafkaConsumer` has filled by then.
    """
    config = getattr(consumer, "config", None)
    if not isinstance(config, dict):
        return None
    assignors = config.get("partition_assignment_strategy")
    return ConsumerOptions(
        str(config.get("client_rack") or ""), tuple(assignors) if isinstance(assignors, list | tuple) else ()
    )


def close_when_dropped(consumer: Any) -> None:
    """Let a consumer that is garbage-collected without `close()` leave its group; without a commit.

    kafka-python's IO thread would send heartbeats until `max_poll_interval_ms` are over. What a consumer commits when
    it is closed may be a record that has raised the exception for which it was dropped. Reads `_coordinator`, `_client`
    and its `_net._closed`.
    """
    # Neither refers to the consumer. In a forked process its connections are those of another.
    coordinator: Any = getattr(consumer, "_coordinator", None)
    client: Any = getattr(consumer, "_client", None)
    process = os.getpid()

    def close() -> None:
        try:
            coordinator.close(autocommit=False, timeout_ms=_CLOSE_MS)
        finally:
            client.close()

    def drop() -> None:
        if getattr(getattr(client, "_net", None), "_closed", None) is False and os.getpid() == process:
            close_dropped(close)

    # At exit it is the application's to close what is open, as it is without this.
    weakref.finalize(consumer, drop).atexit = False


def is_open(consumer: Any) -> bool:
    """Return whether a consumer was constructed and not closed; reads `_closed`. False if missing."""
    return getattr(consumer, "_closed", None) is False


class ClientFactory:
    """Creates the client of a consumer, and can close it if the constructor of the consumer fails: its thread runs.

    kafka-python 3.0.12 calls its option `kafka_client`, and closes nothing if no broker responds after that.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._made: Any = None

    def __call__(self, **config: Any) -> Any:
        self._made = self._make(**config)
        return self._made

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


Consumer = Any
"""kafka-python's `KafkaConsumer`, untyped."""


Coordinator = Any
"""Its `ConsumerCoordinator`."""


Fetcher = Any
"""Its `Fetcher`."""


def incompatibility(consumer: Consumer, methods: Mapping[str, tuple[str, ...]], needs: Iterable[str]) -> str | None:
    """Return what differs from the expected kafka-python; None if nothing does."""
    # Paths from the consumer, to methods with the parameters they must have, and to other attributes.
    for path in (*methods, *needs):
        value = consumer
        for part in path.split("."):
            if not hasattr(value, part):
                return f"there is no {path}"
            value = getattr(value, part)
        expected = methods.get(path)
        if expected is not None and (parameters := tuple(inspect.signature(value).parameters)) != expected:
            return f"{path} takes {', '.join(parameters) or 'nothing'}"
    return None


def coordinator_paths(*names: str) -> tuple[str, ...]:
    return tuple(f"_coordinator.{name}" for name in names)


def is_cooperative(coordinator: Coordinator) -> bool:
    """Return whether a member keeps its partitions while it joins."""
    return bool(coordinator._rebalance_protocol == RebalanceProtocol.COOPERATIVE)


_ENDS_S = 2.0


def discard(producer: Any) -> None:
    """Close a producer soon, whatever it has under way; records that are not written yet are given up.

    `KafkaProducer.close` flushes first. While records are under way it raises an error after its timeout, and leaves
    its thread and its connections as they are. So `_sender.force_close()` is called before, which makes it give up,
    as `close` itself does after that. If the method is missing, the producer ends with the process.
    """
    force_close = getattr(getattr(producer, "_sender", None), "force_close", None)
    if callable(force_close):
        force_close()
    with suppress(KafkaError):
        producer.close(_ENDS_S)


def has_failed(producer: Any) -> bool:
    """Return whether a producer can never write again.

    An idempotent producer (kafka-python 3.0.12) fails for good with an error that it does not retry, even if the cause
    passes: an unknown error of a broker, a missing permission, or the timeout of its request for a producer ID. After
    that it refuses all records. Without `_transaction_manager.has_fatal_error()` that is not known, and False.
    """
    ask = getattr(getattr(producer, "_transaction_manager", None), "has_fatal_error", None)
    return callable(ask) and ask() is True
