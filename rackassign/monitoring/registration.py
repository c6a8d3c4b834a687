"""Which registry registers a collector: what prometheus_client does not pass on.

A registry calls `describe()` of a collector while it registers it, and gives it no reference to itself. So a second
collector cannot know that it is not alone, and the registry can only reject it or export the same series twice. Two
private facts are used, as of prometheus_client 0.20 to 0.26: `describe()` is called below `CollectorRegistry.register`,
whose first argument is `self`, and `_collector_to_names` has the registered collectors. If the first differs, the
registry rejects a second collector, as it does by itself. If the second differs, all collectors count as registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Container
from typing import TYPE_CHECKING, TypeVar

from rackassign.errors import MissingExtraError

try:
    from prometheus_client.registry import CollectorRegistry
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None

if TYPE_CHECKING:
    from types import FrameType

    from prometheus_client.registry import Collector

_ATTRIBUTE = "_rackassign_consumers"

_DEEPEST = 5
"""Frames between `describe()` and `register`; there are three with prometheus_client 0.26."""

T = TypeVar("T")


def registering_registry() -> CollectorRegistry | None:
    """Return the registry that registers the collector whose `describe()` calls this; None if there is none."""
    frame: FrameType | None = inspect.currentframe()
    for _ in range(_DEEPEST):
        frame = None if frame is None else frame.f_back
        if frame is None:
            return None
        registry = frame.f_locals.get("self")
        if frame.f_code.co_name == "register" and isinstance(registry, CollectorRegistry):
            return registry
    return None


def shared_by(registry: CollectorRegistry, value: T) -> T:
    """Return what the collectors of a registry share: `value` from now on, unless there is something already."""
    shared: T = vars(registry).setdefault(_ATTRIBUTE, value)
    return shared


def is_registered(registry: CollectorRegistry, collector: Collector) -> bool:
    """Return whether a collector that was registered still is."""
    known: Container[Collector] = getattr(registry, "_collector_to_names", (collector,))
    return collector in known
