"""What a remedy is: a cure for one defect of the host, put on one consumer, with its proof and a switch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from kafka.coordinator.assignors.abstract import RebalanceProtocol

from rackassign.util.log_once import Once

Consumer = Any
"""kafka-python's `KafkaConsumer`, untyped."""

Coordinator = Any
"""Its `ConsumerCoordinator`."""

Fetcher = Any
"""Its `Fetcher`."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A cure for one defect of the host, put on one consumer.

    Args:
        name: By which it can be left out.
        defect: What happens without it.
        proof: The test that fails without it.
        methods: Methods it shadows, as paths from the consumer, with the parameters they must have.
        needs: Attributes it reads, as paths from the consumer.
        install: Puts it on a consumer.
        stands_on: Remedies without which it would do harm.
    """

    name: str
    defect: str
    proof: str
    methods: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...]
    install: Callable[[Consumer, Once], None]
    stands_on: tuple[str, ...] = ()

    def misfit(self, consumer: Consumer) -> str | None:
        """Return what of the host has changed so that the remedy cannot work; None if it fits."""
        return misfit(consumer, self.methods, self.needs)


def misfit(consumer: Consumer, methods: Mapping[str, tuple[str, ...]], needs: Iterable[str]) -> str | None:
    """Return what of the host is not as expected; None if all is.

    Args:
        consumer: From which all paths begin.
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


def install(consumer: Consumer, remedies: Sequence[Remedy], once: Once) -> None:
    """Put remedies on a consumer; those it has already are left as they are."""
    installed: set[str] = consumer.__dict__.setdefault("_rackassign_remedies", set())
    for remedy in remedies:
        if remedy.name in installed:
            continue
        misfit = remedy.misfit(consumer)
        missing = [name for name in remedy.stands_on if name not in installed]
        if missing:
            misfit = f"{missing[0]} is off"
        if misfit is None:
            remedy.install(consumer, once)
            installed.add(remedy.name)
        else:
            once.warn(remedy.name, "%s: remedy %s is off: %s", host_version(), remedy.name, misfit)


def host_version() -> str:
    """Name the host and its version, for messages."""
    return f"kafka-python {version('kafka-python')}"


def of_coordinator(*names: str) -> tuple[str, ...]:
    """Return paths from the consumer to attributes of its coordinator."""
    return tuple(f"_coordinator.{name}" for name in names)


def is_cooperative(coordinator: Coordinator) -> bool:
    """Tell whether a member keeps what it holds while it joins."""
    return bool(coordinator._rebalance_protocol == RebalanceProtocol.COOPERATIVE)
