"""Snapshots of clusters in Parquet files, from which a bill can be made later: one row per group.

A row has everything that is needed to evaluate its group in list columns, so a thousand groups are a thousand rows. The
topics that none of the groups reads are in a row without a group. A file has one snapshot, and a folder those of one
cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, pairwise
from math import inf
from pathlib import Path
from typing import Any

from rackassign.errors import ConfigError, MissingExtraError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise MissingExtraError("pyarrow", "bill") from None

from rackassign.bill.usage import Readers, Usage, writers_of
from rackassign.model import Broker, Group, Member, Partition, Partitions, TopicPartition, Topology
from rackassign.monitoring import (
    BrokerDescription,
    ClusterReport,
    ClusterSnapshot,
    GroupDescription,
    MemberDescription,
    ObservedCluster,
    ReadRates,
    Snapshot,
    Throughput,
)
from rackassign.monitoring.analysis import inspect
from rackassign.monitoring.live_groups import assigned_partitions
from rackassign.monitoring.read_rates import Measurement
from rackassign.text import short_repr, truncate
from rackassign.wire import Subscription

FORMAT = "rackassign-snapshot/1"

_AT_ONCE = 50
"""Groups in a row group."""

_READ_ERRORS = (OSError, pa.ArrowException)


def _rows(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(list(fields.items())))


_TEXT, _BOOL, _IDS = pa.string(), pa.bool_(), pa.list_(pa.int32())

_BROKERS = _rows(id=pa.int32(), rack=_TEXT, fenced=_BOOL, selector=_TEXT, problem=_TEXT)
_TOPICS = _rows(
    topic=_TEXT,
    replicas=pa.list_(_IDS),
    in_sync=pa.list_(_IDS),
    leaders=_IDS,
    bytes_s=pa.list_(pa.float64()),
    read_bytes_s=pa.list_(pa.float64()),
    sizes=pa.list_(pa.int64()),
)
_MEMBERS = _rows(
    id=_TEXT,
    client_id=_TEXT,
    host=_TEXT,
    instance_id=_TEXT,
    classic=_BOOL,
    problem=_TEXT,
    pattern=_TEXT,
    topics=pa.list_(_TEXT),
    rack=_TEXT,
    mapped=_BOOL,
    reads_near=_BOOL,
    assigned=_rows(topic=_TEXT, partitions=_IDS),
)

SCHEMA = pa.schema(
    [
        ("taken", pa.timestamp("us", "UTC")),
        ("cluster", _TEXT),
        ("seconds", pa.float64()),
        ("group", _TEXT),
        ("kind", _TEXT),
        ("state", _TEXT),
        ("strategy", _TEXT),
        ("brokers", _BROKERS),
        ("topics", _TOPICS),
        ("members", _MEMBERS),
        ("missing", _rows(topic=_TEXT, why=_TEXT)),
    ],
    metadata={"format": FORMAT},
)
"""A missing leader is -1; an unknown rate or size is null. `seconds` is how long was measured."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A cluster and its groups at one time.

    Args:
        taken: Time of the snapshot.
        cluster: The brokers and all topics.
        groups: The groups, each with what it reads.
        measured: Throughput of the topics.
    """

    taken: datetime
    cluster: ObservedCluster
    groups: tuple[Readers, ...]
    measured: Throughput

    @property
    def usage(self) -> Usage:
        """What is written and read, without what levers would change."""
        return Usage(self.cluster, self.measured, self.groups, writers_of(self.cluster, self.measured))

    def report(self) -> ClusterReport:
        """Return the groups analyzed."""
        found = (inspect(group.snapshot, self.cluster, group.rates) for group in self.groups)
        return ClusterReport(self.cluster, tuple(found), (), self.measured)


def write_snapshot(file: Path, taken: datetime, shots: ClusterSnapshot, measured: Measurement) -> None:
    """Write a snapshot.

    Args:
        file: The new file, which must not exist.
        taken: Time of the snapshot, with a time zone.
        shots: The groups and all topics.
        measured: What was measured of them.
    """
    read = frozenset().union(*(shot.group.topology.topics for shot in shots.snapshots))
    rows = (_row(taken, shot, shots.cluster, measured) for shot in shots.snapshots)
    unread = {topic: row for topic, row in shots.cluster.topology.topics.items() if topic not in read}
    last = _unread_row(taken, unread, shots.cluster, measured.written)
    with _replacing(file) as writer:
        for some in _batched((*rows, last)):
            writer.write_batch(pa.RecordBatch.from_pylist(some, SCHEMA))


def _batched(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield some rows at a time."""
    left = iter(rows)
    while some := list(islice(left, _AT_ONCE)):
        yield some


