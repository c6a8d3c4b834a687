"""Evaluation of every group under every strategy: reads between racks, their cost, and the best strategy.

The same function runs over batches of a Parquet file in this process and as `mapInArrow` of a DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

import pyarrow as pa

from rackassign.errors import ConfigError
from rackassign.fleet.schema import GroupRow, from_arrow
from rackassign.fleet.what_if import AS_IS, WHAT_IFS
from rackassign.model import STRATEGY_NAMES, Partitions, StrategyName
from rackassign.monitoring import Price, ReadRates, Throughput, describe_action
from rackassign.monitoring.analysis import inspect, moved
from rackassign.monitoring.traffic import TopicRead, topic_reads
from rackassign.strategies import STRATEGIES, Options
from rackassign.util.text import short_repr

NOW = "now"

SCHEMA = pa.schema(
    [
        ("taken", pa.timestamp("us", "UTC")),
        ("group", pa.string()),
        ("what_if", pa.string()),
        ("strategy", pa.string()),
        ("topic", pa.string()),
        ("source_rack", pa.string()),
        ("reader_rack", pa.string()),
        ("partitions", pa.int64()),
        ("unmeasured", pa.int64()),
        ("bytes_s", pa.float64()),
        ("usd_month", pa.float64()),
        ("moved", pa.int64()),
        ("best", pa.bool_()),
        ("take", pa.list_(pa.string())),
    ]
)
"""One row for each group, change, strategy, topic and pair of racks. A null rack is unknown.

`partitions` is the number of partitions read between the two racks, and `unmeasured` the number of those whose rate is
unknown. `usd_month` is the price of the traffic that is known to be cross-rack. The strategy `NOW` is the current
assignment, evaluated as it is or after a change. `moved` is the number of partitions of the whole group that would
leave their reader. `best` marks the planned strategy with the fewest reads that are not known to be local; `NOW` is
never marked. `take` has the recommended changes that gain most; it is set in the rows of the best strategy of the
unchanged group and null elsewhere.
"""

ROWS_PER_BATCH = 20_000
"""Number of result rows in memory and in a row group."""


@dataclass(frozen=True, slots=True)
class FleetAudit:
    """Options of a fleet audit.

    Args:
        price: Price of cross-rack traffic.
        what_ifs: Names of the changes to evaluate, from `WHAT_IFS`.
        recommend: Whether to compute recommended changes, which takes several times as long.

    Raises:
        ConfigError: A name is not in `WHAT_IFS`.
    """

    price: Price = Price()  # noqa: RUF009 - frozen
    what_ifs: Sequence[str] = (AS_IS,)
    recommend: bool = False

    def __post_init__(self) -> None:
        for name in self.what_ifs:
            if name not in WHAT_IFS:
                raise ConfigError(f"what-if: expected one of {', '.join(WHAT_IFS)}, got {short_repr(name)}")


def audit_groups(batches: Iterable[pa.RecordBatch], options: FleetAudit) -> Iterator[pa.RecordBatch]:
    """Evaluate groups one after the other and yield the results (`SCHEMA`) in batches of some thousand rows.

    Args:
        batches: Batches of rows with one group each (`schema.SCHEMA`), in any order and of any size.
        options: Options of the audit.

    Raises:
        ConfigError: A row was not written by a snapshot.
    """
    found: list[dict[str, Any]] = []
    for batch in batches:
        for row in from_arrow(batch):
            for name in options.what_ifs:
                found += _evaluate(name, WHAT_IFS[name](row), options)
            if len(found) >= ROWS_PER_BATCH:
                yield pa.RecordBatch.from_pylist(found, SCHEMA)
                found = []
    if found:
        yield pa.RecordBatch.from_pylist(found, SCHEMA)


def _evaluate(what_if: str, row: GroupRow, options: FleetAudit) -> Iterator[dict[str, Any]]:
    """Yield the result rows of one group with a change, or with none (`AS_IS`)."""
    rates = _by_topic(row.rates)
    # Plans are those of an inspection, in which a rack that no broker has is unknown.
    located = replace(row, snapshot=row.snapshot.without_foreign_racks())
    outcomes = [_outcome(name, located, rates) for name in STRATEGIES] if row.snapshot.group.members else []
    best = min(outcomes, key=lambda outcome: outcome.rank, default=None)
    take = None
    if what_if == AS_IS and options.recommend:
        found = inspect(row.snapshot, row.cluster, ReadRates(row.rates.bytes_s))
        take = [describe_action(action, found) for action in found.actions]
    for outcome in (_now(row, rates), *outcomes):
        base = {"taken": row.taken, "group": row.snapshot.live.name, "what_if": what_if, "strategy": outcome.strategy}
        group_columns = {"moved": outcome.moved, "best": outcome is best, "take": take if outcome is best else None}
        for pair in outcome.pairs:
            yield {**base, **pair, "usd_month": _usd(pair, options.price), **group_columns}


def _usd(pair: Mapping[str, Any], price: Price) -> float:
    known = None not in {pair["source_rack"], pair["reader_rack"]}
    return price.monthly(pair["bytes_s"]) if known and pair["source_rack"] != pair["reader_rack"] else 0.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Reads of a group under a strategy, or with its current assignment."""

    strategy: str
    pairs: tuple[dict[str, Any], ...]
    moved: int = 0

    @property
    def rank(self) -> tuple[float, int, int]:
        """Return the sort key, lower is better: bytes, then partitions that are not known to be local.

        Of equal strategies the last one in `STRATEGY_NAMES` is best.
        """
        not_local = [
            pair for pair in self.pairs if pair["source_rack"] is None or pair["source_rack"] != pair["reader_rack"]
        ]
        names: tuple[str, ...] = STRATEGY_NAMES
        return (
            # Rounded, since equal amounts are added in another order.
            round(fsum(p["bytes_s"] for p in not_local), 3),
            sum(p["partitions"] for p in not_local),
            -names.index(self.strategy),
        )


