"""Evaluation of every group, and of hypothetical changes to it, under every strategy: reads between racks and cost.

The same function runs over batches of a Parquet file in this process and as `mapInArrow` of a DataFrame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count as naturals
from itertools import islice
from math import fsum
from typing import Any

import pyarrow as pa

from rackassign.errors import ConfigError
from rackassign.fleet.schema import GroupRow, from_arrow
from rackassign.model import Broker, Partition, Topology
from rackassign.monitoring import BrokerDescription, Price, ReadRates, Throughput, describe_change
from rackassign.monitoring.analysis import inspect, moved
from rackassign.monitoring.traffic import TopicRead, topic_reads
from rackassign.strategies import STRATEGY_ORDER, Options, plan_each
from rackassign.text import short_repr

AS_IS = "as-is"

_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def racks_reported(row: GroupRow) -> GroupRow:
    """Return the row with all members sending their known racks and requesting local replicas."""
    return replace(row, snapshot=replace(row.snapshot, rack_map_members=frozenset(), leaders_only=frozenset()))


def racks_assumed(row: GroupRow) -> GroupRow:
    """Return the row with all members sending a known rack.

    Members of unknown rack are put in the racks with the fewest members.
    """
    row = racks_reported(row)
    racks = sorted(set(row.cluster.topology.broker_racks().values()))
    if not racks:
        return row
    members = row.snapshot.group.members
    have = Counter(member.rack for member in members)
    rack_of: dict[str, str] = {}
    for member in sorted(members, key=lambda m: m.id):
        if member.rack not in racks:
            rack_of[member.id] = min(racks, key=lambda rack: (have[rack], rack))
            have[rack_of[member.id]] += 1
    return _with_racks(row, rack_of)


def any_replica(row: GroupRow) -> GroupRow:
    """Return the row with a rack-aware replica selector on all brokers."""
    brokers = tuple(
        replace(broker, selector=broker.selector or _SELECTOR, problem="") for broker in row.cluster.brokers
    )
    return replace(row, cluster=replace(row.cluster, brokers=brokers))


def members_balanced(row: GroupRow) -> GroupRow:
    """Return the row with the members spread over the brokers' racks as evenly as possible.

    Members stay in their rack unless it has more than its share. Members of unknown rack fill the other racks, together
    with members that leave theirs.
    """
    racks = sorted(set(row.cluster.topology.broker_racks().values()))
    members = row.snapshot.group.members
    if not racks or not members:
        return row
    share, larger = divmod(len(members), len(racks))
    have = Counter(member.rack for member in members)
    # The larger shares go to the racks with the most members.
    ranked = sorted(racks, key=lambda rack: (-have[rack], rack))
    capacity = {rack: share + (position < larger) for position, rack in enumerate(ranked)}
    rack_of: dict[str, str] = {}
    for member in sorted(members, key=lambda m: m.id):
        if member.rack is not None and capacity.get(member.rack, 0):
            capacity[member.rack] -= 1
            rack_of[member.id] = member.rack
    free = [rack for rack in racks for _ in range(capacity[rack])]
    for member in sorted(members, key=lambda m: m.id):
        if member.id not in rack_of:
            rack_of[member.id] = free.pop(0)
    return _with_racks(row, rack_of)


def _with_racks(row: GroupRow, rack_of: Mapping[str, str]) -> GroupRow:
    group = row.snapshot.group
    moved = tuple(replace(member, rack=rack_of.get(member.id, member.rack)) for member in group.members)
    return replace(row, snapshot=replace(row.snapshot, group=replace(group, members=moved)))


def add_replica(row: GroupRow) -> GroupRow:
    """Return the row with one more replica of each partition, in a rack without one, on the broker with the fewest."""
    racks = row.cluster.topology.broker_racks()
    load = Counter(broker for parts in row.cluster.topology.topics.values() for p in parts for broker in p.replicas)
    topics: dict[str, tuple[Partition, ...]] = {}
    in_sync: dict[str, tuple[tuple[int, ...], ...]] = {}
    for topic, parts in row.cluster.topology.topics.items():
        more = [_added_replica(partition, racks, load) for partition in parts]
        topics[topic] = tuple(
            replace(p, replicas=(*p.replicas, *new)) if new else p for p, new in zip(parts, more, strict=True)
        )
        in_sync[topic] = tuple((*ids, *new) for ids, new in zip(row.cluster.in_sync[topic], more, strict=True))
    return _with_brokers(row, row.cluster.brokers, replace(row.cluster.topology, topics=topics), in_sync)


def _added_replica(partition: Partition, racks: Mapping[int, str], load: Counter[int]) -> tuple[int, ...]:
    has = {racks.get(broker) for broker in partition.replicas}
    candidates = [broker for broker, rack in racks.items() if rack not in has]
    if not candidates:
        return ()
    chosen = min(candidates, key=lambda broker: (load[broker], broker))
    load[chosen] += 1
    return (chosen,)


def add_rack(row: GroupRow) -> GroupRow:
    """Return the row with one more rack, which gets its share of the brokers, of the replicas and of the members."""
    racks = row.cluster.topology.broker_racks()
    if not racks:
        return row
    count = len(set(racks.values()))
    new = _name({*racks.values(), *(member.rack for member in row.snapshot.group.members)})
    # Replicas may be on brokers that are not described.
    used = {broker.id for broker in row.cluster.brokers}.union(
        *(p.replicas for parts in row.cluster.topology.topics.values() for p in parts)
    )
    ids = [*islice((id_ for id_ in naturals() if id_ not in used), -(-len(racks) // count))]
    selector = next((broker.selector for broker in row.cluster.brokers if not broker.fenced), None)
    moves = _ReplicaMoves(count + 1, ids)
    topics: dict[str, tuple[Partition, ...]] = {}
    in_sync: dict[str, tuple[tuple[int, ...], ...]] = {}
    for topic, parts in row.cluster.topology.topics.items():
        changes = [moves.next(partition) for partition in parts]
        topics[topic] = tuple(_with_changed_replicas(p, change) for p, change in zip(parts, changes, strict=True))
        in_sync[topic] = tuple(
            tuple(change.get(broker, broker) for broker in known)
            for known, change in zip(row.cluster.in_sync[topic], changes, strict=True)
        )
    topology = Topology((*row.cluster.topology.brokers, *(Broker(id_, new) for id_ in ids)), topics)
    brokers = (*row.cluster.brokers, *(BrokerDescription(id_, new, selector=selector) for id_ in ids))
    return members_balanced(_with_brokers(row, brokers, topology, in_sync))


def _name(taken: set[str | None]) -> str:
    names = ("new" if number == 1 else f"new-{number}" for number in naturals(1))
    return next(name for name in names if name not in taken)


class _ReplicaMoves:
    """Selects the replicas that move to new brokers, cycling through the positions of the replica lists."""

    def __init__(self, among: int, brokers: Sequence[int]) -> None:
        self._among = among
        self._brokers = brokers
        self._due = self._gone = 0

    def next(self, partition: Partition) -> dict[int, int]:
        """Return the old and the new broker of the replica that moves; empty if all replicas of the partition stay."""
        self._due += len(partition.replicas)
        if self._due < self._among:
            return {}
        # At most one replica of a partition moves, otherwise the new rack would have two.
        self._due = min(self._due - self._among, self._among - 1)
        old = partition.replicas[self._gone % len(partition.replicas)]
        new = self._brokers[self._gone % len(self._brokers)]
        self._gone += 1
        return {old: new}


def _with_changed_replicas(partition: Partition, change: Mapping[int, int]) -> Partition:
    leader = partition.leader
    return replace(
        partition,
        replicas=tuple(change.get(broker, broker) for broker in partition.replicas),
        leader=None if leader is None else change.get(leader, leader),
    )


def _with_brokers(
    row: GroupRow,
    brokers: tuple[BrokerDescription, ...],
    topology: Topology,
    in_sync: Mapping[str, tuple[tuple[int, ...], ...]],
) -> GroupRow:
    """Return the row with other brokers and replicas."""
    group = row.snapshot.group
    topics = {topic: topology.topics[topic] for topic in group.topology.topics}
    return replace(
        row,
        cluster=replace(row.cluster, brokers=brokers, topology=topology, in_sync=in_sync),
        snapshot=replace(row.snapshot, group=replace(group, topology=replace(topology, topics=topics))),
    )


WHAT_IFS: Mapping[str, Callable[[GroupRow], GroupRow]] = {
    AS_IS: lambda row: row,
    "racks-reported": racks_reported,
    "racks-assumed": racks_assumed,
    "any-replica": any_replica,
    "members-balanced": members_balanced,
    "add-replica": add_replica,
    "add-rack": add_rack,
}
"""Functions by name: each makes one change; `AS_IS` makes none."""

MEANINGS: Mapping[str, str] = {
    AS_IS: "no change other than the strategy",
    "racks-reported": "members send their known racks, and read from local replicas",
    "racks-assumed": "as racks-reported, and members of unknown rack are in the racks with the fewest members",
    "any-replica": "a rack-aware replica selector on all brokers",
    "members-balanced": "members spread evenly over the racks",
    "add-replica": "one more replica of each partition, in a rack without one",
    "add-rack": "one more rack, with its share of brokers, replicas and members",
}
"""Descriptions of the changes by name."""


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
    rows: list[dict[str, Any]] = []
    for batch in batches:
        for row in from_arrow(batch):
            for name in options.what_ifs:
                rows += _evaluate(name, WHAT_IFS[name](row), options)
            if len(rows) >= ROWS_PER_BATCH:
                yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)


def _evaluate(what_if: str, row: GroupRow, options: FleetAudit) -> Iterator[dict[str, Any]]:
    """Yield the result rows of one group with a change, or with none (`AS_IS`)."""
    rates = _by_topic(row.rates)
    # Plans are those of an inspection, in which a rack that no broker has is unknown.
    located = replace(row, snapshot=row.snapshot.without_foreign_racks())
    outcomes = _outcomes(located, rates) if row.snapshot.group.members else []
    best = min(outcomes, key=lambda outcome: outcome.rank, default=None)
    take = None
    if what_if == AS_IS and options.recommend:
        found = inspect(row.snapshot, row.cluster, ReadRates(row.rates.bytes_s))
        take = [describe_change(action, [found]) for action in found.actions]
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

        Of equal strategies the last one is best, in the order of `STRATEGY_ORDER`.
        """
        not_local = [
            pair for pair in self.pairs if pair["source_rack"] is None or pair["source_rack"] != pair["reader_rack"]
        ]
        return (
            # Rounded, since equal amounts are added in another order.
            round(fsum(p["bytes_s"] for p in not_local), 3),
            sum(p["partitions"] for p in not_local),
            -STRATEGY_ORDER.index(self.strategy),
        )


