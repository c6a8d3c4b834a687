"""Changes to a group and its cluster that are tried on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from rackassign.model import Group, Partition, Topology
from rackassign.spark.fleet.rows import Row

AS_IS = "as-is"

_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def racks_told(row: Row) -> Row:
    """Return the row with all members sending the racks they are in, and reading near."""
    return replace(row, snapshot=replace(row.snapshot, mapped=frozenset(), leaders_only=frozenset()))


def any_replica(row: Row) -> Row:
    """Return the row with a rack-aware replica selector on all brokers."""
    brokers = tuple(
        replace(broker, selector=broker.selector or _SELECTOR, problem="") for broker in row.cluster.brokers
    )
    return replace(row, cluster=replace(row.cluster, brokers=brokers))


def members_even(row: Row) -> Row:
    """Return the row with the members spread over the brokers' racks as evenly as they can be.

    Who is where it is not too full stays; those of unknown rack go first.
    """
    racks = sorted(set(row.cluster.topology.racks_of_brokers().values()))
    members = row.snapshot.group.members
    if not racks or not members:
        return row
    most, larger = divmod(len(members), len(racks))
    have = Counter(member.rack for member in members)
    # The racks that have most keep one more.
    ranked = sorted(racks, key=lambda rack: (-have[rack], rack))
    room = {rack: most + (place < larger) for place, rack in enumerate(ranked)}
    home: dict[str, str] = {}
    for member in sorted(members, key=lambda m: m.id):
        if member.rack is not None and room.get(member.rack, 0):
            room[member.rack] -= 1
            home[member.id] = member.rack
    free = [rack for rack in racks for _ in range(room[rack])]
    for member in sorted(members, key=lambda m: m.id):
        if member.id not in home:
            home[member.id] = free.pop(0)
    moved = tuple(replace(member, rack=home[member.id]) for member in members)
    return replace(row, snapshot=replace(row.snapshot, group=replace(row.snapshot.group, members=moved), unknown=()))


def one_more_replica(row: Row) -> Row:
    """Return the row with one more copy of each partition, in a rack that has none, on the broker that has least."""
    racks = row.cluster.topology.racks_of_brokers()
    load = Counter(broker for parts in row.cluster.topology.topics.values() for p in parts for broker in p.replicas)
    topics: dict[str, tuple[Partition, ...]] = {}
    in_sync: dict[str, tuple[tuple[int, ...], ...]] = {}
    for topic, parts in row.cluster.topology.topics.items():
        more = [_more(partition, racks, load) for partition in parts]
        topics[topic] = tuple(
            replace(p, replicas=(*p.replicas, *new)) if new else p for p, new in zip(parts, more, strict=True)
        )
        in_sync[topic] = tuple((*ids, *new) for ids, new in zip(row.cluster.in_sync[topic], more, strict=True))
    topology = replace(row.cluster.topology, topics=topics)
    return replace(
        row,
        cluster=replace(row.cluster, topology=topology, in_sync=in_sync),
        snapshot=replace(row.snapshot, group=_with(row.snapshot.group, topology)),
    )


def _more(partition: Partition, racks: Mapping[int, str], load: Counter[int]) -> tuple[int, ...]:
    has = {racks.get(broker) for broker in partition.replicas}
    able = [broker for broker, rack in racks.items() if rack not in has]
    if not able:
        return ()
    chosen = min(able, key=lambda broker: (load[broker], broker))
    load[chosen] += 1
    return (chosen,)


def _with(group: Group, topology: Topology) -> Group:
    topics = {topic: topology.topics[topic] for topic in group.topology.topics}
    return replace(group, topology=replace(topology, topics=topics))


WHAT_IFS: Mapping[str, Callable[[Row], Row]] = {
    AS_IS: lambda row: row,
    "racks-told": racks_told,
    "any-replica": any_replica,
    "members-even": members_even,
    "one-more-replica": one_more_replica,
}
"""By name: the group as it is, and one change each."""