def read_snapshots(path: Path) -> list[SnapshotFile]:
    """Read the snapshot of a file, or all of a folder in order of time.

    Raises:
        ConfigError: There are none, a file is no snapshot, two are of the same time, or they are of several clusters.
    """
    found = sorted(map(_read_file, _files(path)), key=lambda shot: shot.taken)
    for earlier, later in pairwise(found):
        if earlier.taken == later.taken:
            raise ConfigError(f"{path}: two snapshots are of {later.taken}; remove one of them")
        if "" not in {earlier.cluster.id, later.cluster.id} and earlier.cluster.id != later.cluster.id:
            raise ConfigError(
                f"{path}: expected snapshots of one cluster, got {earlier.cluster.id} and {later.cluster.id}"
            )
    return found


def _read_file(file: Path) -> SnapshotFile:
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
            if not parquet.schema_arrow.equals(SCHEMA):
                raise ConfigError(f"{file}: expected a snapshot as `snapshot --parquet` writes it")
            rows = [row for batch in parquet.iter_batches(_AT_ONCE) for row in batch.to_pylist()]
    except _READ_ERRORS as error:
        raise ConfigError(f"cannot read {file}: {_reason(error)}") from None
    if not rows:
        raise ConfigError(f"{file}: has no rows")
    parts = [_read_row(row, file) for row in rows]
    cluster = replace(
        parts[0].cluster,
        topology=replace(
            parts[0].cluster.topology,
            topics={name: topic for part in parts for name, topic in part.cluster.topology.topics.items()},
        ),
        in_sync={name: rows for part in parts for name, rows in part.cluster.in_sync.items()},
        missing={name: why for part in parts for name, why in part.cluster.missing.items()},
    )
    rates = {tp: rate for part in parts for tp, rate in part.measured.bytes_s.items()}
    sizes = {tp: size for part in parts for tp, size in part.measured.sizes.items()}
    groups = tuple(group for part in parts for group in part.groups)
    measured = Throughput(rates, seconds=parts[0].measured.seconds, sizes=sizes)
    return SnapshotFile(parts[0].taken, cluster, groups, measured)


@contextmanager
def _replacing(file: Path) -> Iterator[pq.ParquetWriter]:
    """Write a file under a temporary name and rename it once it is complete."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        # Checksums distinguish a damaged page from one with unusual contents.
        with pq.ParquetWriter(partial, SCHEMA, compression="zstd", write_page_checksum=True) as writer:
            yield writer
        partial.rename(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {_reason(error)}") from None
    finally:
        partial.unlink(missing_ok=True)


def _files(path: Path) -> list[Path]:
    try:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {_reason(error)}") from None
    if not files:
        raise ConfigError(f"{path} has no Parquet files")
    return files


def _reason(error: BaseException) -> str:
    """Return an error in one line; for errors of the operating system, its description."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else truncate(str(error) or type(error).__name__)


def _row(taken: datetime, shot: Snapshot, cluster: ObservedCluster, measured: Measurement) -> dict[str, Any]:
    live = shot.live
    rates = measured.of_group(live.name, assigned_partitions(shot)).bytes_s
    topics = shot.group.topology.topics
    return {
        **_common(taken, cluster, measured.written),
        "group": live.name,
        "kind": live.kind,
        "state": live.state,
        "strategy": live.strategy,
        "topics": [_topic(topic, row, cluster, measured.written, rates) for topic, row in topics.items()],
        "members": [_member(member, seen, shot) for member, seen in zip(shot.group.members, live.members, strict=True)],
        "missing": [{"topic": topic, "why": why} for topic, why in sorted(cluster.missing.items())],
    }


def _unread_row(
    taken: datetime, topics: Mapping[str, tuple[Partition, ...]], cluster: ObservedCluster, written: Throughput
) -> dict[str, Any]:
    return {
        **_common(taken, cluster, written),
        "topics": [_topic(topic, row, cluster, written, {}) for topic, row in topics.items()],
        "members": [],
        "missing": [],
    }


def _common(taken: datetime, cluster: ObservedCluster, written: Throughput) -> dict[str, Any]:
    return {
        "taken": taken,
        "cluster": cluster.id,
        "seconds": written.seconds,
        "brokers": [
            {"id": b.id, "rack": b.rack, "fenced": b.fenced, "selector": b.selector, "problem": b.problem}
            for b in _brokers(cluster)
        ],
    }


def _brokers(cluster: ObservedCluster) -> list[BrokerDescription]:
    """Return all brokers, including those that are not listed now and whose last known rack still counts."""
    listed = {broker.id for broker in cluster.brokers}
    gone = (BrokerDescription(b.id, b.rack, fenced=True) for b in cluster.topology.brokers if b.id not in listed)
    return [*cluster.brokers, *gone]


def _topic(
    topic: str,
    row: tuple[Partition, ...],
    cluster: ObservedCluster,
    written: Throughput,
    rates: Mapping[TopicPartition, float],
) -> dict[str, Any]:
    tps = [TopicPartition(topic, i) for i in range(len(row))]
    return {
        "topic": topic,
        "replicas": [list(partition.replicas) for partition in row],
        "in_sync": [list(ids) for ids in cluster.in_sync[topic]],
        "leaders": [-1 if partition.leader is None else partition.leader for partition in row],
        "bytes_s": [*map(written.bytes_s.get, tps)],
        "read_bytes_s": [*map(rates.get, tps)],
        "sizes": [*map(written.sizes.get, tps)],
    }


