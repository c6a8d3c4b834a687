"""Groups in the shape of Kafka's own benchmark of client-side assignors, and the shapes it leaves out.

Three brokers on three racks, replicas of partition p on brokers p, p+1, .. (mod 3), members on the racks in turn.
Kafka's benchmark has 3 replicas on 3 racks only, where every partition is near everybody and racks are never looked
at. Here 1 and 2 replicas are measured too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rackassign.model import Broker, Group, Member, Partition, Topology

RACKS = 3

Subscriptions = Literal["same", "five buckets"]
"""Everybody reads all topics; or each fifth of the members its own fifth of the topics."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A group to be measured.

    Args:
        members: How many.
        partitions: How many in all, before division leaves a rest.
        topics: How many.
        replicas: Of each partition, 1 to 3.
        subscriptions: Who reads what.
        different_sizes: Whether each topic has its own number of partitions, around the mean. Topics of one size
            are co-partitioned, and dealing out one of them deals out all.
    """

    members: int
    partitions: int
    topics: int
    replicas: int
    subscriptions: Subscriptions = "same"
    different_sizes: bool = False

    def sizes(self) -> list[int]:
        """Return the number of partitions of each topic."""
        mean = self.partitions // self.topics
        spread = self.topics // 2 if self.different_sizes else 0
        return [mean - spread + i if self.different_sizes else mean for i in range(self.topics)]

    def group(self) -> Group:
        """Make the group; equal replica lists and equal subscriptions are one object each, as in a warm client."""
        brokers = tuple(Broker(i, f"rack{i}") for i in range(RACKS))
        rows = [Partition(tuple((p + j) % RACKS for j in range(self.replicas)), p) for p in range(RACKS)]
        topics = {f"topic{i}": tuple(rows[p % RACKS] for p in range(n)) for i, n in enumerate(self.sizes())}
        names = list(topics)
        buckets = 1 if self.subscriptions == "same" else 5
        topics_each, members_each = -(-len(names) // buckets), -(-self.members // buckets)
        read = [frozenset(names[b * topics_each : (b + 1) * topics_each]) for b in range(buckets)]
        members = tuple(
            Member(f"member{i}", read[i // members_each], rack=f"rack{i % RACKS}") for i in range(self.members)
        )
        return Group(Topology(brokers, topics), members)
