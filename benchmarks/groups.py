"""Groups in the shape of Kafka's own benchmark of client-side assignors, and the shapes it leaves out.

Three brokers on three racks, replicas of partition p on brokers p, p+1, .. (mod 3), members on the racks in turn.
Kafka's benchmark has 3 replicas on 3 racks only, where every partition is near everybody and racks are never looked
at; here 1 and 2 replicas are measured too. Its groups that one member joins measure the group before the join (it
builds the joined one and does not use it), and claim without a generation, which no consumer does; here the joined
group is measured, and what its members own they claim in the generation that gave it to them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rackassign.model import Broker, Group, Member, Partition, Partitions, Plan, Topology

RACKS = 3
GENERATION = 7
"""In which members were given what they own."""

Subscriptions = Literal["same", "five buckets", "own 30 %", "own 3 %"]
"""Everybody reads all topics; each fifth of the members its own fifth of them; each member its own random share."""

SHARE_READ: Mapping[Subscriptions, float] = {"own 30 %": 0.3, "own 3 %": 0.03}
"""Share of the topics that a member reads, where each has a subscription of its own."""

Owners = Literal["none", "all but one", "at random"]
"""Nobody owns anything; the last member has just joined a group that had been planned without it; every partition is
owned by any one of its readers."""

Planner = Callable[[Group], Plan]


@dataclass(frozen=True, slots=True)
class Shape:
    """A group to be measured.

    Args:
        members: How many.
        partitions: How many in all, before division leaves a rest.
        topics: How many.
        replicas: Of each partition, 1 to 3.
        subscriptions: Who reads what.
        owners: Who owns what.
        different_sizes: Whether each topic has its own number of partitions, around the mean. Topics of one size
            are co-partitioned, and dealing out one of them deals out all.
        copartitioned: Whether two and two topics are kept together.
        weighted: Whether partitions have weights, which differ a hundredfold.
    """

    members: int
    partitions: int
    topics: int
    replicas: int
    subscriptions: Subscriptions = "same"
    owners: Owners = "none"
    different_sizes: bool = False
    copartitioned: bool = False
    weighted: bool = False

    def __str__(self) -> str:
        """Members / partitions / topics, and what is special but the replicas."""
        special = ["topics of different sizes"] * self.different_sizes
        special += [self.subscriptions] * (self.subscriptions != "same")
        special += ["co-partitioned"] * self.copartitioned + ["weights"] * self.weighted
        return ", ".join([f"{self.members:,} / {sum(self.sizes()):,} / {self.topics:,}", *special])

    def sizes(self) -> list[int]:
        """Return the number of partitions of each topic."""
        mean = self.partitions // self.topics
        spread = self.topics // 2 if self.different_sizes else 0
        return [mean - spread + i if self.different_sizes else mean for i in range(self.topics)]

    def group(self, plan: Planner) -> Group:
        """Make the group; equal replica lists and equal subscriptions are one object each, as in a warm client.

        Args:
            plan: Says what the others own when one member joins.
        """
        brokers = tuple(Broker(i, f"rack{i}") for i in range(RACKS))
        rows = [Partition(tuple((p + j) % RACKS for j in range(self.replicas)), p) for p in range(RACKS)]
        topics = {f"topic{i}": tuple(rows[p % RACKS] for p in range(n)) for i, n in enumerate(self.sizes())}
        read = self._read(list(topics))
        members = tuple(Member(f"member{i}", read[i], rack=f"rack{i % RACKS}") for i in range(self.members))
        fresh = Group(Topology(brokers, topics), members)
        if self.copartitioned:
            names = sorted(topics)
            pairs = zip(names[::2], names[1::2], strict=False)
            fresh = replace(fresh, copartition=tuple(pairs))
        if self.weighted:
            chance = random.Random(self.partitions)
            weights = {topic: tuple(chance.lognormvariate(0, 1) for _ in row) for topic, row in topics.items()}
            fresh = replace(fresh, weights=weights)
        if self.owners == "none":
            return fresh
        if self.owners == "at random":
            return _owned_at_random(fresh)
        *others, joining = members
        owned = plan(replace(fresh, members=tuple(others))).target
        return replace(fresh, members=(*(_owning(member, owned[member.id]) for member in others), joining))

    def _read(self, topics: list[str]) -> list[frozenset[str]]:
        if self.subscriptions in SHARE_READ:
            chance = random.Random(self.members)
            count = round(len(topics) * SHARE_READ[self.subscriptions])
            return [frozenset(chance.sample(topics, count)) for _ in range(self.members)]
        buckets = 1 if self.subscriptions == "same" else 5
        topics_each, members_each = -(-len(topics) // buckets), -(-self.members // buckets)
        read = [frozenset(topics[b * topics_each : (b + 1) * topics_each]) for b in range(buckets)]
        return [read[i // members_each] for i in range(self.members)]


def _owned_at_random(fresh: Group) -> Group:
    chance = random.Random(len(fresh.members))
    readers: dict[str, list[str]] = {topic: [] for topic in fresh.topology.topics}
    for member in fresh.members:
        for topic in sorted(member.topics):
            readers[topic].append(member.id)
    owned: dict[str, dict[str, list[int]]] = {member.id: {} for member in fresh.members}
    for topic, partitions in fresh.topology.topics.items():
        for partition in range(len(partitions)):
            owned[chance.choice(readers[topic])].setdefault(topic, []).append(partition)
    members = (_owning(m, {topic: tuple(ids) for topic, ids in owned[m.id].items()}) for m in fresh.members)
    return replace(fresh, members=tuple(members))


def _owning(member: Member, owned: Partitions) -> Member:
    return replace(member, owned=owned, generation=GENERATION)
