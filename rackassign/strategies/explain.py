"""Explanation of the non-local partitions of a plan, and the gain of single changes.

The reasons follow from the group. Recommendations are computed: each change is applied to the group and the group is
solved again, so that the reported gain is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from rackassign.locality import Locality, RackSets, cost_table, cross_rack_cost
from rackassign.model import (
    Explanation,
    Group,
    LocalityMode,
    Member,
    NonLocalPartition,
    Partition,
    Partitions,
    Plan,
    Reason,
    Recommendation,
)

Replan = Callable[[Group], Plan]

_SUBSCRIPTIONS = 8
"""Limit of the different subscriptions tried for a further member; those that could read the most come first."""


def explain(group: Group, plan: Plan, replan: Replan, skewed: tuple[int, Replan] | None = None) -> Explanation:
    """Return the reasons for non-local partitions, and recommendations.

    Args:
        group: The group that was planned.
        plan: Its plan.
        replan: Function that planned it.
        skewed: The next larger skew, and a function that plans with it; None for a strategy without skew.
    """
    useful = [tried.advice for tried in evaluate_changes(group, plan, replan, skewed) if tried.advice.cost_gain > 0]
    useful.sort(key=lambda advice: (-advice.cost_gain, advice.kind, advice.rack or ""))
    return Explanation(tuple(non_local_partitions(group, plan)), tuple(useful))


class WhatIfResult(NamedTuple):
    """A change and its result."""

    # With its gain, which may be 0 or negative.
    advice: Recommendation
    # With the change, without owners.
    group: Group
    plan: Plan


def evaluate_changes(
    group: Group, plan: Plan, replan: Replan, skewed: tuple[int, Replan] | None = None
) -> Iterator[WhatIfResult]:
    """Apply each change that may help, and solve the group with it; the arguments are those of `explain`."""
    cross = [entry for entry in non_local_partitions(group, plan) if entry.reason != "unknown-rack"]
    if not cross:
        return
    # Owners affect only moves, which are not evaluated here.
    bare = replace(group, members=tuple(replace(member, owned={}) for member in group.members))
    before = _cross(group, plan)
    for change, then, again in _changes(bare, plan.locality, cross, replan, skewed):
        made = again(then)
        after = _cross(then, made)
        gained = change._replace(gain=before[0] - after[0], cost_gain=round(before[1] - after[1], 6))
        yield WhatIfResult(gained, then, made)


def _cross(group: Group, plan: Plan) -> tuple[int, float]:
    """Return the number of cross-rack partitions, and their cost."""
    racks = RackSets.of(group.topology, plan.locality)
    count = Locality.count(group, plan.target, racks).cross
    if not group.costs:
        return count, float(count)
    near = racks.all_partition_racks(group.topology)
    table = cost_table(group.costs)
    homes = {member.id: member.rack for member in group.members}
    units = 0
    known: dict[tuple[str | None, int], int] = {}
    for member, owned in plan.target.items():
        home = homes[member]
        for topic, partitions in owned.items():
            for partition in partitions:
                here = near[topic][partition]
                if (home, here) not in known:
                    known[home, here] = cross_rack_cost(table, home, racks.names(here))
                units += known[home, here]
    return count, units * table.unit


def non_local_partitions(group: Group, plan: Plan) -> Iterator[NonLocalPartition]:
    """Yield the non-local partitions of a plan, by topic and ID, with the reasons."""
    racks = RackSets.of(group.topology, plan.locality)
    homes = {member.id: member.rack for member in group.members}
    readers: dict[str, int] = {}
    for member in group.members:
        for topic in member.topics:
            readers[topic] = readers.get(topic, 0) | racks.bits.get(member.rack or "", 0)
    near = racks.all_partition_racks(group.topology)
    rows: list[NonLocalPartition] = []
    for member_id, owned in plan.target.items():
        home = homes[member_id]
        bit = 0 if home is None else racks.bits.get(home, 0)
        for topic, partitions in owned.items():
            for partition in partitions:
                here = near[topic][partition]
                if not here & bit:
                    reason: Reason = "members-full" if here & readers[topic] else "no-member-in-replica-racks"
                    known = home is not None and here
                    rows.append(NonLocalPartition(topic, partition, member_id, reason if known else "unknown-rack"))
    yield from sorted(rows, key=lambda entry: (entry.topic, entry.partition))


def _changes(
    group: Group, mode: LocalityMode, cross: list[NonLocalPartition], replan: Replan, skewed: tuple[int, Replan] | None
) -> Iterator[tuple[Recommendation, Group, Replan]]:
    """Yield each change with the resulting group and a function that plans it."""
    racks = RackSets.of(group.topology, mode)
    empty = Recommendation("max-skew", 0, 0.0)
    if skewed is not None:
        yield empty._replace(max_skew=skewed[0]), group, skewed[1]
    there = {entry: racks.partition_racks(group.topology.topics[entry.topic][entry.partition]) for entry in cross}
    # Sorts after all others, so that their order is unchanged.
    added = max((member.id for member in group.members), default="") + "+"
    for topics in _subscriptions(group, cross):
        for rack, bit in racks.bits.items():
            if any(bit & there[entry] and entry.topic in topics for entry in cross):
                more = (*group.members, Member(added, topics, rack=rack))
                change = empty._replace(kind="member", rack=rack, topics=tuple(sorted(topics)))
                yield change, replace(group, members=more), replan
    homes = {member.id: member.rack for member in group.members}
    for rack in racks.bits:
        wanted: dict[str, list[int]] = {}
        for entry in cross:
            if homes[entry.member] == rack:
                wanted.setdefault(entry.topic, []).append(entry.partition)
        if wanted:
            partitions = {topic: tuple(ids) for topic, ids in wanted.items()}
            change = empty._replace(kind="replicas", rack=rack, partitions=partitions)
            yield change, _with_replicas(group, rack, partitions, mode), replan


def _subscriptions(group: Group, cross: list[NonLocalPartition]) -> list[frozenset[str]]:
    """Return the subscriptions that could read some of these partitions, those that could read the most first."""
    per_topic = Counter(entry.topic for entry in cross)
    able = {topics: sum(per_topic[topic] for topic in topics) for topics in {m.topics for m in group.members}}
    ranked = sorted((topics for topics in able if able[topics]), key=lambda topics: (-able[topics], sorted(topics)))
    return ranked[:_SUBSCRIPTIONS]


def _with_replicas(group: Group, rack: str, partitions: Partitions, mode: LocalityMode) -> Group:
    """Return the group with a counting replica of each partition in the rack."""
    broker = min(broker.id for broker in group.topology.brokers if broker.rack == rack)
    topics = dict(group.topology.topics)
    for topic, ids in partitions.items():
        rows = list(topics[topic])
        for partition in ids:
            old = rows[partition]
            leader = broker if mode == "leader" else old.leader
            rows[partition] = Partition((*old.replicas, broker), leader)
        topics[topic] = tuple(rows)
    return replace(group, topology=replace(group.topology, topics=topics))
