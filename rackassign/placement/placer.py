"""The interface of KIP-660: who may decide where new replicas go, and how such a one is found.

A placer of your own is a class with the three methods of `ReplicaPlacer`. It is named by `module:Class` or
`package.module.Class`, or by a name of its own that its distribution announces in the entry-point group
`rackassign.placers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol, cast, runtime_checkable

from rackassign.errors import ConfigError, RackassignError
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
"""The placers that come with rackassign, and where they are."""

_NAME = r"[^\W\d]\w*"
_METHODS = ("configure", "place", "close")


class UsableBroker(Protocol):
    """A broker that may be given replicas; a `model.Broker` is one."""

    @property
    def id(self) -> int:
        """Node id."""

    @property
    def rack(self) -> str | None:
        """`broker.rack`; None when it has none."""

    @property
    def fenced(self) -> bool:
        """Whether it is registered but not serving."""


@runtime_checkable
class ReplicaPlacer(Protocol):
    """Decides where replicas go (KIP-660)."""

    def configure(self, configs: dict[str, Any]) -> None:
        """Take settings, before anything is placed.

        Raises:
            ConfigError: A setting cannot work.
        """

    def place(
        self, start_partition: int, num_partitions: int, num_replicas: int, brokers: Iterable[UsableBroker]
    ) -> list[list[int]]:
        """Return a list of broker ids for each new partition, preferred leader first.

        Args:
            start_partition: Id of the first new partition.
            num_partitions: How many are new.
            num_replicas: How many replicas each gets.
            brokers: Those that may be used.

        Raises:
            InvalidReplicationFactorError: There cannot be so many replicas.
            ReplicaPlacementError: They cannot be placed as they should.
        """

    def close(self) -> None:
        """Let go of what it holds."""


class PlacerError(RackassignError):
    """A placer that is not ours failed, or answered what cannot be; the message names it."""


@contextmanager
def named(name: str, what: str, *, own: bool) -> Iterator[None]:
    """Name a placer that fails in the block, in one line.

    Args:
        name: Of the placer.
        what: Of it failed.
        own: Whether it is its user's own; what fails in ours is told as it is.
    """
    try:
        yield
    except PlacerError:
        raise
    except (Exception, SystemExit) as error:
        if not own:
            raise
        words = " ".join(str(error).split())
        said = truncate(f"{type(error).__name__}: {words}" if words else type(error).__name__)
        # Who raises an error of ours has said what is wrong.
        told = strip_control_chars(words) if isinstance(error, RackassignError) else f"{what} failed with {said}"
        raise PlacerError(f"placer {short_repr(name)}: {told}; nothing was done") from error


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    module: str
    attribute: str


def placer_names() -> list[str]:
    """Return the names that `load_placer` knows, without the dotted ones."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


def load_placer(name: str, configs: Mapping[str, Any] | None = None) -> ReplicaPlacer:
    """Return a new placer, configured.

    Args:
        name: A name that is known, `module:Class` or `package.module.Class`. A built-in name always means ours.
        configs: Its settings.

    Raises:
        ConfigError: There is no such placer, it is none, or one that is ours does not take the settings.
        PlacerError: One that is not ours fails.
    """
    found = _find(name)
    own = name not in BUILT_IN
    try:
        with named(name, "the import", own=own):
            made = getattr(import_module(found.module), found.attribute)
    except PlacerError as error:
        if isinstance(error.__cause__, (ImportError, AttributeError)):
            why = truncate(str(error.__cause__))
            raise ConfigError(f"placer {short_repr(name)} cannot be loaded: {why}; {_those_there_are()}") from error
        raise
    with named(name, "its making", own=own):
        placer = made() if callable(made) else made
    missing = [method for method in _METHODS if not callable(getattr(placer, method, None))]
    if missing:
        raise ConfigError(f"placer {short_repr(name)} has no method {missing[0]}()")
    with named(name, "configure()", own=own):
        placer.configure(dict(configs or {}))
    return cast("ReplicaPlacer", placer)


def _find(name: str) -> _Found:
    announced = {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS)}
    place = {**announced, **BUILT_IN}.get(name, name)
    dotted = re.fullmatch(rf"({_NAME}(?:\.{_NAME})*)[:.]({_NAME})", place.strip())
    if dotted is None:
        raise ConfigError(f"there is no placer {short_repr(name)}; {_those_there_are()}")
    return _Found(name, *dotted.groups())


def _those_there_are() -> str:
    return f"there are {', '.join(placer_names())}, and module:Class"


class ReplicaPlacementError(RackassignError):
    """A placement cannot be made with these brokers and rules (KIP-660); asking again does not help."""


class InvalidReplicationFactorError(RackassignError, ValueError):
    """So many replicas cannot be had from these brokers."""


class InvalidPartitionsError(RackassignError, ValueError):
    """So many partitions cannot be placed."""