def _now(row: GroupRow, rates: Mapping[str, list[float | None]]) -> _Outcome:
    """Return the reads of the current assignment."""
    shot = row.snapshot
    serving = row.cluster.in_sync_replicas(shot.group.topology)
    return _Outcome(NOW, _pairs(topic_reads(shot.group, _owned(row), serving, shot.leaders_only), rates))


def _outcome(strategy: StrategyName, row: GroupRow, rates: Mapping[str, list[float | None]]) -> _Outcome:
    """Return the reads under a strategy, planned with the racks that the group leader receives."""
    shot = row.snapshot
    plan = STRATEGIES[strategy](shot.as_leader_sees(), Options(locality=row.cluster.mode))
    reading = topic_reads(
        shot.group, plan.target, row.cluster.selectable_replicas(shot.group.topology), shot.leaders_only
    )
    return _Outcome(strategy, _pairs(reading, rates), moved(shot.group, _owned(row), plan.target))


def _owned(row: GroupRow) -> dict[str, Partitions]:
    known = row.snapshot.group.topology.topics.keys()
    members = row.snapshot.group.members
    return {m.id: {topic: ids for topic, ids in m.owned.items() if topic in known} for m in members}


def _by_topic(rates: Throughput) -> dict[str, list[float | None]]:
    """Return rates by topic and partition; None, or no entry, for an unknown rate."""
    found: dict[str, list[float | None]] = {}
    for (topic, partition), rate in rates.bytes_s.items():
        row = found.setdefault(topic, [])
        row.extend([None] * (partition + 1 - len(row)))
        row[partition] = rate
    return found


@dataclass(slots=True)
class _Sum:
    """Reads between two racks."""

    partitions: int = 0
    unmeasured: int = 0
    bytes_s: float = 0.0


def _pairs(reading: Iterable[TopicRead], rates: Mapping[str, list[float | None]]) -> tuple[dict[str, Any], ...]:
    sums: dict[tuple[str, str | None], dict[str | None, _Sum]] = {}
    for topic_read in reading:
        known = rates.get(topic_read.topic, [])
        measured = len(known)
        by_source = sums.setdefault((topic_read.topic, topic_read.home), {})
        for i, source in zip(topic_read.ids, topic_read.sources, strict=True):
            rate = known[i] if i < measured else None
            of = by_source.get(source)
            if of is None:
                of = by_source[source] = _Sum()
            of.partitions += 1
            if rate is None:
                of.unmeasured += 1
            else:
                of.bytes_s += rate
    found = [(topic, source, reader, of) for (topic, reader), by in sums.items() for source, of in by.items()]
    found.sort(key=lambda row: (row[0], row[1] or "", row[2] or ""))
    return tuple(
        {
            "topic": topic,
            "source_rack": source,
            "reader_rack": reader,
            "partitions": of.partitions,
            "unmeasured": of.unmeasured,
            "bytes_s": of.bytes_s,
        }
        for topic, source, reader, of in found
    )