def _member(member: Member, seen: MemberDescription, shot: Snapshot) -> dict[str, Any]:
    return {
        "id": member.id,
        "client_id": seen.client_id,
        "host": seen.host,
        "instance_id": seen.instance_id,
        "classic": seen.classic,
        "problem": seen.problem,
        "pattern": seen.pattern,
        "topics": sorted(member.topics),
        "rack": member.rack,
        "mapped": member.id in shot.rack_map_members,
        "reads_near": member.id not in shot.leaders_only,
        "assigned": [{"topic": topic, "partitions": list(ids)} for topic, ids in sorted(member.owned.items())],
    }


def _read_row(row: Mapping[str, Any], file: Path) -> SnapshotFile:
    try:
        return _read(row)
    except (ValueError, TypeError, KeyError) as error:
        name = short_repr(row["group"])
        raise ConfigError(f"{file}: group {name}: expected a row of a snapshot: {truncate(str(error))}") from None


def _read(row: Mapping[str, Any]) -> SnapshotFile:
    if None in {row["taken"], row["seconds"]}:
        raise ValueError("taken and seconds must not be null")
    lists = ("replicas", "in_sync", "leaders", "bytes_s", "read_bytes_s", "sizes")
    for entry in row["topics"]:
        if len({len(entry[name]) for name in lists}) > 1:
            raise ValueError(f"topic {entry['topic']}: {', '.join(lists)} differ in length")
        # One NaN would make NaN of all sums, and comparisons with it are false.
        amounts = (*entry["bytes_s"], *entry["read_bytes_s"], *entry["sizes"])
        if not all(amount is None or 0 <= amount < inf for amount in amounts):
            raise ValueError(f"topic {entry['topic']}: rates and sizes must be finite and 0 or more, or null")
    brokers = tuple(
        BrokerDescription(b["id"], b["rack"], b["fenced"], b["selector"], b["problem"]) for b in row["brokers"]
    )
    topics = {entry["topic"]: _partitions(entry) for entry in row["topics"]}
    topology = Topology(tuple(Broker(b.id, b.rack, fenced=b.fenced) for b in brokers), topics)
    cluster = ObservedCluster(
        brokers,
        topology,
        {entry["topic"]: tuple(map(tuple, entry["in_sync"])) for entry in row["topics"]},
        {entry["topic"]: entry["why"] for entry in row["missing"]},
        row["cluster"] or "",
    )

    def known(name: str) -> dict[TopicPartition, Any]:
        return {
            TopicPartition(entry["topic"], i): amount
            for entry in row["topics"]
            for i, amount in enumerate(entry[name])
            if amount is not None
        }

    written = Throughput(known("bytes_s"), seconds=row["seconds"], sizes=known("sizes"))
    if row["group"] is None:
        return SnapshotFile(row["taken"], cluster, (), written)
    bytes_s = known("read_bytes_s")
    by_commits = frozenset(tp for tp, rate in bytes_s.items() if rate != written.bytes_s.get(tp))
    written_s = sum(written.bytes_s.get(tp, 0.0) for tp in bytes_s)
    read = ReadRates(bytes_s, by_commits=by_commits, written_s=written_s)
    return SnapshotFile(row["taken"], cluster, (Readers(_snapshot(row, topology), read),), written)


def _partitions(entry: Mapping[str, Any]) -> tuple[Partition, ...]:
    # Partitions with equal leader and replicas share one object.
    made: dict[tuple[int, ...], Partition] = {}
    row = []
    for replicas, leader in zip(entry["replicas"], entry["leaders"], strict=True):
        key = (leader, *replicas)
        if key not in made:
            made[key] = Partition(tuple(replicas), None if leader < 0 else leader)
        row.append(made[key])
    return tuple(row)


def _snapshot(row: Mapping[str, Any], topology: Topology) -> Snapshot:
    members, live = [], []
    for entry in row["members"]:
        assigned: Partitions = {part["topic"]: tuple(part["partitions"]) for part in entry["assigned"]}
        rack, topics = entry["rack"], tuple(entry["topics"])
        members.append(
            Member(entry["id"], frozenset(topics), rack=rack, instance_id=entry["instance_id"], owned=assigned)
        )
        subscription = Subscription(topics, rack=None if entry["mapped"] else rack)
        live.append(
            MemberDescription(
                entry["id"],
                entry["client_id"],
                entry["host"],
                entry["instance_id"],
                entry["classic"],
                subscription,
                entry["problem"],
                assigned,
                entry["pattern"],
            )
        )
    group = Group(topology, tuple(members), name=row["group"])
    seen = GroupDescription(row["group"], row["kind"], row["state"], row["strategy"], tuple(live))
    return Snapshot(
        seen,
        group,
        frozenset(entry["id"] for entry in row["members"] if entry["mapped"]),
        frozenset(entry["id"] for entry in row["members"] if not entry["reads_near"]),
    )
