"""Groups of members with client tags, and how well copies are spread over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rackassign.model import Broker, Group, Member, Partition, TopicPartition, Topology
from rackassign.strategies.client_tag_aware import Clients, balance, place
from rackassign.strategies.standby import Copies, StandbyPlan

KEYS = ("zone", "cluster")

Tags = Mapping[str, Mapping[str, str]]


def group_of(tags: Tags, partitions: int, **owned: tuple[int, ...]) -> Group:
    """Return members with tags that read one topic."""
    topology = Topology((Broker(1, "a"),), {"t": (Partition((1,), 1),) * partitions})
    members = (
        Member(name, frozenset({"t"}), owned={"t": owned[name]} if name in owned else {}, generation=1, tags=each)
        for name, each in tags.items()
    )
    return Group(topology, tuple(members))


def crowdedness(tags: Tags, who: Iterable[str], copies: int) -> int:
    """Count copies at a value of a tag beyond what it takes to spread them."""
    total = 0
    for key in KEYS:
        values = {each[key] for each in tags.values() if key in each}
        counts = Counter(tags[name][key] for name in who if key in tags[name])
        total += sum(max(0, count - -(-copies // len(values))) for count in counts.values())
    return total


def hash_order(tasks: Sequence[tuple[int, int]]) -> list[int]:
    """Return the numbers of tasks in the order of Java's `HashMap<TaskId, ...>`, to which they are added in turn."""
    size = 16
    while len(tasks) > size * 3 // 4:
        size *= 2

    def bucket(number: int) -> int:
        # `Objects.hash(subtopology, partition, topologyName)`, without a name.
        code = 31 * (31 * (31 + tasks[number][0]) + tasks[number][1]) & 0xFFFF_FFFF
        return (code ^ code >> 16) & size - 1

    return sorted(range(len(tasks)), key=bucket)


def placed_by_kafka(tags: Tags, owner: Mapping[int, str], standbys: int) -> dict[int, set[str]]:
    """Return the members to which Kafka Streams gives the standbys of each partition of one topic."""
    # `owner`: the active member of each partition, from 0.
    names = sorted(tags)
    active = tuple(frozenset(p for p, own in owner.items() if own == name) for name in names)
    clients = Clients((1,) * len(names), tuple(tags[name] for name in names), active)
    order = hash_order([(0, partition) for partition in range(len(owner))])
    holders = balance(clients, place(clients, range(len(owner)), standbys, KEYS, order))
    return {partition: {names[client] for client in own} for partition, own in enumerate(holders)}


def carried_out(group: Group, plan: StandbyPlan) -> tuple[Group, Copies]:
    """Return the group when all is as planned, and all copies are warm."""
    members = tuple(replace(member, owned=plan.plan.target[member.id], generation=1) for member in group.members)
    copies = {
        member.id: {
            TopicPartition(topic, partition): 0
            for theirs in (plan.plan.target[member.id], plan.standbys[member.id])
            for topic, ids in theirs.items()
            for partition in ids
        }
        for member in group.members
    }
    return replace(group, members=members), copies
