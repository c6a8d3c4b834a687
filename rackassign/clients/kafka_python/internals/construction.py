"""The consumer that is being constructed: an assignor is not given it, and its client is left open if that fails.

A consumer asks its assignors for their protocols in its constructor, and then never again on the user's thread. It is
the only moment at which an assignor can see the consumer's options without `attach`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from kafka import KafkaConsumer

_FAR_ENOUGH = 12
"""Number of callers to search. In kafka-python 3.0.12 the consumer is the third; subclasses add some."""


class ConsumerOptions(NamedTuple):
    """Options of a consumer that concern racks.

    Args:
        client_rack: The rack that it sends with its fetches; "" for none.
        assignors: Its assignors, instances and classes.
    """

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


def is_open(consumer: Any) -> bool:
    """Return whether a consumer was constructed and not closed; reads `_closed`. False if missing."""
    return getattr(consumer, "_closed", None) is False


class ClientFactory:
    """Creates the client of a consumer, and can close it if the constructor of the consumer fails: its thread runs.

    kafka-python 3.0.12 calls its option `kafka_client`, and closes nothing if no broker responds after that.

    Args:
        make: The client, as the option.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._made: Any = None

    def __call__(self, **config: Any) -> Any:
        """Return a client, as kafka-python would."""
        self._made = self._make(**config)
        return self._made

    def close(self) -> None:
        """Close it, if there is one."""
        if self._made is not None:
            self._made.close()
