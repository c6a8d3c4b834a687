"""What must hold for a plan of co-partitioned topics."""

from __future__ import annotations

from collections import Counter

from rackassign.model import Group, Partitions, Plan, TopicPartition


def tps(given: Partitions) -> set[TopicPartition]:
    return {TopicPartition(topic, partition) for topic, ids in given.items() for partition in ids}


def unit_numbers(group: Group, given: Partitions) -> set[int]:
    """Return the numbers of the units of which a member has a part."""
    return {tp.partition for tp in tps(given) if tp.topic in group.copartition[0]}


def check_units(group: Group, plan: Plan) -> None:
    """Check what must hold for any plan of a group with one set of topics that can be kept together."""
    read = set().union(*(member.topics for member in group.members))
    every = {
        TopicPartition(topic, p)
        for topic, known in group.topology.topics.items()
        for p in range(len(known))
        if topic in read
    }
    given = Counter(tp for theirs in plan.target.values() for tp in tps(theirs))
    assert given == Counter(every)
    shares = [unit_numbers(group, theirs) for theirs in plan.target.values()]
    assert len(set().union(*shares)) == sum(map(len, shares)), "a unit is on two members"
    now = Counter(tp for theirs in plan.assignment.values() for tp in tps(theirs))
    assert set(now.values()) <= {1}
    assert set(now) | tps(plan.withheld) == every
    assert not set(now) & tps(plan.withheld)
    claimed: dict[TopicPartition, set[str]] = {}
    latest: dict[TopicPartition, int] = {}
    for member in group.members:
        for tp in tps(member.owned):
            generation = -1 if member.generation is None else member.generation
            if generation > latest.get(tp, -2):
                latest[tp], claimed[tp] = generation, set()
            if generation == latest[tp]:
                claimed[tp].add(member.id)
    for member_id, theirs in plan.assignment.items():
        for tp in tps(theirs):
            assert claimed.get(tp, {member_id}) == {member_id}, "two owners in one generation"
    if plan.strategy == "cooperative-sticky":
        for member_id, theirs in plan.target.items():
            for tp in tps(theirs) & tps(plan.withheld):
                assert claimed.get(tp) != {member_id}, "a member must give up what it will have again"
