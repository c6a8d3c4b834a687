"""Live groups and clusters made by hand, for the tests of what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rackassign.model import Broker, Partition, TopicPartition, Topology
from rackassign.monitoring import (
    BrokerDescription,
    GroupAnalysis,
    GroupDescription,
    MemberDescription,
    ObservedCluster,
    RackMap,
    ReadRates,
    Throughput,
)
from rackassign.monitoring.analysis import inspect
from rackassign.monitoring.live_groups import snapshot
from rackassign.wire import Subscription

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def brokers(racks: Sequence[str | None] = "abc", **more: Any) -> tuple[BrokerDescription, ...]:
    return tuple(BrokerDescription(i, rack, **{"selector": SELECTOR, **more}) for i, rack in enumerate(racks, 1))


def cluster(
    topics: Mapping[str, Sequence[Sequence[int]]],
    known: tuple[BrokerDescription, ...] = brokers(),
    in_sync: Mapping[str, tuple[tuple[int, ...], ...]] | None = None,
) -> ObservedCluster:
    topology = Topology(
        tuple(Broker(b.id, b.rack, fenced=b.fenced) for b in known),
        {topic: tuple(Partition(tuple(r), r[0] if r else None) for r in row) for topic, row in topics.items()},
    )
    all_ = {topic: tuple(tuple(r) for r in row) for topic, row in topics.items()}
    return ObservedCluster(known, topology, {**all_, **(in_sync or {})})


def member(
    name: str, rack: str | None, owned: Mapping[str, Sequence[int]], *topics: str, **more: Any
) -> MemberDescription:
    said = Subscription(topics or tuple(owned), rack=rack)
    made: dict[str, Any] = {"client_id": name, "host": "10.0.0.1", "subscription": said, **more}
    return MemberDescription(name, **made, assigned={topic: tuple(ids) for topic, ids in owned.items()})


def group(*members: MemberDescription, name: str = "g", **more: Any) -> GroupDescription:
    made: dict[str, Any] = {"kind": "classic", "state": "Stable", "strategy": "range", **more}
    return GroupDescription(name, members=members, **made)


def rates(bytes_s: Mapping[tuple[str, int], float]) -> Throughput:
    known = {TopicPartition(*place): rate for place, rate in bytes_s.items()}
    written = {place: 10.0 * rate for place, rate in known.items()}
    return Throughput(known, dict.fromkeys(known, 1.0), 10.0, bytes_written=written)


def inspected(
    live: GroupDescription,
    there: ObservedCluster,
    measured: Throughput | ReadRates | None = None,
    racks: RackMap | None = None,
) -> GroupAnalysis:
    """Return the analysis of a group that reads what is written, unless its own rates are given."""
    rates = measured or ReadRates()
    if isinstance(rates, Throughput):
        rates = ReadRates(rates.bytes_s, rates.bytes_written)
    return inspect(snapshot(live, there.topology, racks or RackMap()), there, rates)
