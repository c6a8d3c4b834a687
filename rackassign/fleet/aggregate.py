"""Aggregation of audit results by group, by change and strategy, by time, by pair of racks and by topic.

Results are read in batches. Memory holds one sum for each group, change and strategy, whatever the number of rows. Sums
by pair of racks and by topic need a second pass, because only the first pass determines which groups, changes and
strategies they are for.

If a group is in several snapshots, the latest one counts, because recommendations are about the present. The totals of
each snapshot are kept as a history. A folder must therefore contain the snapshots of one cluster only.

Totals are shown as text: in money if bytes were measured, else in partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rackassign.errors import ConfigError
from rackassign.fleet.evaluation import AS_IS, NOW, WHAT_IFS
from rackassign.monitoring import Price
from rackassign.monitoring.report import format_bytes, format_usd, mark_lower_bound
from rackassign.strategies import STRATEGY_ORDER
from rackassign.text import short_repr

Pair = tuple[str | None, str | None]
"""The source rack and the reader's rack; None is an unknown rack."""

_WHAT_IFS, _STRATEGIES = (*WHAT_IFS,), (NOW, *STRATEGY_ORDER)
_KEYS = ("taken", "group", "what_if", "strategy")
_AMOUNTS = ("partitions", "unmeasured", "bytes_s")


@dataclass(frozen=True, slots=True)
class TrafficByKind:
    """An amount of traffic, split into local, cross-rack and unknown."""

    local: float = 0.0
    cross: float = 0.0
    unknown: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all three."""
        return self.local + self.cross + self.unknown

    @property
    def cross_or_unknown(self) -> float:
        """The cross-rack and the unknown amount: all that is not known to be local."""
        return self.cross + self.unknown

    def __add__(self, other: TrafficByKind) -> TrafficByKind:
        return TrafficByKind(self.local + other.local, self.cross + other.cross, self.unknown + other.unknown)


@dataclass(frozen=True, slots=True)
class Totals:
    """Reads of one or more groups, measured or predicted."""

    # Bytes per second.
    bytes_s: TrafficByKind = TrafficByKind()
    partitions: TrafficByKind = TrafficByKind()
    # Number of those partitions whose rate is not known.
    unmeasured: int = 0
    moved: int = 0

    @property
    def rank(self) -> tuple[float, float]:
        """Return the sort key, lower is better: bytes not known to be local, then partitions not known to be local."""
        return round(self.bytes_s.cross_or_unknown, 3), self.partitions.cross_or_unknown

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.bytes_s + other.bytes_s,
            self.partitions + other.partitions,
            self.unmeasured + other.unmeasured,
            self.moved + other.moved,
        )


@dataclass(frozen=True, slots=True)
class GroupSums:
    """A group in its latest snapshot."""

    name: str
    taken: datetime
    outcomes: Mapping[str, Mapping[str, Totals]]
    best: Mapping[str, str]
    # Recommended changes that gain most for the unchanged group; None if none were computed.
    required_changes: tuple[str, ...] | None = None

    @property
    def change(self) -> str:
        """Return the change with the best result; `AS_IS` if none improves the group."""
        return min((AS_IS, *self.outcomes), key=lambda what_if: self.at_best(what_if).rank)

    def strategy(self, what_if: str = AS_IS) -> str:
        """Return the best strategy with a change; `NOW` if none is better than the current assignment."""
        best = self.best.get(what_if, NOW)
        outcomes = self.outcomes[what_if]
        return best if outcomes[best].rank < outcomes[NOW].rank else NOW

    def at_best(self, what_if: str = AS_IS) -> Totals:
        """Return the reads with a change, by the best strategy or by the current assignment if none is better."""
        return self.outcomes[what_if][self.strategy(what_if)] if what_if in self.outcomes else Totals()

    @property
    def now(self) -> Totals:
        """Return the current reads."""
        return self.outcomes[AS_IS][NOW]

    @property
    def saved(self) -> tuple[float, float]:
        """Return the largest saving of the evaluated changes: bytes per second, then partitions."""
        (bytes_now, now), (bytes_then, then) = self.now.rank, self.at_best(self.change).rank
        return bytes_now - bytes_then, now - then


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """Current reads of all groups at the time of a snapshot."""

    taken: datetime
    groups: int
    now: Totals


@dataclass(frozen=True, slots=True)
class Fleet:
    """All groups, each in its latest snapshot."""

    groups: tuple[GroupSums, ...]
    # All snapshots in order of time.
    history: tuple[HistoryPoint, ...]
    what_ifs: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Return whether the rate of any partition is known."""
        return any(group.now.unmeasured < group.now.partitions.total for group in self.groups)

    @property
    def stale(self) -> tuple[GroupSums, ...]:
        """Return the groups that are not in the latest snapshot."""
        return tuple(group for group in self.groups if group.taken < self.history[-1].taken)

    @property
    def costly(self) -> tuple[GroupSums, ...]:
        """Return the groups in descending order of the reads that are not known to be local."""
        return tuple(sorted(self.groups, key=lambda g: (*(-part for part in g.now.rank), g.name)))