def _now(row: GroupRow, rates: Mapping[str, list[float | None]]) -> _Outcome:
    """Return the reads of the current assignment."""
    shot = row.snapshot
    serving = row.cluster.in_sync_replicas(shot.group.topology)
    return _Outcome(NOW, _pairs(topic_reads(shot.group, shot.owned, serving, shot.leaders_only), rates))


def _outcomes(row: GroupRow, rates: Mapping[str, list[float | None]]) -> list[_Outcome]:
    """Return the reads under each strategy, planned with the racks that the group leader, or the broker, receives."""
    shot = row.snapshot
    live = shot.live
    # A broker shows assignors no leaders, whatever its selector is.
    options = Options(locality="any-replica" if live.kind == "consumer" else row.cluster.mode)
    selectable = row.cluster.selectable_replicas(shot.group.topology)
    outcomes = []
    for name, plan in plan_each(shot.as_leader_sees(), options, live.kind, live.strategy).items():
        reading = topic_reads(shot.group, plan.target, selectable, shot.leaders_only)
        outcomes.append(_Outcome(name, _pairs(reading, rates), moved(shot.group, shot.owned, plan.target)))
    return outcomes


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
    pairs = [(topic, source, reader, of) for (topic, reader), by in sums.items() for source, of in by.items()]
    pairs.sort(key=lambda row: (row[0], row[1] or "", row[2] or ""))
    return tuple(
        {
            "topic": topic,
            "source_rack": source,
            "reader_rack": reader,
            "partitions": of.partitions,
            "unmeasured": of.unmeasured,
            "bytes_s": of.bytes_s,
        }
        for topic, source, reader, of in pairs
    )
