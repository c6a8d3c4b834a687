"""Admin clients of kafka-python: nothing is left of one that could not connect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

AdminT = TypeVar("AdminT")


def connected(kind: Callable[..., AdminT], config: Mapping[str, Any]) -> AdminT:
    """Return a connected admin client.

    kafka-python (3.0.12) starts the IO thread of an admin client before it connects, and stops the thread in `close()`
    only. If no broker responds, its constructor raises, and the thread and five file descriptors are left. A process
    that tries again every minute could open no more files after some hours.

    Args:
        kind: `KafkaAdminClient`.
        config: Its arguments.

    Raises:
        KafkaError: As raised by the admin client.
    """
    make = config.get("kafka_client", getattr(kind, "DEFAULT_CONFIG", {}).get("kafka_client"))
    if make is None:
        # A version without this option: what is left of its clients cannot be closed.
        return kind(**config)
    made: list[Any] = []

    def create(**options: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        made.append(make(**options))
        return made[-1]

    try:
        return kind(**{**config, "kafka_client": create})
    except BaseException:
        for client in made:
            # The reason why it could not connect is what the caller needs.
            with suppress(Exception):
                client.close()
        raise
