"""Private attributes of a consumer of kafka-python: their types, and a check that they are as expected."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from kafka.coordinator.assignors.abstract import RebalanceProtocol

Consumer = Any
"""kafka-python's `KafkaConsumer`, untyped."""


Coordinator = Any
"""Its `ConsumerCoordinator`."""


Fetcher = Any
"""Its `Fetcher`."""


def incompatibility(consumer: Consumer, methods: Mapping[str, tuple[str, ...]], needs: Iterable[str]) -> str | None:
    """Return what differs from the expected kafka-python; None if nothing does.

    Args:
        consumer: Consumer at which all paths begin.
        methods: Paths to methods, with the parameters they must have.
        needs: Paths to other attributes.
    """
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
    """Return paths from the consumer to attributes of its coordinator."""
    return tuple(f"_coordinator.{name}" for name in names)


def is_cooperative(coordinator: Coordinator) -> bool:
    """Return whether a member keeps its partitions while it joins."""
    return bool(coordinator._rebalance_protocol == RebalanceProtocol.COOPERATIVE)
