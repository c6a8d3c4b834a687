"""Why a plan is not all local, and what one change would gain.

The reasons are read off the group. The advice is not: each change is made to the group and the whole is solved
again, so that a gain is what would really be gained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from rackassign.locality import Locality, RackBits, cost_table, read_cost
from rackassign.model import (
    Advice,
    Explanation,
    Group,
    LocalityMode,
    Member,
    NotLocal,
    Partition,
    Partitions,
    Plan,
    Reason,
)

Replan = Callable[[Group], Plan]

_SUBSCRIPTIONS = 8
"""So many different subscriptions are tried for a further member, those that could read the most first."""


def explain(group: Group, plan: Plan, replan: Replan, skewed: tuple[int, Replan] | None = None) -> Explanation:
    """Say why what is not local is not, and what would help.

    Args:
        group: What was planned.
        plan: The plan.
        replan: How it was planned.
        skewed: The next larger skew, and how to plan with it; None for a strategy that knows none.
    """
    useful = [tried.advice for tried in tries(group, plan, replan, skewed) if tried.advice.cost_gain > 0]
    useful.sort(key=lambda advice: (-advice.cost_gain, advice.change, advice.rack or ""))
    return Explanation(tuple(not_local(group, plan)), tuple(useful))


class Tried(NamedTuple):
    """A change and what came of it.

    Args:
        advice: The change and its gain, which may be nothing or less.
        group: The group with the change, without owners.
        plan: Its plan.
    """

    advice: Advice
    group: Group
    plan: Plan


def tries(group: Group, plan: Plan, replan: Replan, skewed: tuple[int, Replan] | None = None) -> Iterator[Tried]:
    """Make each change that may help, and solve the group with it; the arguments are those of `explain`."""
    cross = [entry for entry in not_local(group, plan) if entry.reason != "unknown-rack"]
    if not cross:
        return
    # Owners decide about moves alone, which are not asked about here.
    bare = replace(group, members=tuple(replace(member, owned={}) for member in group.members))
    before = _cross(group, plan)
    for change, then, again in _changes(bare, plan.locality, cross, replan, skewed):
        made = again(then)
        after = _cross(then, made)
        gained = replace(change, gain=before[0] - after[0], cost_gain=round(before[1] - after[1], 6))
        yield Tried(gained, then, made)


def _cross(group: Group, plan: Plan) -> tuple[int, float]:
    """Return how many partitions are read across racks, and what that costs."""
    racks = RackBits.of(group.topology, plan.locality)
    count = Locality.count(group, plan.target, racks).cross
    if not group.costs:
        return count, float(count)
    near = racks.of_topics(group.topology)
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
                    known[home, here] = read_cost(table, home, racks.names(here))
                units += known[home, here]
    return count, units * table.unit


def not_local(group: Group, plan: Plan) -> Iterator[NotLocal]:
    """Yield what a plan does not read at home, by topic and id, with the reasons."""
    racks = RackBits.of(group.topology, plan.locality)
    homes = {member.id: member.rack for member in group.members}
    readers: dict[str, int] = {}
    for member in group.members:
        for topic in member.topics:
            readers[topic] = readers.get(topic, 0) | racks.bits.get(member.rack or "", 0)
    near = racks.of_topics(group.topology)
    found: list[NotLocal] = []
    for member_id, owned in plan.target.items():
        home = homes[member_id]
        bit = 0 if home is None else racks.bits.get(home, 0)
        for topic, partitions in owned.items():
            for partition in partitions:
                here = near[topic][partition]
                if not here & bit:
                    reason: Reason = "members-full" if here & readers[topic] else "no-member-in-replica-racks"
                    known = home is not None and here
                    found.append(NotLocal(topic, partition, member_id, reason if known else "unknown-rack"))
    yield from sorted(found, key=lambda entry: (entry.topic, entry.partition))


def _changes(
    group: Group, mode: LocalityMode, cross: list[NotLocal], replan: Replan, skewed: tuple[int, Replan] | None
) -> Iterator[tuple[Advice, Group, Replan]]:
    """Yield each change with the group it makes and how to plan that."""
    racks = RackBits.of(group.topology, mode)
    empty = Advice("max-skew", 0, 0.0)
    if skewed is not None:
        yield replace(empty, max_skew=skewed[0]), group, skewed[1]
    there = {entry: racks.of_partition(group.topology.topics[entry.topic][entry.partition]) for entry in cross}
    for topics in _subscriptions(group, cross):
        for rack, bit in racks.bits.items():
            if any(bit & there[entry] and entry.topic in topics for entry in cross):
                more = (*group.members, Member(_unused_id(group), topics, rack=rack))
                # What cannot be read is of no interest.
                named = tuple(sorted(topic for topic in topics if group.topology.topics.get(topic)))
                yield replace(empty, change="member", rack=rack, topics=named), replace(group, members=more), replan
    homes = {member.id: member.rack for member in group.members}
    for rack in racks.bits:
        wanted: dict[str, list[int]] = {}
        for entry in cross:
            if homes[entry.member] == rack:
                wanted.setdefault(entry.topic, []).append(entry.partition)
        if wanted:
            partitions = {topic: tuple(ids) for topic, ids in wanted.items()}
            change = replace(empty, change="replicas", rack=rack, partitions=partitions)
            yield change, _with_replicas(group, rack, partitions, mode), replan


def _subscriptions(group: Group, cross: list[NotLocal]) -> list[frozenset[str]]:
    """Return the subscriptions that could read some of it, those that could read the most first."""
    per_topic = Counter(entry.topic for entry in cross)
    able = {topics: sum(per_topic[topic] for topic in topics) for topics in {m.topics for m in group.members}}
    ranked = sorted((topics for topics in able if able[topics]), key=lambda topics: (-able[topics], sorted(topics)))
    return ranked[:_SUBSCRIPTIONS]


def _unused_id(group: Group) -> str:
    # Behind all others, so that the order of those is what it was.
    return max((member.id for member in group.members), default="") + "+"


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
