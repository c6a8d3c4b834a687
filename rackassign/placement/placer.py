"""The interface of placers (KIP-660), and the loading of one by its name.

A custom placer is a class with the three methods of `ReplicaPlacer`. It is named by `module:Class` or
`package.module.Class`, or by a name that its distribution declares in the entry-point group `rackassign.placers`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol, cast, runtime_checkable

from rackassign.errors import ConfigError, RackassignError
from rackassign.util.functions import deferred_function
from rackassign.util.text import short_repr, strip_control_chars, truncate

ENTRY_POINTS = "rackassign.placers"

BUILT_IN: Mapping[str, str] = {
    "elasticsearch": "rackassign.placement.placers.presets:ElasticsearchPlacer",
    "hadoop": "rackassign.placement.placers.presets:HadoopPlacer",
    "kafka": "rackassign.placement.placers.admin_utils:KafkaPlacer",
    "optimal": "rackassign.placement.placers.optimal:OptimalPlacer",
    "redis": "rackassign.placement.placers.presets:RedisPlacer",
    "striped": "rackassign.placement.placers.striped:StripedPlacer",
}
"""The built-in placers, with their import paths."""

_NAME = r"[^\W\d]\w*"
_METHODS = ("configure", "place", "close")


class UsableBroker(Protocol):
    """A broker that may get replicas; `model.Broker` is one."""

    @property
    def id(self) -> int:
        """Node ID."""

    @property
    def rack(self) -> str | None:
        """`broker.rack`; None when it has none."""

    @property
    def fenced(self) -> bool:
        """Whether it is registered but not serving."""


@runtime_checkable
class ReplicaPlacer(Protocol):
    """Decides which brokers get replicas (KIP-660)."""

    def configure(self, configs: dict[str, Any]) -> None:
        """Set the settings, before anything is placed.

        Raises:
            ConfigError: A setting is invalid.
        """

    def place(
        self, start_partition: int, num_partitions: int, num_replicas: int, brokers: Iterable[UsableBroker]
    ) -> list[list[int]]:
        """Return a list of broker IDs for each new partition, preferred leader first.

        Args:
            start_partition: Number of the first new partition.
            num_partitions: Number of new partitions.
            num_replicas: Replicas of each.
            brokers: Brokers that may be used.

        Raises:
            InvalidReplicationFactorError: There are not enough brokers for the replication factor.
            ReplicaPlacementError: The constraints cannot be satisfied.
        """

    def close(self) -> None:
        """Release all resources."""


class PlacerError(RackassignError):
    """A custom placer failed or returned an invalid result; the message names it."""


@contextmanager
def named(name: str, what: str, *, own: bool, consequence: str = "; nothing was done") -> Iterator[None]:
    """Add the name of a custom placer to errors in the block, in one line; what it prints goes to stderr.

    The standard output of a command is its result, which may be JSON.

    Args:
        name: Name of the placer.
        what: The part that is executed.
        own: Whether the placer is a custom one; errors of built-in ones are not changed.
        consequence: End of the message.
    """
    try:
        with redirect_stdout(sys.stderr) if own else nullcontext():
            yield
    except PlacerError:
        raise
    except (Exception, SystemExit) as error:
        if not own:
            raise
        words = " ".join(str(error).split())
        description = truncate(f"{type(error).__name__}: {words}" if words else type(error).__name__)
        # An error of rackassign already describes the problem.
        problem = (
            strip_control_chars(words) if isinstance(error, RackassignError) else f"{what} failed with {description}"
        )
        raise PlacerError(f"placer {short_repr(name)}: {problem}{consequence}") from error


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    module: str
    attribute: str


def placer_names() -> list[str]:
    """Return the names that `load_placer` accepts, besides dotted ones."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


def load_placer(name: str, configs: Mapping[str, Any] | None = None) -> ReplicaPlacer:
    """Return a new placer, configured.

    Args:
        name: A known name, `module:Class` or `package.module.Class`. A built-in name always means the built-in placer.
        configs: Its settings.

    Raises:
        ConfigError: The placer does not exist or is none, or a built-in placer does not accept the settings.
        PlacerError: A custom placer fails.
    """
    found = _find(name)
    own = name not in BUILT_IN
    try:
        with named(name, "the import", own=own):
            made = getattr(import_module(found.module), found.attribute)
    except PlacerError as error:
        if isinstance(error.__cause__, (ImportError, AttributeError)):
            why = truncate(str(error.__cause__))
            raise ConfigError(f"placer {short_repr(name)} cannot be loaded: {why}; {_known_placers()}") from error
        raise
    with named(name, "the constructor", own=own):
        placer = made() if callable(made) else made
    for method in _METHODS:
        function = getattr(placer, method, None)
        if not callable(function):
            raise ConfigError(f"placer {short_repr(name)} has no method {method}()")
        if (kind := deferred_function(function)) is not None:
            raise ConfigError(f"placer {short_repr(name)}: {method}() is {kind}, whose body would never run")
    with named(name, "configure()", own=own):
        placer.configure(dict(configs or {}))
    return cast("ReplicaPlacer", placer)


def _find(name: str) -> _Found:
    announced = {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS)}
    tp = {**announced, **BUILT_IN}.get(name, name)
    dotted = re.fullmatch(rf"({_NAME}(?:\.{_NAME})*)[:.]({_NAME})", tp.strip())
    if dotted is None:
        raise ConfigError(f"unknown placer {short_repr(name)}; {_known_placers()}")
    return _Found(name, *dotted.groups())


def _known_placers() -> str:
    return f"known are {', '.join(placer_names())}, and module:Class"


class ReplicaPlacementError(RackassignError):
    """No placement satisfies the constraints with these brokers (KIP-660); a retry does not help."""


class InvalidReplicationFactorError(RackassignError, ValueError):
    """The replication factor is not possible with these brokers."""


class InvalidPartitionsError(RackassignError, ValueError):
    """The number of partitions is invalid."""