def total(groups: Iterable[GroupSums], of: Callable[[GroupSums], Totals]) -> Totals:
    """Return the sum of the totals that `of` returns for each group."""
    return sum(map(of, groups), Totals())


@dataclass(slots=True)
class _Seen:
    """Sums of a group during aggregation."""

    taken: datetime
    outcomes: dict[tuple[str, str], Totals] = field(default_factory=dict)
    best: dict[str, str] = field(default_factory=dict)
    take: tuple[str, ...] | None = None


def aggregate(found: Iterable[pa.RecordBatch]) -> Fleet:
    """Aggregate the results of an audit."""
    topics: dict[str, _Seen] = {}
    snapshots: dict[datetime, tuple[set[str], Totals]] = {}
    for batch in found:
        for row in _by_kind(batch):
            part = _sum(row)
            # A group that reads nothing now has no row with `NOW`, and is in its snapshot nevertheless.
            names, now = snapshots.get(row["taken"], (set[str](), Totals()))
            names.add(row["group"])
            reads_now = (row["what_if"], row["strategy"]) == (AS_IS, NOW)
            snapshots[row["taken"]] = names, now + part if reads_now else now
            group = _latest(topics, row)
            if group is None:
                continue
            key = row["what_if"], row["strategy"]
            group.outcomes[key] = replace(group.outcomes.get(key, Totals()) + part, moved=row["moved"])
            if row["best"]:
                group.best[row["what_if"]] = row["strategy"]
        for row in _recommendations(batch):
            group = _latest(topics, row)
            if group is not None:
                group.take = tuple(row["take"])
    groups = sorted(
        (_group(name, of) for name, of in topics.items()), key=lambda g: (*(-part for part in g.saved), g.name)
    )
    tried = {what_if for of in topics.values() for what_if, _ in of.outcomes}
    return Fleet(
        tuple(groups),
        tuple(HistoryPoint(taken, len(names), now) for taken, (names, now) in sorted(snapshots.items())),
        (AS_IS, *(name for name in WHAT_IFS if name in tried and name != AS_IS)),
    )


def _latest(seen: dict[str, _Seen], row: Mapping[str, Any]) -> _Seen | None:
    """Return the sums that a row belongs to; None if a later snapshot has its group."""
    name, taken = row["group"], row["taken"]
    if name not in seen or seen[name].taken < taken:
        seen[name] = _Seen(taken)
    return seen[name] if seen[name].taken == taken else None


def _group(name: str, of: _Seen) -> GroupSums:
    outcomes: dict[str, dict[str, Totals]] = {}
    for what_if, strategy in sorted(of.outcomes, key=lambda key: (_WHAT_IFS.index(key[0]), _STRATEGIES.index(key[1]))):
        # A group that reads nothing now has no row with `NOW`.
        outcomes.setdefault(what_if, {NOW: Totals()})[strategy] = of.outcomes[what_if, strategy]
    if AS_IS not in outcomes:
        raise ConfigError(
            f"group {short_repr(name)}: no results for {AS_IS}, with which the other changes are compared; "
            f"evaluate {AS_IS} as well"
        )
    return GroupSums(name, of.taken, outcomes, of.best, of.take)


def _sum(row: Mapping[str, Any]) -> Totals:
    kind = row["kind"]
    return Totals(
        TrafficByKind(**{kind: row["bytes_s_sum"]}),
        TrafficByKind(**{kind: row["partitions_sum"]}),
        row["unmeasured_sum"],
    )


