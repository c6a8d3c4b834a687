"""Arrow schema of snapshots: one row per group, with everything needed to evaluate it in list columns.

A row is a group and not a partition. A thousand groups are a thousand rows, no shuffle has to bring a group together
again, and a row is sufficient to evaluate its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import pyarrow as pa

from rackassign.errors import ConfigError
from rackassign.model import Broker, Group, Member, Partition, Partitions, TopicPartition, Topology
from rackassign.monitoring import (
    BrokerDescription,
    GroupDescription,
    MemberDescription,
    ObservedCluster,
    Snapshot,
    Throughput,
)
from rackassign.text import short_repr, truncate
from rackassign.wire import Subscription

FORMAT = "rackassign-fleet/1"


def _rows(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(list(fields.items())))


_TEXT, _BOOL, _IDS = pa.string(), pa.bool_(), pa.list_(pa.int32())

_BROKERS = _rows(id=pa.int32(), rack=_TEXT, fenced=_BOOL, selector=_TEXT, problem=_TEXT)
_TOPICS = _rows(
    topic=_TEXT, replicas=pa.list_(_IDS), in_sync=pa.list_(_IDS), leaders=_IDS, bytes_s=pa.list_(pa.float64())
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
"""A missing leader is -1; an unknown rate is null."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group with everything needed to evaluate it.

    Args:
        taken: Time of the snapshot.
        snapshot: The group.
        cluster: The brokers and the topics of the group.
        rates: Rates at which the topics are written.
    """

    taken: datetime
    snapshot: Snapshot
    cluster: ObservedCluster
    rates: Throughput


def to_arrow(
    taken: datetime, snapshots: Iterable[Snapshot], cluster: ObservedCluster, rates: Throughput | None = None
) -> pa.RecordBatch:
    """Return groups as rows.

    Args:
        taken: Time of the snapshot, with a time zone.
        snapshots: The groups.
        cluster: The brokers and all topics of the groups.
        rates: Rates at which the topics are written; None if they were not measured.
    """
    rows = [_row(taken, shot, cluster, rates or Throughput()) for shot in snapshots]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def from_arrow(batch: pa.RecordBatch) -> Iterator[GroupRow]:
    """Yield the groups of a batch of rows.

    Raises:
        ConfigError: A row was not written by `to_arrow`.
    """
    for at in range(batch.num_rows):
        name, taken = "", None
        try:
            (row,) = batch.slice(at, 1).to_pylist()
            name, taken = row["group"], row["taken"]
            parsed = _read(row)
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"group {short_repr(name)} at {taken}: expected a row of a snapshot: {truncate(str(error))}"
            ) from None
        yield parsed


def _row(taken: datetime, shot: Snapshot, cluster: ObservedCluster, rates: Throughput) -> dict[str, Any]:
    live = shot.live
    topics = shot.group.topology.topics
    return {
        "taken": taken,
        "group": live.name,
        "kind": live.kind,
        "state": live.state,
        "strategy": live.strategy,
        "brokers": [
            {"id": b.id, "rack": b.rack, "fenced": b.fenced, "selector": b.selector, "problem": b.problem}
            for b in _brokers(cluster)
        ],
        "topics": [_topic(topic, row, cluster, rates) for topic, row in topics.items()],
        "members": [_member(member, seen, shot) for member, seen in zip(shot.group.members, live.members, strict=True)],
        "missing": [{"topic": topic, "why": why} for topic, why in sorted(cluster.missing.items())],
    }


def _brokers(cluster: ObservedCluster) -> list[BrokerDescription]:
    """Return all brokers, including those that are not listed now and whose last known rack still counts."""
    listed = {broker.id for broker in cluster.brokers}
    gone = (BrokerDescription(b.id, b.rack, fenced=True) for b in cluster.topology.brokers if b.id not in listed)
    return [*cluster.brokers, *gone]


def _topic(topic: str, row: tuple[Partition, ...], cluster: ObservedCluster, rates: Throughput) -> dict[str, Any]:
    return {
        "topic": topic,
        "replicas": [list(partition.replicas) for partition in row],
        "in_sync": [list(ids) for ids in cluster.in_sync[topic]],
        "leaders": [-1 if partition.leader is None else partition.leader for partition in row],
        "bytes_s": [rates.bytes_s.get(TopicPartition(topic, i)) for i in range(len(row))],
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


def _read(row: Mapping[str, Any]) -> GroupRow:
    if None in {row["taken"], row["group"]}:
        raise ValueError("taken and group must not be null")
    for entry in row["topics"]:
        if len({len(entry[name]) for name in ("replicas", "in_sync", "leaders", "bytes_s")}) > 1:
            raise ValueError(f"topic {entry['topic']}: replicas, in_sync, leaders and bytes_s differ in length")
        # One NaN would make NaN of all sums, and comparisons with it are false.
        if not all(rate is None or 0 <= rate < inf for rate in entry["bytes_s"]):
            raise ValueError(f"topic {entry['topic']}: bytes_s must be finite and 0 or more, or null")
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
    )
    bytes_s = {
        TopicPartition(entry["topic"], i): rate
        for entry in row["topics"]
        for i, rate in enumerate(entry["bytes_s"])
        if rate is not None
    }
    return GroupRow(row["taken"], _snapshot(row, topology), cluster, Throughput(bytes_s))


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
