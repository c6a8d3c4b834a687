"""What an audit has found, added up: by group, by change and strategy, by moment, by pair of racks, by topic.

Read a batch at a time. What is held is a sum for each group, change and strategy, whatever the number of rows; by pair
of racks and by topic is added up in a second reading, when it is known which groups and which of their ways matter.

Of a group that was seen several times the latest counts, for what is to be done about it is to be done now; what all
snapshots had at each moment is kept as a history. So a folder is to hold the snapshots of one cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rackassign.errors import ConfigError
from rackassign.fleet.audit import NOW
from rackassign.fleet.what_if import AS_IS, WHAT_IFS
from rackassign.model import STRATEGY_NAMES
from rackassign.util.text import short_repr

Pair = tuple[str | None, str | None]
"""The rack that is read from and the reader's; None stands for what is not known."""


@dataclass(frozen=True, slots=True)
class TrafficByKind:
    """An amount, by whether it stays in its rack, crosses racks, or nobody knows."""

    local: float = 0.0
    cross: float = 0.0
    unknown: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.local + self.cross + self.unknown

    @property
    def afar(self) -> float:
        """What is not surely local."""
        return self.cross + self.unknown

    def __add__(self, other: TrafficByKind) -> TrafficByKind:
        return TrafficByKind(self.local + other.local, self.cross + other.cross, self.unknown + other.unknown)


@dataclass(frozen=True, slots=True)
class Totals:
    """What is read, or would be.

    Args:
        bytes_s: Bytes a second.
        partitions: How many.
        unmeasured: Of those, the ones whose bytes are not known.
        moved: Partitions that would leave their reader.
    """

    bytes_s: TrafficByKind = TrafficByKind()
    partitions: TrafficByKind = TrafficByKind()
    unmeasured: int = 0
    moved: int = 0

    @property
    def rank(self) -> tuple[float, float]:
        """Return how bad it is: bytes that are not surely local, then partitions."""
        return round(self.bytes_s.afar, 3), self.partitions.afar

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.bytes_s + other.bytes_s,
            self.partitions + other.partitions,
            self.unmeasured + other.unmeasured,
            self.moved + other.moved,
        )


@dataclass(frozen=True, slots=True)
class GroupSums:
    """A group as it was seen last.

    Args:
        name: Its name.
        taken: When it was seen.
        ways: What it would read, by change, then by strategy; `NOW` stands for who has what now.
        best: The best strategy, by change.
        required_changes: What would gain most, as it is; None if nobody looked.
    """

    name: str
    taken: datetime
    ways: Mapping[str, Mapping[str, Totals]]
    best: Mapping[str, str]
    required_changes: tuple[str, ...] | None = None

    @property
    def change(self) -> str:
        """Return the change by which it is best; `AS_IS` if none makes it better."""
        return min((AS_IS, *self.ways), key=lambda what_if: self.at_best(what_if).rank)

    def strategy(self, what_if: str = AS_IS) -> str:
        """Return the best strategy with a change; `NOW` if none is better than who has what now."""
        best = self.best.get(what_if, NOW)
        ways = self.ways[what_if]
        return best if ways[best].rank < ways[NOW].rank else NOW

    def at_best(self, what_if: str = AS_IS) -> Totals:
        """Return what it would read with a change, by the best strategy, if any is better than who has what now."""
        return self.ways[what_if][self.strategy(what_if)] if what_if in self.ways else Totals()

    @property
    def now(self) -> Totals:
        """Return what it reads."""
        return self.ways[AS_IS][NOW]

    @property
    def saved(self) -> tuple[float, float]:
        """Return what could be saved, by what was tried: bytes a second, then partitions."""
        (bytes_now, now), (bytes_then, then) = self.now.rank, self.at_best(self.change).rank
        return bytes_now - bytes_then, now - then


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """All groups of a snapshot."""

    taken: datetime
    groups: int
    now: Totals