def _reduced(table: pa.Table, keys: Collection[str]) -> list[dict[str, Any]]:
    """Return the sums of the amounts of all rows with equal keys."""
    # Threads would add up floats in a different order each time.
    groups = table.group_by([*keys], use_threads=False)
    rows: list[dict[str, Any]] = groups.aggregate([(name, "sum") for name in _AMOUNTS]).to_pylist()
    return rows


def _by_kind(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    table = pa.Table.from_batches([batch])
    table = table.append_column("kind", _kinds(table))
    return _reduced(table, (*_KEYS, "moved", "best", "kind"))


def _kinds(table: pa.Table) -> Any:  # noqa: ANN401 - a column
    source, reader = table["source_rack"], table["reader_rack"]
    known = pc.and_(pc.is_valid(source), pc.is_valid(reader))
    return pc.if_else(known, pc.if_else(pc.equal(source, reader), "local", "cross"), "unknown")


def _recommendations(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    recommended = batch.filter(pc.is_valid(batch.column("take")))
    yield from recommended.select(["taken", "group", "take"]).to_pylist()


@dataclass(slots=True)
class Breakdown:
    """Reads by pair of racks and by topic."""

    now: dict[Pair, Totals] = field(default_factory=dict)
    best: dict[Pair, Totals] = field(default_factory=dict)
    changed: dict[Pair, Totals] = field(default_factory=dict)
    topics: dict[str, dict[str, tuple[Totals, Totals]]] = field(default_factory=dict)


def breakdown(found: Iterable[pa.RecordBatch], fleet: Fleet, names: Collection[str]) -> Breakdown:
    """Aggregate the results of an audit by pair of racks and by topic, in a second pass."""
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
            group_roles = roles.get((row["what_if"], row["strategy"]), ())
            topics, part = detail.topics[row["group"]], _sum(row)
            now, best = topics.get(row["topic"], (Totals(), Totals()))
            topics[row["topic"]] = (
                now + part if "now" in group_roles else now,
                best + part if "best" in group_roles else best,
            )
    return detail


def _roles(group: GroupSums) -> dict[tuple[str, str], list[str]]:
    """Return the fields of `Breakdown` that each change and strategy of a group is added to."""
    roles: dict[tuple[str, str], list[str]] = {(AS_IS, NOW): ["now"]}
    roles.setdefault((AS_IS, group.strategy()), []).append("best")
    roles.setdefault((group.change, group.strategy(group.change)), []).append("changed")
    return roles


@dataclass(frozen=True, slots=True)
class Figures:
    """Formatter of totals."""

    price: Price
    measured: bool

    @property
    def unit(self) -> str:
        """The unit of the figures."""
        return "USD a month" if self.measured else "partitions"

    def kinds(self, of: Totals) -> TrafficByKind:
        """Return the bytes per second if bytes were measured, else the partitions."""
        return of.bytes_s if self.measured else of.partitions

    def crossing(self, of: Totals) -> str:
        """Format the cross-rack amount; as a range if a part is unknown."""
        return self._marked("{} to {}", of)

    def at_most(self, of: Totals) -> str:
        """Format the cross-rack amount in fewer characters: only the upper end of a range."""
        return self._marked("≤{1}", of)

    def _marked(self, range_format: str, of: Totals) -> str:
        if self.measured and 0 < of.partitions.total <= of.unmeasured:
            return "not measured"
        kinds = self.kinds(of)
        least, most = self._figure(kinds.cross), self._figure(kinds.cross_or_unknown)
        shown = least if least == most else range_format.format(least, most)
        return mark_lower_bound(shown, of.unmeasured if self.measured else 0)

    def less(self, before: Totals, after: Totals) -> str:
        """Format the reduction of reads not known to be local; marked as an upper bound if a part is unknown."""
        old, new = self.kinds(before), self.kinds(after)
        shown = self._figure(old.cross_or_unknown - new.cross_or_unknown)
        is_upper_bound = old.unknown > 0 or new.unknown > 0
        return f"≤{shown}" if is_upper_bound and shown != self._figure(0) else shown

    def flow(self, amount: float) -> str:
        """Format an amount of traffic."""
        return f"{format_bytes(amount)}/s" if self.measured else f"{amount:,.0f} partitions"

    def _figure(self, amount: float) -> str:
        return format_usd(self.price.monthly(amount)) if self.measured else f"{amount:,.0f}"
