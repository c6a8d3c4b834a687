"""The interface of placers (KIP-660): the loading of one by its name, and its results checked before they are used.

A custom placer is a class with the three methods of `ReplicaPlacer`. It is named by `module:Class` or
`package.module.Class`, or by a name that its distribution declares in the entry-point group `rackassign.placers`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from operator import index
from typing import Any, Protocol, cast, runtime_checkable

from rackassign.errors import ConfigError, RackassignError
from rackassign.placement.layout import Layout
from rackassign.text import counted, short_repr, strip_control_chars, truncate
from rackassign.util.callbacks import deferred_function

ENTRY_POINTS = "rackassign.placers"

BUILT_IN: Mapping[str, str] = {
    "elasticsearch": "rackassign.placement.optimal_placer:ElasticsearchPlacer",
    "hadoop": "rackassign.placement.optimal_placer:HadoopPlacer",
    "kafka": "rackassign.placement.kafka_placers:KafkaPlacer",
    "optimal": "rackassign.placement.optimal_placer:OptimalPlacer",
    "redis": "rackassign.placement.optimal_placer:RedisPlacer",
    "striped": "rackassign.placement.kafka_placers:StripedPlacer",
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
    """
    # Errors of built-in placers are not changed.
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
    module, attribute = _find(name)
    own = name not in BUILT_IN
    try:
        with named(name, "the import", own=own):
            made = getattr(import_module(module), attribute)
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


def _find(name: str) -> tuple[str, str]:
    announced = {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS)}
    path = {**announced, **BUILT_IN}.get(name, name)
    dotted = re.fullmatch(rf"({_NAME}(?:\.{_NAME})*)[:.]({_NAME})", path.strip())
    if dotted is None:
        raise ConfigError(f"unknown placer {short_repr(name)}; {_known_placers()}")
    return dotted[1], dotted[2]


def _known_placers() -> str:
    return f"known are {', '.join(placer_names())}, and module:Class"


class ReplicaPlacementError(RackassignError):
    """No placement satisfies the constraints with these brokers (KIP-660); a retry does not help."""


class InvalidReplicationFactorError(RackassignError, ValueError):
    """The replication factor is not possible with these brokers."""


class InvalidPartitionsError(RackassignError, ValueError):
    """The number of partitions is invalid."""


@dataclass(frozen=True, slots=True)
class LoadedBroker:
    """A broker as it is passed to placers."""

    id: int
    rack: str | None
    # Registered but not serving.
    fenced: bool
    # Replicas that it has now, and preferred leaders among them.
    replicas: int = 0
    leaders: int = 0


class ValidatedPlacer:
    """A named placer whose results are checked."""

    def __init__(self, placer: ReplicaPlacer, name: str = "") -> None:
        self._placer, self._name = placer, name or type(placer).__qualname__
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        self.own = f"{type(placer).__module__}:{type(placer).__qualname__}" not in BUILT_IN.values()

    @classmethod
    def of(cls, placer: ReplicaPlacer | ValidatedPlacer) -> ValidatedPlacer:
        return placer if isinstance(placer, ValidatedPlacer) else cls(placer)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not proven of the last result, or which constraint it does not satisfy; of built-in placers."""
        return () if self.own else tuple(getattr(self._placer, "notes", ()))

    def observe(self, layout: Layout) -> None:
        """Set the existing replicas: the load of brokers and, for a placer with `observe`, the layout."""
        lists = [row for rows in layout.topics.values() for row in rows]
        self._replicas = Counter(broker for row in lists for broker in row)
        self._leaders = Counter(row[0] for row in lists if row)
        observe = getattr(self._placer, "observe", None)
        if callable(observe):
            with self._named("observe"):
                observe(layout)

    def place(
        self, start_partition: int, num_partitions: int, num_replicas: int, brokers: Iterable[UsableBroker]
    ) -> list[list[int]]:
        offered = [
            LoadedBroker(broker.id, broker.rack, broker.fenced, self._replicas[broker.id], self._leaders[broker.id])
            for broker in brokers
        ]
        with self._named("place"):
            # The result may be anything, and even fail when it is inspected.
            answer = self._placer.place(start_partition, num_partitions, num_replicas, list(offered))
            rows = self._listed(answer, "its result")
            if len(rows) != num_partitions:
                raise self._wrong(f"{len(rows)} lists for {counted(num_partitions, 'partition')}")
            known = {broker.id for broker in offered}
            return [self._row(row, number, num_replicas, known) for number, row in enumerate(rows)]

    def close(self) -> None:
        with named(self._name, "close()", own=self.own, consequence=""):
            self._placer.close()

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        with named(self._name, f"{method}()", own=self.own):
            yield

    def _row(self, row: Any, number: int, replicas: int, known: set[int]) -> list[int]:  # noqa: ANN401 - it may be anything
        what = f"list {number}"
        ids = [self._id(each, what) for each in self._listed(row, what)]
        if len(ids) != replicas:
            raise self._wrong(f"{what} has {len(ids)} of {replicas} replicas")
        if len(set(ids)) < len(ids):
            raise self._wrong(f"{what} contains a broker twice")
        placeholders = getattr(self._placer, "has_placeholders", False) is True
        for broker in ids:
            if broker not in known and not (placeholders and broker < 0):
                raise self._wrong(f"{what} contains broker {broker}, which was not offered")
        return ids

    def _listed(self, value: Any, what: str) -> Sequence[Any]:  # noqa: ANN401 - as above
        if not isinstance(value, (list, tuple)):
            raise self._wrong(f"{what} is not a list: {short_repr(value)}")
        return value

    def _id(self, value: Any, what: str) -> int:  # noqa: ANN401 - as above
        if not isinstance(value, bool):
            try:
                return index(value)
            except TypeError:
                pass
        raise self._wrong(f"{what} contains {short_repr(value)}, which is not a broker ID")

    def _wrong(self, problem: str) -> PlacerError:
        return PlacerError(f"placer {short_repr(self._name)}: {problem}; nothing was done")


def load_validated_placer(name: str, configs: Mapping[str, Any] | None = None) -> ValidatedPlacer:
    return ValidatedPlacer(load_placer(name, configs), name)
