"""Calling any placer with validation: its result is checked before it is used (KIP-660)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from typing import Any

from rackassign.placement.layout import Layout
from rackassign.placement.placer import BUILT_IN, PlacerError, ReplicaPlacer, UsableBroker, load_placer, named
from rackassign.placement.placers.optimal import OptimalPlacer
from rackassign.util.text import counted, short_repr


@dataclass(frozen=True, slots=True)
class LoadedBroker:
    """A broker as it is passed to placers.

    Args:
        id: Node ID.
        rack: `broker.rack`; None when it has none.
        fenced: Whether it is registered but not serving.
        replicas: Replicas that it has now.
        leaders: Preferred leaders among them.
    """

    id: int
    rack: str | None
    fenced: bool
    replicas: int = 0
    leaders: int = 0


class ValidatedPlacer:
    """A named placer whose results are checked.

    Args:
        placer: The placer.
        name: Name by which its user knows it; by default its class's.
    """

    def __init__(self, placer: ReplicaPlacer, name: str = "") -> None:
        self._placer, self._name = placer, name or type(placer).__qualname__
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        tps = {tp.partition(":")[::2] for tp in BUILT_IN.values()}
        self.own = (type(placer).__module__, type(placer).__qualname__) not in tps

    @classmethod
    def of(cls, placer: ReplicaPlacer | ValidatedPlacer) -> ValidatedPlacer:
        """Return a placer with validation, wrapped if needed."""
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
        """Return the placer's list of broker IDs for each new partition.

        Raises:
            PlacerError: The placer fails, or its result is invalid.
            RackassignError: Raised by a built-in placer.
        """
        offered = [
            LoadedBroker(broker.id, broker.rack, broker.fenced, self._replicas[broker.id], self._leaders[broker.id])
            for broker in brokers
        ]
        with self._named("place"):
            # The result may be anything, and even fail when it is inspected.
            answer = self._placer.place(start_partition, num_partitions, num_replicas, list(offered))
            return self._checked(answer, num_partitions, num_replicas, [broker.id for broker in offered])

    def close(self) -> None:
        """Release the placer's resources.

        Raises:
            PlacerError: The placer fails. What was done with its results is not affected.
        """
        with named(self._name, "close()", own=self.own, consequence=""):
            self._placer.close()

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        with named(self._name, f"{method}()", own=self.own):
            yield

    def _checked(self, answer: Any, partitions: int, replicas: int, known: Sequence[int]) -> list[list[int]]:  # noqa: ANN401 - it may be anything
        rows = self._listed(answer, "its result")
        if len(rows) != partitions:
            raise self._wrong(f"{len(rows)} lists for {counted(partitions, 'partition')}")
        return [self._row(row, number, replicas, set(known)) for number, row in enumerate(rows)]

    def _row(self, row: Any, number: int, replicas: int, known: set[int]) -> list[int]:  # noqa: ANN401 - as above
        what = f"list {number}"
        ids = [self._id(each, what) for each in self._listed(row, what)]
        if len(ids) != replicas:
            raise self._wrong(f"{what} has {len(ids)} of {replicas} replicas")
        if len(set(ids)) < len(ids):
            raise self._wrong(f"{what} contains a broker twice")
        placeholders = isinstance(self._placer, OptimalPlacer)
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
    """Return a configured placer by its name, whose results are checked.

    Raises:
        ConfigError: The placer does not exist or is none, or a built-in placer does not accept the settings.
        PlacerError: A custom placer fails.
    """
    return ValidatedPlacer(load_placer(name, configs), name)
