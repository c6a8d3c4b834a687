"""Asking a placer, whoever wrote it: what it answers is looked at before anybody acts on it (KIP-660)."""

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
from rackassign.util.text import short_repr


@dataclass(frozen=True, slots=True)
class LoadedBroker:
    """A broker as placers are offered it.

    Args:
        id: Node id.
        rack: `broker.rack`; None when it has none.
        fenced: Whether it is registered but not serving.
        replicas: How many it holds now.
        leaders: How many of those are preferred leaders.
    """

    id: int
    rack: str | None
    fenced: bool
    replicas: int = 0
    leaders: int = 0


class ValidatedPlacer:
    """A placer by its name, with every answer checked.

    Args:
        placer: It.
        name: By which its user knows it; its class's, unless said.
    """

    def __init__(self, placer: ReplicaPlacer, name: str = "") -> None:
        self._placer, self._name = placer, name or type(placer).__qualname__
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        places = {place.partition(":")[::2] for place in BUILT_IN.values()}
        self.own = (type(placer).__module__, type(placer).__qualname__) not in places

    @classmethod
    def of(cls, placer: ReplicaPlacer | ValidatedPlacer) -> ValidatedPlacer:
        """Return a placer that is asked so, if it is not yet."""
        return placer if isinstance(placer, ValidatedPlacer) else cls(placer)

    @property
    def notes(self) -> tuple[str, ...]:
        """What its last answer is not proven to be, or did not keep to; of placers that are ours."""
        return () if self.own else tuple(getattr(self._placer, "notes", ()))

    def observe(self, layout: Layout) -> None:
        """Count in where replicas are now: the load of brokers and, for a placer with `observe`, the layout."""
        lists = [row for rows in layout.topics.values() for row in rows]
        self._replicas = Counter(broker for row in lists for broker in row)
        self._leaders = Counter(row[0] for row in lists if row)
        told = getattr(self._placer, "observe", None)
        if callable(told):
            with self._named("observe"):
                told(layout)

    def place(
        self, start_partition: int, num_partitions: int, num_replicas: int, brokers: Iterable[UsableBroker]
    ) -> list[list[int]]:
        """Return a list of broker ids for each new partition, as the placer does.

        Raises:
            PlacerError: It fails, or its answer is no such lists.
            RackassignError: As one that is ours does.
        """
        offered = [
            LoadedBroker(broker.id, broker.rack, broker.fenced, self._replicas[broker.id], self._leaders[broker.id])
            for broker in brokers
        ]
        with self._named("place"):
            # What it answers may be anything, and fail when it is looked at.
            answer = self._placer.place(start_partition, num_partitions, num_replicas, list(offered))
            return self._checked(answer, num_partitions, num_replicas, [broker.id for broker in offered])

    def close(self) -> None:
        """Let it let go of what it holds."""
        with self._named("close"):
            self._placer.close()

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        with named(self._name, f"{method}()", own=self.own):
            yield

    def _checked(self, answer: Any, partitions: int, replicas: int, known: Sequence[int]) -> list[list[int]]:  # noqa: ANN401 - it may be anything
        rows = self._listed(answer, "its answer")
        if len(rows) != partitions:
            raise self._wrong(f"{len(rows)} lists for {partitions} partition{'' if partitions == 1 else 's'}")
        return [self._row(row, number, replicas, set(known)) for number, row in enumerate(rows)]

    def _row(self, row: Any, number: int, replicas: int, known: set[int]) -> list[int]:  # noqa: ANN401 - as above
        what = f"list {number}"
        ids = [self._id(each, what) for each in self._listed(row, what)]
        if len(ids) != replicas:
            raise self._wrong(f"{what} has {len(ids)} of {replicas} replicas")
        if len(set(ids)) < len(ids):
            raise self._wrong(f"{what} has a broker twice")
        placeholders = isinstance(self._placer, OptimalPlacer)
        for broker in ids:
            if broker not in known and not (placeholders and broker < 0):
                raise self._wrong(f"{what} has broker {broker}, which it was not offered")
        return ids

    def _listed(self, value: Any, what: str) -> Sequence[Any]:  # noqa: ANN401 - as above
        if not isinstance(value, (list, tuple)):
            raise self._wrong(f"{what} is no list: {short_repr(value)}")
        return value

    def _id(self, value: Any, what: str) -> int:  # noqa: ANN401 - as above
        if not isinstance(value, bool):
            try:
                return index(value)
            except TypeError:
                pass
        raise self._wrong(f"{what} has {short_repr(value)}, which is no broker id")

    def _wrong(self, problem: str) -> PlacerError:
        return PlacerError(f"placer {short_repr(self._name)}: {problem}; nothing was done")


def load_validated_placer(name: str, configs: Mapping[str, Any] | None = None) -> ValidatedPlacer:
    """Return a placer by its name, configured, whose answers are checked.

    Raises:
        ConfigError: There is no such placer, it is none, or one that is ours does not take the settings.
        PlacerError: One that is not ours fails.
    """
    return ValidatedPlacer(load_placer(name, configs), name)
