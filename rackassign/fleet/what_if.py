"""What-if changes: a group and its cluster with one hypothetical change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count as naturals
from itertools import islice

from rackassign.fleet.schema import GroupRow
from rackassign.model import Broker, Partition, Topology
from rackassign.monitoring import BrokerDescription

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
    """Selects the replicas that move to new brokers, cycling through the positions of the replica lists.

    Args:
        among: One replica out of this many moves.
        brokers: IDs of the new brokers, used in turn.
    """

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