@dataclass(frozen=True, slots=True)
class Fleet:
    """All groups, each as it was seen last.

    Args:
        groups: Those by which most could be saved first.
        history: All snapshots, in order of their time.
        what_ifs: The changes that were tried, `AS_IS` first.
    """

    groups: tuple[GroupSums, ...]
    history: tuple[HistoryPoint, ...]
    what_ifs: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Tell whether bytes are known at all."""
        return any(group.now.unmeasured < group.now.partitions.total for group in self.groups)

    @property
    def stale(self) -> tuple[GroupSums, ...]:
        """Return the groups that are not in the last snapshot."""
        return tuple(group for group in self.groups if group.taken < self.history[-1].taken)

    @property
    def costly(self) -> tuple[GroupSums, ...]:
        """Return the groups, those that read most from afar first."""
        return tuple(sorted(self.groups, key=lambda g: (*(-part for part in g.now.rank), g.name)))


def total(groups: Iterable[GroupSums], of: Callable[[GroupSums], Totals]) -> Totals:
    """Add up something of all groups."""
    return sum(map(of, groups), Totals())


@dataclass(slots=True)
class _Seen:
    """A group while it is added up."""

    taken: datetime
    ways: dict[tuple[str, str], Totals] = field(default_factory=dict)
    best: dict[str, str] = field(default_factory=dict)
    take: tuple[str, ...] | None = None


def aggregate(found: Iterable[pa.RecordBatch]) -> Fleet:
    """Add up what an audit has found.

    Raises:
        ConfigError: The groups were not looked at as they are.
    """
    seen: dict[str, _Seen] = {}
    moments: dict[datetime, tuple[set[str], Totals]] = {}
    for batch in found:
        for row in _by_kind(batch):
            part = _sum(row)
            if (row["what_if"], row["strategy"]) == (AS_IS, NOW):
                names, now = moments.setdefault(row["taken"], (set(), Totals()))
                names.add(row["group"])
                moments[row["taken"]] = names, now + part
            group = _latest(seen, row)
            if group is None:
                continue
            way = row["what_if"], row["strategy"]
            group.ways[way] = replace(group.ways.get(way, Totals()) + part, moved=row["moved"])
            if row["best"]:
                group.best[row["what_if"]] = row["strategy"]
        for row in _takes(batch):
            group = _latest(seen, row)
            if group is not None:
                group.take = tuple(row["take"])
    groups = sorted(
        (_group(name, of) for name, of in seen.items()), key=lambda g: (*(-part for part in g.saved), g.name)
    )
    tried = {what_if for of in seen.values() for what_if, _ in of.ways}
    return Fleet(
        tuple(groups),
        tuple(HistoryPoint(taken, len(names), now) for taken, (names, now) in sorted(moments.items())),
        (AS_IS, *(name for name in WHAT_IFS if name in tried and name != AS_IS)),
    )


def _latest(seen: dict[str, _Seen], row: Mapping[str, Any]) -> _Seen | None:
    """Return the sums that a row belongs to; None if its group was seen later."""
    name, taken = row["group"], row["taken"]
    if name not in seen or seen[name].taken < taken:
        seen[name] = _Seen(taken)
    return seen[name] if seen[name].taken == taken else None


def _group(name: str, of: _Seen) -> GroupSums:
    ways: dict[str, dict[str, Totals]] = {}
    for what_if, strategy in sorted(of.ways, key=lambda way: (_WHAT_IFS.index(way[0]), _STRATEGIES.index(way[1]))):
        # Of a group that reads nothing now there is no row that says so.
        ways.setdefault(what_if, {NOW: Totals()})[strategy] = of.ways[what_if, strategy]
    if AS_IS not in ways:
        raise ConfigError(f"group {short_repr(name)} was not audited {AS_IS}, so there is nothing to compare with")
    return GroupSums(name, of.taken, ways, of.best, of.take)


def _sum(row: Mapping[str, Any]) -> Totals:
    kind = row["kind"]
    return Totals(
        TrafficByKind(**{kind: row["bytes_s_sum"]}),
        TrafficByKind(**{kind: row["partitions_sum"]}),
        row["unmeasured_sum"],
    )


_WHAT_IFS, _STRATEGIES = (*WHAT_IFS,), (NOW, *STRATEGY_NAMES)
_KEYS = ("taken", "group", "what_if", "strategy")
_AMOUNTS = ("partitions", "unmeasured", "bytes_s")


def _reduced(table: pa.Table, keys: Collection[str]) -> list[dict[str, Any]]:
    """Add up the amounts of rows that are equal in the keys."""
    # Threads would add up in another order each time.
    groups = table.group_by([*keys], use_threads=False)
    rows: list[dict[str, Any]] = groups.aggregate([(name, "sum") for name in _AMOUNTS]).to_pylist()
    return rows


def _by_kind(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    table = pa.Table.from_batches([batch])
    table = table.append_column("kind", _kinds(table))
    return _reduced(table, (*_KEYS, "moved", "best", "kind"))


def _kinds(table: pa.Table) -> Any:  # noqa: ANN401 - a column
    source, home = table["source_rack"], table["reader_rack"]
    known = pc.and_(pc.is_valid(source), pc.is_valid(home))
    return pc.if_else(known, pc.if_else(pc.equal(source, home), "local", "cross"), "unknown")


def _takes(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    told = batch.filter(pc.is_valid(batch.column("take")))
    yield from told.select(["taken", "group", "take"]).to_pylist()


@dataclass(slots=True)
class Breakdown:
    """What goes from which rack to which, and by topic.

    Args:
        now: Of all groups as they are, by pair of racks.
        best: With the best strategy of each.
        changed: With the best change of each as well.
        topics: Of some groups, by topic: now, and with the best strategy.
    """

    now: dict[Pair, Totals] = field(default_factory=dict)
    best: dict[Pair, Totals] = field(default_factory=dict)
    changed: dict[Pair, Totals] = field(default_factory=dict)
    topics: dict[str, dict[str, tuple[Totals, Totals]]] = field(default_factory=dict)


def breakdown(found: Iterable[pa.RecordBatch], fleet: Fleet, names: Collection[str]) -> Breakdown:
    """Read the same once more.

    Args:
        found: What an audit has found.
        fleet: The same, added up.
        names: Of groups that are wanted by topic.
    """
    groups = {group.name: (group.taken, _roles(group)) for group in fleet.groups}
    detail = Breakdown(topics={name: {} for name in names})
    for batch in found:
        table = pa.Table.from_batches([batch])
        table = table.filter(pc.or_(table["best"], pc.equal(table["strategy"], NOW)))
        table = table.append_column("kind", _kinds(table))
        for row in _reduced(table, (*_KEYS, "source_rack", "reader_rack", "kind")):
            pair, part = (row["source_rack"], row["reader_rack"]), _sum(row)
            taken, roles = groups[row["group"]]
            for role in roles.get((row["what_if"], row["strategy"]), ()) if row["taken"] == taken else ():
                sums: dict[Pair, Totals] = getattr(detail, role)
                sums[pair] = sums.get(pair, Totals()) + part
        of_names = table.filter(pc.is_in(table["group"], pa.array(names, pa.string())))
        for row in _reduced(of_names, (*_KEYS, "topic", "kind")):
            taken, roles = groups[row["group"]]
            if row["taken"] != taken:
                continue
            wanted = roles.get((row["what_if"], row["strategy"]), ())
            topics, part = detail.topics[row["group"]], _sum(row)
            now, best = topics.get(row["topic"], (Totals(), Totals()))
            topics[row["topic"]] = now + part if "now" in wanted else now, best + part if "best" in wanted else best
    return detail


def _roles(group: GroupSums) -> dict[tuple[str, str], list[str]]:
    """Return by change and strategy which of the sums of `Breakdown` it belongs to."""
    roles: dict[tuple[str, str], list[str]] = {(AS_IS, NOW): ["now"]}
    roles.setdefault((AS_IS, group.strategy()), []).append("best")
    roles.setdefault((group.change, group.strategy(group.change)), []).append("changed")
    return roles
